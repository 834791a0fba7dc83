"""A test as places among sorted keys, worked out once and located in any number of sorted blobs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias, TypeVar, cast

import numpy as np

from puffin_index.keys.leaf import LeafTest, NullTest, RangeTest, SetTest
from puffin_index.storage.arrays import Flags, Ints

Interval: TypeAlias = tuple[int, int]
Intervals: TypeAlias = tuple[Interval, ...]

INT64_MINIMUM, INT64_MAXIMUM = -(2**63), 2**63 - 1


def intervals_of(test: SetTest | RangeTest) -> Intervals:
    """Return the 64-bit integers that satisfy a test: disjoint, ascending, none touching."""
    match test:
        case SetTest():
            found = tuple((low, high) for low, high in _runs_of(test).tolist())
        case RangeTest():
            low = INT64_MINIMUM if test.low is None else _int(test.low) + (not test.low_inclusive)
            high = INT64_MAXIMUM if test.high is None else _int(test.high) - (not test.high_inclusive)
            found = ((low, high),) if low <= high else ()
    found = clip(found, INT64_MINIMUM, INT64_MAXIMUM)
    return complement(found, INT64_MINIMUM, INT64_MAXIMUM) if test.negated else found


def _runs_of(test: SetTest) -> Ints:
    """The keys of a set as intervals of those that follow one another: shape (n, 2). There may be very many keys."""
    for key in test.keys[:1]:  # they are of one type
        _int(key)
    keys = np.array(test.keys, np.int64)
    begins = np.ones(len(keys) + 1, np.bool_)
    begins[1:-1] = keys[1:] != keys[:-1] + 1
    return np.stack((keys[begins[:-1]], keys[begins[1:]]), axis=1)


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


_Result = TypeVar("_Result")

MANY_KEYS = 2**40
"""The limit for an interval whose keys cannot be counted."""


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Places between keys, ascending, each pair around an interval of keys: before or after (`right`) equal keys.

    Keys are arbitrary for places at an end, before or after all keys. `key_limits` are the most keys of each interval.
    """

    keys: Ints | tuple[bytes, ...]
    right: Flags
    is_end: Flags
    key_limits: Ints


class AskedTest:
    """A set or range test, negated or not, or a NULL test, and what was worked out of it once for all payloads."""

    def __init__(self, test: LeafTest) -> None:
        self.test = test
        self.negated = not isinstance(test, NullTest) and test.negated
        self._remembered: dict[object, object] = {}

    def places(self, is_bytes: bool, *, one_by_one: bool = False) -> Places:
        """Return the places around the tested keys, as if not negated; with `one_by_one`, around each key of a set."""
        if one_by_one and isinstance(self.test, SetTest) and not is_bytes:
            keys = np.repeat(np.array(self.test.keys, np.int64), 2)
            right = np.tile([False, True], len(self.test.keys))
            return Places(keys, right, np.zeros(len(keys), np.bool_), np.ones(len(keys) // 2, np.int64))
        return self._bytes_places if is_bytes else self._int_places

    def remember(self, key: object, work_out: Callable[[], _Result]) -> _Result:
        """Return the result stored under a key, or work the result out."""
        found = self._remembered.get(key)
        if found is None:
            found = self._remembered[key] = work_out()
        return cast("_Result", found)

    @property
    def _plain(self) -> SetTest | RangeTest:
        if isinstance(self.test, NullTest):
            raise TypeError("a test for NULL has no keys")
        return replace(self.test, negated=False)

    @cached_property
    def _int_places(self) -> Places:
        test = self._plain
        every = _runs_of(test) if isinstance(test, SetTest) else intervals_of(test)
        bounds = np.array(every, np.int64).reshape(-1, 2)
        keys = bounds.reshape(-1)
        right = np.tile([False, True], len(bounds))
        is_end = (keys == np.where(right, INT64_MAXIMUM, INT64_MINIMUM)).astype(np.bool_)
        widths = (bounds[:, 1] - bounds[:, 0]).view(np.uint64)
        return Places(keys, right, is_end, np.minimum(widths, np.uint64(MANY_KEYS)).astype(np.int64) + 1)

    @cached_property
    def _bytes_places(self) -> Places:
        match self._plain:
            case SetTest() as asked:
                keys = tuple(_bytes(key) for key in asked.keys for _ in range(2))
                right = np.tile([False, True], len(asked.keys))
                return Places(keys, right, np.zeros(len(keys), np.bool_), np.ones(len(keys) // 2, np.int64))
            case RangeTest() as test:
                low, high = (b"" if key is None else _bytes(key) for key in (test.low, test.high))
                is_end = np.array([test.low is None, test.high is None])
                right = np.array([not test.low_inclusive and not is_end[0], test.high_inclusive or is_end[1]])
                if not is_end.any() and (low, right[0]) >= (high, right[1]):
                    return Places((), right[:0], is_end[:0], np.empty(0, np.int64))
                key_limit = 1 if low == high and not is_end.any() else MANY_KEYS
                return Places((low, high), right, is_end, np.full(1, key_limit))


def _bytes(key: int | bytes) -> bytes:
    if isinstance(key, int):
        raise TypeError("an integer key in a test of byte strings")
    return key
