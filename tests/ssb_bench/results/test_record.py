"""Records as JSON, on a run that was really measured (`run.json`, scale factor 1); medians, targets, ratios."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from ssb_bench.data.layout import BenchError, read_record, write_record
from ssb_bench.results.record import Record, Step, times_as_fast, together

RECORDED = Path(__file__).parents[1] / "run.json"
TIMINGS = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=20)


@pytest.fixture
def run() -> Record:
    return read_record(RECORDED, Record)


def test_a_record_survives_writing_and_reading(run: Record, tmp_path: Path) -> None:
    broken = replace(run.steps[0], seconds=(), answer=None, case="a case", most={"kept": 3}, failure="it broke")
    more = replace(run, steps=(broken, *run.steps), troubles=("no answer",))
    write_record(tmp_path / "again.json", more)

    assert read_record(tmp_path / "again.json", Record) == more
    assert run.failures == []
    assert more.failures == ["Q1-Q7, count(*), q1, a case, without: it broke", "no answer"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "is not JSON"),
        ("[]", "not a whole Record"),
        ('{"format": "ssb-bench/run/3"}', "not a whole Record: study"),
        ('{"format": "ssb-bench/record/1"}', "not a whole Record: study"),
    ],
)
def test_a_file_that_is_no_record_is_refused(tmp_path: Path, content: str, reason: str) -> None:
    file = tmp_path / "run.json"
    file.write_text(content)

    with pytest.raises(BenchError, match=reason):
        read_record(file, Record)


def test_a_record_with_an_unknown_field_is_refused(tmp_path: Path) -> None:
    content = json.loads(RECORDED.read_text())
    content["steps"][0]["colour"] = "blue"
    (tmp_path / "run.json").write_text(json.dumps(content))

    with pytest.raises(BenchError, match="colour"):
        read_record(tmp_path / "run.json", Record)


def test_a_record_has_its_time_in_the_name_of_its_file(run: Record, tmp_path: Path) -> None:
    later = replace(run, started_at="2026-12-02T00:00:00+00:00")

    assert later.file_in(tmp_path) == tmp_path / "run-20261202T000000Z.json"


@given(TIMINGS)
def test_the_median_lies_between_least_and_greatest(seconds: list[float]) -> None:
    median = Step("q1", "with", tuple(seconds)).median

    assert median is not None
    assert min(seconds) <= median <= max(seconds)
    assert Step("q1", "with").median is None


def test_what_is_over_its_target_is_missed() -> None:
    step = Step("q1", "with", (1.0, 5.0, 2.0), counts={"kept": 11, "rounds": 1.5}, most={"kept": 11.0, "seconds": 2.0})

    assert step.missed == {}
    assert replace(step, seconds=(2.1,)).missed == {"seconds": 2.1}
    assert replace(step, counts={"kept": 12}).missed == {"kept": 12}
    assert replace(step, most={}, counts={"kept": 12}).missed == {}
    assert replace(step, seconds=(), counts={}).missed == {}


def test_a_ratio_needs_both_sides() -> None:
    without, fast = Step("q1", "without", (10.0, 30.0, 20.0)), Step("q1", "with", (1.0, 2.0, 3.0))

    assert times_as_fast(without, fast) == 10
    assert times_as_fast(without, without) is None
    assert times_as_fast(without, replace(fast, seconds=())) is None
    assert times_as_fast(replace(without, seconds=()), fast) is None


def test_cases_of_a_row_are_added_up() -> None:
    one = Step("needle", "with", (1.0,), counts={"kept": 2}, most={"kept": 2}, case="longs")
    other = replace(one, seconds=(3.0, 5.0), counts={"kept": 5, "matching": 1}, case="strings")

    assert together([one]) == one
    both = together([one, other])
    assert (both.seconds, both.counts, both.missed) == ((1.0, 3.0, 5.0), {"kept": 7, "matching": 1}, {})
    broken = together([one, replace(other, failure="it broke")])
    assert (broken.seconds, broken.counts, broken.failure) == ((), {"kept": 7, "matching": 1}, "it broke")
    record = Record("clustered", "", "", 1.0, {}, {}, (one, other, replace(one, name="list")))
    assert record.rows() == {
        ("", "needle"): {"with": [one, other]},
        ("", "list"): {"with": [replace(one, name="list")]},
    }
