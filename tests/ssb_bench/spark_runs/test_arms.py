"""How often and in what order the arms of a comparison run."""

from __future__ import annotations

from functools import partial

import pytest

from ssb_bench.spark_runs.arms import MOST_PAIRS, Arm, Executions
from ssb_bench.spark_runs.measure import Measurement, TaskInput, in_turns, time_in_turns


def took(seconds: float) -> Measurement:
    return Measurement(None, seconds, TaskInput(0, 0, 0), None)


@pytest.mark.parametrize(
    ("without", "with_index", "perfect", "pairs"),
    [(1.0, 0.1, 0.1, 5), (1.0, 0.2, 0.2, 2), (1.0, 1.0, 1.0, 1), (99.0, 0.1, 0.1, MOST_PAIRS)],
)
def test_fast_arms_run_as_often_as_fits_the_slow_one(
    without: float, with_index: float, perfect: float, pairs: int
) -> None:
    seconds: dict[Arm, list[Measurement]] = {"without": [took(9), took(without)], "with": [took(with_index)]}
    assert Executions(seconds | {"perfect": []}).pairs == 1
    assert Executions(seconds | {"perfect": [took(perfect)]}).pairs == pairs
    assert Executions().pairs == 1


def test_rounds_go_forwards_and_backwards() -> None:
    assert list(in_turns("ab", 3)) == ["a", "b", "b", "a", "a", "b"]
    assert list(in_turns("ab", 0)) == []


def test_times_are_those_of_the_rounds_after_the_warm_up() -> None:
    order: list[str] = []

    def arm(name: str) -> float:
        order.append(name)
        return float(len(order))

    times = time_in_turns({name: partial(arm, name) for name in "ab"}, 2)

    assert order == ["a", "b", "b", "a", "a", "b"]
    assert times == {"a": [4.0, 5.0], "b": [3.0, 6.0]}
