"""Binding: a PyIceberg expression over column names becomes a predicate over field ids and keys.

Expressions come in two dialects.

* `sql`: from a WHERE text (`planner.where.parser`). NOT is at the leaves, by SQL's three-valued logic; literals have
  SQL's types.
* `iceberg`: from a scan of Iceberg's. NOT may stand anywhere. `not-eq`, `not-in` and `not-starts-with` also match NULL,
  because Spark hands `NOT (a <=> 5)` down as `not-eq`; NULL rows are therefore kept. A literal of a float column is a
  float, though JSON shows a double.

Each literal is placed on the scale of its column as Spark would place it. Where that is not certain, the leaf is
unknown: all rows, an upper bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias
from typing import Literal as TypingLiteral
from uuid import UUID

import numpy as np
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    Reference,
    StartsWith,
    UnboundPredicate,
)
from pyiceberg.expressions.literals import (
    BinaryLiteral,
    BooleanLiteral,
    DateLiteral,
    DecimalLiteral,
    DoubleLiteral,
    FixedLiteral,
    FloatLiteral,
    Literal,
    LongLiteral,
    StringLiteral,
    UUIDLiteral,
)
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from planner.predicate.found_column import find_column
from planner.predicate.junctions import fold_junctions
from planner.predicate.nodes import UNKNOWN, Everything, Leaf, Nothing, Predicate
from planner.predicate.simplify import conjunction, disjunction
from planner.where.sql_literals import text_bytes
from planner.where.terms import FieldTerm, MapElement
from planner.where.unknown import Unknown
from puffin_index.errors import UnsupportedError
from puffin_index.keys.leaf import Key, LeafTest, NullTest, RangeTest, SetTest
from puffin_index.keys.value_types import ValueType, value_type_named
from puffin_index.keys.values import key_of

Dialect: TypeAlias = TypingLiteral["sql", "iceberg"]

AnyLiteral: TypeAlias = Literal[Any]
"""PyIceberg's literals are generic over a closed set of types; code asks for the type at run time."""

_DOUBLE = value_type_named("double")
_EXACT_DOUBLE_INTEGERS = 2**53
_INT64 = (-(2**63), 2**63 - 1)
MICROS_A_DAY = 86_400_000_000
_SPARK_DECIMAL_DIGITS = 38
_MAX_MAGNITUDE = 60
"""A number with more decimal digits before the point is above (below) every key."""
_MAX_DIGITS = 1_000
"""A literal with more digits after the point is not worth its arithmetic."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a literal lies among the keys of a column.

    Attributes:
        key: The greatest key that is not above the literal. None if the literal lies below or above every key.
        exact: Whether the literal equals the key.
        above: Whether the literal lies above every key.
    """

    key: Key | None
    exact: bool = False
    above: bool = False


def bind(
    expression: BooleanExpression,
    schema: Schema,
    dialect: Dialect = "sql",
    evaluate: Callable[[Unknown], Predicate] = lambda _: UNKNOWN,
    unused: Callable[[BooleanExpression], None] = lambda _: None,
) -> Predicate:
    """Bind an expression to a schema.

    Args:
        expression: Unbound, from `planner.where.parser` or from Iceberg's JSON.
        schema: The schema of the snapshot that is scanned.
        dialect: Where the expression comes from, see the module.
        evaluate: Gives the predicate of a leaf that PyIceberg's expressions cannot say.
        unused: Told each leaf of PyIceberg's expressions that is unknown.

    Raises:
        NotFoundError: If the expression names a column that the schema lacks.
    """
    too_deep: Predicate = UNKNOWN

    def bind_leaf(node: BooleanExpression, negated: bool) -> Predicate:
        match node:
            case AlwaysTrue() | AlwaysFalse():
                return Everything(exact=True) if isinstance(node, AlwaysTrue) is not negated else Nothing()
            case UnboundPredicate():
                bound = _bind_leaf(~node if negated else node, schema, dialect)
                if bound is UNKNOWN:
                    unused(~node if negated else node)
                return bound
            case Unknown():
                return evaluate(~node if negated else node)
            case _:
                return UNKNOWN

    return fold_junctions(
        expression,
        leaf=bind_leaf,
        join=lambda parts, is_and: conjunction(parts) if is_and else disjunction(parts),
        too_deep=too_deep,
    )


def _bind_leaf(node: BooleanExpression, schema: Schema, dialect: Dialect) -> Predicate:
    assert isinstance(node, UnboundPredicate)
    if not isinstance(node.term, Reference | MapElement | FieldTerm):
        return UNKNOWN
    found = find_column(schema, node.term)
    if found is None or found.value_type is None:
        return UNKNOWN
    test = _leaf_test(node, _Column(found.type, found.value_type, dialect))
    if test is None:
        return UNKNOWN
    leaf = Leaf(found.column, test, found.value_type.name)
    if dialect == "iceberg" and isinstance(node, NotEqualTo | NotIn | NotStartsWith):
        return disjunction([leaf, Leaf(found.column, NullTest(is_null=True), found.value_type.name)])
    return leaf


@dataclass(frozen=True, slots=True)
class _Column:
    type: IcebergType
    value_type: ValueType
    dialect: Dialect


def _leaf_test(node: BooleanExpression, column: _Column) -> LeafTest | None:
    """Make the test of a leaf; None if no test says exactly the same."""
    match node:
        case IsNull() | NotNull():
            return NullTest(is_null=isinstance(node, IsNull))
        case IsNaN() | NotNaN():
            return _nan_test(column, negated=isinstance(node, NotNaN))
        case In() | NotIn():
            return _set_test(list(node.literals), column, negated=isinstance(node, NotIn))
        case EqualTo() | NotEqualTo():
            return _set_test([node.literal], column, negated=isinstance(node, NotEqualTo))
        case LessThan() | LessThanOrEqual() | GreaterThan() | GreaterThanOrEqual():
            place = _place(node.literal, column)
            return None if place is None else _RANGES[type(node)](place)
        case StartsWith() | NotStartsWith():
            return _prefix_test(node.literal, column, negated=isinstance(node, NotStartsWith))
        case _:
            return None


def _nan_test(column: _Column, *, negated: bool) -> LeafTest | None:
    if not isinstance(column.type, FloatType | DoubleType):
        return None
    nan = key_of(math.nan, _DOUBLE)
    assert isinstance(nan, int)
    return SetTest((nan,), negated)


def _set_test(literals: list[AnyLiteral], column: _Column, *, negated: bool) -> LeafTest | None:
    keys: set[Key] = set()
    for literal in literals:
        if (
            isinstance(literal, StringLiteral)
            and isinstance(column.type, UUIDType)
            and not _is_uuid_text(literal.value)
        ):
            continue  # the text equals no uuid
        place = _place(literal, column)
        if place is None:
            return None
        if place.exact and place.key is not None:
            keys.add(place.key)
    return SetTest(tuple(sorted(keys)), negated)  # type: ignore[arg-type] # one column: one key type


def _below(place: Place, inclusive: bool) -> LeafTest:
    if place.key is None:
        return RangeTest(None, None) if place.above else SetTest(())
    return RangeTest(None, place.key, high_inclusive=inclusive or not place.exact)


def _above(place: Place, inclusive: bool) -> LeafTest:
    if place.key is None:
        return SetTest(()) if place.above else RangeTest(None, None)
    return RangeTest(place.key, None, low_inclusive=inclusive and place.exact)


_RANGES: dict[type[BooleanExpression], Callable[[Place], LeafTest]] = {
    LessThan: lambda place: _below(place, inclusive=False),
    LessThanOrEqual: lambda place: _below(place, inclusive=True),
    GreaterThan: lambda place: _above(place, inclusive=False),
    GreaterThanOrEqual: lambda place: _above(place, inclusive=True),
}


def _prefix_test(literal: AnyLiteral, column: _Column, *, negated: bool) -> LeafTest | None:
    prefix = text_bytes(literal) if isinstance(column.type, StringType) else None
    if prefix is None:
        return None
    # The next greater byte ends the range. 0xFF has none; text that is not UTF-8 may end with it.
    stem = prefix.rstrip(b"\xff")
    high = stem[:-1] + bytes([stem[-1] + 1]) if stem else None
    return RangeTest(prefix or None, high, high_inclusive=False, negated=negated)


def _place(literal: AnyLiteral, column: _Column) -> Place | None:
    """Say where a literal lies on the scale of a column, as Spark would compare; None if that is not certain."""
    value = literal.value
    match column.type:
        case IntegerType() | LongType() | DecimalType():
            return _place_number(literal, column)
        case FloatType() | DoubleType():
            return _place_floating(literal, column)
        case StringType():
            text = text_bytes(literal)
            return None if text is None else Place(text, exact=True)
        case BooleanType():
            if not isinstance(literal, BooleanLiteral):
                return None
        case DateType() | TimeType() | TimestampType() | TimestamptzType():
            return _place_time(literal, column.type, column.value_type)
        case BinaryType() | FixedType() | UUIDType():
            return _place_bytes(literal, column)
        case _:
            return None
    try:
        return Place(key_of(value, column.value_type), exact=True)
    except UnsupportedError:
        return None


def _place_bytes(literal: AnyLiteral, column: _Column) -> Place | None:
    value: object = literal.value
    try:
        if isinstance(literal, StringLiteral) and isinstance(column.type, UUIDType):
            if not _is_uuid_text(literal.value):
                return None
        elif isinstance(literal, StringLiteral) and column.dialect == "iceberg":
            # Iceberg's JSON writes bytes as hexadecimal digits.
            value = bytes.fromhex(literal.value)
        elif not isinstance(literal, BinaryLiteral | FixedLiteral | UUIDLiteral):
            return None
        return Place(key_of(value, column.value_type), exact=True)
    except (ValueError, UnsupportedError):
        return None


def _is_uuid_text(text: str) -> bool:
    """Whether a text is a uuid in lower case, as Spark writes them. Texts of this form sort as their bytes do."""
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


def _place_floating(literal: AnyLiteral, column: _Column) -> Place | None:
    """Place a literal among floats: Spark compares as doubles, and float columns have the keys of doubles."""
    value = literal.value
    if not isinstance(literal, LongLiteral | DecimalLiteral | DoubleLiteral | FloatLiteral):
        return None
    assert isinstance(value, int | float | Decimal)
    is_float = isinstance(literal, FloatLiteral) or (column.dialect == "iceberg" and isinstance(column.type, FloatType))
    try:
        number = float(value)
        with np.errstate(over="ignore"):
            number = float(np.float32(number)) if is_float else number
    except OverflowError:
        return None
    return Place(key_of(number, _DOUBLE), exact=True)


def _place_time(literal: AnyLiteral, field_type: PrimitiveType, value_type: ValueType) -> Place | None:
    if isinstance(literal, DateLiteral) and isinstance(field_type, TimestampType):
        # Spark casts the date to midnight. Without a time zone that is one instant on the column's scale.
        return Place(key_of(literal.value * MICROS_A_DAY, value_type), exact=True)
    try:
        converted = literal.to(field_type)
    except (ValueError, TypeError):
        return None
    return Place(key_of(converted.value, value_type), exact=True)


def _place_number(literal: AnyLiteral, column: _Column) -> Place | None:
    value, field_type = literal.value, column.type
    if isinstance(literal, DoubleLiteral | FloatLiteral):
        assert isinstance(value, float)
        # Spark compares as doubles here: exact only where every number of the column is a double.
        if math.isnan(value) or isinstance(field_type, DecimalType):
            return None
        if math.isinf(value):
            return Place(None, above=value > 0)
        if abs(value) >= _EXACT_DOUBLE_INTEGERS:
            return None
        number = Decimal(value)
    elif isinstance(literal, StringLiteral) and column.dialect == "iceberg" and isinstance(field_type, DecimalType):
        # Iceberg's JSON writes decimals as strings.
        try:
            number = Decimal(value)
        except InvalidOperation:
            return None
    elif isinstance(literal, LongLiteral | DecimalLiteral) and isinstance(value, int | Decimal):
        number = Decimal(value)
        if column.dialect == "sql" and _spark_rounds(number, field_type):
            return None
    else:
        return None
    scale = field_type.scale if isinstance(field_type, DecimalType) else 0
    return _place_on_scale(number, scale, column.value_type)


def _spark_rounds(number: Decimal, field_type: IcebergType) -> bool:
    """Whether Spark rounds the literal: both sides take a common decimal type, which may be too narrow."""
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    if exponent >= 0 and not isinstance(field_type, DecimalType):
        return False
    match field_type:
        case DecimalType():
            digits, scale = field_type.precision - field_type.scale, field_type.scale
        case IntegerType():
            digits, scale = 10, 0
        case _:
            digits, scale = 20, 0
    return max(digits, number.adjusted() + 1) + max(scale, -exponent) > _SPARK_DECIMAL_DIGITS


def _place_on_scale(number: Decimal, scale: int, value_type: ValueType) -> Place | None:
    sign, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):
        return None
    if number and number.adjusted() + scale > _MAX_MAGNITUDE:
        return Place(None, above=not sign)
    if exponent < -_MAX_DIGITS:
        return None
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    shift = exponent + scale
    floor, remainder = (unscaled * 10**shift, 0) if shift >= 0 else divmod(unscaled, 10**-shift)
    low, high = _INT64 if value_type.domain == "int64" else (-(2**127), 2**127 - 1)
    if floor > high:
        return Place(None, above=True)
    if floor < low:
        return Place(None)
    if scale or value_type.domain == "bytes":
        return Place(
            key_of(Decimal((0 if floor >= 0 else 1, tuple(map(int, str(abs(floor)))), -scale)), value_type),
            not remainder,
        )
    return Place(floor, exact=not remainder)
