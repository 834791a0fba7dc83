"""Guesses the key that the first rows of an order reach, from the directories of an index alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from planner.predicate.nodes import Predicate, leaves
from planner.view.directories import LAST_STEP, FieldStatistics
from puffin_index.keys.leaf import Key, RangeTest
from puffin_index.keys.merge import rank_keys
from puffin_index.storage.arrays import Floats, Ints

_LEAST_KEY, _GREATEST_KEY = -(2**63), 2**63 - 1

_TAIL_KEYS = 12
"""So many keys of each row group are guessed between its first key and the next sampled key."""

_MOST_SAMPLED_KEYS = 1_000_000


class Guess:
    """Guesses from directories alone which key so many rows of a column reach.

    Keys are numbers. Where the column's keys are bytes, a number is a place among the least and greatest keys of row
    groups, in order: only these can become the threshold.

    Args:
        statistics: Of the column.
        row_groups: The row groups of the view that may have a wanted row (int64).
        tests: What the predicate says of the column.
        descending: Whether the greatest keys come first.

    Attributes:
        has_keys: Whether a row group is known to have a value; otherwise no number stands for a key.
    """

    def __init__(self, statistics: FieldStatistics, row_groups: Ints, tests: Predicate, *, descending: bool) -> None:
        self._is_descending = descending
        here = row_groups[statistics.has_values[row_groups]]
        self.has_keys = len(here) > 0
        low, high, self._ends = _as_numbers(statistics, here)
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
        elif self._ends is not None:
            keys.append(low if descending else high)
            weights.append(values - 1)
        joined, weight = np.concatenate(keys), np.concatenate(weights)
        if self._ends is None:
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
        return number if self._ends is None else self._ends[number].as_py()

    def reach(self, number: int) -> float:
        """About how many rows reach a key."""
        ahead = np.count_nonzero(self._keys >= number if self._is_descending else self._keys <= number)
        return float(self._reach[ahead - 1]) if ahead else 0.0

    def key(self, rows: float) -> int:
        """The key that about so many rows reach; the last key if there are not so many rows."""
        if not len(self._keys):
            return self.first_key
        at = int(np.searchsorted(self._reach, rows))
        return int(self._keys[min(at, len(self._keys) - 1)])


def _bounds(tests: Predicate) -> tuple[int, int]:
    """The least and the greatest key that tests of a column of integers leave."""
    least, most = _LEAST_KEY, _GREATEST_KEY
    for leaf in leaves(tests):
        match leaf.test:
            case RangeTest(low, high, low_inclusive, high_inclusive, negated=False):
                least = max(least, low + (not low_inclusive)) if isinstance(low, int) else least
                most = min(most, high - (not high_inclusive)) if isinstance(high, int) else most
            case _:
                pass
    return least, max(least, most)


def _as_numbers(statistics: FieldStatistics, here: Ints) -> tuple[Ints, Ints, pa.LargeBinaryArray | None]:
    """The least and the greatest key of some row groups; where keys are bytes, places among all of them, and these."""
    low, high = statistics.minimum, statistics.maximum
    if isinstance(low, np.ndarray) and isinstance(high, np.ndarray):
        return low[here], high[here], None
    keys, ranks = rank_keys([ends.take(pa.array(here)).cast(pa.large_binary()) for ends in (low, high)])
    places = ranks.astype(np.int64)
    return places[: len(here)], places[len(here) :], keys


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
    """Keys between the ends of row groups and the sampled keys next to them, as if keys were spread evenly.

    Each stands for half of the rows between the end and the key before it. So few rows are wanted as a rule that all of
    them lie here.

    Args:
        ends: The first key of each row group.
        sampled: The sampled key next to it.
        weights: The rows between both.
    """
    shares = 0.5 ** np.arange(1, _TAIL_KEYS + 1, dtype=np.float64)[:, np.newaxis]
    width = sampled.astype(np.float64) - ends
    keys = np.clip(_integers(ends + shares * width), np.minimum(ends, sampled), np.maximum(ends, sampled))
    return keys, shares / 2 * weights


def _integers(keys: Ints | Floats) -> Ints:
    # The greatest keys of all are no doubles: the next double is too great for an integer.
    return np.clip(keys, _LEAST_KEY, np.nextafter(float(_GREATEST_KEY), 0)).astype(np.int64)
