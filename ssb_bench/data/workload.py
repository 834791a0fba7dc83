"""The queries as data files, and the rule that fits their literals to the data at hand.

The queries in `count` are Q1 to Q7 of Volcano Engine EMR, "Indexes in Apache Iceberg", those in `ssb` are of the Star
Schema Benchmark, revision 3, and those in `shapes` are this project's. So are the other folders, one for each study
with queries of its own. A query file is SQL under a header of `-- key: value` lines; `-- param: NAME COLUMN OPERATOR
LITERAL` names a literal of the source, which stands as `$NAME` in the SQL. The source's literals belong to its own data
(scale factor 1000). An equality, and all bounds of a column together, stay if a value of the column satisfies them.
Otherwise they move by the same amount, so that a range keeps its width and begins at the value at the same rank: the
greatest that is not above its begin, or else the least value.

Columns are fitted one by one: a conjunction of values that exist need not have a row.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from string import Template
from typing import Final, Literal

import duckdb

from ssb_bench.data.layout import BenchError

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

_ONE_TABLE: Final = re.compile(r"SELECT .*? FROM (?:lineorder|lines)\s+WHERE (.*)", re.DOTALL)
_VARIANTS: Final[dict[Workload, tuple[str, str]]] = {
    "rows": ("*", "all columns of the rows"),
    "aggregate": (
        "sum(lo_extendedprice), min(lo_orderdate), max(lo_quantity), count(DISTINCT lo_custkey)",
        "a sum, two extremes and a count of distinct customers",
    ),
}
"""What stands in place of `count(*)`, and what that is."""

_HEADER: Final = re.compile(r"--\s*([\w-]+):\s*(.+?)\s*")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A literal of the source, `column operator literal`, called `name` in the SQL, and what is used on the data."""

    name: str
    column: str
    operator: str
    literal: int
    used: int

    def __str__(self) -> str:
        what = f"{self.column} {self.operator} {self.literal}"
        if self.used == self.literal:
            return f"{what}: fits the data"
        return f"{what} -> {self.used}: value at the same rank"


@dataclass(frozen=True, slots=True)
class Query:
    """A query; until it is fitted to data, `$name` stands in place of the literals in its SQL."""

    name: str
    title: str
    parameters: tuple[Parameter, ...]
    sql: str
    workload: Workload = "count"
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """The predicate of a query of lineorder (or of log lines) alone; raises BenchError for another query."""
        match = _ONE_TABLE.fullmatch(self.sql)
        if match is None:
            raise BenchError(f"{self.name} is not a query of lineorder alone")
        return match[1]


def load_query(name: str) -> Query:
    """Read a query of this package by name."""
    workload = next(workload for workload, names in QUERIES_OF.items() if name in names)
    select, title = _VARIANTS.get(workload, ("", ""))
    file = _FOLDER / ("count" if select else workload) / f"{name.removesuffix(f'-{workload}')}.sql"
    query = replace(parse_query(name, file.read_text(encoding="utf-8")), workload=workload)
    if not select:
        return query
    return replace(query, title=f"{query.title}: {title}", sql=query.sql.replace("count(*)", select, 1))


def queries_of(study: str) -> list[Query]:
    """Read the queries that one study asks, in the order of their files."""
    files = sorted((_FOLDER / study).iterdir(), key=lambda file: file.name)
    return [parse_query(file.name.removesuffix(".sql"), file.read_text(encoding="utf-8")) for file in files]


def parse_query(name: str, text: str) -> Query:
    """Read the text of a query's file."""
    headers = [(match[1], match[2]) for line in text.splitlines() if (match := _HEADER.fullmatch(line))]
    words = (value.split() for key, value in headers if key == "param")
    parameters = tuple(Parameter(name, column, how, int(value), int(value)) for name, column, how, value in words)
    sql = "\n".join(line for line in text.splitlines() if line and not line.startswith("--"))
    return Query(name, dict(headers)["title"], parameters, sql, headers=dict(headers))


def fit(query: Query, data: duckdb.DuckDBPyConnection) -> Query:
    """Fit the literals of a query to lineorder by the rule above; raise BenchError if a column has no values."""
    fitted = tuple(replace(one, used=_fitted(one, query.parameters, data)) for one in query.parameters)
    sql = Template(query.sql).substitute({parameter.name: parameter.used for parameter in fitted})
    return replace(query, parameters=fitted, sql=sql)


def _fitted(parameter: Parameter, parameters: Sequence[Parameter], data: duckdb.DuckDBPyConnection) -> int:
    column, bounds = parameter.column, [parameter]
    if parameter.operator != "=":
        bounds = [other for other in parameters if other.column == column and other.operator != "="]
    lower = [bound.literal + (bound.operator == ">") for bound in bounds if not bound.operator.startswith("<")]
    upper = [bound.literal - (bound.operator == "<") for bound in bounds if not bound.operator.startswith(">")]
    first = max(lower) if lower else min(upper)
    tests = " AND ".join(f"{column} {bound.operator} {bound.literal}" for bound in bounds)
    at_rank = f"coalesce(max({column}) FILTER ({column} <= {first}), min({column}))"
    [(fits, begin)] = data.execute(f"SELECT bool_or({tests}), {at_rank} FROM lineorder").fetchall()
    if begin is None:
        raise BenchError(f"{column} has no values")
    return parameter.literal if fits else parameter.literal + int(begin) - first
