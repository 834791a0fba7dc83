"""`ssb-bench`: make the SSB data, load it, index it, compare queries without and with the index."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from puffin_index.errors import PuffinIndexError
from ssb_bench.commands.demo import make_dataset, publish, show
from ssb_bench.commands.more_commands import MORE_COMMANDS
from ssb_bench.commands.options import (
    index_columns,
    index_options,
    layout_options,
    make_console,
    repeat_option,
    row_group_option,
    spark_options,
    spark_session,
)
from ssb_bench.data.dataset import require_dataset
from ssb_bench.data.layout import Layout, write_json
from ssb_bench.data.progress import build_bar, step_bar
from ssb_bench.data.workload import ALL_QUERIES, QUERIES_OF, VOLCANO_QUERIES, Workload
from ssb_bench.report.kernel_report import kernels_json, render_kernels
from ssb_bench.report.page import write_page
from ssb_bench.report.pictures import Sources, draw_pictures, write_pictures
from ssb_bench.report.plot import plot_run
from ssb_bench.report.terminal import render_literals, render_run
from ssb_bench.results.append_results import read_appends
from ssb_bench.results.results import newest_run, read_run
from ssb_bench.results.step_times import read_times, times_path
from ssb_bench.spark_runs.bloom_table import make_bloom_table
from ssb_bench.spark_runs.indexing import build_index, define_index
from ssb_bench.spark_runs.java import require_java
from ssb_bench.spark_runs.load import load, require_load
from ssb_bench.spark_runs.machine import describe_host
from ssb_bench.spark_runs.run import fit_queries, run_path, run_queries
from ssb_bench.studies.kernel_memory import measure_memory
from ssb_bench.studies.kernel_sizes import measure_sizes
from ssb_bench.studies.kernels import DEFAULT_VALUES, kernel_cases, measure_kernels
from ssb_bench.studies.scale import read_scale
from ssb_bench.studies.sweep import read_sweep
from ssb_bench.systems.run import read_systems

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.group()
@click.version_option(package_name="puffin-index")
def cli() -> None:
    """Measure what the index is worth on the Star Schema Benchmark.

    The steps are generate, load, build, run, report; each goes on where it was stopped. `demo` does them all.
    """


@cli.command("generate")
@layout_options
@click.option("--keep-tpch", is_flag=True, help="Keep the TPC-H files that the tables are made of.")
@click.option("--threads", type=click.IntRange(min=1), default=2, show_default=True)
@click.option("--memory-limit", default="2GB", show_default=True, help="DuckDB's memory; beyond it, it uses the disk.")
def generate_command(scale_factor: float, data: Path, keep_tpch: bool, threads: int, memory_limit: str) -> None:
    """Make the five SSB tables as Parquet files."""
    layout, console = Layout.of(data, scale_factor), make_console()
    make_dataset(layout, console, keep_tpch=keep_tpch, threads=threads, memory_limit=memory_limit)
    dataset = require_dataset(layout)
    for table, rows in dataset.rows.items():
        console.print(f"{table}: {rows:,} rows")
    console.print(f"{dataset.data_bytes / 1e6:.0f} MB in {layout.ssb}", soft_wrap=True)


@cli.command("load")
@layout_options
@spark_options
@row_group_option
@click.option("--bloom-filters", is_flag=True, help="Also write lineorder with Parquet bloom filters, for `systems`.")
def load_command(
    scale_factor: float, data: Path, cores: int, memory: str, row_group_rows: int, bloom_filters: bool
) -> None:
    """Write the SSB tables into Iceberg through Spark, and prove that all rows arrived."""
    layout, console = Layout.of(data, scale_factor), make_console()
    require_dataset(layout)
    with spark_session(layout, cores, memory, console) as spark:
        with step_bar(console, "load") as move:
            loaded = load(spark, layout, row_group_rows=row_group_rows, on_step=move)
        if bloom_filters:
            with console.status("writing bloom filters"):
                make_bloom_table(spark, layout)
    console.print(
        f"lineorder: {loaded.rows:,} rows, {loaded.row_groups} row groups of {loaded.smallest_row_group_rows:,} to "
        f"{loaded.largest_row_group_rows:,} rows, {loaded.data_files} files, {loaded.data_bytes / 1e6:.0f} MB, "
        f"written in {loaded.write_seconds:.1f} s"
    )


@cli.command("build")
@layout_options
@spark_options
@index_options
def build_command(scale_factor: float, data: Path, cores: int, memory: str, bitmap: str, bsi: str, bloom: str) -> None:
    """Define the index of lineorder and build what is missing of it."""
    layout, console = Layout.of(data, scale_factor), make_console()
    index = define_index(layout, index_columns(bitmap, bsi, bloom))
    with spark_session(layout, cores, memory, console) as spark, build_bar(console) as move:
        report = build_index(spark, layout, index, move)
    console.print(
        f"{report.row_groups} row groups indexed in {report.seconds:.1f} s, {report.index_bytes / 1e6:.1f} MB"
        if report.rows
        else "nothing to build"
    )


@cli.command("run")
@layout_options
@spark_options
@repeat_option
@click.option(
    "--query",
    "names",
    multiple=True,
    type=click.Choice(ALL_QUERIES),
    metavar="NAME",
    help="A query to run, such as q1, q1-rows, q1-aggregate or q1.1; may be given again.",
)
@click.option(
    "--workload",
    "workloads",
    multiple=True,
    type=click.Choice([*QUERIES_OF]),
    help="Queries to run: Q1-Q7 as count, rows or aggregate, or the 13 of ssb; may be given again. Default: count.",
)
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Where to write JSON.")
def run_command(
    scale_factor: float,
    data: Path,
    cores: int,
    memory: str,
    repeats: int,
    names: tuple[str, ...],
    workloads: tuple[Workload, ...],
    output: Path | None,
) -> None:
    """Run queries without the index, with it, and with perfect pruning; exit 1 if an answer or a count is wrong."""
    layout, console = Layout.of(data, scale_factor), make_console()
    require_load(layout)
    chosen = [*names, *(name for workload in workloads for name in QUERIES_OF[workload])]
    queries = fit_queries(layout, chosen or VOLCANO_QUERIES)
    console.print(render_literals(queries))
    with spark_session(layout, cores, memory, console) as spark, step_bar(console, "compare") as move:
        run = run_queries(spark, layout, queries, repeats=repeats, on_step=move)
    publish(run, output or run_path(layout, run), console)
    if run.failures:
        sys.exit(1)


@cli.command("report")
@layout_options
@click.option("--run", "file", type=click.Path(path_type=Path, dir_okay=False), help="A run; the newest by default.")
@click.option("--picture", type=click.Path(path_type=Path, dir_okay=False), help="Where to draw it: PNG, SVG or PDF.")
@click.option("--systems", type=_FILE, help="A comparison of systems; the newest by default.")
@click.option("--append", type=_FILE, help="Queries while data arrive; append.json beside the data by default.")
@click.option("--sweep", type=_FILE, help="A sweep; DATA/sweep.json by default.")
@click.option("--scale", type=_FILE, help="Planning over simulated indexes; DATA/scale.json by default.")
@click.option("--steps", type=_FILE, help="The times of the steps of `all`; of its last run by default.")
@click.option("--page", type=_FILE, help="Where to write the HTML page; beside the run by default.")
def report_command(
    scale_factor: float,
    data: Path,
    file: Path | None,
    picture: Path | None,
    systems: Path | None,
    append: Path | None,
    sweep: Path | None,
    scale: Path | None,
    steps: Path | None,
    page: Path | None,
) -> None:
    """Print a run as a table, draw it, and make an HTML page of it and of what else was measured."""
    layout = Layout.of(data, scale_factor)
    path = file or newest_run(layout.runs)
    run, target = read_run(path), picture or path.with_suffix(".png")
    plot_run(run, target)
    console = make_console()
    console.print(render_run(run))
    newest_systems = systems or max(layout.runs.glob("systems-*.json"), default=None)
    appended = append or layout.root / "append.json"
    other = {
        name: chosen or layout.root.parent / f"{name}.json" for name, chosen in (("sweep", sweep), ("scale", scale))
    }
    sources = Sources(
        run,
        None if newest_systems is None or not newest_systems.exists() else read_systems(newest_systems),
        read_appends(appended) if appended.exists() else None,
        read_scale(other["scale"]) if other["scale"].exists() else (),
        read_sweep(other["sweep"]) if other["sweep"].exists() else (),
        read_times(steps or times_path(layout)),
    )
    html = page or path.with_suffix(".html")
    pictures = draw_pictures(sources)
    write_page(sources, pictures, html)
    folder = write_pictures(pictures, html)
    console.print(f"picture: {target}\npage: {html}\npictures of the page: {folder}", soft_wrap=True)


@cli.command("demo")
@layout_options
@spark_options
@row_group_option
@repeat_option
@index_options
@click.option("--anew", is_flag=True, help="Load the table and build its index even if they are there.")
def demo_command(
    scale_factor: float,
    data: Path,
    cores: int,
    memory: str,
    row_group_rows: int,
    repeats: int,
    bitmap: str,
    bsi: str,
    bloom: str,
    anew: bool,
) -> None:
    """Show the whole way: data, table, an index built while queries run, the comparison, a picture."""
    layout, console = Layout.of(data, scale_factor), make_console()
    require_java()
    make_dataset(layout, console)
    with spark_session(layout, cores, memory, console) as spark:
        run, _ = show(
            spark,
            layout,
            row_group_rows=row_group_rows,
            columns=index_columns(bitmap, bsi, bloom),
            repeats=repeats,
            console=console,
            anew=anew,
        )
    if run.failures:
        sys.exit(1)


@cli.command("kernels")
@layout_options
@click.option(
    "--values", "value_count", type=click.IntRange(min=1000), default=DEFAULT_VALUES, show_default=True, help="Rows."
)
@click.option("--repeats", type=click.IntRange(min=1), default=9, show_default=True, help="Measured builds of each.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where to write JSON.  [default: kernels.json in the scale factor's directory]",
)
def kernels_command(scale_factor: float, data: Path, value_count: int, repeats: int, output: Path | None) -> None:
    """Measure how fast indexes are built, in what memory, and how large they are; sizes need generated data."""
    layout, console = Layout.of(data, scale_factor), make_console()
    with console.status("kernels") as status:
        results = measure_kernels(kernel_cases(value_count), repeats=repeats, on_step=status.update)
        memory = measure_memory(value_count, status.update)
        sizes = measure_sizes(layout.files("lineorder"), status.update) if layout.dataset_json.exists() else []
    console.print(render_kernels(results, memory, sizes))
    if not sizes:
        console.print("sizes of lineorder's columns: run `ssb-bench generate` first")
    target = output or layout.root / "kernels.json"
    write_json(target, kernels_json(results, memory, sizes, describe_host()))
    console.print(f"JSON: {target}", soft_wrap=True)


for _command in MORE_COMMANDS:
    cli.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command, that of the command line unless told; print an error of ours as one sentence and exit 1."""
    try:
        cli(arguments, prog_name="ssb-bench")
    except PuffinIndexError as error:
        Console(stderr=True).print(f"[bold red]error:[/] {error}", soft_wrap=True)
        sys.exit(1)
