"""Tests of a column as tests of the partition values that Iceberg's transforms make of it."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import IcebergType

from puffin_index.keys.leaf import Key, LeafTest, NullTest, RangeTest, SetTest
from puffin_index.keys.value_types import ValueType, value_type_named
from puffin_index.keys.values import unscaled_of, value_of, wide_decimal_key

_MOST_KEYS = 1_000
"""A longer IN list is projected as one range."""
_UNITS: Final[dict[type, str]] = {YearTransform: "Y", MonthTransform: "M", DayTransform: "D", HourTransform: "h"}
_HAS_VALUE = NullTest(is_null=False)


def partition_type(transform: Transform[Any, Any], source: ValueType) -> ValueType | None:
    """The type of a transform's values; None if nothing follows from them, as for `void`."""
    match transform:
        case IdentityTransform() | TruncateTransform():
            return source
        case YearTransform() | MonthTransform() | DayTransform() | HourTransform() | BucketTransform():
            return value_type_named("int")
        case _:
            return None


def partition_tests(
    test: LeafTest, transform: Transform[Any, Any], source: ValueType, source_type: IcebergType
) -> tuple[LeafTest, ...]:
    """Project a test of keys: where a row satisfies it, the row's partition value satisfies one of the results."""
    if isinstance(test, NullTest) or isinstance(transform, IdentityTransform):
        return (test,)
    if isinstance(test, SetTest) and test.negated:
        return (_HAS_VALUE,)
    if isinstance(transform, BucketTransform):
        return (_bucket_test(test, transform, source, source_type),)
    if isinstance(test, RangeTest) and test.negated:
        return tuple(_outside(test, transform, source))
    if isinstance(test, SetTest) and len(test.keys) > _MOST_KEYS:
        return (_range_test(RangeTest(test.keys[0], test.keys[-1]), transform, source),)
    if isinstance(test, SetTest):
        monotone = _monotone(transform, source)
        return (
            SetTest(_distinct(value for key in test.keys for value in _also_late(monotone(key), transform, source))),
        )
    return (_range_test(test, transform, source),)


def _bucket_test(
    test: SetTest | RangeTest, transform: BucketTransform[Any], source: ValueType, source_type: IcebergType
) -> LeafTest:
    if isinstance(test, RangeTest) or len(test.keys) > _MOST_KEYS:
        return _HAS_VALUE
    bucket = transform.transform(source_type)
    values = (value_of(key, source) if source.is_decimal else key for key in test.keys)
    return SetTest(_distinct(bucket(value) for value in values))


def _outside(test: RangeTest, transform: Transform[Any, Any], source: ValueType) -> list[LeafTest]:
    below = RangeTest(None, test.low, high_inclusive=not test.low_inclusive)
    above = RangeTest(test.high, None, low_inclusive=not test.high_inclusive)
    return [
        _range_test(part, transform, source) for part, end in ((below, test.low), (above, test.high)) if end is not None
    ]


def _range_test(test: RangeTest, transform: Transform[Any, Any], source: ValueType) -> RangeTest:
    low, high, high_inclusive = test.low, test.high, test.high_inclusive
    monotone = _monotone(transform, source)
    if source.is_decimal or source.domain == "int64":
        # Among whole numbers, `< 100` is `<= 99`: midnight, excluded, does not ask for the day that it begins.
        low = low if low is None or test.low_inclusive else _stepped(low, 1)
        high = high if high is None or high_inclusive else _stepped(high, -1)
        high_inclusive = True
    first = None if low is None else monotone(low)
    last = None if high is None else max(_also_late(monotone(high), transform, source))
    # What begins with `b` and more is greater than `b`, but truncated it may be `b`. Less than `b` stays less.
    return RangeTest(first, last, high_inclusive=high_inclusive or last != high)


def _also_late(value: Any, transform: Transform[Any, Any], source: ValueType) -> tuple[Any, ...]:
    """Early writers rounded times before 1970 up. So do Iceberg's own projections of them, and so must this."""
    if type(transform) not in _UNITS or value >= 0 or (source.name == "date" and isinstance(transform, DayTransform)):
        return (value,)
    return (value, value + 1)


def _monotone(transform: Transform[Any, Any], source: ValueType) -> Callable[[Any], Any]:
    """The transform on keys: a value that is not greater has no greater result."""
    if not isinstance(transform, TruncateTransform):
        unit = "D" if source.name == "date" else "ns" if source.name.endswith("_ns") else "us"
        return lambda key: int(
            np.array(key, f"datetime64[{unit}]").astype(f"datetime64[{_UNITS[type(transform)]}]").astype(np.int64)
        )
    width = transform.width
    if source.name == "string":
        return lambda key: _first_characters(key, width)
    if source.domain == "bytes" and not source.is_decimal:
        return lambda key: key[:width]
    return lambda key: _stepped(key, -(unscaled_of(key) % width))


def _stepped(key: Key, by: int) -> Key:
    if isinstance(key, int):
        return max(key + by, -(2**63))
    return wide_decimal_key(min(max(unscaled_of(key) + by, -(2**127)), 2**127 - 1))


def _first_characters(text: bytes, count: int) -> bytes:
    """The first characters of a text. A bound that ends within a character stays if fewer than `count` are whole."""
    try:
        return text.decode()[:count].encode()
    except UnicodeDecodeError as error:
        whole = text[: error.start].decode()
        return whole[:count].encode() if len(whole) >= count else text


def _distinct(keys: Any) -> tuple[Any, ...]:
    return tuple(sorted(set(keys)))
