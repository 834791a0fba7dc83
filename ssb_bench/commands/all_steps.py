"""The whole benchmark in steps: each runs in a process of its own, and not again once its result is there."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import click

from ssb_bench.commands.options import SparkSize, layout_options, make_console, row_group_option, spark_options
from ssb_bench.data.layout import Layout, write_record
from ssb_bench.errors import BenchError
from ssb_bench.report.document import render
from ssb_bench.report.study_reports import step_parts
from ssb_bench.results.statistics import StepTime, read_times
from ssb_bench.spark_runs.session import require_java

Arguments: TypeAlias = Mapping[str, str]
"""By step, the arguments that do not follow the scale factor by themselves."""

MEASURED: Final = ("run", "systems", "append", "clustered", "scale")
_WORKLOADS: Final = "--workload count --workload rows --workload aggregate --workload ssb"

LARGE: Final[Arguments] = {
    "run": f"--repeats 3 {_WORKLOADS}",
    "systems": "--repeats 2",
    "append": "--batches 12 --batch-rows 250000",
    "clustered": "--rows 1000000 --trials 1 --repeats 3",
    "scale": "--repeats 3 --row-groups 1000 --row-groups 10000 --row-groups 100000 --row-groups 1000000",
}
SMALL: Final[Arguments] = {
    "run": f"--repeats 2 {_WORKLOADS}",
    "systems": "--repeats 2",
    "append": "--batches 3 --batch-rows 250000",
    "clustered": "--rows 200000 --trials 1 --repeats 1",
    "scale": "--repeats 2 --row-groups 1000 --row-groups 4000",
}
TINY: Final[Arguments] = {
    **SMALL,
    "append": "--batches 3 --batch-rows 5000",
    "scale": "--repeats 2 --row-groups 1000 --row-groups 10000",
}


@dataclass(frozen=True, slots=True)
class BenchStep:
    """One step.

    Attributes:
        name: The command of `ssb-bench` that is run.
        arguments: Its arguments.
        result: The file that the command writes, even with failures that make it exit with 1. None for a command that
            goes on by itself where it stopped; the steps after such a command need its success.
    """

    name: str
    arguments: tuple[str, ...]
    result: Path | None = None


def arguments_for(scale_factor: float) -> Arguments:
    """Choose arguments so that small data do not wait for large simulations."""
    return TINY if scale_factor <= 0.5 else SMALL if scale_factor <= 2 else LARGE


def plan_steps(layout: Layout, arguments: Arguments, *, spark: Sequence[str], row_group_rows: int) -> list[BenchStep]:
    """List the steps of the whole benchmark.

    Args:
        layout: The data.
        arguments: What `arguments_for` gives.
        spark: Arguments of the commands that start Spark.
        row_group_rows: Rows of a row group of lineorder.
    """
    where = ("--data", str(layout.data), "--sf", f"{layout.scale_factor:g}")
    steps = [
        BenchStep("generate", where),
        BenchStep("load", (*where, *spark, "--row-group-rows", str(row_group_rows), "--bloom-filters")),
        BenchStep("build", (*where, *spark)),
    ]
    run = str(layout.result("run"))
    for name in MEASURED:
        common = where if name in ("clustered", "scale") else (*where, *spark)
        own = ("--output", run) if name == "run" else ()
        steps.append(BenchStep(name, (*common, *arguments[name].split(), *own), layout.result(name)))
    return [*steps, BenchStep("report", (*where, "--run", run, "--page", str(layout.results / "report.html")))]


def run_command(arguments: Sequence[str]) -> int:
    """Run a command of `ssb-bench` in a process that ends when this process does, and give its exit code."""
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
    """Run the steps without a result, and those whose result is older than the table.

    Args:
        layout: The data.
        steps: The steps, in order.
        anew: Measure again what was measured.
        run: Runs a command, given as name and arguments, and gives its exit code.
        on_step: Called with what is done.

    Returns:
        The steps that ended with a failure and a result, now or when they last ran.

    Raises:
        BenchError: If a step fails that the others need, or leaves no result.
    """
    times = read_times(layout)
    failed: list[str] = []
    for step in steps:
        if step.result is not None and (anew or not _is_of_load(step.result, layout)):
            # Otherwise an old result would pass for one of a step that fails.
            step.result.unlink(missing_ok=True)
        if step.result is not None and step.result.exists():
            on_step(f"{step.name}: {step.result} is there")
        else:
            on_step(f"{step.name} ...")
            started = time.perf_counter()
            code = run((step.name, *step.arguments))
            times[step.name] = StepTime(time.perf_counter() - started, code)
            write_record(layout.result("steps"), times)
            on_step(f"{step.name}: {times[step.name].seconds:.0f} s, exit code {code}")
        if step.name in times and times[step.name].exit_code != 0:
            failed.append(step.name)
            if step.result is None or not step.result.exists():
                raise BenchError(f"the step `{step.name}` failed; `ssb-bench all` goes on there when it is run again")
    return failed


def _is_of_load(result: Path, layout: Layout) -> bool:
    """Whether a result was measured after the present load of the table."""
    load = layout.load_json
    return result.exists() and load.exists() and result.stat().st_mtime >= load.stat().st_mtime


@click.command("all")
@layout_options
@spark_options
@row_group_option
@click.option("--anew", is_flag=True, help="Measure again what was measured; data, table and index are kept.")
def all_command(layout: Layout, size: SparkSize, row_group_rows: int, anew: bool) -> None:
    """Do it all: data, table, index, every workload, systems, appends, clustered keys, scale, page.

    Goes on where it was stopped. Up to scale factors 2 and 0.5, repeats, appends and simulations are fewer.
    """
    console = make_console()
    require_java()
    spark = ("--cores", str(size.cores), "--memory", size.memory)
    steps = plan_steps(layout, arguments_for(layout.scale_factor), spark=spark, row_group_rows=row_group_rows)
    try:
        failed = run_steps(layout, steps, anew=anew, on_step=lambda text: console.print(text, style="bold"))
    finally:
        console.print(render(step_parts(read_times(layout))))
    if failed:
        console.print(f"with failures: {', '.join(failed)}", style="bold red")
        sys.exit(1)
