"""The whole benchmark in steps, each in a process of its own and left alone once its result is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ssb_bench.data.layout import Layout, write_json
from ssb_bench.errors import BenchError
from ssb_bench.results.step_times import StepTime, read_times, times_path
from ssb_bench.spark_runs.load import read_load


@dataclass(frozen=True, slots=True)
class BenchStep:
    """One step.

    Attributes:
        name: The command of `ssb-bench` that it is.
        arguments: Its arguments.
        result: The file that it leaves; None where the command itself leaves alone what is there.
        may_fail: Whether the steps after it make sense if it fails (its failures are in its result).
    """

    name: str
    arguments: tuple[str, ...]
    result: Path | None = None
    may_fail: bool = False


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much the steps do that do not follow the scale factor by themselves.

    Attributes:
        repeats: Executions of a query in Spark, at most.
        system_repeats: Warm executions of a query in each system.
        sweep_rows: Rows of a swept table.
        sweep_trials: Predicates of each point of the sweep.
        row_groups: Simulated row groups.
        batches: Batches that are appended while a watch builds.
        batch_rows: Rows of each.
    """

    repeats: int
    system_repeats: int
    sweep_rows: int
    sweep_trials: int
    row_groups: tuple[int, ...]
    batches: int
    batch_rows: int


TINY_SIZES = Sizes(2, 2, 200_000, 1, (1_000, 10_000), 3, 5_000)
SMALL_SIZES = Sizes(2, 2, 200_000, 1, (1_000, 4_000), 3, 250_000)
LARGE_SIZES = Sizes(3, 2, 2_000_000, 3, (1_000, 10_000, 100_000, 1_000_000), 12, 250_000)
_SMALLEST_SCALE_FACTORS = ((2.0, LARGE_SIZES), (0.5, SMALL_SIZES))


def sizes_for(scale_factor: float) -> Sizes:
    """Choose sizes so that small data do not wait for large simulations."""
    return next((sizes for least, sizes in _SMALLEST_SCALE_FACTORS if scale_factor > least), TINY_SIZES)


def plan_steps(layout: Layout, *, row_group_rows: int, sizes: Sizes, cores: int, memory: str) -> list[BenchStep]:
    """List the steps of the whole benchmark."""
    data, here = layout.root.parent, layout.root / "all"
    where = ("--data", str(data), "--sf", f"{layout.scale_factor:g}")
    spark = ("--cores", str(cores), "--memory", memory)
    workloads = tuple(part for name in ("count", "rows", "aggregate", "ssb") for part in ("--workload", name))
    row_groups = tuple(part for size in sizes.row_groups for part in ("--row-groups", str(size)))
    measured = ("run", "systems", "append", "sweep", "scale")
    results = {name: here / f"{name}.json" for name in measured}
    arguments: dict[str, tuple[str, ...]] = {
        "run": (*where, *spark, "--repeats", str(sizes.repeats), *workloads),
        "systems": (*where, *spark, "--repeats", str(sizes.system_repeats)),
        "append": (*where, *spark, "--batches", str(sizes.batches), "--batch-rows", str(sizes.batch_rows)),
        "sweep": (*where, *spark, "--rows", str(sizes.sweep_rows), "--trials", str(sizes.sweep_trials)),
        "scale": ("--data", str(data), "--repeats", str(sizes.repeats), *row_groups),
    }
    sources = tuple(part for name in measured for part in (f"--{name}", str(results[name])))
    return [
        BenchStep("generate", where),
        BenchStep("load", (*where, *spark, "--row-group-rows", str(row_group_rows), "--bloom-filters")),
        BenchStep("build", (*where, *spark)),
        *(
            BenchStep(name, (*arguments[name], "--output", str(results[name])), results[name], may_fail=True)
            for name in measured
        ),
        BenchStep(
            "report", (*where, *sources, "--steps", str(times_path(layout)), "--page", str(here / "report.html"))
        ),
    ]


def run_command(arguments: Sequence[str]) -> int:
    """Run a command of `ssb-bench` in a process of its own, which ends with this one, and give its exit code."""
    program = (
        "from puffin_index.jobs.worker_pool import end_with; "
        f"end_with({os.getpid()}); "
        "from ssb_bench.commands.main import main; main()"
    )
    return subprocess.run([sys.executable, "-c", program, *arguments], check=False).returncode


def run_steps(
    layout: Layout,
    steps: Sequence[BenchStep],
    *,
    anew: bool = False,
    run: Callable[[Sequence[str]], int] = run_command,
    on_step: Callable[[str], None] = lambda _: None,
) -> list[str]:
    """Run the steps whose result is not there, or is of a table that has been loaded anew since.

    Args:
        layout: The data.
        steps: The steps, in order.
        anew: Measure again what was measured.
        run: Runs a command, given as name and arguments, and gives its exit code.
        on_step: Called with what is done.

    Returns:
        The steps that ended with a failure which does not stop the others, now or when they last ran.

    Raises:
        BenchError: If a step fails that the others need.
    """
    times = read_times(times_path(layout))
    failed: list[str] = []
    for step in steps:
        if step.result is not None and not anew and _is_current(layout, step.result):
            on_step(f"{step.name}: {step.result} is there")
        else:
            if step.result is not None and (anew or not _is_newer_than_table(layout, step.result)):
                # What a step before has left is not to be taken for what this one leaves.
                step.result.unlink(missing_ok=True)
            on_step(f"{step.name} ...")
            started = time.perf_counter()
            code = run((step.name, *step.arguments))
            times[step.name] = StepTime(time.perf_counter() - started, code)
            write_json(times_path(layout), {name: asdict(time) for name, time in times.items()})
            on_step(_time_text(step.name, times[step.name]))
        if step.name in times and times[step.name].exit_code != 0:
            failed.append(step.name)
            if not (step.may_fail and step.result is not None and step.result.exists()):
                raise BenchError(f"the step `{step.name}` failed; `ssb-bench all` goes on there when it is run again")
    return failed


def render_times(times: Mapping[str, StepTime]) -> str:
    """Give a line for each step, and one for all."""
    total = StepTime(sum(time.seconds for time in times.values()), 0)
    return "\n".join(_time_text(name, time) for name, time in [*times.items(), ("together", total)])


def _time_text(name: str, time: StepTime) -> str:
    return f"{name}: {time.seconds:.0f} s{'' if time.exit_code == 0 else f', exit code {time.exit_code}'}"


def _is_current(layout: Layout, result: Path) -> bool:
    """Whether a result is there, finished, and no older than the table."""
    return _is_newer_than_table(layout, result) and _is_complete(result)


def _is_newer_than_table(layout: Layout, result: Path) -> bool:
    if not result.exists() or read_load(layout) is None:
        return False
    return result.stat().st_mtime >= layout.load_json.stat().st_mtime


def _is_complete(result: Path) -> bool:
    content: dict[str, object] = json.loads(result.read_text(encoding="utf-8"))
    return content.get("complete", True) is True
