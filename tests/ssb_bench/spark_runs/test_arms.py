"""How often and in what order the arms of a comparison run."""

from __future__ import annotations

import pytest

from ssb_bench.spark_runs.arms import MOST_PAIRS, Arm, Executions, _order
from ssb_bench.spark_runs.measure import Measurement, TaskInput


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
    assert list(_order(("without", "with"), 2, 1)) == ["without", "with", "with", "without"]
    pair = ["with", "perfect"]
    assert list(_order(("without", "with", "perfect"), 2, 2)) == [
        *("without", *pair, *pair),
        *(*reversed(pair), *reversed(pair), "without"),
    ]
