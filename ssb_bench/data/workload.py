"""The queries as data files, and the rule that fits their literals to the data at hand.

A query file is SQL under a header of `-- key: value` lines; `-- param: NAME COLUMN OPERATOR LITERAL` names a literal
of the source, which stands as `$NAME` in the SQL. The source's literals belong to its own data (scale factor 1000), so:

- `=`: the literal, if the column has that value. Otherwise the value at the same rank: the greatest value that is not
  above the literal, or the least value of the column if the literal is below all values.
- A range (all other parameters of the same column in the query): the bounds as they are, if any value of the column
  lies between them. Otherwise all bounds move by the same amount, so that the range keeps its width and begins at the
  first value above the lower bound, or at the greatest value if no value is above.

Columns are fitted one by one: a conjunction of values that exist need not have a row.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from string import Template
from typing import Final, Literal, get_args

import duckdb

from ssb_bench.data.layout import BenchError

Operator = Literal["=", ">", ">=", "<", "<="]
Reason = Literal["in the data", "value at the same rank", "range has values", "range moved to values"]

Workload = Literal["count", "rows", "aggregate", "ssb", "shapes"]

_FOLDER: Final = resources.files("ssb_bench.data") / "queries"


def _names(workload: Workload) -> tuple[str, ...]:
    """Name the queries whose files are in the folder of a workload."""
    return tuple(sorted(file.name.removesuffix(".sql") for file in (_FOLDER / workload).iterdir()))


VOLCANO_QUERIES: Final = _names("count")
ROWS_QUERIES: Final = tuple(f"{name}-rows" for name in VOLCANO_QUERIES)
SSB_QUERIES: Final = _names("ssb")
QUERIES_OF: Final[dict[Workload, tuple[str, ...]]] = {
    "count": VOLCANO_QUERIES,
    "rows": ROWS_QUERIES,
    "aggregate": tuple(f"{name}-aggregate" for name in VOLCANO_QUERIES),
    "ssb": SSB_QUERIES,
    "shapes": _names("shapes"),
}
ALL_QUERIES: Final = tuple(name for names in QUERIES_OF.values() for name in names)

_ONE_TABLE: Final = re.compile(r"SELECT .*? FROM lineorder\s+WHERE (?P<where>.*)", re.DOTALL)
_COUNT: Final = "SELECT count(*) FROM lineorder"
_VARIANTS: Final[dict[str, tuple[Workload, str, str]]] = {
    "rows": ("rows", "SELECT * FROM lineorder", "all columns of the rows"),
    "aggregate": (
        "aggregate",
        "SELECT sum(lo_extendedprice), min(lo_orderdate), max(lo_quantity), count(DISTINCT lo_custkey) FROM lineorder",
        "a sum, two extremes and a count of distinct customers",
    ),
}
_HEADER: Final = re.compile(r"--\s*(?P<key>\w+):\s*(?P<value>.+?)\s*")
_PARAMETER: Final = re.compile(r"(?P<name>\w+)\s+(?P<column>\w+)\s+(?P<operator>[<>=]+)\s+(?P<literal>-?\d+)")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A literal of the source: `column operator literal`, called `name` in the SQL."""

    name: str
    column: str
    operator: Operator
    literal: int


@dataclass(frozen=True, slots=True)
class Query:
    """A query file: SQL with `$name` in place of literals, its parameters, and the workload.

    `rows` and `aggregate` are variants of `count`.
    """

    name: str
    title: str
    parameters: tuple[Parameter, ...]
    template: str
    workload: Workload = "count"


@dataclass(frozen=True, slots=True)
class FittedLiteral:
    """What a parameter became on the data at hand, and why."""

    parameter: Parameter
    used: int
    reason: Reason

    def __str__(self) -> str:
        what = f"{self.parameter.column} {self.parameter.operator} {self.parameter.literal}"
        return (
            f"{what}: {self.reason}" if self.used == self.parameter.literal else f"{what} -> {self.used}: {self.reason}"
        )


@dataclass(frozen=True, slots=True)
class FittedQuery:
    """A query that can be run: SQL with literals."""

    query: Query
    sql: str
    literals: tuple[FittedLiteral, ...]

    @property
    def where(self) -> str | None:
        """The predicate of a query of lineorder alone; None for another query."""
        match = _ONE_TABLE.fullmatch(self.sql)
        return None if match is None else match["where"]


def count_predicates(queries: Sequence[FittedQuery]) -> dict[str, str]:
    """Give the predicates of counts of lineorder, by the names of the queries.

    Raises BenchError if a query is anything else.
    """
    for query in queries:
        if query.where is None or query.query.workload != "count":
            raise BenchError(f"{query.query.name} is not a count of lineorder")
    return {query.query.name: query.where for query in queries if query.where is not None}


@dataclass(frozen=True, slots=True)
class Values:
    """The values of lineorder's columns, asked of DuckDB."""

    _connection: duckdb.DuckDBPyConnection

    def greatest_at_most(self, column: str, value: int) -> int | None:
        """Give the greatest value of a column that is not above `value`, or None."""
        return self._single(f"SELECT max({column}) FROM lineorder WHERE {column} <= {value}")

    def least_at_least(self, column: str, value: int) -> int | None:
        """Give the least value of a column that is not below `value`, or None."""
        return self._single(f"SELECT min({column}) FROM lineorder WHERE {column} >= {value}")

    def _single(self, sql: str) -> int | None:
        row = self._connection.execute(sql).fetchone()
        return None if row is None or row[0] is None else int(row[0])


def load_query(name: str) -> Query:
    """Read a query of this package by name, or raise BenchError if there is no such query."""
    if name not in ALL_QUERIES:
        raise BenchError(f"there is no query {name!r}; there are {', '.join(ALL_QUERIES)}")
    base, _, variant = name.partition("-")
    workload = next(workload for workload, names in QUERIES_OF.items() if base in names)
    query = parse_query((_FOLDER / workload / f"{base}.sql").read_text(encoding="utf-8"))
    return _variant_of(query, variant) if variant else replace(query, workload=workload)


def _variant_of(query: Query, variant: str) -> Query:
    """Make a query that counts rows into one that gives the rows themselves, or aggregates."""
    workload, select, title = _VARIANTS[variant]
    if not query.template.startswith(_COUNT):
        raise BenchError(f"query {query.name} does not begin with {_COUNT}")
    template = select + query.template.removeprefix(_COUNT)
    name = f"{query.name}-{variant}"
    return replace(query, name=name, title=f"{query.title}: {title}", template=template, workload=workload)


def parse_query(text: str) -> Query:
    """Read a query file.

    Raises BenchError if a header line is missing or has another form, or a parameter is not used by the SQL.
    """
    headers = [match for line in text.splitlines() if (match := _HEADER.fullmatch(line))]
    fields = {match["key"]: match["value"] for match in headers if match["key"] != "param"}
    missing = {"name", "title", "source", "note"} - fields.keys()
    if missing:
        raise BenchError(f"query file without {', '.join(sorted(missing))}")
    parameters = tuple(_parse_parameter(match["value"]) for match in headers if match["key"] == "param")
    template = "\n".join(line for line in text.splitlines() if line and not line.startswith("--"))
    if set(Template(template).get_identifiers()) != {parameter.name for parameter in parameters}:
        raise BenchError(f"query {fields['name']}: its parameters are not the names in its SQL")
    return Query(fields["name"], fields["title"], parameters, template)


def _parse_parameter(text: str) -> Parameter:
    match = _PARAMETER.fullmatch(text)
    if match is None or match["operator"] not in get_args(Operator):
        raise BenchError(f"not a parameter (NAME COLUMN OPERATOR LITERAL): {text}")
    operators: dict[str, Operator] = {operator: operator for operator in get_args(Operator)}
    return Parameter(match["name"], match["column"], operators[match["operator"]], int(match["literal"]))


def fit(query: Query, values: Values) -> FittedQuery:
    """Fit the literals of a query to the data by the rule above, or raise BenchError if a column has no values."""
    literals = tuple(_fit_parameter(parameter, query.parameters, values) for parameter in query.parameters)
    used = {fitted.parameter.name: fitted.used for fitted in literals}
    return FittedQuery(query, Template(query.template).substitute(used), literals)


def _fit_parameter(parameter: Parameter, parameters: Sequence[Parameter], values: Values) -> FittedLiteral:
    if parameter.operator == "=":
        used = _at_rank(parameter.column, parameter.literal, values)
        return FittedLiteral(parameter, used, "in the data" if used == parameter.literal else "value at the same rank")
    bounds = [other for other in parameters if other.column == parameter.column and other.operator != "="]
    move = _range_move(parameter.column, bounds, values)
    return FittedLiteral(parameter, parameter.literal + move, "range moved to values" if move else "range has values")


def _at_rank(column: str, literal: int, values: Values) -> int:
    below = values.greatest_at_most(column, literal)
    found = values.least_at_least(column, literal) if below is None else below
    if found is None:
        raise BenchError(f"{column} has no values")
    return found


def _range_move(column: str, bounds: Sequence[Parameter], values: Values) -> int:
    """Give by how much the bounds of an integer range have to move until the range holds a value; 0 if it does."""
    lower = [bound.literal + (bound.operator == ">") for bound in bounds if bound.operator in (">", ">=")]
    upper = [bound.literal - (bound.operator == "<") for bound in bounds if bound.operator in ("<", "<=")]
    if not lower:
        least = _at_rank(column, min(upper), values)
        return max(0, least - min(upper))
    first = values.least_at_least(column, max(lower))
    if first is None:
        return _at_rank(column, max(lower), values) - max(lower)
    return 0 if not upper or first <= min(upper) else first - max(lower)
