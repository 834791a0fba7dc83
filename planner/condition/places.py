"""Places: where a literal lies among the keys of a column, and the tests that comparisons with the literal are.

Each literal is placed on the scale of its column as Spark would place it. Where that is not certain, there is no test.
Iceberg's own filters have other literals than SQL: bytes are hexadecimal digits, decimals are texts, and a literal of a
float column is a float, though JSON shows a double.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo
from decimal import Decimal, InvalidOperation
from typing import Any, Literal as TypingLiteral, TypeAlias
from uuid import UUID

import numpy as np
from pyiceberg.expressions.literals import (
    BinaryLiteral,
    BooleanLiteral,
    DecimalLiteral,
    DoubleLiteral,
    FixedLiteral,
    FloatLiteral,
    Literal,
    LongLiteral,
    StringLiteral,
    UUIDLiteral,
)
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

from planner.condition.literals import InstantLiteral, LocalTimestampLiteral, text_bytes
from planner.condition.session_time import in_session
from puffin_index.errors import UnsupportedError
from puffin_index.keys.leaf import Key, LeafTest, RangeTest, SetTest
from puffin_index.keys.value_types import ValueType, value_type_named
from puffin_index.keys.values import key_of, wide_decimal_key

Dialect: TypeAlias = TypingLiteral["sql", "iceberg"]
Operator: TypeAlias = TypingLiteral["<", "<=", ">", ">="]

AnyLiteral: TypeAlias = Literal[Any]
"""PyIceberg's literals are generic over a closed set of types; code asks for the type at run time."""

_DOUBLE = value_type_named("double")
_EXACT_DOUBLE_INTEGERS = 2**53
_INT64 = (-(2**63), 2**63 - 1)
MICROS_A_DAY = 86_400_000_000
_SPARK_DECIMAL_DIGITS = 38
_MAX_DIGITS = 1_000
"""A literal with more digits after the point is not worth its arithmetic."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a literal lies among the keys of a column: the greatest key not above it, if any, and whether it is equal.

    A literal below or above every key has none.
    """

    key: Key | None
    exact: bool = False
    above: bool = False


@dataclass(frozen=True, slots=True)
class Scale:
    """What literals of a dialect are compared with, and the session's zone, by which SQL's dates and times are read."""

    type: IcebergType
    value_type: ValueType
    zone: tzinfo = UTC
    dialect: Dialect = "sql"


Pair: TypeAlias = tuple[LeafTest, LeafTest]
"""A test, and the test that all other values satisfy. NULL satisfies neither."""


def range_tests(operator: Operator, literal: AnyLiteral, scale: Scale) -> Pair | None:
    """Return the test of a comparison, and its opposite; None if no test says exactly the same.

    Spark sorts NaN above all numbers, so NOT (a < b) is a >= b for floats, too.
    """
    place = _place(literal, scale)
    if place is None:
        return None
    below, above = _below(place, inclusive=operator in ("<=", ">")), _above(place, inclusive=operator in (">=", "<"))
    return (below, above) if operator.startswith("<") else (above, below)


def set_tests(literals: Iterable[AnyLiteral], scale: Scale) -> Pair | None:
    """Return the test whether a value equals one of some literals, and its opposite; None likewise."""
    keys: set[Key] = set()
    for literal in literals:
        text = text_bytes(literal) if isinstance(scale.type, UUIDType) else None
        if text is not None and not _is_uuid_text(text):
            continue  # the text equals no uuid
        place = _place(literal, scale)
        if place is None:
            return None
        if place.exact and place.key is not None:
            keys.add(place.key)
    ordered: tuple[Any, ...] = tuple(sorted(keys))
    return SetTest(ordered), SetTest(ordered, negated=True)


def content_tests(contents: Sequence[int | bytes], scale: Scale) -> Pair | None:
    """Return the same for values as Spark has them; None where these may not be the column's keys."""
    match scale.type:
        case IntegerType() | LongType() | DateType() | TimestampType() | TimestamptzType():
            kind: type = int
        case StringType():
            kind = bytes
        case _:
            return None
    if not all(isinstance(content, kind) for content in contents):
        return None
    # As single literals, numbers beyond all values of the type are no keys.
    most = _beyond(scale.type) if kind is int else 0
    keys = (one for one in contents if isinstance(one, bytes) or -most <= one <= most)
    ordered: tuple[Any, ...] = tuple(sorted(set(keys)))
    return SetTest(ordered), SetTest(ordered, negated=True)


def nan_tests(scale: Scale) -> Pair | None:
    """Return the test whether a value is NaN, and its opposite; None for other types than floats."""
    if not isinstance(scale.type, FloatType | DoubleType):
        return None
    nan = key_of(math.nan, _DOUBLE)
    assert isinstance(nan, int)
    return SetTest((nan,)), SetTest((nan,), negated=True)


def prefix_tests(literal: AnyLiteral, scale: Scale) -> Pair | None:
    """Return the test whether a text begins with another, and its opposite; None likewise."""
    prefix = text_bytes(literal) if isinstance(scale.type, StringType) else None
    if prefix is None:
        return None
    test = RangeTest(prefix or None, prefix_end(prefix), high_inclusive=False)
    return test, replace(test, negated=True)


def prefix_end(prefix: bytes) -> bytes | None:
    """Return the least text above all texts that begin like this; None if no text is above them."""
    # The next greater byte ends the range. 0xFF has none; text that is not UTF-8 may end with it.
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None


def _below(place: Place, inclusive: bool) -> LeafTest:
    if place.key is None:
        return RangeTest(None, None) if place.above else SetTest(())
    return RangeTest(None, place.key, high_inclusive=inclusive or not place.exact)


def _above(place: Place, inclusive: bool) -> LeafTest:
    if place.key is None:
        return SetTest(()) if place.above else RangeTest(None, None)
    return RangeTest(place.key, None, low_inclusive=inclusive and place.exact)


def _place(literal: AnyLiteral, scale: Scale) -> Place | None:
    """Say where a literal lies on the scale of a column, as Spark would compare; None if that is not certain."""
    if scale.dialect == "sql":
        literal = in_session(literal, scale.type, scale.zone)
    value = literal.value
    match scale.type:
        case IntegerType() | LongType() | DecimalType():
            return _place_number(literal, scale)
        case FloatType() | DoubleType():
            return _place_floating(literal, scale)
        case StringType():
            text = text_bytes(literal)
            return None if text is None else Place(text, exact=True)
        case BooleanType():
            if not isinstance(literal, BooleanLiteral):
                return None
        case DateType() | TimeType() | TimestampType() | TimestamptzType():
            return _place_time(literal, scale.type, scale.value_type)
        case BinaryType() | FixedType() | UUIDType():
            return _place_bytes(literal, scale)
        case _:
            return None
    try:
        return Place(key_of(value, scale.value_type), exact=True)
    except UnsupportedError:
        return None


def _place_bytes(literal: AnyLiteral, scale: Scale) -> Place | None:
    value: object = literal.value
    text = text_bytes(literal) if isinstance(scale.type, UUIDType) else None
    try:
        if text is not None:
            if not _is_uuid_text(text):
                return None
            value = text.decode()
        elif isinstance(literal, StringLiteral) and scale.dialect == "iceberg":
            # Iceberg's JSON writes bytes as hexadecimal digits.
            value = bytes.fromhex(literal.value)
        elif not isinstance(literal, BinaryLiteral | FixedLiteral | UUIDLiteral):
            return None
        return Place(key_of(value, scale.value_type), exact=True)
    except (ValueError, UnsupportedError):
        return None


def _is_uuid_text(text: bytes) -> bool:
    """Whether a text is a uuid in lower case, as Spark writes them. Texts of this form sort as their bytes do."""
    try:
        return str(UUID(text.decode())).encode() == text
    except ValueError:
        return False


def _place_floating(literal: AnyLiteral, scale: Scale) -> Place | None:
    """Place a literal among floats: Spark compares as doubles, and float columns have the keys of doubles."""
    value = literal.value
    if not isinstance(literal, LongLiteral | DecimalLiteral | DoubleLiteral | FloatLiteral):
        return None
    assert isinstance(value, int | float | Decimal)
    is_float = isinstance(literal, FloatLiteral) or (scale.dialect == "iceberg" and isinstance(scale.type, FloatType))
    try:
        number = float(value)
        with np.errstate(over="ignore"):
            number = float(np.float32(number)) if is_float else number
    except OverflowError:
        return None
    return Place(key_of(number, _DOUBLE), exact=True)


def _place_time(literal: AnyLiteral, field_type: PrimitiveType, value_type: ValueType) -> Place | None:
    match literal, field_type:
        case (LocalTimestampLiteral(), TimestampType()) | (InstantLiteral(), TimestamptzType()):
            value = literal.value
        case _:
            try:
                value = literal.to(field_type).value
            except (ValueError, TypeError):
                return None
    return Place(key_of(value, value_type), exact=True)


def _place_number(literal: AnyLiteral, scale: Scale) -> Place | None:
    value, field_type = literal.value, scale.type
    if isinstance(literal, StringLiteral) and scale.dialect == "iceberg" and isinstance(field_type, DecimalType):
        # Iceberg's JSON writes decimals as strings.
        try:
            number = Decimal(value)
        except InvalidOperation:
            return None
    elif isinstance(literal, LongLiteral | DecimalLiteral | DoubleLiteral | FloatLiteral):
        number = Decimal(value)
    else:
        return None
    if number.is_nan():
        return None
    most = _beyond(field_type)
    if not -most <= number <= most:
        return Place(None, above=number > 0)
    if isinstance(literal, DoubleLiteral | FloatLiteral):
        # Spark compares as doubles here: exact only where every number of the column is a double.
        is_exact = not isinstance(field_type, DecimalType) and abs(number) < _EXACT_DOUBLE_INTEGERS
    else:
        is_exact = scale.dialect != "sql" or not _spark_rounds(number, field_type)
    digits = field_type.scale if isinstance(field_type, DecimalType) else 0
    return _place_decimal(number, digits, scale.value_type) if is_exact else None


def _beyond(field_type: IcebergType) -> int | float:
    """A number of which those that are greater are above all of a type, even where Spark rounds one of the sides."""
    match field_type:
        case DecimalType(precision=precision, scale=scale):
            end = int(10 ** (precision - scale))
        case IntegerType():
            end = 2**31
        case _:
            end = 2**63
    return max(end + 1, float(end))


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


def _place_decimal(number: Decimal, scale: int, value_type: ValueType) -> Place | None:
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or exponent < -_MAX_DIGITS:
        return None
    numerator, denominator = number.as_integer_ratio()
    floor, remainder = divmod(numerator * 10**scale, denominator)
    low, high = _INT64 if value_type.domain == "int64" else (-(2**127), 2**127 - 1)
    if floor > high:
        return Place(None, above=True)
    if floor < low:
        return Place(None)
    return Place(floor if value_type.domain == "int64" else wide_decimal_key(floor), exact=not remainder)
