"""The commands beside the main way: all, append, compare, hook, interference, scale, sweep, systems."""

from __future__ import annotations

import datetime
import sys
from pathlib import Path

import click

from ssb_bench.commands.all_steps import plan_steps, render_times, run_steps, sizes_for
from ssb_bench.commands.options import (
    layout_options,
    make_console,
    repeat_option,
    row_group_option,
    spark_options,
    spark_session,
)
from ssb_bench.data.layout import Layout, write_json
from ssb_bench.data.progress import step_bar
from ssb_bench.data.workload import ROWS_QUERIES, VOLCANO_QUERIES
from ssb_bench.report.compare import DEFAULT_NOISE_BAND, compare_runs, render_comparison
from ssb_bench.report.systems_report import render_systems
from ssb_bench.results.append_results import render_appends, write_appends
from ssb_bench.results.results import read_run
from ssb_bench.results.step_times import read_times, times_path
from ssb_bench.spark_runs.bloom_table import make_bloom_table
from ssb_bench.spark_runs.java import require_java
from ssb_bench.spark_runs.load import require_load
from ssb_bench.spark_runs.machine import describe_host
from ssb_bench.spark_runs.run import fit_queries
from ssb_bench.studies.append import DEFAULT_BATCH_ROWS, DEFAULT_EVERY_SECONDS, measure_appends
from ssb_bench.studies.hook_cost import measure_hook, render_costs
from ssb_bench.studies.interference import measure_interference, render_interference
from ssb_bench.studies.scale import (
    DEFAULT_SIZES,
    measure_scale,
    render_scale,
    scale_failures,
    scale_json,
    unfinished_points,
)
from ssb_bench.studies.sweep import DEFAULT_ROWS, Grid, run_sweep, write_sweep
from ssb_bench.studies.sweep_spark import time_sweep
from ssb_bench.systems.peers import SYSTEM_NAMES, SYSTEMS
from ssb_bench.systems.run import run_systems, write_systems

SYSTEMS_QUERIES = (*VOLCANO_QUERIES, *ROWS_QUERIES[:-1])
"""All but the rows of Q7, which are most of the table."""

APPEND_QUERIES = VOLCANO_QUERIES[:-1]
"""All but Q7, which the index does not help."""

_RUN = click.Path(path_type=Path, dir_okay=False)


@click.command("append")
@layout_options
@spark_options
@click.option("--batches", type=click.IntRange(min=1), default=20, show_default=True, help="Appends.")
@click.option("--batch-rows", type=click.IntRange(min=1), default=DEFAULT_BATCH_ROWS, show_default=True)
@click.option(
    "--every", type=click.FloatRange(min=0), default=DEFAULT_EVERY_SECONDS, show_default=True, help="Seconds."
)
@click.option(
    "--output", type=_RUN, help="Where to write JSON.  [default: append.json in the scale factor's directory]"
)
def append_command(
    scale_factor: float,
    data: Path,
    cores: int,
    memory: str,
    batches: int,
    batch_rows: int,
    every: float,
    output: Path | None,
) -> None:
    """Append batches while a watch indexes them and queries run: the lag of the index, the times of the queries."""
    layout, console = Layout.of(data, scale_factor), make_console()
    queries = fit_queries(layout, APPEND_QUERIES)
    with spark_session(layout, cores, memory, console) as spark, step_bar(console, "append") as move:
        run = measure_appends(
            spark, layout, queries, batches=batches, batch_rows=batch_rows, every_seconds=every, on_step=move
        )
    target = output or layout.root / "append.json"
    write_appends(run, target)
    console.print(render_appends(run))
    console.print(f"JSON: {target}", soft_wrap=True)
    if run.failures:
        sys.exit(1)


@click.command("compare")
@click.argument("old", type=_RUN)
@click.argument("new", type=_RUN)
@click.option("--noise", type=click.FloatRange(0, 1, max_open=True), default=DEFAULT_NOISE_BAND, show_default=True)
@click.option("--relative", is_flag=True, help="Compare by the time without the index of each run.")
def compare_command(old: Path, new: Path, noise: float, relative: bool) -> None:
    """Compare two runs query by query; exit 1 if one is slower, keeps more row groups, fails or is missing."""
    compared = compare_runs(read_run(old), read_run(new), noise_band=noise, relative=relative)
    make_console().print(render_comparison(compared, noise_band=noise))
    if any(query.is_regression for query in compared):
        sys.exit(1)


@click.command("hook")
@layout_options
@spark_options
@click.option("--files", type=click.IntRange(min=1), default=20_000, show_default=True, help="Data files of the table.")
@click.option("--repeats", type=click.IntRange(min=2), default=15, show_default=True, help="Plans of each query.")
def hook_command(scale_factor: float, data: Path, cores: int, memory: str, files: int, repeats: int) -> None:
    """Measure what the hook adds to the planning of a query over a table of many data files."""
    layout, console = Layout.of(data, scale_factor), make_console()
    with spark_session(layout, cores, memory, console) as spark:
        costs = measure_hook(spark, layout.warehouse, files, repeats)
    console.print(render_costs(costs, files))


@click.command("interference")
@layout_options
@spark_options
@repeat_option
def interference_command(scale_factor: float, data: Path, cores: int, memory: str, repeats: int) -> None:
    """Measure what a build in the background costs the queries of the same application."""
    layout, console = Layout.of(data, scale_factor), make_console()
    require_load(layout)
    queries = fit_queries(layout)
    with spark_session(layout, cores, memory, console) as spark, step_bar(console, "interference") as move:
        results = measure_interference(spark, layout, queries, repeats=repeats, on_step=move)
    console.print(render_interference(results))


@click.command("scale")
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), default=Path("data"), show_default=True)
@click.option("--row-groups", "sizes", type=click.IntRange(min=1), multiple=True, help="N; may be given again.")
@repeat_option
@click.option("--output", type=_RUN, help="Where to write JSON.  [default: scale.json in the data directory]")
def scale_command(data: Path, sizes: tuple[int, ...], repeats: int, output: Path | None) -> None:
    """Plan over simulated indexes of 10^3 to 10^6 row groups: time, reads, memory, and what dominates.

    Goes on where it was stopped.
    """
    console, folder = make_console(), data.expanduser().absolute()
    target, machine = output or folder / "scale.json", describe_host()
    with console.status("scale") as status:
        points = measure_scale(
            folder / "scale",
            sizes or DEFAULT_SIZES,
            repeats=repeats,
            known=unfinished_points(target, machine),
            on_step=status.update,
            on_points=lambda points: write_json(target, scale_json(points, machine, complete=False)),
        )
    write_json(target, scale_json(points, machine))
    console.print(render_scale(points))
    console.print(f"JSON: {target}", soft_wrap=True)
    if scale_failures(points):
        sys.exit(1)


@click.command("systems")
@layout_options
@spark_options
@repeat_option
@click.option(
    "--system", "names", multiple=True, type=click.Choice(SYSTEM_NAMES), metavar="NAME", help="One; may be given again."
)
@click.option(
    "--query", "queries", multiple=True, type=click.Choice(SYSTEMS_QUERIES), metavar="NAME", help="May be given again."
)
@click.option("--output", type=_RUN, help="Where to write JSON.  [default: with a date in the runs' directory]")
def systems_command(
    scale_factor: float,
    data: Path,
    cores: int,
    memory: str,
    repeats: int,
    names: tuple[str, ...],
    queries: tuple[str, ...],
    output: Path | None,
) -> None:
    """Compare systems on the same rows, cold and warm; one that cannot be run is listed with the reason."""
    layout, console = Layout.of(data, scale_factor), make_console()
    require_load(layout)
    systems = [system for system in SYSTEMS if not names or system.name in names]
    bloom = None
    if any(system.name == "iceberg-bloom" for system in systems):
        with spark_session(layout, cores, memory, console) as spark, console.status("writing bloom filters"):
            bloom = make_bloom_table(spark, layout)
    fitted = fit_queries(layout, queries or SYSTEMS_QUERIES)
    with step_bar(console, "systems") as move:
        run = run_systems(
            layout, systems, fitted, repeats=repeats, cores=cores, memory=memory, on_step=move, bloom=bloom
        )
    stamp = datetime.datetime.fromisoformat(run.started_at).strftime("%Y%m%dT%H%M%SZ")
    path = output or layout.runs / f"systems-{stamp}.json"
    write_systems(run, path)
    console.print(render_systems(run))
    console.print(f"JSON: {path}", soft_wrap=True)
    if run.failures:
        sys.exit(1)


@click.command("sweep")
@layout_options
@spark_options
@click.option("--rows", type=click.IntRange(min=1000), default=DEFAULT_ROWS, show_default=True, help="Rows of a table.")
@click.option("--trials", type=click.IntRange(min=1), default=5, show_default=True, help="Predicates of each point.")
@click.option("--spark/--no-spark", "with_spark", default=True, help="Measure some points in Spark, too.")
@click.option("--output", type=_RUN, help="Where to write JSON.  [default: sweep.json in the data directory]")
def sweep_command(
    scale_factor: float,
    data: Path,
    cores: int,
    memory: str,
    rows: int,
    trials: int,
    with_spark: bool,
    output: Path | None,
) -> None:
    """Plan predicates of 10^-8 to 10^-1 over generated tables: what is kept, beside the theory."""
    console, folder = make_console(), data.expanduser().absolute()
    layout = Layout.of(folder, scale_factor, warehouse=folder / "sweep")
    with console.status("sweep") as status:
        points = run_sweep(layout.warehouse, Grid(rows=rows, trials=trials), status.update)
    if with_spark:
        with spark_session(layout, cores, memory, console) as spark, console.status("Spark's times"):
            points = time_sweep(spark, points)
    target = output or folder / "sweep.json"
    write_sweep(points, rows, describe_host(), target)
    console.print(f"{len(points)} points\nJSON: {target}", soft_wrap=True)


@click.command("all")
@layout_options
@spark_options
@row_group_option
@click.option("--anew", is_flag=True, help="Measure again what was measured; data, table and index are kept.")
def all_command(scale_factor: float, data: Path, cores: int, memory: str, row_group_rows: int, anew: bool) -> None:
    """Do it all: data, table, index, every workload, systems, appends, sweep, scale, page.

    Goes on where it was stopped. Up to scale factors 2 and 0.5, repeats, appends and simulations are fewer.
    """
    layout, console = Layout.of(data, scale_factor), make_console()
    require_java()
    sizes = sizes_for(scale_factor)
    steps = plan_steps(layout, row_group_rows=row_group_rows, sizes=sizes, cores=cores, memory=memory)
    try:
        failed = run_steps(layout, steps, anew=anew, on_step=lambda text: console.print(text, style="bold"))
    finally:
        console.print(render_times(read_times(times_path(layout))))
    if failed:
        console.print(f"with failures: {', '.join(failed)}", style="bold red")
        sys.exit(1)


MORE_COMMANDS = (
    all_command,
    append_command,
    compare_command,
    hook_command,
    interference_command,
    scale_command,
    sweep_command,
    systems_command,
)
