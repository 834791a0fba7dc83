"""Which column, or key of a map, a name in a condition means; and the parts that rows cannot be judged by."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, timedelta, tzinfo
from typing import Final, Literal as TypingLiteral, TypeAlias

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType

from planner.condition.literals import Literal, text_literal
from planner.condition.places import Pair, range_tests, set_tests
from planner.condition.session_time import in_session
from planner.condition.tree.nodes import Everything, Leaf, Predicate, parts
from planner.condition.truth import Truth, unknown
from puffin_index.definition.column_names import field_named, fields_named
from puffin_index.definition.index_definition import contained_type
from puffin_index.errors import DefinitionError, UnsupportedError
from puffin_index.keys.leaf import LeafTest, NullTest
from puffin_index.keys.map_key import ColumnId, Contents, MapKey, Part, key_text
from puffin_index.keys.value_types import ValueType, value_type_of

ONLY_SPARK_KNOWS_INSTANT: Final = (
    "only Spark knows which instant the literal means: write the instant with its distance from UTC, as in "
    "TIMESTAMP '1969-07-20 22:17:40+02:00'"
)
_ONLY_SPARK_EVALUATES: Final = "Spark converts one side first, or only Spark evaluates the test"
_EPOCH = date(1970, 1, 1)

Compared: TypeAlias = TypingLiteral["=", "<", "<=", ">", ">=", "IN"]


@dataclass(frozen=True, slots=True)
class FoundColumn:
    """A column, or key of a map, that a condition tests, as it was written, and its types; no index may hold them.

    Of a part of a list, and of what is no key of a map, it is the type of list or map, and `is_part` is true. Times are
    read in the `zone`.
    """

    name: str
    column: ColumnId
    type: IcebergType
    value_type: ValueType | None
    zone: tzinfo = UTC
    is_part: bool = False

    def leaf(self, test: LeafTest) -> Leaf:
        """Return a test of the column, whose values an index can hold."""
        assert self.value_type is not None
        return Leaf(self.column, test, self.value_type.name)

    @property
    def is_null(self) -> Leaf:
        """The test for NULL."""
        return self.leaf(NullTest(is_null=True))

    def truth(self, tests: Callable[[ValueType], Pair | None], text: str) -> Truth:
        """Make a condition of the tests that there are for values of the column's type."""
        if self.value_type is None:
            return unknown(text, f"no index can be of a {self.type}")
        pair = tests(self.value_type)
        if pair is None:
            kind = f"the literal is of another kind than the column, a {self.type}"
            is_instant = self.value_type.name == "timestamptz"
            reason = ONLY_SPARK_KNOWS_INSTANT if is_instant else f"{kind}: Spark converts one of them first"
            return unknown(text, reason)
        return Truth(self.leaf(pair[0]), self.leaf(pair[1]), self.is_null)

    def contents(self, part: Part) -> FoundColumn | None:
        """What the rows of a column contain, to be tested as a column is; None for another type of column."""
        own = contained_type(self.type, part)
        if self.is_part or not isinstance(self.column, int) or not isinstance(own, PrimitiveType):
            return None
        return replace(self, column=Contents(self.column, part), type=own, value_type=value_type_or_none(own))

    def compared(self, comparison: Compared, literals: Sequence[Literal], text: str) -> Truth:
        """Compare with literals, several for `IN`."""
        own = str(self.type)
        converted = [in_session(literal, own, self.zone) for literal in literals]
        match comparison:
            case "=" | "IN":
                return self.truth(lambda value_type: set_tests(converted, value_type), text)
            case _:
                return self.truth(lambda value_type: range_tests(comparison, converted[0], value_type), text)


def find_column(schema: Schema, name: str, key: Literal | None = None) -> FoundColumn:
    """Find a column by its dotted name, or what a map column holds for a key; `m.key` means `m['key']`, as in Spark.

    Raises NotFoundError if there is no such column, or none is spelled so and several differ in case only.
    """
    parts = name.split(".")
    for depth in range(1, len(parts)):
        parent = find_in(schema, ".".join(parts[:depth]))
        if parent is None or not isinstance(parent.field_type, ListType | MapType):
            continue
        is_other_column = any(field.name.lower() == name.lower() for field in schema.fields)
        if isinstance(parent.field_type, ListType) or key is not None or depth < len(parts) - 1 or is_other_column:
            return FoundColumn(name, parent.field_id, parent.field_type, None, is_part=True)
        return column_of_field(parent, name, text_literal(parts[depth]))
    return column_of_field(field_named(schema, name), name, key)


def column_of_field(field: NestedField, name: str, key: Literal | None = None) -> FoundColumn:
    """Return a field as a column, or what a map holds for a key, by the name that was written."""
    own = field.field_type
    if key is None:
        return FoundColumn(name, field.field_id, own, value_type_or_none(own))
    text = _key_text(key, own.key_type) if isinstance(own, MapType) else None
    if not isinstance(own, MapType) or text is None:
        return FoundColumn(name, field.field_id, own, None, is_part=True)
    shown = repr(text) if key.type == "string" else text
    return FoundColumn(
        f"{name}[{shown}]", MapKey(field.field_id, text), own.value_type, value_type_or_none(own.value_type)
    )


def find_in(schema: Schema, name: str) -> NestedField | None:
    """Find a column by its dotted name; None if the schema has no such column, or several that differ in case only."""
    found = fields_named(schema, name)
    return found[0] if len(found) == 1 else None


def _key_text(key: Literal, key_type: IcebergType) -> str | None:
    try:
        match key.type, str(key_type):
            case "string", "string":
                text = key.value.decode()
            case "long", "int" | "long":
                text = str(key.value)
            case "date", "date":
                text = (_EPOCH + timedelta(days=key.value)).isoformat()
            case _:
                return None
        return key_text(text, key_type)
    except (DefinitionError, UnicodeDecodeError, OverflowError):
        return None


def value_type_or_none(field_type: IcebergType) -> ValueType | None:
    """The type of the keys of a type; None if no index can be of it."""
    try:
        return value_type_of(field_type)
    except UnsupportedError:
        return None


_STRINGS: Final = re.compile(r"""'(?:[^'\\]|\\.|'')*'|"(?P<double>(?:[^"\\]|\\.|"")*)\"""", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Unused:
    """A part of a condition that drops nothing."""

    text: str
    reason: str

    def __str__(self) -> str:
        return f"{self.text}: {self.reason}"


def unused_parts(condition: Predicate) -> tuple[Unused, ...]:
    """Name the parts of a condition that nothing is known of, each once."""
    unknown = (part for part in parts(condition) if isinstance(part, Everything) and not part.exact)
    return tuple(dict.fromkeys(Unused(part.text, part.reason or _ONLY_SPARK_EVALUATES) for part in unknown))


def quoted_names(where: str, schema: Schema) -> tuple[Unused, ...]:
    """Name the texts in double quotes that are names of columns: Spark takes double quotes for strings."""
    names = {match["double"] for match in _STRINGS.finditer(where) if match["double"]}
    return tuple(
        Unused(f'"{name}"', f"double quotes make a text, as in Spark; the column is {name} or `{name}`")
        for name in sorted(names)
        if find_in(schema, name) is not None
    )
