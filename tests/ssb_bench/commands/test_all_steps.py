"""The steps of the whole benchmark: in order, left alone once done, stopped by what the others need."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ssb_bench.commands.all_steps import MEASURED, Step, arguments_for, list_steps, run_command, run_steps
from ssb_bench.commands.main import cli
from ssb_bench.data.layout import BenchError, Layout


def fail(command: Sequence[str]) -> int:
    """A command that fails."""
    assert command
    return 3


@pytest.fixture
def empty(tmp_path: Path) -> Layout:
    return Layout.of(tmp_path, 0.01)


def test_every_measuring_step_leaves_a_result_that_the_report_reads(empty: Layout) -> None:
    steps = list(list_steps(empty, spark=("--cores", "2"), row_group_rows=1000))

    assert [command[0] for command, _ in steps] == ["generate", "load", "build", *MEASURED, "report"]
    assert [result for _, result in steps if result is not None] == [empty.result(name) for name in MEASURED]


def test_a_step_that_the_others_need_stops_them(empty: Layout) -> None:
    said: list[str] = []
    steps: list[Step] = [(("build", "--data", str(empty.root.parent), "--sf", "0.01"), None), (("report",), None)]

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
    step: Step = (("no-such-command",), result)

    assert run_steps(loaded, [step], run=fail, on_step=said.append) == []
    assert said == [f"no-such-command: {result} is there"]
    with pytest.raises(BenchError):
        run_steps(loaded, [step], run=fail, anew=True)


def test_a_step_may_fail_with_a_result(loaded: Layout) -> None:
    result = loaded.root / "all" / "run.json"
    step: Step = (("no-such-command",), result)

    def fail_late(command: Sequence[str]) -> int:
        result.write_text("{}")
        return fail(command)

    result.parent.mkdir()
    assert run_steps(loaded, [step], run=fail_late) == ["no-such-command"]


def test_a_result_from_before_the_load_is_not_taken_for_one_of_a_failed_step(empty: Layout) -> None:
    result = result_of(empty, "{}")

    with pytest.raises(BenchError, match="`no-such-command` failed"):
        run_steps(empty, [(("no-such-command",), result)], run=fail)
    assert not result.exists()


def test_small_data_do_not_wait_for_large_simulations() -> None:
    assert "1000000" in arguments_for(10)["scale"]
    assert "1000000" not in arguments_for(2)["scale"]


@pytest.mark.parametrize("scale_factor", [0.5, 2, 10])
def test_the_commands_take_the_arguments_of_every_step(tmp_path: Path, scale_factor: float) -> None:
    for command, _ in list_steps(Layout.of(tmp_path, scale_factor), spark=("--cores", "2"), row_group_rows=1000):
        name, *arguments = command
        assert cli.commands[name].make_context(name, arguments).params
