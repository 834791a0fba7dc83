"""Tests of a column as tests of the partition values that Iceberg's transforms make of it.

Writers differ; whatever one of them makes of a matching row satisfies one of the tests. Java counts hours in 32 bits,
which wrap around before the year -243,013 and after the year 246,953. Before 1970 it puts the last microsecond of the
first second of a period into the period before, and writers of long ago put all of a period into the one after.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from pyiceberg import transforms
from pyiceberg.types import IcebergType

from puffin_index.keys.leaf import Key, LeafTest, NullTest, RangeTest, SetTest
from puffin_index.keys.value_types import ValueType, value_type_named
from puffin_index.keys.values import unscaled_of, value_of, wide_decimal_key

_MOST_KEYS = 1_000
"""A longer IN list is projected as one range."""
_MOST_WIDTH = 2**30
"""Java's int overflows where it truncates by a greater width."""
_SECONDS_A_DAY = 86_400
_UNITS_A_SECOND: Final = {"timestamp": 10**6, "timestamptz": 10**6, "timestamp_ns": 10**9, "timestamptz_ns": 10**9}
_TURNS: Final = (0, -(2**32), 2**32)
"""What wrapping around adds to an int of Java."""


def partition_type(transform: transforms.Transform[Any, Any], source: ValueType) -> ValueType | None:
    """The type of a transform's values; None if nothing follows from them, as for `void`."""
    match transform:
        case transforms.TruncateTransform(width=width) if width > _MOST_WIDTH and source.name in ("int", "long"):
            return None
        case transforms.IdentityTransform() | transforms.TruncateTransform():
            return source
        case (
            transforms.YearTransform()
            | transforms.MonthTransform()
            | transforms.DayTransform()
            | transforms.HourTransform()
            | transforms.BucketTransform()
        ):
            return value_type_named("int")
        case _:
            return None


def partition_tests(
    test: LeafTest, transform: transforms.Transform[Any, Any], source: ValueType, source_type: IcebergType
) -> tuple[LeafTest, ...]:
    """Project a test: where a row satisfies it, its partition value satisfies one of the results, if there are any."""
    if isinstance(transform, transforms.IdentityTransform):
        return (test,)
    # `add_files` of PyIceberg overlooks NULLs beside values.
    if isinstance(test, NullTest) or (isinstance(test, SetTest) and test.negated):
        return ()
    if isinstance(transform, transforms.BucketTransform):
        return _buckets(test, transform, source, source_type)
    project = _truncated if isinstance(transform, transforms.TruncateTransform) else _periods
    return tuple(projected for part in _parts(test) for projected in project(part, transform, source))


def _buckets(
    test: SetTest | RangeTest, transform: transforms.BucketTransform[Any], source: ValueType, source_type: IcebergType
) -> tuple[LeafTest, ...]:
    if isinstance(test, RangeTest) or len(test.keys) > _MOST_KEYS:
        return ()
    texts = test.keys if source.name == "string" else ()
    if any(isinstance(text, bytes) and text.decode(errors="ignore").encode() != text for text in texts):
        return ()
    bucket = transform.transform(source_type)
    values = (value_of(key, source) if source.is_decimal else key for key in test.keys)
    return (SetTest(_distinct(bucket(value) for value in values)),)


def _parts(test: SetTest | RangeTest) -> list[SetTest] | list[RangeTest]:
    """Tests that are not negated, one of which holds where a test holds."""
    if isinstance(test, SetTest):
        return [test] if len(test.keys) <= _MOST_KEYS else [RangeTest(test.keys[0], test.keys[-1])]
    if not test.negated:
        return [test]
    below = RangeTest(None, test.low, high_inclusive=not test.low_inclusive)
    above = RangeTest(test.high, None, low_inclusive=not test.high_inclusive)
    return [part for part, end in ((below, test.low), (above, test.high)) if end is not None]


def _periods(test: SetTest | RangeTest, transform: Any, source: ValueType) -> list[LeafTest]:
    turns = _TURNS if isinstance(transform, transforms.HourTransform) else _TURNS[:1]
    if isinstance(test, SetTest):
        values = (value for key in test.keys for value in _stored(key, key, transform, source))
        return [SetTest(_distinct(value + turn for value in values for turn in turns))]
    low, high = _whole(test)
    end = 2**31 if source.name == "date" else 2**63
    stored = _stored(-end if low is None else low, end - 1 if high is None else high, transform, source)
    return [RangeTest(stored.start + turn, stored.stop - 1 + turn) for turn in turns]


def _stored(low: Any, high: Any, transform: transforms.Transform[Any, Any], source: ValueType) -> range:
    """What writers make of the times between two, before it wraps around."""
    second = _UNITS_A_SECOND.get(source.name, 0)
    day = _SECONDS_A_DAY * second or 1
    first, last = _period(low - second if low < 0 else low, day, transform), _period(high, day, transform)
    is_exact = last >= 0 or (source.name == "date" and isinstance(transform, transforms.DayTransform))
    return range(first, last + (1 if is_exact else 2))


def _period(time: int, day: int, transform: transforms.Transform[Any, Any]) -> int:
    """The period of a time, computed with whole numbers of any size: those of NumPy overflow at both ends."""
    match transform:
        case transforms.HourTransform():
            return time * 24 // day
        case transforms.DayTransform():
            return time // day
        case _:
            unit = "Y" if isinstance(transform, transforms.YearTransform) else "M"
            return int(np.datetime64(time // day, "D").astype(f"datetime64[{unit}]").astype(np.int64))


def _truncated(test: SetTest | RangeTest, transform: Any, source: ValueType) -> list[LeafTest]:
    truncate = _truncation(transform.width, source)
    if isinstance(test, SetTest):
        return [SetTest(_distinct(map(truncate, test.keys)))]
    low, high = _whole(test) if source.is_decimal or source.domain == "int64" else (test.low, test.high)
    first, last = (None if end is None else truncate(end) for end in (low, high))
    # What begins with `b` and more is greater than `b`, but truncated it may be `b`. Less than `b` stays less.
    is_last_inclusive = test.high_inclusive or last != test.high
    return [RangeTest(first, last, high_inclusive=is_last_inclusive)]


def _whole(test: RangeTest) -> tuple[Any, Any]:
    """The ends of a range of whole numbers, both inclusive: midnight, excluded, does not ask for the day it begins."""
    low = test.low if test.low is None or test.low_inclusive else _stepped(test.low, 1)
    high = test.high if test.high is None or test.high_inclusive else _stepped(test.high, -1)
    return low, high


def _truncation(width: int, source: ValueType) -> Callable[[Any], Any]:
    """The truncation of keys: a key that is not greater has no greater result."""
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
