"""Medians, ratios and geometric means; input that would make them lie is refused."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssb_bench.results.statistics import Summary, geometric_mean, ratio, summarize

TIMINGS = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=20)
BAD_TIMINGS: list[list[float]] = [[], [0.0], [-1.0], [1.0, math.nan], [math.inf]]


def test_a_summary_has_median_least_and_greatest() -> None:
    assert summarize([3.0, 1.0, 2.0, 10.0]) == Summary(2.5, 1.0, 10.0)


@given(TIMINGS)
def test_the_median_lies_between_least_and_greatest(seconds: list[float]) -> None:
    summary = summarize(seconds)

    assert summary.least_seconds <= summary.median_seconds <= summary.greatest_seconds


def test_the_ratio_is_of_the_medians() -> None:
    assert ratio([2.0, 4.0, 100.0], [1.0, 2.0, 3.0]) == 2.0


@given(TIMINGS)
def test_equal_sides_have_ratio_one(seconds: list[float]) -> None:
    assert ratio(seconds, seconds) == 1.0


def test_one_side_may_have_run_more_often() -> None:
    assert ratio([2.0], [1.0, 1.0, 4.0]) == 2.0
    with pytest.raises(ValueError, match="no timings"):
        ratio([2.0], [])


@pytest.mark.parametrize("bad", BAD_TIMINGS)
def test_bad_timings_are_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="timings"):
        summarize(bad)


@pytest.mark.parametrize("bad", BAD_TIMINGS)
def test_bad_ratios_are_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="ratios"):
        geometric_mean(bad)


def test_twice_and_half_mean_one() -> None:
    assert geometric_mean([2.0, 0.5]) == pytest.approx(1.0)


@given(TIMINGS)
def test_the_geometric_mean_of_inverses_is_the_inverse(ratios: list[float]) -> None:
    assert geometric_mean([1 / value for value in ratios]) == pytest.approx(1 / geometric_mean(ratios))
