"""Estimates: how likely a row group holds a match, from its quantiles and counts, without reading any index.

They only steer what is worth reading. A wrong one costs time, never an answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

import numpy as np
import numpy.typing as npt

from planner.directories import FieldStatistics
from puffin_index.leaf import LeafTest, NullTest, RangeTest, SetTest

FloatArray = npt.NDArray[np.float64]

_INT64_LIMITS = np.iinfo(np.int64)
_UNKNOWN_SELECTIVITY = 0.1


@dataclass(frozen=True, slots=True)
class Estimate:
    """What to expect of a test (or predicate) in each row group.

    Attributes:
        selectivity: Share of the rows that match.
        presence: Probability that at least one row matches.
    """

    selectivity: FloatArray
    presence: FloatArray


def estimate_leaf(test: LeafTest, statistics: FieldStatistics, row_groups: npt.NDArray[np.int64]) -> Estimate:
    """Estimate a leaf test; row groups without statistics get a guess."""
    rows = np.maximum(statistics.row_count[row_groups], 1).astype(np.float64)
    values = statistics.value_count[row_groups] / rows
    match test:
        case NullTest(is_null):
            share = 1 - values if is_null else values
            return Estimate(share, (share > 0).astype(np.float64))
        case SetTest(_, negated):
            inside, presence = _estimate_set(test, statistics, row_groups)
        case RangeTest():
            negated = test.negated
            inside, presence = _estimate_range(test, statistics, row_groups)
        case _:
            assert_never(test)
    if negated:
        return Estimate((1 - inside) * values, np.where(inside < 1, 1.0, 0.0))
    return Estimate(inside * values, presence)


def _estimate_set(
    test: SetTest, statistics: FieldStatistics, row_groups: npt.NDArray[np.int64]
) -> tuple[FloatArray, FloatArray]:
    distinct = np.maximum(statistics.distinct_count[row_groups], 1).astype(np.float64)
    count = float(len(test.keys))
    if statistics.quantiles is None or not isinstance(statistics.minimum, np.ndarray):
        presence = np.full(len(row_groups), 0.5)
    else:
        assert isinstance(statistics.maximum, np.ndarray)
        width = statistics.maximum[row_groups].astype(np.float64) - statistics.minimum[row_groups] + 1
        # How much of its own range a row group fills: the chance that a key in the range is one of its values.
        fill = np.clip(distinct / np.maximum(width, 1), 0, 1)
        presence = 1 - (1 - fill) ** count
    return np.clip(presence * np.maximum(count / distinct, 0), 0, 1), presence


def _estimate_range(
    test: RangeTest, statistics: FieldStatistics, row_groups: npt.NDArray[np.int64]
) -> tuple[FloatArray, FloatArray]:
    if statistics.quantiles is None or statistics.quantiles.shape[1] == 0:
        guess = np.full(len(row_groups), _UNKNOWN_SELECTIVITY)
        return guess, np.full(len(row_groups), 0.5)
    quantiles = statistics.quantiles[row_groups]
    low, high = closed_bounds(test)
    if low > high:
        nothing = np.zeros(len(row_groups))
        return nothing, nothing
    share = np.clip(_rank(quantiles, high) - _rank(quantiles, low - 1), 0, 1)
    # A quantile inside the range is a value inside the range.
    sure = ((quantiles >= low) & (quantiles <= high)).any(axis=1)
    distinct = np.maximum(statistics.distinct_count[row_groups], 1)
    return share, np.where(sure, 1.0, 1 - np.exp(-share * distinct))


def closed_bounds(test: RangeTest) -> tuple[int, int]:
    """The range as the least and the greatest int64 key inside."""
    low, high = test.low, test.high
    assert not isinstance(low, bytes)
    assert not isinstance(high, bytes)
    least = _INT64_LIMITS.min if low is None else low + (not test.low_inclusive)
    greatest = _INT64_LIMITS.max if high is None else high - (not test.high_inclusive)
    return int(least), int(greatest)


def _rank(quantiles: npt.NDArray[np.int64], key: int) -> FloatArray:
    """Share of the values that are <= key, interpolated between quantiles; shape (n,)."""
    last = quantiles.shape[1] - 1
    below = (quantiles <= np.int64(max(key, _INT64_LIMITS.min))).sum(axis=1)
    if last == 0:
        return np.asarray(below > 0, np.float64)
    left = np.clip(below - 1, 0, last)
    right = np.clip(below, 0, last)
    rows = np.arange(len(quantiles))
    start, end = quantiles[rows, left].astype(np.float64), quantiles[rows, right].astype(np.float64)
    step = np.where(end > start, (key - start) / np.maximum(end - start, 1), 0.0)
    rank: FloatArray = np.asarray((left + np.clip(step, 0, 1)) / last, np.float64)
    rank[below == 0] = 0.0
    rank[below > last] = 1.0
    return rank


def both(estimates: list[Estimate], rows: FloatArray) -> Estimate:
    """Estimate an AND of independent tests."""
    selectivity = np.prod([e.selectivity for e in estimates], axis=0)
    presence = np.minimum.reduce([e.presence for e in estimates])
    if len(estimates) > 1:
        presence = np.minimum(presence, 1 - np.exp(-selectivity * rows))
    return Estimate(selectivity, presence)


def either(estimates: list[Estimate]) -> Estimate:
    """Estimate an OR of independent tests."""
    return Estimate(
        1 - np.prod([1 - e.selectivity for e in estimates], axis=0),
        1 - np.prod([1 - e.presence for e in estimates], axis=0),
    )
