"""The steps of a comparison: generate, load, build, run, report; compare."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import click

from ssb_bench.commands.demo import make_dataset, publish
from ssb_bench.commands.options import (
    FILE,
    SparkSize,
    index_options,
    layout_options,
    make_console,
    repeat_option,
    row_group_option,
    spark_options,
)
from ssb_bench.data.dataset import build_step, require_dataset, step_bar
from ssb_bench.data.layout import Layout, read_if_there, read_record
from ssb_bench.data.workload import ALL_QUERIES, QUERIES_OF, VOLCANO_QUERIES, Workload
from ssb_bench.report.compare import DEFAULT_NOISE_BAND, compare_runs, comparison_parts
from ssb_bench.report.document import Part, render
from ssb_bench.report.figures import draw_run, save
from ssb_bench.report.page import write_page
from ssb_bench.report.reports import (
    append_parts,
    clustered_parts,
    literal_parts,
    run_parts,
    scale_parts,
    store_parts,
    systems_parts,
)
from ssb_bench.results.run import Run, newest_run
from ssb_bench.results.studies import AppendRun, ClusteredRun, Scale, StoreRun, SystemsRun
from ssb_bench.spark_runs.indexing import IndexColumns, build_index, define_index
from ssb_bench.spark_runs.load import load, make_bloom_table, require_load
from ssb_bench.spark_runs.run import fit_queries, run_queries, stamped_path

_STUDIES: Final[dict[str, tuple[str, type, Callable[[Any], Iterable[Part]]]]] = {
    "systems": ("Other systems", SystemsRun, systems_parts),
    "append": ("While data arrive", AppendRun, append_parts),
    "clustered": ("Keys in bursts", ClusteredRun, clustered_parts),
    "scale": ("Planning at scale", Scale, scale_parts),
    "store": ("In an object store", StoreRun, store_parts),
}
"""By study: its heading on the page, its record, and what the page says of it."""


@click.command("generate")
@layout_options
def generate_command(layout: Layout) -> None:
    """Make the five SSB tables as Parquet files."""
    console = make_console()
    make_dataset(layout, console)
    dataset = require_dataset(layout)
    for table, rows in dataset.rows.items():
        console.print(f"{table}: {rows:,} rows")
    console.print(f"{dataset.data_bytes / 1e6:.0f} MB in {layout.ssb}", soft_wrap=True)


@click.command("load")
@layout_options
@spark_options
@row_group_option
@click.option("--order-by", metavar="COLUMN", default="", help="Order the rows of lineorder by a column of it.")
@click.option("--bloom-filters", is_flag=True, help="Also write lineorder with Parquet bloom filters, for `systems`.")
def load_command(layout: Layout, size: SparkSize, row_group_rows: int, order_by: str, bloom_filters: bool) -> None:
    """Write the SSB tables into Iceberg through Spark, and prove that all rows arrived."""
    console = make_console()
    require_dataset(layout)
    with size.session(layout, console) as spark:
        with step_bar(console, "load") as move:
            loaded = load(spark, layout, row_group_rows=row_group_rows, order_by=order_by, on_step=move)
        if bloom_filters:
            with console.status("writing bloom filters"):
                make_bloom_table(spark, layout)
    console.print(
        f"lineorder: {loaded.rows:,} rows, {loaded.row_groups} row groups of {loaded.smallest_row_group_rows:,} to "
        f"{loaded.largest_row_group_rows:,} rows, {loaded.data_files} files, {loaded.data_bytes / 1e6:.0f} MB, "
        f"written in {loaded.write_seconds:.1f} s"
    )


@click.command("build")
@layout_options
@spark_options
@index_options
def build_command(layout: Layout, size: SparkSize, columns: IndexColumns) -> None:
    """Define the index of lineorder and build what is missing of it."""
    console = make_console()
    index = define_index(layout, columns)
    with size.session(layout, console) as spark, step_bar(console, "build") as move:
        report = build_index(spark, layout, index, lambda built: move(build_step(built)))
    console.print(
        f"{report.row_groups} row groups indexed in {report.seconds:.1f} s, {report.index_bytes / 1e6:.1f} MB"
        if report.rows
        else "nothing to build"
    )


@click.command("run")
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
@click.option("--output", type=FILE, help="Where to write JSON.")
def run_command(
    layout: Layout,
    size: SparkSize,
    repeats: int,
    names: tuple[str, ...],
    workloads: tuple[Workload, ...],
    output: Path | None,
) -> None:
    """Run queries without the index and with it; exit 1 if an answer or a count is wrong."""
    console = make_console()
    require_load(layout)
    chosen = [*names, *(name for workload in workloads for name in QUERIES_OF[workload])]
    queries = fit_queries(layout, chosen or VOLCANO_QUERIES)
    console.print(render(literal_parts(queries)))
    with size.session(layout, console) as spark, step_bar(console, "compare") as move:
        run = run_queries(spark, layout, queries, repeats=repeats, on_step=move)
    publish(run, output or stamped_path(layout, "run", run.started_at), console)
    if run.failures:
        sys.exit(1)


@click.command("report")
@layout_options
@click.option("--run", "file", type=FILE, help="A run; the newest by default.")
@click.option("--page", type=FILE, help="Where to write the HTML page; beside the run by default.")
def report_command(layout: Layout, file: Path | None, page: Path | None) -> None:
    """Print a run as a table, draw it, and make an HTML page of it and of what else was measured."""
    console = make_console()
    path = file or newest_run(layout.runs)
    run, target, html = read_record(path, Run), path.with_suffix(".png"), page or path.with_suffix(".html")
    save(draw_run(run), target)
    console.print(render(run_parts(run)))
    sections = {"Queries in Spark": run_parts(run)}
    for study, (heading, record, parts) in _STUDIES.items():
        if (measured := read_if_there(layout.result(study), record)) is not None:
            sections[heading] = iter(parts(measured))
    pictures = write_page(sections, html)
    console.print(f"picture: {target}\npage: {html}\npictures of the page: {pictures}", soft_wrap=True)


@click.command("compare")
@click.argument("old", type=FILE)
@click.argument("new", type=FILE)
@click.option("--noise", type=click.FloatRange(0, 1, max_open=True), default=DEFAULT_NOISE_BAND, show_default=True)
@click.option("--relative", is_flag=True, help="Compare by the time without the index of each run.")
def compare_command(old: Path, new: Path, noise: float, relative: bool) -> None:
    """Compare two runs query by query; exit 1 if one is slower, keeps more row groups, fails or is missing."""
    compared = compare_runs(read_record(old, Run), read_record(new, Run), noise_band=noise, relative=relative)
    make_console().print(render(comparison_parts(compared, noise_band=noise)))
    if any(query.is_regression for query in compared):
        sys.exit(1)
