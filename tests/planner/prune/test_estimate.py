"""Estimates come near what is counted, however values are spread; the steps of quantiles keep the order of keys."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from planner.prune.estimate import Estimate, estimate_by_sample, estimate_leaf, places_of
from planner.view.directories import LAST_STEP, FieldStatistics, steps_of
from puffin_index.keys.leaf import RangeTest, SetTest
from puffin_index.keys.value_types import value_type_named
from puffin_index.storage.arrays import Flags, Ints

INT64 = st.integers(-(2**63), 2**63 - 1)
ROWS = 2_000


@given(st.lists(INT64, min_size=1, max_size=20))
def test_steps_keep_the_order_of_keys_and_reach_from_end_to_end(keys: list[int]) -> None:
    ordered = np.sort(np.array([keys], np.int64), axis=1)
    minimum, maximum = ordered[:, 0], ordered[:, -1]
    steps = steps_of(ordered, minimum, maximum)[0].astype(int)
    assert (np.diff(steps) >= 0).all()
    assert steps[0] == 0
    width = max(keys) - min(keys)
    if width <= LAST_STEP:
        assert steps.tolist() == [key - min(keys) for key in sorted(keys)]
    else:
        assert steps[-1] == LAST_STEP


def statistics_of(values: Ints) -> FieldStatistics:
    """Of row groups, one a row of `values`."""
    count, rows = values.shape
    ordered = np.sort(values, axis=1)
    quantiles = ordered[:, np.linspace(0, rows - 1, 32).astype(int)]
    return FieldStatistics(
        value_type=value_type_named("long"),
        known=np.ones(count, np.bool_),
        row_count=np.full(count, rows),
        null_count=np.zeros(count, np.int64),
        distinct_count=np.array([len(np.unique(row)) for row in values]),
        minimum=ordered[:, 0],
        maximum=ordered[:, -1],
        quantiles=steps_of(quantiles, ordered[:, 0], ordered[:, -1]).T.copy(),
    )


def estimated(values: Ints, low: int | None, high: int | None) -> tuple[Estimate, Flags]:
    bounds = np.iinfo(np.int64)
    inside = (values >= (bounds.min if low is None else low)) & (values <= (bounds.max if high is None else high))
    return estimate_leaf(RangeTest(low, high), statistics_of(values), np.arange(len(values))), inside


@pytest.mark.parametrize(
    ("low", "high"), [(None, 10_000), (100_000, 100_500), (10**6, 2 * 10**6), (10**6, 10**6), (3 * 10**6, None)]
)
def test_ranges_of_skewed_values_are_estimated_near_their_share(low: int | None, high: int | None) -> None:
    values = np.random.default_rng(1).exponential(1e6, (50, ROWS)).astype(np.int64)
    estimate, inside = estimated(values, low, high)
    assert estimate.selectivity.mean() == pytest.approx(inside.mean(), rel=0.3, abs=0.003)
    assert estimate.presence.mean() == pytest.approx(inside.any(axis=1).mean(), abs=0.1)


@pytest.mark.parametrize(("low", "high"), [(1, 3), (1, 1), (5, 5), (0, 10), (None, None)])
def test_ranges_of_few_values_are_certain_to_be_there(low: int | None, high: int | None) -> None:
    estimate, inside = estimated(np.random.default_rng(2).integers(0, 11, (20, ROWS)), low, high)
    assert inside.any(axis=1).all()
    assert (estimate.presence == 1).all()
    assert estimate.selectivity.mean() == pytest.approx(inside.mean(), rel=0.3)


def test_a_range_outside_of_all_values_is_nowhere() -> None:
    estimate, _ = estimated(np.random.default_rng(3).integers(-(2**62), 2**62, (20, ROWS)), 2**62 + 1, None)
    assert (estimate.presence == 0).all()
    assert (estimate.selectivity == 0).all()


def test_only_keys_within_the_bounds_of_a_row_group_count() -> None:
    values = np.arange(50 * ROWS).reshape(50, ROWS)[:, ::2]
    keys = tuple(range(40 * ROWS, 41 * ROWS, 7))
    estimate = estimate_leaf(SetTest(keys), statistics_of(values), np.arange(50))
    assert np.flatnonzero(estimate.presence).tolist() == [40]
    # Which of the keys the row group lacks is not known.
    assert 1 / 7 <= estimate.selectivity[40] <= 0.29


@pytest.mark.parametrize(("holding", "most"), [(1, 30), (5, 40), (40, 200), (200, 200)])
def test_samples_tell_in_how_many_row_groups_keys_are(holding: int, most: int) -> None:
    chance, count, row_groups = np.random.default_rng(holding), 32, 200
    expected, kept = [], []
    for _ in range(50):
        first, second = (np.isin(np.arange(row_groups), chance.integers(0, holding, count)) for _ in range(2))
        every = first | second | np.isin(np.arange(row_groups), chance.integers(0, holding, 1_000))
        expected.append(estimate_by_sample(first, second, count, np.full(row_groups, 1_000.0)).sum())
        kept.append(every.sum())
    assert 0.9 * np.mean(kept) <= np.mean(expected) <= most


def test_rows_lie_in_as_many_places_as_their_widest_gap_leaves() -> None:
    spread = np.sort(np.random.default_rng(7).choice(1_000_000, 1_000, replace=False))
    gaps = np.array([np.diff(spread).max(), 999_000, np.inf])
    places = places_of(np.full(3, 1_000.0), gaps, np.full(3, 1_000_000))
    # Nothing is known of the last ones, which are taken to lie in bursts of 100.
    assert places[0] > 500 > 20 > places[1] >= places[2] == 10
