"""`ssb-bench`: make the SSB data, load it, index it, compare queries without and with the index."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ParamSpec, TypeVar

import click
from pyspark.sql import SparkSession
from rich.console import Console

from puffin_index.errors import PuffinIndexError
from ssb_bench.dataset import require_dataset
from ssb_bench.demo import make_dataset, publish, show
from ssb_bench.indexing import IndexColumns, build_index, define_index
from ssb_bench.interference import measure_interference, render_interference
from ssb_bench.java import require_java
from ssb_bench.kernel_report import kernels_json, render_kernels
from ssb_bench.kernel_sizes import measure_sizes
from ssb_bench.kernels import DEFAULT_VALUES, kernel_cases, measure_kernels
from ssb_bench.layout import Layout, write_json
from ssb_bench.load import DEFAULT_ROW_GROUP_ROWS, load, require_load
from ssb_bench.machine import describe_host
from ssb_bench.plot import plot_run
from ssb_bench.progress import build_bar, step_bar
from ssb_bench.report import render_literals, render_run
from ssb_bench.results import newest_run, read_run
from ssb_bench.run import fit_queries, run_path, run_queries
from ssb_bench.session import create_session
from ssb_bench.spark_log import stderr_to
from ssb_bench.workload import VOLCANO_QUERIES

P = ParamSpec("P")
R = TypeVar("R")


def _layout_options(function: Callable[P, R]) -> Callable[P, R]:
    data = click.option(
        "--data",
        type=click.Path(path_type=Path, file_okay=False),
        default=Path("data"),
        show_default=True,
        help="Directory of the data; each scale factor has its own below it.",
    )
    scale = click.option("--sf", "scale_factor", type=float, default=1.0, show_default=True, help="Scale factor.")
    return scale(data(function))


def _spark_options(function: Callable[P, R]) -> Callable[P, R]:
    cores = click.option("--cores", type=click.IntRange(min=1), default=2, show_default=True, help="Spark's threads.")
    memory = click.option("--memory", default="3g", show_default=True, help="Heap of Spark's process.")
    return cores(memory(function))


def _row_group_option(function: Callable[P, R]) -> Callable[P, R]:
    return click.option(
        "--row-group-rows",
        type=click.IntRange(min=1),
        default=DEFAULT_ROW_GROUP_ROWS,
        show_default=True,
        help="Rows of a row group of lineorder.",
    )(function)


def _repeat_option(function: Callable[P, R]) -> Callable[P, R]:
    return click.option(
        "--repeats",
        type=click.IntRange(min=1),
        default=5,
        show_default=True,
        help="Measured executions of each query on each side, after one that warms up.",
    )(function)


def _index_options(function: Callable[P, R]) -> Callable[P, R]:
    default = IndexColumns()
    for kind, columns in (("bloom", default.bloom), ("bsi", default.bsi), ("bitmap", default.bitmap)):
        function = click.option(
            f"--{kind}", default=",".join(columns), show_default=True, help=f"Columns with a {kind} index, by comma."
        )(function)
    return function


@click.group()
@click.version_option(package_name="puffin-index")
def cli() -> None:
    """Measure what the index is worth on the Star Schema Benchmark.

    The steps are generate, load, build, run, report; each goes on where it was stopped. `demo` does them all.
    """


@cli.command("generate")
@_layout_options
@click.option("--keep-tpch", is_flag=True, help="Keep the TPC-H files that the tables are made of.")
@click.option("--threads", type=click.IntRange(min=1), default=2, show_default=True)
@click.option("--memory-limit", default="2GB", show_default=True, help="DuckDB's memory; beyond it, it uses the disk.")
def generate_command(scale_factor: float, data: Path, keep_tpch: bool, threads: int, memory_limit: str) -> None:
    """Make the five SSB tables as Parquet files."""
    layout, console = Layout.of(data, scale_factor), _console()
    make_dataset(layout, console, keep_tpch=keep_tpch, threads=threads, memory_limit=memory_limit)
    dataset = require_dataset(layout)
    for table, rows in dataset.rows.items():
        console.print(f"{table}: {rows:,} rows")
    console.print(f"{dataset.data_bytes / 1e6:.0f} MB in {layout.ssb}", soft_wrap=True)


@cli.command("load")
@_layout_options
@_spark_options
@_row_group_option
def load_command(scale_factor: float, data: Path, cores: int, memory: str, row_group_rows: int) -> None:
    """Write the SSB tables into Iceberg through Spark, and prove that all rows arrived."""
    layout, console = Layout.of(data, scale_factor), _console()
    require_dataset(layout)
    with _session(layout, cores, memory, console) as spark, step_bar(console, "load") as move:
        loaded = load(spark, layout, row_group_rows=row_group_rows, on_step=move)
    console.print(
        f"lineorder: {loaded.rows:,} rows, {loaded.row_groups} row groups of {loaded.smallest_row_group_rows:,} to "
        f"{loaded.largest_row_group_rows:,} rows, {loaded.data_files} files, {loaded.data_bytes / 1e6:.0f} MB, "
        f"written in {loaded.write_seconds:.1f} s"
    )


@cli.command("build")
@_layout_options
@_spark_options
@_index_options
def build_command(scale_factor: float, data: Path, cores: int, memory: str, bitmap: str, bsi: str, bloom: str) -> None:
    """Define the index of lineorder and build what is missing of it."""
    layout, console = Layout.of(data, scale_factor), _console()
    index = define_index(layout, _index_columns(bitmap, bsi, bloom))
    with _session(layout, cores, memory, console) as spark, build_bar(console) as move:
        report = build_index(spark, layout, index, move)
    console.print(
        f"{report.row_groups} row groups indexed in {report.seconds:.1f} s, {report.index_bytes / 1e6:.1f} MB"
        if report.rows
        else "nothing to build"
    )


@cli.command("run")
@_layout_options
@_spark_options
@_repeat_option
@click.option(
    "--query",
    "names",
    multiple=True,
    type=click.Choice(VOLCANO_QUERIES),
    help="A query to run; may be given again. All by default.",
)
def run_command(scale_factor: float, data: Path, cores: int, memory: str, repeats: int, names: tuple[str, ...]) -> None:
    """Run the queries without and with the index, interleaved; exit 1 if an answer or a count is wrong."""
    layout, console = Layout.of(data, scale_factor), _console()
    require_load(layout)
    queries = fit_queries(layout, names or VOLCANO_QUERIES)
    console.print(render_literals(queries))
    with _session(layout, cores, memory, console) as spark, step_bar(console, "compare") as move:
        run = run_queries(spark, layout, queries, repeats=repeats, on_step=move)
    publish(run, run_path(layout, run), console)
    if run.failures:
        sys.exit(1)


@cli.command("report")
@_layout_options
@click.option("--run", "file", type=click.Path(path_type=Path, dir_okay=False), help="A run; the newest by default.")
@click.option("--picture", type=click.Path(path_type=Path, dir_okay=False), help="Where to draw it: PNG, SVG or PDF.")
def report_command(scale_factor: float, data: Path, file: Path | None, picture: Path | None) -> None:
    """Print a run as a table and draw it."""
    path = file or newest_run(Layout.of(data, scale_factor).runs)
    run, target = read_run(path), picture or path.with_suffix(".png")
    plot_run(run, target)
    console = _console()
    console.print(render_run(run))
    console.print(f"picture: {target}", soft_wrap=True)


@cli.command("demo")
@_layout_options
@_spark_options
@_row_group_option
@_repeat_option
@_index_options
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
    layout, console = Layout.of(data, scale_factor), _console()
    require_java()
    make_dataset(layout, console)
    with _session(layout, cores, memory, console) as spark:
        run, _ = show(
            spark,
            layout,
            row_group_rows=row_group_rows,
            columns=_index_columns(bitmap, bsi, bloom),
            repeats=repeats,
            console=console,
            anew=anew,
        )
    if run.failures:
        sys.exit(1)


@cli.command("kernels")
@_layout_options
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
    """Measure how fast indexes are built and how large they are, without Spark; sizes need generated data."""
    layout, console = Layout.of(data, scale_factor), _console()
    with console.status("kernels") as status:
        results = measure_kernels(kernel_cases(value_count), repeats=repeats, on_step=status.update)
        sizes = measure_sizes(layout.files("lineorder"), status.update) if layout.dataset_json.exists() else []
    console.print(render_kernels(results, sizes))
    if not sizes:
        console.print("sizes of lineorder's columns: run `ssb-bench generate` first")
    target = output or layout.root / "kernels.json"
    write_json(target, kernels_json(results, sizes, describe_host()))
    console.print(f"JSON: {target}", soft_wrap=True)


@cli.command("interference")
@_layout_options
@_spark_options
@_repeat_option
def interference_command(scale_factor: float, data: Path, cores: int, memory: str, repeats: int) -> None:
    """Measure what a build in the background costs the queries of the same application."""
    layout, console = Layout.of(data, scale_factor), _console()
    require_load(layout)
    queries = fit_queries(layout)
    with _session(layout, cores, memory, console) as spark, step_bar(console, "interference") as move:
        results = measure_interference(spark, layout, queries, repeats=repeats, on_step=move)
    console.print(render_interference(results))


def _console() -> Console:
    # A pipe or a log has no width of its own; the 80 columns that rich assumes would break the tables.
    return Console(width=None if sys.stdout.isatty() else 120)


@contextmanager
def _session(layout: Layout, cores: int, memory: str, console: Console) -> Iterator[SparkSession]:
    """Start Spark with its own messages in a file, and stop it at the end."""
    require_java()
    log = layout.root / "spark.log"
    with console.status("starting Spark (the first time it downloads Iceberg)"), stderr_to(log):
        spark = create_session(layout.warehouse, cores=cores, memory=memory, name="ssb-bench")
    try:
        yield spark
    finally:
        spark.stop()


def _index_columns(bitmap: str, bsi: str, bloom: str) -> IndexColumns:
    return IndexColumns(
        *(tuple(name.strip() for name in names.split(",") if name.strip()) for names in (bitmap, bsi, bloom))
    )


def main() -> None:
    """Run the command; print an error of ours as one sentence and exit 1."""
    try:
        cli()
    except PuffinIndexError as error:
        Console(stderr=True).print(f"[bold red]error:[/] {error}", soft_wrap=True)
        sys.exit(1)
