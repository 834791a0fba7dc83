"""Where a literal lies among the keys of a column, as Spark would compare, and the tests that comparisons are."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Literal as TypingLiteral, TypeAlias
from uuid import UUID

import numpy as np

from planner.condition.literals import MAX_DECIMAL_DIGITS, Literal
from puffin_index.errors import UnsupportedError
from puffin_index.keys.leaf import Key, LeafTest, RangeTest, SetTest
from puffin_index.keys.value_types import NAN_KEY, ValueType, value_type_named
from puffin_index.keys.values import key_of, wide_decimal_key

Operator: TypeAlias = TypingLiteral["<", "<=", ">", ">="]

NUMBERS = ("long", "decimal", "double", "float")
"""The types of literals that are numbers."""

_DOUBLE = value_type_named("double")
_EXACT_DOUBLE_INTEGERS = 2**53
_INT64 = (-(2**63), 2**63 - 1)
_MAX_DIGITS = 1_000
"""A literal with more digits after the point is not worth its arithmetic."""


@dataclass(frozen=True, slots=True)
class Place:
    """The greatest key not above a literal (None: the literal is below or above all keys), and whether it is equal."""

    key: Key | None
    exact: bool = False
    above: bool = False


Pair: TypeAlias = tuple[LeafTest, LeafTest]
"""A test, and the test that all other values satisfy. NULL satisfies neither."""


def range_tests(operator: Operator, literal: Literal, value_type: ValueType) -> Pair | None:
    """Return the test of a comparison and its opposite, NaN above all numbers; None if no test says just the same."""
    place = _place(literal, value_type)
    if place is None:
        return None
    if place.key is None:
        every, none = RangeTest(None, None), SetTest(())
        below, above = (every, none) if place.above else (none, every)
    else:
        below = RangeTest(None, place.key, high_inclusive=operator in ("<=", ">") or not place.exact)
        above = RangeTest(place.key, None, low_inclusive=operator in (">=", "<") and place.exact)
    return (below, above) if operator.startswith("<") else (above, below)


def set_tests(literals: Iterable[Literal], value_type: ValueType) -> Pair | None:
    """Return the test whether a value equals one of some literals, and its opposite; None likewise."""
    keys: set[Key] = set()
    for literal in literals:
        if value_type.name == "uuid" and literal.type == "string" and not _is_uuid_text(literal.value):
            continue  # the text equals no uuid
        place = _place(literal, value_type)
        if place is None:
            return None
        if place.exact and place.key is not None:
            keys.add(place.key)
    return _among(keys)


def content_tests(contents: Sequence[int | bytes], value_type: ValueType) -> Pair | None:
    """Return the same for values as Spark has them; None where these may not be the column's keys."""
    is_text = value_type.name == "string"
    kind = bytes if is_text else int
    if not is_text and value_type.name not in ("int", "long", "date", "timestamp", "timestamptz"):
        return None
    if not all(isinstance(content, kind) for content in contents):
        return None
    # As single literals, numbers beyond all values of the type are no keys.
    most = 0 if is_text else _beyond(value_type)
    return _among({one for one in contents if isinstance(one, bytes) or -most <= one <= most})


def _among(keys: set[Any]) -> Pair:
    ordered = tuple(sorted(keys))
    return SetTest(ordered), SetTest(ordered, negated=True)


def nan_tests(value_type: ValueType) -> Pair | None:
    """Return the test whether a value is NaN, and its opposite; None for other types than floats."""
    return _among({NAN_KEY}) if value_type.is_floating else None


def prefix_tests(literal: Literal, value_type: ValueType) -> Pair | None:
    """Return the test whether a text begins with another, and its opposite; None likewise."""
    if not value_type.name == literal.type == "string":
        return None
    test = RangeTest(literal.value or None, prefix_end(literal.value), high_inclusive=False)
    return test, replace(test, negated=True)


def prefix_end(prefix: bytes) -> bytes | None:
    """Return the least text above all texts that begin like this; None if no text is above them."""
    # The next greater byte ends the range. 0xFF has none; text that is not UTF-8 may end with it.
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None


def _place(literal: Literal, value_type: ValueType) -> Place | None:
    """Say where a literal lies among the values of a column, as Spark would compare; None if that is not certain."""
    kind, value = literal.type, literal.value
    try:
        match value_type.name:
            case "float" | "double":
                return _place_floating(literal) if kind in NUMBERS else None
            case _ if value_type.is_decimal or value_type.name in ("int", "long"):
                return _place_number(literal, value_type) if kind in NUMBERS else None
            case "uuid" if kind == "string":
                return Place(UUID(value.decode()).bytes, exact=True) if _is_uuid_text(value) else None
            case "string" if kind == "string":
                return Place(value, exact=True)
            case name if kind == name or (kind == "binary" and name.startswith("fixed")):
                return Place(key_of(value, value_type), exact=True)
    except UnsupportedError:
        pass
    return None


def _is_uuid_text(text: bytes) -> bool:
    """Whether a text is a uuid in lower case, as Spark writes them. Texts of this form sort as their bytes do."""
    try:
        return str(UUID(text.decode())).encode() == text
    except ValueError:
        return False


def _place_floating(literal: Literal) -> Place | None:
    try:
        number = float(literal.value)
        with np.errstate(over="ignore"):
            number = float(np.float32(number)) if literal.type == "float" else number
    except OverflowError:
        return None
    return Place(key_of(number, _DOUBLE), exact=True)


def _place_number(literal: Literal, value_type: ValueType) -> Place | None:
    number = Decimal(literal.value)
    if number.is_nan():
        return None
    most = _beyond(value_type)
    if not -most <= number <= most:
        return Place(None, above=number > 0)
    if literal.type in ("double", "float"):
        # Spark compares as doubles here: exact only where every number of the column is a double.
        is_exact = not value_type.is_decimal and abs(number) < _EXACT_DOUBLE_INTEGERS
    else:
        is_exact = not _spark_rounds(number, value_type)
    return _place_decimal(number, value_type) if is_exact else None


def _whole_digits(value_type: ValueType) -> int:
    """The digits before the point that Spark gives a number of a type where it compares with a decimal."""
    if value_type.is_decimal:
        return value_type.decimal_precision - value_type.decimal_scale
    return 10 if value_type.name == "int" else 20


def _beyond(value_type: ValueType) -> int | float:
    """A number of which those that are greater are above all of a type, even where Spark rounds one of the sides."""
    if value_type.is_decimal:
        end = int(10 ** _whole_digits(value_type))
    else:
        end = 2**31 if value_type.name == "int" else 2**63
    return max(end + 1, float(end))


def _spark_rounds(number: Decimal, value_type: ValueType) -> bool:
    """Whether Spark rounds the literal: both sides take a common decimal type, which may be too narrow."""
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    if exponent >= 0 and not value_type.is_decimal:
        return False
    digits, scale = _whole_digits(value_type), value_type.decimal_scale
    return max(digits, number.adjusted() + 1) + max(scale, -exponent) > MAX_DECIMAL_DIGITS


def _place_decimal(number: Decimal, value_type: ValueType) -> Place | None:
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or exponent < -_MAX_DIGITS:
        return None
    numerator, denominator = number.as_integer_ratio()
    floor, remainder = divmod(numerator * 10**value_type.decimal_scale, denominator)
    is_int64 = value_type.domain == "int64"
    low, high = _INT64 if is_int64 else (-(2**127), 2**127 - 1)
    if not low <= floor <= high:
        return Place(None, above=floor > high)
    return Place(floor if is_int64 else wide_decimal_key(floor), exact=not remainder)
