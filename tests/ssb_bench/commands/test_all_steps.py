"""The steps of the whole benchmark: in order, left alone once done, stopped by what the others need."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ssb_bench.commands.all_steps import (
    LARGE,
    SMALL,
    TINY,
    Arguments,
    BenchStep,
    arguments_for,
    plan_steps,
    run_command,
    run_steps,
)
from ssb_bench.commands.main import cli
from ssb_bench.data.layout import Layout
from ssb_bench.errors import BenchError
from ssb_bench.results.statistics import read_times


def fail(command: Sequence[str]) -> int:
    """A command that fails."""
    assert command
    return 3


@pytest.fixture
def empty(tmp_path: Path) -> Layout:
    return Layout.of(tmp_path, 0.01)


def test_every_measuring_step_leaves_a_result_that_the_report_reads(empty: Layout) -> None:
    steps = plan_steps(empty, SMALL, spark=("--cores", "2"), row_group_rows=1000)

    assert [step.name for step in steps] == [
        *("generate", "load", "build", "run", "systems", "append", "clustered", "scale", "report"),
    ]
    for step in steps:
        if step.result is not None:
            assert step.result == empty.result(step.name)


def test_a_step_that_the_others_need_stops_them(empty: Layout) -> None:
    said: list[str] = []
    steps = [BenchStep("build", ("--data", str(empty.root.parent), "--sf", "0.01")), BenchStep("report", ())]

    with pytest.raises(BenchError, match="`build` failed"):
        run_steps(empty, steps, on_step=said.append)
    assert not any(text.startswith("report") for text in said)


def test_a_command_runs_in_a_process_of_its_own_and_says_how_it_ended(empty: Layout) -> None:
    assert run_command(["--version"]) == 0
    assert run_command(["no-such-command"]) == 2
    assert run_command(["report", "--data", str(empty.root.parent), "--sf", "0.01"]) == 1


@pytest.fixture
def loaded(empty: Layout) -> Layout:
    empty.load_json.parent.mkdir(parents=True)
    empty.load_json.write_text(
        '{"scale_factor": 0.01, "row_group_rows": 1, "rows": 1, "data_files": 1, "row_groups": 1, '
        '"smallest_row_group_rows": 1, "median_row_group_rows": 1, "largest_row_group_rows": 1, "data_bytes": 1, '
        '"write_seconds": 1.0, "snapshot_id": 1}'
    )
    return empty


def result_of(layout: Layout, text: str) -> Path:
    result = layout.root / "all" / "run.json"
    result.parent.mkdir(parents=True)
    result.write_text(text)
    return result


def test_a_measured_step_is_left_alone_until_it_is_to_be_measured_anew(loaded: Layout) -> None:
    result = result_of(loaded, "{}")
    said: list[str] = []
    step = BenchStep("no-such-command", (), result)

    assert run_steps(loaded, [step], run=fail, on_step=said.append) == []
    assert said == [f"no-such-command: {result} is there"]
    with pytest.raises(BenchError):
        run_steps(loaded, [step], run=fail, anew=True)


def test_a_step_may_fail_with_a_result_and_is_told_again_by_the_next_run(loaded: Layout) -> None:
    result, said = loaded.root / "all" / "run.json", list[str]()
    step = BenchStep("no-such-command", (), result)

    def fail_late(command: Sequence[str]) -> int:
        result.write_text("{}")
        return fail(command)

    result.parent.mkdir()
    assert run_steps(loaded, [step], run=fail_late) == ["no-such-command"]
    assert run_steps(loaded, [step], run=fail, on_step=said.append) == ["no-such-command"]
    assert said == [f"no-such-command: {result} is there"]
    assert read_times(loaded)["no-such-command"].exit_code == 3


def test_a_result_from_before_the_load_is_not_taken_for_one_of_a_failed_step(empty: Layout) -> None:
    result = result_of(empty, "{}")

    with pytest.raises(BenchError, match="`no-such-command` failed"):
        run_steps(empty, [BenchStep("no-such-command", (), result)], run=fail)
    assert not result.exists()


def test_small_data_do_not_wait_for_large_simulations() -> None:
    assert arguments_for(0.5) == TINY
    assert arguments_for(2) == SMALL
    assert arguments_for(10) == LARGE
    assert "1000000" in LARGE["scale"]
    assert "1000000" not in TINY["scale"] + SMALL["scale"]


@pytest.mark.parametrize("arguments", [TINY, SMALL, LARGE])
def test_the_commands_take_the_arguments_of_every_step(empty: Layout, arguments: Arguments) -> None:
    for step in plan_steps(empty, arguments, spark=("--cores", "2"), row_group_rows=1000):
        command = cli.commands[step.name]
        assert command.make_context(step.name, [*step.arguments]).params
