"""Closed intervals of integers: the meaning of a set or range test, with negation and open bounds resolved."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from puffin_index.keys.leaf import RangeTest, SetTest

Interval: TypeAlias = tuple[int, int]
Intervals: TypeAlias = tuple[Interval, ...]

INT64_MINIMUM, INT64_MAXIMUM = -(2**63), 2**63 - 1


def intervals_of(test: SetTest | RangeTest, minimum: int = INT64_MINIMUM, maximum: int = INT64_MAXIMUM) -> Intervals:
    """Return the integers between `minimum` and `maximum` that satisfy a test: disjoint, ascending, none touching."""
    match test:
        case SetTest():
            found = union((_int(key), _int(key)) for key in test.keys)
        case RangeTest():
            low = minimum if test.low is None else _int(test.low) + (not test.low_inclusive)
            high = maximum if test.high is None else _int(test.high) - (not test.high_inclusive)
            found = ((low, high),) if low <= high else ()
    found = clip(found, minimum, maximum)
    return complement(found, minimum, maximum) if test.negated else found


def _int(key: int | bytes) -> int:
    if isinstance(key, bytes):
        raise TypeError("a bytes key in a test of integers")
    return key


def union(intervals: Iterable[Interval]) -> Intervals:
    """Return the union of intervals that ascend by their lower bounds."""
    merged: list[Interval] = []
    for low, high in intervals:
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def clip(intervals: Sequence[Interval], minimum: int, maximum: int) -> Intervals:
    """Return the parts of the intervals between two bounds."""
    return tuple(
        (max(low, minimum), min(high, maximum)) for low, high in intervals if low <= maximum and high >= minimum
    )


def complement(intervals: Sequence[Interval], minimum: int, maximum: int) -> Intervals:
    """Return the gaps between the intervals, which all lie between two bounds, up to these bounds."""
    gaps: list[Interval] = []
    start = minimum
    for low, high in intervals:
        if start < low:
            gaps.append((start, low - 1))
        start = high + 1
    if start <= maximum:
        gaps.append((start, maximum))
    return tuple(gaps)


def shift(intervals: Sequence[Interval], by: int) -> Intervals:
    """Return the intervals moved by a number."""
    return tuple((low + by, high + by) for low, high in intervals)


def mirror(intervals: Sequence[Interval]) -> Intervals:
    """Return the intervals of the negated integers."""
    return tuple((-high, -low) for low, high in reversed(intervals))
