"""Which column, or key of a map, a name in a condition means; and the parts that rows cannot be judged by."""

import re
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField

from planner.condition.literals import Literal, text_literal
from planner.condition.tree.nodes import Everything, Predicate, parts
from puffin_index.definition.column_names import field_named, fields_named
from puffin_index.errors import DefinitionError, UnsupportedError
from puffin_index.keys.map_key import ColumnId, MapKey, key_text
from puffin_index.keys.value_types import ValueType, value_type_of

ONLY_SPARK_KNOWS_INSTANT: Final = (
    "only Spark knows which instant the literal means: write the instant with its distance from UTC, as in "
    "TIMESTAMP '1969-07-20 22:17:40+02:00'"
)
_ONLY_SPARK_EVALUATES: Final = "Spark converts one side first, or only Spark evaluates the test"
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class FoundColumn:
    """A column, or key of a map, that a condition tests, as it was written, and its types; no index may hold them.

    Of a part of a list, and of what is no key of a map, the type is that of the list or map.
    """

    name: str
    column: ColumnId
    type: IcebergType
    value_type: ValueType | None


def find_column(schema: Schema, name: str, key: Literal | None = None) -> FoundColumn:
    """Find a column by its dotted name, or what a map column holds for a key.

    `m.key` means `m['key']` where `m` is a map, as in Spark.

    Raises:
        NotFoundError: If there is no such column, or none is spelled so and several differ in case only.
    """
    parts = name.split(".")
    for depth in range(1, len(parts)):
        parent = find_in(schema, ".".join(parts[:depth]))
        if parent is None or not isinstance(parent.field_type, ListType | MapType):
            continue
        is_other_column = any(field.name.lower() == name.lower() for field in schema.fields)
        if isinstance(parent.field_type, ListType) or key is not None or depth < len(parts) - 1 or is_other_column:
            return FoundColumn(name, parent.field_id, parent.field_type, None)
        return column_of_field(parent, name, text_literal(parts[depth]))
    return column_of_field(field_named(schema, name), name, key)


def column_of_field(field: NestedField, name: str, key: Literal | None = None) -> FoundColumn:
    """Return a field as a column, or what a map holds for a key, by the name that was written."""
    own = field.field_type
    if key is None:
        return FoundColumn(name, field.field_id, own, _value_type(own))
    text = _key_text(key, own.key_type) if isinstance(own, MapType) else None
    if not isinstance(own, MapType) or text is None:
        return FoundColumn(name, field.field_id, own, None)
    shown = repr(text) if key.type == "string" else text
    return FoundColumn(f"{name}[{shown}]", MapKey(field.field_id, text), own.value_type, _value_type(own.value_type))


def find_in(schema: Schema, name: str) -> NestedField | None:
    """Find a column by its dotted name; None if the schema has no such column, or several that differ in case only."""
    found = fields_named(schema, name)
    return found[0] if len(found) == 1 else None


def _key_text(key: Literal, key_type: IcebergType) -> str | None:
    """Spell a key as indexes do; None if indexes cannot, or if Spark would convert the key before it looks."""
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


def _value_type(field_type: IcebergType) -> ValueType | None:
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
