"""The guard, on a run that was really measured and on what becomes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from ssb_bench.commands.main import cli
from ssb_bench.data.layout import BenchError, read_record, write_record
from ssb_bench.report.compare import Compared, compare_runs
from ssb_bench.results.run import QueryResult, Run, Side

RECORDED = Path(__file__).parents[1] / "run.json"


@pytest.fixture
def run() -> Run:
    return read_record(RECORDED, Run)


def times_by(factor: float) -> Callable[[Side], Side]:
    return lambda side: replace(side, seconds=tuple(seconds * factor for seconds in side.seconds))


def with_query(run: Run, change: Callable[[QueryResult], QueryResult]) -> Run:
    """The run with its first query changed."""
    return replace(run, queries=(change(run.queries[0]), *run.queries[1:]))


def slower(query: QueryResult, factor: float) -> QueryResult:
    assert query.with_index is not None
    return replace(query, with_index=times_by(factor)(query.with_index))


def first(old: Run, new: Run, *, noise_band: float = 0.05, relative: bool = False) -> Compared:
    return compare_runs(old, new, noise_band=noise_band, relative=relative)[0]


def test_a_run_is_no_regression_of_itself(run: Run) -> None:
    compared = compare_runs(run, run)

    assert [query.change for query in compared] == ["unchanged"] * len(run.queries)
    assert all(query.ratio == 1 for query in compared)


def test_a_query_far_slower_is_a_regression_and_far_faster_is_not(run: Run) -> None:
    assert first(run, with_query(run, lambda query: slower(query, 10))).change == "slower"
    assert first(run, with_query(run, lambda query: slower(query, 0.1))).change == "faster"


def test_overlapping_ranges_say_nothing(run: Run) -> None:
    assert run.queries[0].with_index is not None
    seconds = run.queries[0].with_index.seconds
    wider = (*(value * 2 for value in seconds[:-1]), min(seconds))

    changed = with_query(
        run, lambda q: replace(q, with_index=None if q.with_index is None else replace(q.with_index, seconds=wider))
    )

    assert first(run, changed).ratio != 1
    assert first(run, changed).change == "unchanged"


def test_a_change_inside_the_noise_band_says_nothing(run: Run) -> None:
    def steady(query: QueryResult, seconds: float) -> QueryResult:
        assert query.with_index is not None
        return replace(query, with_index=replace(query.with_index, seconds=(seconds,) * len(query.with_index.seconds)))

    old, new = with_query(run, lambda q: steady(q, 1.0)), with_query(run, lambda q: steady(q, 1.04))

    assert first(old, new).change == "unchanged"
    assert first(old, new, noise_band=0.02).change == "slower"


def test_more_row_groups_are_a_regression_however_fast(run: Run) -> None:
    changed = with_query(
        run, lambda q: replace(q, plan=None if q.plan is None else replace(q.plan, kept=q.plan.kept + 1))
    )

    assert first(run, changed).change == "more row groups"
    assert first(changed, run).change == "unchanged"


def test_failed_and_missing_queries_are_regressions_and_new_ones_are_not(run: Run) -> None:
    assert first(run, with_query(run, lambda query: replace(query, failures=("it broke",)))).is_regression
    missing = compare_runs(run, replace(run, queries=run.queries[1:]))[-1]
    assert (missing.name, missing.change) == (run.queries[0].name, "missing")
    assert not first(replace(run, queries=run.queries[1:]), run).is_regression


def test_a_slower_machine_cancels_out_in_relative_comparison(run: Run) -> None:
    def twice(query: QueryResult) -> QueryResult:
        assert query.without_index is not None
        return replace(slower(query, 3), without_index=times_by(3)(query.without_index))

    other = replace(with_query(run, twice), machine=run.machine | {"processor": "another"})

    with pytest.raises(BenchError, match=r"different machines \(processor\)"):
        compare_runs(run, other)
    assert first(run, other, relative=True).change == "unchanged"


def test_runs_of_other_data_do_not_compare(run: Run) -> None:
    with pytest.raises(BenchError, match="different data"):
        compare_runs(run, replace(run, scale_factor=10.0))


def test_the_command_exits_with_1_on_a_regression(run: Run, tmp_path: Path) -> None:
    write_record(tmp_path / "new.json", with_query(run, lambda query: slower(query, 10)))

    good = CliRunner().invoke(cli, ["compare", str(RECORDED), str(RECORDED)])
    bad = CliRunner().invoke(cli, ["compare", str(RECORDED), str(tmp_path / "new.json")])

    assert (good.exit_code, bad.exit_code) == (0, 1)
    assert "slower" in bad.output
