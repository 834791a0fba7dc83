"""The whole benchmark in steps: each runs in a process of its own, and not again once its result is there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import click

from ssb_bench.commands.options import SparkSize, layout_options, make_console, row_group_option, spark_options
from ssb_bench.data.layout import BenchError, Layout
from ssb_bench.spark_runs.session import require_java

Step: TypeAlias = tuple[Sequence[str], Path | None]
"""A command with its arguments, and the file that it writes even if it exits with 1.

Without a file, the command goes on by itself where it stopped, and the steps after it need its success.
"""

MEASURED: Final = ("run", "systems", "append", "clustered", "scale")
_WORKLOADS: Final = "--workload count --workload rows --workload aggregate --workload ssb"


def arguments_for(scale_factor: float) -> dict[str, str]:
    """Choose arguments so that small data do not wait for large simulations."""
    if scale_factor > 2:
        return {
            "run": f"--repeats 3 {_WORKLOADS}",
            "systems": "--repeats 2",
            "append": "--batches 12 --batch-rows 250000",
            "clustered": "--rows 1000000 --trials 1 --repeats 3",
            "scale": "--repeats 3 --row-groups 1000 --row-groups 10000 --row-groups 100000 --row-groups 1000000",
        }
    return {
        "run": f"--repeats 2 {_WORKLOADS}",
        "systems": "--repeats 2",
        "append": f"--batches 3 --batch-rows {5_000 if scale_factor <= 0.5 else 250_000}",
        "clustered": "--rows 200000 --trials 1 --repeats 1",
        "scale": "--repeats 2 --row-groups 1000 --row-groups 4000",
    }


def list_steps(layout: Layout, *, spark: Sequence[str], row_group_rows: int) -> Iterator[Step]:
    """List the steps of the whole benchmark.

    Args:
        layout: The data.
        spark: Arguments of the commands that start Spark.
        row_group_rows: Rows of a row group of lineorder.
    """
    where = ("--data", str(layout.data), "--sf", f"{layout.scale_factor:g}")
    yield ("generate", *where), None
    yield ("load", *where, *spark, "--row-group-rows", str(row_group_rows), "--bloom-filters"), None
    yield ("build", *where, *spark), None
    arguments = arguments_for(layout.scale_factor)
    for name in MEASURED:
        common = where if name in ("clustered", "scale") else (*where, *spark)
        own = ("--output", str(layout.result(name))) if name == "run" else ()
        yield (name, *common, *arguments[name].split(), *own), layout.result(name)
    page = str(layout.results / "report.html")
    yield ("report", *where, "--run", str(layout.result("run")), "--page", page), None


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
    steps: Iterable[Step],
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
        run: Runs a command and gives its exit code.
        on_step: Called with what is done.

    Returns:
        The steps that ended with a failure and a result.

    Raises:
        BenchError: If a step fails that the others need, or leaves no result.
    """
    failed: list[str] = []
    for command, result in steps:
        name = command[0]
        if result is not None and (anew or not _is_of_load(result, layout)):
            # Otherwise an old result would pass for one of a step that fails.
            result.unlink(missing_ok=True)
        if result is not None and result.exists():
            on_step(f"{name}: {result} is there")
            continue
        on_step(f"{name} ...")
        if run(command) != 0:
            failed.append(name)
            if result is None or not result.exists():
                raise BenchError(f"the step `{name}` failed; `ssb-bench all` goes on there when it is run again")
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

    Goes on where it was stopped. Up to scale factor 2, repeats, appends and simulations are fewer.
    """
    console = make_console()
    require_java()
    spark = ("--cores", str(size.cores), "--memory", size.memory)
    steps = list_steps(layout, spark=spark, row_group_rows=row_group_rows)
    if failed := run_steps(layout, steps, anew=anew, on_step=lambda text: console.print(text, style="bold")):
        console.print(f"with failures: {', '.join(failed)}", style="bold red")
        sys.exit(1)
