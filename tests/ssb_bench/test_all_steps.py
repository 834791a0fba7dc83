"""The steps of the whole benchmark: in order, left alone once done, stopped by what the others need."""

from __future__ import annotations

from pathlib import Path

import pytest

from ssb_bench.all_steps import BenchStep, plan_steps, run_steps
from ssb_bench.errors import BenchError
from ssb_bench.layout import Layout


@pytest.fixture
def empty(tmp_path: Path) -> Layout:
    return Layout.of(tmp_path, 0.01)


def test_every_measuring_step_leaves_a_result_that_the_report_reads(empty: Layout) -> None:
    steps = plan_steps(empty, row_group_rows=1000, repeats=3, cores=2, memory="2g")

    assert [step.name for step in steps] == ["generate", "load", "build", "run", "systems", "sweep", "scale", "report"]
    for step in steps:
        if step.result is not None:
            assert str(step.result) in step.arguments
            assert str(step.result) in steps[-1].arguments


def test_a_step_that_the_others_need_stops_them(empty: Layout) -> None:
    said: list[str] = []
    steps = [BenchStep("build", ("--data", str(empty.root.parent), "--sf", "0.01")), BenchStep("report", ())]

    with pytest.raises(BenchError, match="`build` failed"):
        run_steps(empty, steps, on_step=said.append)
    assert not any(text.startswith("report") for text in said)


def test_a_measured_step_is_left_alone_until_the_table_is_loaded_anew(empty: Layout) -> None:
    result = empty.root / "all" / "run.json"
    empty.load_json.parent.mkdir(parents=True)
    empty.load_json.write_text(
        '{"scale_factor": 0.01, "row_group_rows": 1, "rows": 1, "data_files": 1, "row_groups": 1, '
        '"smallest_row_group_rows": 1, "median_row_group_rows": 1, "largest_row_group_rows": 1, "data_bytes": 1, '
        '"write_seconds": 1.0, "snapshot_id": 1}'
    )
    result.parent.mkdir(parents=True)
    result.write_text("{}")
    said: list[str] = []
    step = BenchStep("no-such-command", (), result)

    assert run_steps(empty, [step], on_step=said.append) == []
    assert said == [f"no-such-command: {result} is there"]
    with pytest.raises(BenchError):
        run_steps(empty, [step], anew=True)


def test_a_step_may_fail_with_a_result(empty: Layout) -> None:
    result = empty.root / "all" / "run.json"
    result.parent.mkdir(parents=True)
    result.write_text("{}")

    assert run_steps(empty, [BenchStep("no-such-command", (), result, True)]) == ["no-such-command"]
