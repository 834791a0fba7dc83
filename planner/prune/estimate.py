"""Estimates: how likely a row group holds a match, from its quantiles and counts, without reading any index.

Estimates only say what is worth reading. A wrong estimate costs time, never an answer. A presence of 1 is proved; what
only seems sure is less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import assert_never

import numpy as np
import numpy.typing as npt

from planner.condition.tree.nodes import Everything
from planner.condition.tree.tree import Constant, JoinedValues, PredicateTree
from planner.prune.few_rows import MOST_PAGES, share_of_pages
from planner.view.directories import LAST_STEP, FieldStatistics, selection_of, steps_of
from puffin_index.keys.leaf import LeafTest, NullTest, RangeTest, SetTest
from puffin_index.storage.arrays import Flags, Floats, Ints, Selection

_INT64_LIMITS = np.iinfo(np.int64)
_UNKNOWN_SELECTIVITY = 0.1
_UNKNOWN_PRESENCE = 0.5

_SAMPLED_KEYS = 16

_LEAST_DOUBT = 0.0025
"""How unsure a match is that is not proved, at least: rows may lie in bursts. So a look-up that takes a hundredth of
the bytes at stake is made, as the gate counts an index byte a quarter."""

_PRIOR_CASES = 0.5
"""A rate that was seen in no case is taken for that of half a case."""

_BURST_ROWS = 100
"""Rows of two tests meet by chance in bursts of about this many, not one by one: a key comes in bursts of its own."""

_BLOCK_ROW_GROUPS = 8_192
"""Arrays of this length stay in the processor's cache."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What to expect of a predicate in each row group: the share of rows that match, and how likely one does.

    `places` says in how many places of a row group matching rows lie apart from each other, where that is known.
    """

    selectivity: Floats
    presence: Floats
    places: Floats | None = None

    def at(self, positions: Selection) -> Estimate:
        """Return the estimate at some positions only."""
        places = None if self.places is None else self.places[positions]
        return Estimate(self.selectivity[positions], self.presence[positions], places)


class JoinedEstimates(JoinedValues[Estimate]):
    """Estimates of the leaves of a tree, joined as if the leaves were independent."""

    def __init__(self, tree: PredicateTree, row_counts: Ints) -> None:
        self._row_counts = row_counts.astype(np.float64)
        super().__init__(tree)

    def _constant(self, constant: Constant) -> Estimate:
        value = np.full(len(self._row_counts), float(isinstance(constant, Everything)))
        return Estimate(value, value)

    def _join(self, first: Estimate, second: Estimate, at: Selection, *, is_and: bool) -> Estimate:
        places = None
        if first.places is not None or second.places is not None:
            ours, theirs = self._places(first, at), self._places(second, at)
            places = np.maximum(ours * second.selectivity, theirs * first.selectivity) if is_and else ours + theirs
        if is_and:
            joint = Estimate(
                first.selectivity * second.selectivity, np.minimum(first.presence, second.presence), places
            )
            # Rows of two tests may avoid each other, however many there are of each; not if one test holds for all.
            is_open = np.maximum(first.selectivity, second.selectivity) < 1
            sure = np.minimum(1 - np.exp(-self._places(joint, at)), 1 - _LEAST_DOUBT * (1 - joint.selectivity))
            return replace(joint, presence=np.where(is_open, np.minimum(joint.presence, sure), joint.presence))
        return Estimate(
            1 - (1 - first.selectivity) * (1 - second.selectivity),
            1 - (1 - first.presence) * (1 - second.presence),
            places,
        )

    def _places(self, estimate: Estimate, at: Selection) -> Floats:
        return _expected_places(estimate, self._row_counts[at])


def _expected_places(estimate: Estimate, row_counts: Floats | Ints) -> Floats:
    return estimate.selectivity * row_counts / _BURST_ROWS if estimate.places is None else estimate.places


def places_of(counts: Floats, gaps: Floats, row_counts: Ints) -> Floats:
    """Estimate in how many places some rows lie, from their number and the most rows in a row without one of them.

    Where n rows are spread evenly, the widest gap is about ln(n) / n of all. Rows that leave a wider gap lie together,
    but in no longer bursts than rows of which nothing is known.
    """
    spread = np.minimum(counts, np.log(counts + 1) * row_counts / np.maximum(gaps, 1))
    return np.asarray(np.maximum(spread, counts / _BURST_ROWS), np.float64)


def estimate_leaf(test: LeafTest, statistics: FieldStatistics, row_groups: Ints, *, is_alone: bool = False) -> Estimate:
    """Estimate a leaf test. A row group without statistics may well hold a match: both shares are 1 there.

    The test is the whole predicate, and nobody wants its rows, if `is_alone`. Selectivity then does not matter where a
    match is certain, and may be given as 1.
    """
    blocks = [
        _estimate_known(test, statistics, selection_of(row_groups[at : at + _BLOCK_ROW_GROUPS]), is_alone)
        for at in range(0, max(len(row_groups), 1), _BLOCK_ROW_GROUPS)
    ]
    return Estimate(
        np.concatenate([block.selectivity for block in blocks]), np.concatenate([block.presence for block in blocks])
    )


def estimate_by_payload(
    test: LeafTest, estimate: Estimate, statistics: FieldStatistics, row_groups: Ints, sizes: Ints, bounds: Ints
) -> Floats:
    """Estimate presence better where payloads hold a match: a directory knows how many rows and keys its payload has.

    A row group with d of a payload's K distinct keys has any one of these with a chance of d / K, in bursts or not. For
    each row group, `sizes` has the rows and keys of its payload (no keys: not known), and `bounds` the least and the
    greatest number of matching rows there: shape (row groups, 2).
    """
    if isinstance(test, NullTest) or test.negated:
        return estimate.presence
    rows, keys = sizes[:, 0], sizes[:, 1]
    distinct, are_numbers = statistics.distinct_count[row_groups], statistics.quantiles is not None
    share = distinct / np.maximum(keys, 1)
    if isinstance(test, SetTest):
        presence = _presence_of(share, keys_within(test, statistics, row_groups))
        presence = np.maximum(presence, estimate.presence) if are_numbers else presence
    else:
        # Where both ends lie in one block, the bounds are far apart, and few rows are as likely as many.
        matches = (np.maximum(bounds[:, 0], 1.0) * bounds[:, 1]) ** 0.5
        presence = _presence_of(share, np.maximum(1.0, matches * keys / np.maximum(rows, 1)))
        presence = np.minimum(presence, estimate.presence) if are_numbers else presence
    # Quantiles prove a match, and so does a key that the payload certainly has where row groups have all keys.
    is_proved = (estimate.presence == 1) | ((distinct == keys) & (bounds[:, 0] > 0))
    presence = np.where(is_proved, 1.0, np.minimum(presence, 1 - _LEAST_DOUBT))
    return np.where((rows > 0) & (keys > 0), presence, estimate.presence)


def estimate_by_sample(first: Flags, second: Flags, count: int, left: Floats) -> Floats:
    """Estimate presence from where two samples of the keys are, the second one of `count` keys.

    Keys may lie together, however many row groups have keys of their range. `left` are the keys that each row group may
    have besides. They come to row groups without a sampled key as often as the second sample came to row groups that
    the first one had not met. This rate is known from few cases, so that chances are those of a gamma distribution.
    """
    met = first | second
    come, others = int(np.count_nonzero(second & ~first)), int(np.count_nonzero(~met))
    absence = (1 + left / (count * max(others, 1))) ** -(come + _PRIOR_CASES)
    return np.where(met, 1.0, np.minimum(1 - absence, 1 - _LEAST_DOUBT))


def estimate_by_first_keys(estimate: Estimate, row_counts: Ints, met: Ints, counts: Ints, gaps: Floats) -> Estimate:
    """Estimate a set better from the rows of a few keys: these match, and the others are spread as they are.

    `met` are the positions that have such rows; `counts` says how many there are at each, and `gaps` the most rows in a
    row without one.
    """
    presence, places = estimate.presence.copy(), _expected_places(estimate, row_counts).copy()
    presence[met] = 1
    own = places_of(counts.astype(np.float64), gaps, row_counts[met])
    places[met] = own * estimate.selectivity[met] * row_counts[met] / counts
    return Estimate(estimate.selectivity, presence, places)


def keys_within(test: SetTest, statistics: FieldStatistics, chosen: Selection) -> Floats:
    """Count the keys of a set between least and greatest key of each row group; all keys where keys are bytes."""
    minimum, maximum = statistics.minimum, statistics.maximum
    if not isinstance(minimum, np.ndarray) or not isinstance(maximum, np.ndarray):
        return np.full(len(statistics.row_count[chosen]), float(len(test.keys)))
    keys = np.array(test.keys, np.int64)
    firsts, ends = np.searchsorted(keys, minimum[chosen], "left"), np.searchsorted(keys, maximum[chosen], "right")
    return np.asarray(np.maximum(ends - firsts, 0), np.float64)


def _presence_of(share: Floats, count: Floats | float) -> Floats:
    """The chance that one of some keys is there, given the chance of each key; 1 only where each key surely is."""
    chance = 1 - (1 - np.minimum(share, 1 - _LEAST_DOUBT)) ** count
    return np.where((share >= 1) & (np.asarray(count) > 0), 1.0, chance)


def key_presence(statistics: FieldStatistics, has_pages: Flags) -> float:
    """Estimate in which share of the row groups one of the column's keys occurs, at least in one of them.

    A row group of which few pages have such a key counts by these, if it has pages.
    """
    at = np.flatnonzero(statistics.has_values)
    if not len(at):
        return 0.0
    rows_of_key = statistics.value_count[at] / np.maximum(statistics.distinct_count[at], 1)
    share = share_of_pages(rows_of_key, statistics.row_count[at])
    share = np.where(has_pages[at] & (share < MOST_PAGES), share, 1.0)
    if not isinstance(statistics.minimum, np.ndarray) or not isinstance(statistics.maximum, np.ndarray):
        return float(share.mean()) / len(at)
    low, high = statistics.minimum[at], statistics.maximum[at]
    width = high.astype(np.float64) - low + 1
    fill = np.clip(statistics.distinct_count[at] / width, 0, 1) * share
    sampled = np.linspace(0, len(at) - 1, min(len(at), _SAMPLED_KEYS)).astype(np.int64)
    keys = np.concatenate([low[sampled], high[sampled]])
    return float(np.mean([fill[(low <= key) & (key <= high)].sum() / len(at) for key in keys.tolist()]))


def most_distinct(statistics: FieldStatistics) -> int:
    """Return an upper bound of a column's values: the sum over row groups, or all integers in the column's range."""
    keys = int(statistics.distinct_count[statistics.has_values].sum())
    bounds = statistics.bounds
    return keys if bounds is None else min(keys, bounds[1] - bounds[0] + 1)


def _estimate_known(test: LeafTest, statistics: FieldStatistics, chosen: Selection, is_alone: bool) -> Estimate:
    estimate, unknown = _estimate_block(test, statistics, chosen, is_alone), ~statistics.known[chosen]
    np.copyto(estimate.selectivity, 1.0, where=unknown)
    np.copyto(estimate.presence, 1.0, where=unknown)
    return estimate


def _estimate_block(test: LeafTest, statistics: FieldStatistics, chosen: Selection, is_alone: bool) -> Estimate:
    rows = statistics.row_count[chosen]
    values = (rows - statistics.null_count[chosen]) / np.maximum(rows, 1)
    match test:
        case NullTest(is_null):
            share = 1 - values if is_null else values
            return Estimate(share, (share > 0).astype(np.float64))
        case SetTest(_, negated):
            inside, presence = _estimate_set(test, statistics, chosen)
        case RangeTest(negated=negated):
            inside, presence = _estimate_range(test, statistics, chosen, is_alone and not negated)
        case _:
            assert_never(test)
    if negated:
        return Estimate((1 - inside) * values, np.where(inside < 1, 1.0, 0.0))
    return Estimate(inside * values, presence)


def _estimate_set(test: SetTest, statistics: FieldStatistics, chosen: Selection) -> tuple[Floats, Floats]:
    distinct = np.maximum(statistics.distinct_count[chosen], 1).astype(np.float64)
    count = keys_within(test, statistics, chosen)
    if statistics.quantiles is None or not isinstance(statistics.minimum, np.ndarray):
        fill = np.full(len(distinct), _UNKNOWN_PRESENCE)
    else:
        assert isinstance(statistics.maximum, np.ndarray)
        width = statistics.maximum[chosen].astype(np.float64) - statistics.minimum[chosen] + 1
        # How much of its own range a row group fills: the chance that a key in the range is one of its values.
        fill = distinct / np.maximum(width, 1)
    presence = _presence_of(fill, count)
    return np.clip(presence * np.maximum(count / distinct, 0), 0, 1), presence


def _estimate_range(
    test: RangeTest, statistics: FieldStatistics, chosen: Selection, presence_only: bool
) -> tuple[Floats, Floats]:
    distinct = np.maximum(statistics.distinct_count[chosen], 1)
    if statistics.quantiles is None or len(statistics.quantiles) == 0:
        guess = np.full(len(distinct), _UNKNOWN_SELECTIVITY)
        return guess, np.full(len(distinct), _UNKNOWN_PRESENCE)
    assert isinstance(statistics.minimum, np.ndarray)
    assert isinstance(statistics.maximum, np.ndarray)
    low, high = closed_bounds(test)
    if low > high:
        nothing = np.zeros(len(distinct))
        return nothing, nothing
    quantiles = statistics.quantiles
    minimum, maximum = statistics.minimum[chosen], statistics.maximum[chosen]
    # Minimum and maximum are values of the row group: where one of them lies inside, a match is certain.
    ends = ((low <= minimum) & (minimum <= high)) | ((low <= maximum) & (maximum <= high))
    if presence_only and ends.all():
        return np.ones(len(ends)), np.ones(len(ends))
    # For many row groups `take` is several times as fast as indexing.
    quantiles = quantiles[:, chosen] if isinstance(chosen, slice) else quantiles.take(chosen, axis=1)
    share, has_quantile = _share_of_quantiles(quantiles, minimum, maximum, (low, high))
    presence = np.where(ends | has_quantile, 1.0, np.minimum(1 - np.exp(-share * distinct), 1 - _LEAST_DOUBT))
    outside = (high < minimum) | (low > maximum)
    return np.where(outside, 0.0, share), np.where(outside, 0.0, presence)


def _share_of_quantiles(
    quantiles: npt.NDArray[np.uint16], minimum: Ints, maximum: Ints, bounds: tuple[int, int]
) -> tuple[Floats, Flags]:
    """The share of values between two bounds, and whether a quantile surely lies between them."""
    low, high = (np.clip(bound, minimum, maximum) for bound in bounds)
    width = maximum.astype(np.float64) - minimum
    scale = np.where(width <= LAST_STEP, 1.0, LAST_STEP / np.maximum(width, 1))
    # A step may stand for several keys: a quantile on the step of a bound may lie on either side.
    unsure = width > LAST_STEP
    start = (low.astype(np.float64) - minimum - 1) * scale
    end = (high.astype(np.float64) - minimum) * scale
    above_least, below_greatest = low > minimum, high < maximum
    count = len(minimum)
    first, below, lower = np.zeros(count, np.int32), np.zeros(count, np.int64), np.zeros(count)
    if above_least.any():  # else every quantile is above, so a range with one bound takes half the work
        first = steps_of(low, minimum, maximum).astype(np.int32) + unsure
        below = _count(quantiles, first, np.less)
        lower = _rank(quantiles, below, start, above_least, 0.0)
    last, up_to, upper = np.full(count, LAST_STEP, np.int32), np.full(count, len(quantiles)), np.ones(count)
    if below_greatest.any():
        last = steps_of(high, minimum, maximum).astype(np.int32) - unsure
        up_to = _count(quantiles, last, np.less_equal)
        upper = _rank(quantiles, up_to, end, below_greatest, 1.0)
    # A range within one step of a quantile: as if values were spread evenly.
    share = np.where(upper > lower, upper - lower, (end - start) / np.maximum(width * scale, 1))
    return np.clip(share, 0, 1), (up_to > below) & (last >= first)


def closed_bounds(test: RangeTest) -> tuple[int, int]:
    """The range as the least and the greatest int64 key inside."""
    low, high = test.low, test.high
    assert not isinstance(low, bytes)
    assert not isinstance(high, bytes)
    least = _INT64_LIMITS.min if low is None else low + (not test.low_inclusive)
    greatest = _INT64_LIMITS.max if high is None else high - (not test.high_inclusive)
    return int(least), int(greatest)


def _count(quantiles: npt.NDArray[np.uint16], steps: npt.NDArray[np.int32], compare: Callable[..., Flags]) -> Ints:
    """Count the quantiles of each row group for which a comparison with a step holds. By quantile is fastest."""
    bound = np.clip(steps, 0, LAST_STEP).astype(np.uint16)
    count = np.zeros(len(steps), np.uint8)
    for of_one_rank in quantiles:
        count += compare(of_one_rank, bound)
    return count.astype(np.int64)


def _rank(quantiles: npt.NDArray[np.uint16], before: Ints, places: Floats, asked: Flags, otherwise: float) -> Floats:
    """Share of the values up to places (in steps), between quantiles of the shape (Q, n); others get `otherwise`.

    `before` counts the quantiles before each place. A range with one bound needs one of two computations only.
    """
    ranks = np.full(len(before), otherwise)
    at = np.flatnonzero(asked)
    last = len(quantiles) - 1
    if last == 0:
        ranks[at] = before[at] > 0
    elif len(at):
        left, right = np.clip(before[at] - 1, 0, last), np.clip(before[at], 0, last)
        start, end = quantiles[left, at].astype(np.float64), quantiles[right, at].astype(np.float64)
        part = np.clip((places[at] - start) / np.maximum(end - start, 1), 0, 1)
        ranks[at] = (left + np.where(end > start, part, 0.0)) / last
    return ranks
