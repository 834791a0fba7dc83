"""Medians of timings; input that would make them lie is refused."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssb_bench.results.run import Summary, summarize

TIMINGS = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=20)
BAD_TIMINGS: list[list[float]] = [[], [0.0], [-1.0], [1.0, math.nan], [math.inf]]


def test_a_summary_has_median_least_and_greatest() -> None:
    assert summarize([3.0, 1.0, 2.0, 10.0]) == Summary(2.5, 1.0, 10.0)


@given(TIMINGS)
def test_the_median_lies_between_least_and_greatest(seconds: list[float]) -> None:
    summary = summarize(seconds)

    assert summary.least_seconds <= summary.median_seconds <= summary.greatest_seconds


@pytest.mark.parametrize("bad", BAD_TIMINGS)
def test_bad_timings_are_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="timings"):
        summarize(bad)
