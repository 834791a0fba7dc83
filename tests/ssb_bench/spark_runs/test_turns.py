"""In what order the sides of a comparison run."""

from __future__ import annotations

from functools import partial

from ssb_bench.spark_runs.measure import in_turns, time_in_turns


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
