"""Which column, or key of a map, a name in a predicate means."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import date, timedelta

from pyiceberg.expressions import Reference
from pyiceberg.expressions.literals import DateLiteral, LongLiteral, StringLiteral
from pyiceberg.schema import Schema
from pyiceberg.typedef import LiteralValue
from pyiceberg.types import (
    DateType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
)

from planner.where.sql_literals import Utf8Literal
from planner.where.terms import FieldTerm, MapElement
from puffin_index.errors import DefinitionError, NotFoundError, UnsupportedError, did_you_mean
from puffin_index.keys.map_key import ColumnId, MapKey, key_text
from puffin_index.keys.value_types import ValueType, value_type_of

_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class FoundColumn:
    """A column that a predicate tests.

    Attributes:
        column: The column, or the key of a map.
        type: The type of the values.
        value_type: The same as an index has it; None if an index cannot hold such values.
    """

    column: ColumnId
    type: IcebergType
    value_type: ValueType | None


def find_column(schema: Schema, term: Reference | MapElement | FieldTerm) -> FoundColumn | None:
    """Find the column that a term means; None if no index could be of that.

    `m.key` means `m['key']` where `m` is a map, as in Spark.

    Raises:
        NotFoundError: If there is no such column.
    """
    if isinstance(term, FieldTerm):
        return _found(schema.find_field(term.field_id), term.key)
    name, key = term.name, term.key if isinstance(term, MapElement) else None
    parts = name.split(".")
    for depth in range(1, len(parts)):
        parent = find_in(schema, ".".join(parts[:depth]))
        if parent is None or not isinstance(parent.field_type, ListType | MapType):
            continue
        is_other_column = any(field.name.lower() == name.lower() for field in schema.fields)
        if isinstance(parent.field_type, ListType) or key is not None or depth < len(parts) - 1 or is_other_column:
            return None
        return _find_key(parent, StringLiteral(parts[depth]))
    field = find_in(schema, name)
    if field is None:
        columns = ", ".join(f.name for f in schema.fields)
        near = did_you_mean(name, schema.column_names)
        raise NotFoundError(f"there is no column {name!r}; the table has: {columns}{near}")
    return _found(field, key)


def _found(field: NestedField, key: LiteralValue | None) -> FoundColumn | None:
    if key is not None:
        return _find_key(field, key)
    return FoundColumn(field.field_id, field.field_type, _value_type(field.field_type))


def find_in(schema: Schema, name: str) -> NestedField | None:
    """Find a column by its dotted name as Spark does; None if there is none."""
    for case_sensitive in (True, False):
        with suppress(ValueError):
            return schema.find_field(name, case_sensitive)
    return None


def _find_key(field: NestedField, key: LiteralValue) -> FoundColumn | None:
    if not isinstance(field.field_type, MapType):
        return None
    text = _key_text(key, field.field_type.key_type)
    if text is None:
        return None
    values = field.field_type.value_type
    return FoundColumn(MapKey(field.field_id, text), values, _value_type(values))


def _key_text(key: LiteralValue, key_type: IcebergType) -> str | None:
    """Spell a key as indexes do; None if indexes cannot, or if Spark would convert the key before it looks."""
    try:
        match key, key_type:
            case Utf8Literal(), StringType():
                text = key.value.decode()
            case (StringLiteral(), StringType()) | (LongLiteral(), IntegerType() | LongType()):
                text = str(key.value)
            case DateLiteral(), DateType():
                text = (_EPOCH + timedelta(days=key.value)).isoformat()
            case _:
                return None
        return key_text(text, key_type)
    except (DefinitionError, UnicodeDecodeError, OverflowError):
        return None


def _value_type(field_type: IcebergType) -> ValueType | None:
    if not isinstance(field_type, PrimitiveType):
        return None
    try:
        return value_type_of(field_type)
    except UnsupportedError:
        return None
