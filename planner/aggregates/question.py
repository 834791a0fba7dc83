"""Questions: which aggregates a query asks for, of which columns, and by which groups."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType

from planner.condition.columns import find_column
from puffin_index.errors import PuffinIndexError, UnsupportedError
from puffin_index.keys.map_key import ColumnId
from puffin_index.keys.value_types import ValueType
from puffin_index.kinds.held_keys import Want

MOST_GROUPS: Final = 200_000
"""Spark gets the parts of at most this many groups; with more, it reads rows."""

FUNCTIONS: Final = ("avg", "bool_and", "bool_or", "count", "max", "min", "sum")

_PART = r"(?:`(?:[^`]|``)+`|\w+)"
_NAME = rf"{_PART}(?:\s*\.\s*{_PART})*"
_AGGREGATE = re.compile(
    rf"\s*(\w+)\s*\(\s*(?:(distinct)\b\s*)?(\*|{_NAME})\s*\)\s*(?:as\s+({_PART})\s*)?(?:,|$)", re.IGNORECASE
)
_COLUMN = re.compile(rf"\s*({_NAME})\s*(?:,|$)")


class AggregateSyntaxError(PuffinIndexError, ValueError):
    """Say that a text is no aggregate, or no list of columns."""


@dataclass(frozen=True, slots=True)
class AskedColumn:
    """A column, or a key of a map, that a question is about, its type (also as an index has it), and what is needed."""

    column: ColumnId
    name: str
    type: IcebergType
    value_type: ValueType
    needs_sum: bool = False
    needs_least: bool = False
    needs_greatest: bool = False
    needs_distinct: bool = False

    @property
    def wanted_totals(self) -> Want:
        """The totals that are needed besides the number of values."""
        return (Want.SUMS if self.needs_sum else Want(0)) | (Want.ENDS if self.ends else Want(0))

    @property
    def ends(self) -> tuple[str, ...]:
        """Which ends are needed: `least`, `greatest`, both or none."""
        return ("least",) * self.needs_least + ("greatest",) * self.needs_greatest


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate: a function of `FUNCTIONS`, and the place of its column; None for `count(*)`."""

    function: str
    column: int | None
    is_distinct: bool
    name: str


@dataclass(frozen=True, slots=True)
class Question:
    """Aggregates and groups bound to columns; `added_doubles` are places of groups that Spark adds up as doubles."""

    aggregates: tuple[Aggregate, ...]
    columns: tuple[AskedColumn, ...]
    groups: tuple[AskedColumn, ...]
    added_doubles: tuple[int, ...] = ()
    text: str = ""

    @property
    def every_column(self) -> tuple[AskedColumn, ...]:
        """All columns, each once; a column that aggregates are of has what they need."""
        return tuple({one.column: one for one in (*self.groups, *self.columns)}.values())

    @property
    def needs_data(self) -> bool:
        """Whether no index can answer: sums of doubles depend on the order of the rows."""
        return any(column.needs_sum and column.value_type.is_floating for column in self.columns)

    @property
    def has_key_groups(self) -> bool:
        """Whether totals of groups by the keys of one column answer the question."""
        return len(self.groups) == 1 and not any(asked.needs_distinct for asked in self.columns)


def ask(aggregates: str | Sequence[str], group_by: str | Sequence[str], schema: Schema) -> Question:
    """Read which aggregates are wanted, and the columns to group by; one text may have several, between commas.

    Aggregates are texts such as `count(*)`, `sum(c) AS n` or `count(DISTINCT c)`. A name with other characters than
    letters, digits and `_` stands in backquotes. Raises AggregateSyntaxError, NotFoundError without such a column, or
    UnsupportedError if an aggregate does not take the type of its column.
    """
    columns: dict[ColumnId, AskedColumn] = {}
    found: list[Aggregate] = []
    for text in [aggregates] if isinstance(aggregates, str) else aggregates:
        found += [_bind(parts, columns, schema) for parts in _split(_AGGREGATE, text, _NO_AGGREGATE)]
    texts = [text for text in ([group_by] if isinstance(group_by, str) else group_by) if text.strip()]
    names = [parts[0] for text in texts for parts in _split(_COLUMN, text, "names of columns, between commas")]
    groups = tuple({group.column: group for group in (find_asked(schema, _plain(name)) for name in names)}.values())
    if not found:
        raise AggregateSyntaxError(f"no aggregate is wanted: ask for {_NO_AGGREGATE}")
    outputs = [group.name for group in groups] + [one.name for one in found]
    for name in outputs:
        if outputs.count(name) > 1:
            raise AggregateSyntaxError(f"two columns of the result are named {name!r}: name one with AS")
    return Question(tuple(found), tuple(columns.values()), groups)


_NO_AGGREGATE = f"aggregates such as sum(c), count(DISTINCT c) AS n or count(*); there are {', '.join(FUNCTIONS)}"


def _split(pattern: re.Pattern[str], text: str, expected: str) -> list[tuple[str | None, ...]]:
    parts: list[tuple[str | None, ...]] = []
    at = 0
    while True:
        match = pattern.match(text, at)
        if match is None:
            raise AggregateSyntaxError(f"expected {expected}, and not {text[at:]!r}")
        parts.append(match.groups())
        at = match.end()
        if not match[0].endswith(","):
            return parts


def _plain(name: str | None) -> str:
    parts = re.findall(_PART, name or "")
    return ".".join(part[1:-1].replace("``", "`") if part.startswith("`") else part for part in parts)


def find_asked(schema: Schema, name: str) -> AskedColumn:
    """Find a column, or raise NotFoundError without one of this name, UnsupportedError if its values have no keys."""
    found = find_column(schema, name)
    if found.value_type is None:
        raise UnsupportedError(f"column {name!r} is of a type that has no keys here")
    known = schema.find_column_name(found.column) if isinstance(found.column, int) else None
    return AskedColumn(found.column, known or name, found.type, found.value_type)


def _bind(parts: tuple[str | None, ...], columns: dict[ColumnId, AskedColumn], schema: Schema) -> Aggregate:
    function, distinct, argument, name = ((parts[0] or "").lower(), parts[1] is not None, parts[2] or "", parts[3])
    if function not in FUNCTIONS:
        raise AggregateSyntaxError(f"there is no aggregate {function!r} here; there are {', '.join(FUNCTIONS)}")
    if argument == "*":
        if function != "count" or distinct:
            raise AggregateSyntaxError(f"only count takes *, and without DISTINCT; {function} takes a column")
        return Aggregate(function, None, False, _plain(name) or "count(*)")
    if distinct and function != "count":
        raise AggregateSyntaxError(f"{function}(DISTINCT ...) is not answered here; count(DISTINCT ...) is")
    column = find_asked(schema, _plain(argument))
    _check_type(function, column)
    asked = columns.get(column.column, column)
    columns[column.column] = replace(
        asked,
        needs_sum=asked.needs_sum or function in ("sum", "avg"),
        needs_least=asked.needs_least or function in ("min", "bool_and"),
        needs_greatest=asked.needs_greatest or function in ("max", "bool_or"),
        needs_distinct=asked.needs_distinct or distinct,
    )
    called = f"{function}({'DISTINCT ' if distinct else ''}{column.name})"
    return Aggregate(function, list(columns).index(column.column), distinct, _plain(name) or called)


def _check_type(function: str, column: AskedColumn) -> None:
    value_type = column.value_type
    is_number = value_type.name in ("int", "long") or value_type.is_floating or value_type.is_decimal
    if function in ("sum", "avg") and not is_number:
        raise UnsupportedError(f"{function} takes numbers, and {column.name} is {column.type}")
    if function in ("bool_and", "bool_or") and value_type.name != "boolean":
        raise UnsupportedError(f"{function} takes booleans, and {column.name} is {column.type}")
