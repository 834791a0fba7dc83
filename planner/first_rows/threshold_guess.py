"""Guesses the key that the first rows of an order reach, from the directories of an index alone."""

import math
from itertools import takewhile

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from planner.condition.tree.nodes import Predicate, leaves
from planner.view.directories import LAST_STEP, FieldStatistics
from puffin_index.keys.leaf import Key, RangeTest
from puffin_index.keys.merge import rank_keys
from puffin_index.keys.sorted_keys import bytes_of_keys, common_prefix
from puffin_index.storage.arrays import Bytes, Floats, Ints

_LEAST_KEY, _GREATEST_KEY = -(2**63), 2**63 - 1

_TAIL_KEYS = 12
"""Keys that are guessed between the first key of a row group and the next sampled key."""

_MOST_SAMPLED_KEYS = 1_000_000

_MOST_DIGITS, _SCALE_BITS = 24, 62
"""At most this many bytes of a key make its number, as far as they fit into `_SCALE_BITS`."""


class Guess:
    """Guesses from directories alone which key a given number of rows, by the tests of the column, reaches.

    Keys are numbers, see `_ByteScale` where the column's keys are bytes, maybe UTF-8. Without `has_keys`, no row group
    is known to have a value, and no number stands for a key.
    """

    def __init__(
        self, statistics: FieldStatistics, row_groups: Ints, tests: Predicate, *, descending: bool, is_text: bool
    ) -> None:
        self._is_descending = descending
        here = row_groups[statistics.has_values[row_groups]]
        self.has_keys = len(here) > 0
        low, high, self._scale = _as_numbers(statistics, here, is_text)
        values = statistics.value_count[here].astype(np.float64)
        ends = high if descending else low
        self.first_key = 0 if not len(here) else int(ends.max() if descending else ends.min())
        keys, weights = [ends], [np.ones(len(here))]
        if statistics.quantiles is not None and len(statistics.quantiles) and len(here):
            sampled, weight = _sample(statistics.quantiles, low, high, values, here)
            outermost = -1 if descending else 0
            tail, tail_weight = _tail(ends, sampled[outermost], weight[outermost])
            weight[outermost] /= 2
            keys += [sampled.ravel(), tail.ravel()]
            weights += [weight.ravel(), tail_weight.ravel()]
        elif self._scale is not None:
            others = low if descending else high
            tail, tail_weight = _tail(ends, others, values - 1)
            keys += [others, tail.ravel()]
            weights += [(values - 1) / 2, tail_weight.ravel()]
        joined, weight = np.concatenate(keys), np.concatenate(weights)
        if self._scale is None:
            least, most = _bounds(tests)
            inside = (least <= joined) & (joined <= most)
            joined, weight = joined[inside], weight[inside]
            self.first_key = min(max(self.first_key, least), most)
        self.row_count = float(weight.sum())
        ordered = np.argsort(joined, kind="stable")
        ordered = ordered[::-1] if descending else ordered
        self._keys, self._reach = joined[ordered], np.cumsum(weight[ordered])

    def key_at(self, number: int) -> Key:
        """The key that a number on the scale stands for."""
        return number if self._scale is None else self._scale.key(number)

    def reach(self, number: int) -> float:
        """About how many rows reach a key."""
        ahead = np.count_nonzero(self._keys >= number if self._is_descending else self._keys <= number)
        return float(self._reach[ahead - 1]) if ahead else 0.0

    def key(self, rows: float) -> int:
        """The key that about this many rows reach; the last key if there are fewer rows."""
        if not len(self._keys):
            return self.first_key
        at = int(np.searchsorted(self._reach, rows))
        return int(self._keys[min(at, len(self._keys) - 1)])


class _ByteScale:
    """Numbers of keys that are bytes, in the order of the keys.

    The distinct least and greatest keys of row groups have a number each. Digits tell how far apart two of them are: a
    digit is the place of a byte among the bytes (of UTF-8 or any) that these keys have behind their common prefix. So a
    number between those of two keys stands for bytes that other keys may well have.
    """

    def __init__(self, ends: pa.LargeBinaryArray, is_text: bool) -> None:
        self._ends, self._is_text = ends, is_text
        data, offsets = bytes_of_keys(ends)
        lengths = np.diff(offsets)
        self._length = int(lengths[0]) if len(ends) and (lengths == lengths[0]).all() else None
        self._prefix: bytes = ends[0].as_py()[: common_prefix(ends[0].as_py(), ends[-1].as_py())] if len(ends) else b""
        starts = offsets[:-1] + len(self._prefix)
        counts = np.zeros(256, np.int64)
        for at in range(_MOST_DIGITS):
            counts += np.bincount(data[starts[starts + at < offsets[1:]] + at], minlength=256)
        self._alphabet = _filled(np.flatnonzero(counts))
        self._base = max(len(self._alphabet) + 1, 2)
        self._digits = min(_MOST_DIGITS, int(_SCALE_BITS / math.log2(self._base)))
        self._heads = np.zeros(len(ends), np.int64)
        for at in range(self._digits):
            there = starts + at < offsets[1:]
            self._heads *= self._base
            self._heads[there] += np.searchsorted(self._alphabet, data[starts[there] + at]) + 1
        self.numbers = np.cumsum(np.diff(self._heads, prepend=self._heads[:1]).clip(1))

    def key(self, number: int) -> bytes:
        at = max(int(np.searchsorted(self.numbers, number, side="right")) - 1, 0)
        beyond = number - int(self.numbers[at])
        if beyond <= 0 or at + 1 == len(self._ends):
            end: bytes = self._ends[at].as_py()
            return end
        head, places = int(self._heads[at]) + beyond, []
        for _ in range(self._digits):
            head, place = divmod(head, self._base)
            places.append(place)
        digits = takewhile(bool, reversed(places))
        key = self._prefix + bytes(self._alphabet[place - 1] for place in digits)
        if self._is_text:
            return key.decode(errors="ignore").encode()
        return key if self._length is None else key[: self._length].ljust(self._length, b"\0")


def _filled(seen: Ints) -> Bytes:
    """Bytes that were seen, and the digits and letters between them: few keys do not show all bytes that keys have."""
    kinds = [seen[(least <= seen) & (seen <= most)] for least, most in (b"09", b"AZ", b"az")]
    between = [np.arange(kind[0], kind[-1] + 1) for kind in kinds if len(kind)]
    return np.unique(np.concatenate([seen, *between])).astype(np.uint8)


def _bounds(tests: Predicate) -> tuple[int, int]:
    """The least and the greatest key that tests of a column of integers leave."""
    least, most = _LEAST_KEY, _GREATEST_KEY
    for test in (leaf.test for leaf in leaves(tests)):
        if isinstance(test, RangeTest) and not test.negated:
            least = max(least, test.low + (not test.low_inclusive)) if isinstance(test.low, int) else least
            most = min(most, test.high - (not test.high_inclusive)) if isinstance(test.high, int) else most
    return least, max(least, most)


def _as_numbers(statistics: FieldStatistics, here: Ints, is_text: bool) -> tuple[Ints, Ints, _ByteScale | None]:
    """The least and the greatest key of some row groups; where keys are bytes, as numbers of a scale, and the scale."""
    low, high = statistics.minimum, statistics.maximum
    if isinstance(low, np.ndarray) and isinstance(high, np.ndarray):
        return low[here], high[here], None
    keys, ranks = rank_keys([ends.take(pa.array(here)).cast(pa.large_binary()) for ends in (low, high)])
    scale = _ByteScale(keys, is_text)
    return scale.numbers[ranks[: len(here)]], scale.numbers[ranks[len(here) :]], scale


def _sample(
    quantiles: npt.NDArray[np.uint16], low: Ints, high: Ints, values: Floats, here: Ints
) -> tuple[Ints, Floats]:
    """Some keys of each row group but the outermost, and how many rows each stands for: shape (keys, row groups)."""
    every = max(1, quantiles.shape[0] * len(here) // _MOST_SAMPLED_KEYS)
    steps = quantiles[1:-1:every][:, here].astype(np.float64)
    width = high.astype(np.float64) - low
    # Where keys are far apart this is a guess; where they are near it is a key.
    keys = low.astype(np.float64) + np.minimum(steps * np.maximum(width / LAST_STEP, np.minimum(width, 1)), width)
    weights = np.broadcast_to(values / (len(steps) + 1), steps.shape).copy()
    return np.clip(_integers(keys), low, high), weights


def _tail(ends: Ints, sampled: Ints, weights: Floats) -> tuple[Ints, Floats]:
    """Keys between the ends of row groups and the sampled keys next to them: few wanted rows lie here as a rule.

    Each stands for half of the rows between the end and the key before it.
    """
    shares = 0.5 ** np.arange(1, _TAIL_KEYS + 1, dtype=np.float64)[:, np.newaxis]
    width = sampled.astype(np.float64) - ends
    keys = np.clip(_integers(ends + shares * width), np.minimum(ends, sampled), np.maximum(ends, sampled))
    return keys, shares / 2 * weights


def _integers(keys: Ints | Floats) -> Ints:
    # The greatest keys of all are no doubles: the next double is too great for an integer.
    return np.clip(keys, _LEAST_KEY, np.nextafter(float(_GREATEST_KEY), 0)).astype(np.int64)
