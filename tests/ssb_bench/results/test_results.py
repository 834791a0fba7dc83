"""Runs as JSON, table and picture, on a run that was really measured (`run.json`, scale factor 1); and medians."""

import io
import json
import math
from dataclasses import replace
from pathlib import Path

import matplotlib.image
import pytest
from hypothesis import given, strategies as st
from rich.console import Console

from ssb_bench.data.layout import BenchError, read_record, write_record
from ssb_bench.report.document import render
from ssb_bench.report.figures import draw_run, save
from ssb_bench.report.reports import run_parts
from ssb_bench.results.run import QueryResult, Run, Summary, mean_speed_up, newest_run, summarize

RECORDED = Path(__file__).parents[1] / "run.json"
TIMINGS = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=20)
BAD_TIMINGS: list[list[float]] = [[], [0.0], [-1.0], [1.0, math.nan], [math.inf]]


@pytest.fixture
def run() -> Run:
    return read_record(RECORDED, Run)


def text_of(run: Run, width: int = 120) -> str:
    text = io.StringIO()
    Console(file=text, width=width).print(render(run_parts(run)))
    return text.getvalue()


def failed(query: QueryResult) -> QueryResult:
    return replace(
        query, answer=None, answers_equal=False, without_index=None, with_index=None, plan=None, failures=("it broke",)
    )


def test_a_run_survives_writing_and_reading(run: Run, tmp_path: Path) -> None:
    write_record(tmp_path / "again.json", run)

    assert read_record(tmp_path / "again.json", Run) == run


def test_the_table_shows_every_query_with_both_sides(run: Run) -> None:
    text = text_of(run)

    assert f"{run.table.rows:,} rows of lineorder in {run.table.row_groups:,} row groups" in text.replace("\n", " ")
    for query in run.queries:
        assert query.answer is not None
        assert query.speed_up is not None
        (line,) = [line for line in text.splitlines() if line.startswith(query.name)]
        assert f"{int(query.answer):,}" in line
        assert "without" in line
        assert f"{query.speed_up:.2f}" in text
    assert "FAILED" not in text


def test_the_table_fits_a_terminal_of_100_columns(run: Run) -> None:
    text = text_of(run, width=100)

    assert "…" not in text
    assert max(len(line) for line in text.splitlines()) <= 100


def test_a_failed_query_is_shown_with_its_reason(run: Run) -> None:
    broken = replace(run, queries=(failed(run.queries[0]), *run.queries[1:]))
    text = text_of(broken)

    assert "FAILED  q1: it broke" in text
    assert broken.failures == ["q1: it broke"]


def test_the_geometric_mean_leaves_out_failed_queries(run: Run) -> None:
    assert mean_speed_up([failed(run.queries[0]), run.queries[1]]) == pytest.approx(run.queries[1].speed_up)
    assert mean_speed_up([failed(run.queries[0])]) is None


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_a_picture_is_drawn(run: Run, tmp_path: Path, suffix: str) -> None:
    picture = tmp_path / f"run.{suffix}"
    save(draw_run(run), picture)

    assert picture.stat().st_size > 10_000
    if suffix == "png":
        height, width, _ = matplotlib.image.imread(picture).shape
        assert width > 1500
        assert height > 500


def test_a_picture_is_drawn_of_what_did_not_fail(run: Run, tmp_path: Path) -> None:
    save(draw_run(replace(run, queries=(failed(run.queries[0]), *run.queries[1:]))), tmp_path / "less.png")
    save(draw_run(replace(run, queries=(failed(run.queries[0]),))), tmp_path / "none.png")

    assert (tmp_path / "none.png").stat().st_size < (tmp_path / "less.png").stat().st_size


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "is not JSON"),
        ("[]", "is not of format ssb-bench/run/3"),
        ('{"format": "ssb-bench/run/0"}', "is not of format ssb-bench/run/3"),
        ('{"format": "ssb-bench/run/3"}', "not a whole Run: started_at"),
    ],
)
def test_a_file_that_is_no_run_is_refused(tmp_path: Path, content: str, reason: str) -> None:
    file = tmp_path / "run.json"
    file.write_text(content)

    with pytest.raises(BenchError, match=reason):
        read_record(file, Run)


def test_a_run_with_an_unknown_field_is_refused(tmp_path: Path) -> None:
    content = json.loads(RECORDED.read_text())
    content["table"]["colour"] = "blue"
    (tmp_path / "run.json").write_text(json.dumps(content))

    with pytest.raises(BenchError, match="colour"):
        read_record(tmp_path / "run.json", Run)


def test_the_newest_run_is_the_one_begun_last(tmp_path: Path) -> None:
    for stamp in ("20260102T000000Z", "20260101T000000Z"):
        (tmp_path / f"run-{stamp}.json").touch()

    assert newest_run(tmp_path).name == "run-20260102T000000Z.json"


def test_no_run_names_the_command_that_makes_one(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="ssb-bench run"):
        newest_run(tmp_path)
    with pytest.raises(BenchError, match="there is no"):
        read_record(tmp_path / "run.json", Run)


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
