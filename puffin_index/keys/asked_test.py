"""A test as places among sorted keys, worked out once and located in any number of sorted blobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar, cast

import numpy as np

from puffin_index.keys.intervals import INT64_MAXIMUM, INT64_MINIMUM, intervals_of
from puffin_index.keys.leaf import LeafTest, NullTest, RangeTest, SetTest
from puffin_index.storage.arrays import Flags, Ints

_Result = TypeVar("_Result")

MANY_KEYS = 2**40
"""The limit for an interval whose keys cannot be counted."""

_MOST_REMEMBERED = 8


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Places between keys, ascending; each pair of places encloses an interval of keys.

    Attributes:
        keys: The key of each place; arbitrary for places before or after all keys.
        right: Whether the place lies after equal keys instead of before them.
        is_end: Whether the place lies before all keys, or (`right`) after all keys.
        key_limits: The most keys that each interval may have.
    """

    keys: Ints | tuple[bytes, ...]
    right: Flags
    is_end: Flags
    key_limits: Ints


class AskedTest:
    """A test, and everything worked out of the test once for all payloads.

    Attributes:
        test: The test.
        negated: Whether the test is a negated set or range test.
    """

    def __init__(self, test: LeafTest) -> None:
        self.test = test
        self.negated = not isinstance(test, NullTest) and test.negated
        self._remembered: dict[object, object] = {}

    def places(self, is_bytes: bool) -> Places:
        """Return the places around the tested keys, in the bytes domain or the int64 domain, ignoring negation."""
        return self._bytes_places if is_bytes else self._int_places

    def remember(self, key: object, work_out: Callable[[], _Result]) -> _Result:
        """Return the result stored under a key, or work the result out; only a few results are kept."""
        found = self._remembered.get(key)
        if found is None:
            found = work_out()
            if len(self._remembered) >= _MOST_REMEMBERED:
                self._remembered.clear()
            self._remembered[key] = found
        # A second look-up could fail: another thread may have cleared the results.
        return cast("_Result", found)

    @property
    def _plain(self) -> SetTest | RangeTest:
        if isinstance(self.test, NullTest):
            raise TypeError("a test for NULL has no keys")
        return replace(self.test, negated=False)

    @cached_property
    def _int_places(self) -> Places:
        bounds = np.array(intervals_of(self._plain), np.int64).reshape(-1, 2)
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
