"""Comparisons: sides run in turns, wrong answers and exceptions are failures of their side, slow tasks run less."""

import itertools
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from ssb_bench.data.layout import BenchError, Layout
from ssb_bench.spark_runs import bench as module
from ssb_bench.spark_runs.bench import Bench, Seen, Task

SIDES = ("without", "with")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(Layout.of(tmp_path, 1))


def counting(log: list[str], side: str, answer: Callable[[int], object] = lambda _: 7) -> Seen:
    log.append(side)
    number = log.count(side)
    return Seen(answer(number), {"rows": number}, float(number))


def test_rounds_go_forwards_and_backwards(bench: Bench) -> None:
    log: list[str] = []
    task = Task("q1", {side: partial(counting, log, side) for side in SIDES}, heading="counts")
    without, with_index = bench.compare([task], repeats=2)

    assert log == ["without", "with", "with", "without", "without", "with"]
    assert (without.name, without.side, without.heading, without.answer) == ("q1", "without", "counts", "7")
    assert (with_index.first_seconds, with_index.seconds, with_index.counts) == (1.0, (2.0, 3.0), {"rows": 2.5})
    assert bench.steps == [without, with_index]


def test_all_tasks_warm_up_before_one_is_measured(bench: Bench) -> None:
    log: list[str] = []
    bench.compare([Task(name, {"with": partial(counting, log, name)}) for name in ("a", "b")], repeats=1, warm_ups=2)

    assert log == ["a", "b", "a", "b", "a", "b"]


def test_a_side_with_another_answer_stops_and_says_so(bench: Bench) -> None:
    log: list[str] = []
    wrong = partial(counting, log, "with", lambda number: 6 + number)
    without, with_index = bench.compare([Task("q1", {"without": partial(counting, [], ""), "with": wrong})], repeats=3)

    assert without.failure is None
    assert len(without.seconds) == 3
    assert (with_index.failure, with_index.seconds) == ("answers 8, 7 is due", ())
    assert len(log) == 2
    assert bench.record("run", "Run").failures == ["q1, with: answers 8, 7 is due"]


def test_both_sides_are_held_against_the_answer_that_is_due(bench: Bench) -> None:
    works = {side: partial(counting, [], side) for side in SIDES}

    assert [step.failure for step in bench.compare([Task("q1", works, due=7)], repeats=1)] == [None, None]
    failures = [step.failure for step in bench.compare([Task("q1", works, due=8)], repeats=1)]
    assert failures == ["answers 7, 8 is due"] * 2


def test_an_exception_ends_its_side_with_its_first_line(bench: Bench) -> None:
    def broken() -> Seen:
        raise BenchError("no such thing\nat all")

    works = {"without": broken, "with": partial(counting, [], "with")}
    without, with_index = bench.compare([Task("q1", works)], repeats=1)

    assert (without.failure, without.seconds, without.first_seconds) == ("no such thing", (), None)
    assert (with_index.failure, with_index.seconds) == (None, (2.0,))


def test_targets_are_those_of_the_other_sides(bench: Bench) -> None:
    works = {side: partial(counting, [], side) for side in SIDES}
    task = Task("q1", works, most={"rows": 2}, limit=lambda seconds: seconds / 2)
    without, with_index = bench.compare([task], repeats=2)

    assert without.most == {}
    assert with_index.most == {"rows": 2, "seconds": 1.25}
    (alone,) = bench.compare([Task("q1", {"with": works["with"]}, most={"rows": 2})], repeats=1)
    assert alone.most == {"rows": 2}


def test_a_slow_task_runs_twice_and_a_fast_one_as_often_as_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROUNDS_SECONDS", 10.0)
    slow, fast = (Task(name, {"with": lambda each=each: Seen(1, {}, each)}) for name, each in (("a", 6.0), ("b", 0.1)))
    steps = bench.compare([slow, fast], repeats=5)

    assert [len(step.seconds) for step in steps] == [2, 5]


def test_work_that_does_not_say_its_seconds_is_timed(bench: Bench) -> None:
    turns = itertools.count()

    def work() -> Seen:
        time.sleep(0.02)
        return Seen(None, {"turn": next(turns)})

    (step,) = bench.compare([Task("sleep", {"with": work})], repeats=1, warm_ups=0)
    assert 0.02 <= step.seconds[0] < 5
    assert (step.answer, step.first_seconds) == (None, None)
