"""What is measured besides: systems, append, clustered, scale, store."""

from __future__ import annotations

from contextlib import ExitStack

import click

from ssb_bench.commands.options import (
    POSITIVE,
    SparkSize,
    finish,
    layout_options,
    make_console,
    repeat_option,
    spark_options,
)
from ssb_bench.data.dataset import step_bar
from ssb_bench.data.layout import Layout
from ssb_bench.data.workload import ROWS_QUERIES, VOLCANO_QUERIES
from ssb_bench.report.reports import append_parts, clustered_parts, scale_parts, store_parts, systems_parts
from ssb_bench.spark_runs.load import make_bloom_table, require_load
from ssb_bench.spark_runs.run import fit_queries
from ssb_bench.studies.append import DEFAULT_EVERY_SECONDS, fitting_batch_rows, measure_appends
from ssb_bench.studies.clustered import DEFAULT_REPEATS, DEFAULT_TRIALS, measure_clustered
from ssb_bench.studies.clustered_data import DEFAULT_GRID, Grid
from ssb_bench.studies.scale import DEFAULT_SIZES, measure_scale
from ssb_bench.studies.store import DEFAULT_MEGABYTES, DEFAULT_MILLISECONDS, S3_SUPPORT, measure_store
from ssb_bench.systems.peers import SYSTEM_NAMES, SYSTEMS
from ssb_bench.systems.run import run_systems

SYSTEMS_QUERIES = (*VOLCANO_QUERIES, *ROWS_QUERIES[:-1])
"""All but the rows of Q7, which are most of the table."""

APPEND_QUERIES = VOLCANO_QUERIES[:-1]
"""All but Q7, which the index does not help."""

STORE_QUERIES = ("q1", "q2", "q5", "q6")
"""One column and two, few rows and many."""


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
def systems_command(
    layout: Layout,
    size: SparkSize,
    repeats: int,
    names: tuple[str, ...],
    queries: tuple[str, ...],
) -> None:
    """Compare systems on the same rows, cold and warm; one that cannot be run is listed with the reason."""
    console = make_console()
    require_load(layout)
    systems = [system for system in SYSTEMS if not names or system.name in names]
    bloom = None
    if any(system.name == "iceberg-bloom" for system in systems):
        with size.session(layout, console) as spark, console.status("writing bloom filters"):
            bloom = make_bloom_table(spark, layout)
    fitted = fit_queries(layout, queries or SYSTEMS_QUERIES)
    with step_bar(console, "systems") as move:
        run = run_systems(
            *(layout, systems, fitted), repeats=repeats, cores=size.cores, memory=size.memory, bloom=bloom, on_step=move
        )
    finish(console, layout.result("systems"), run, systems_parts(run), run.failures)


@click.command("append")
@layout_options
@spark_options
@click.option("--batches", type=POSITIVE, default=20, show_default=True, help="Appends.")
@click.option("--batch-rows", type=POSITIVE, help="Rows of an append; 250,000 by default, fewer of small data.")
@click.option(
    "--every", type=click.FloatRange(min=0), default=DEFAULT_EVERY_SECONDS, show_default=True, help="Seconds."
)
def append_command(layout: Layout, size: SparkSize, batches: int, batch_rows: int | None, every: float) -> None:
    """Append batches while a watch indexes them and queries run: the lag of the index, the times of the queries."""
    console = make_console()
    queries = fit_queries(layout, APPEND_QUERIES)
    rows = batch_rows or fitting_batch_rows(layout, batches)
    with size.session(layout, console) as spark, step_bar(console, "append") as move:
        run = measure_appends(
            spark, layout, queries, batches=batches, batch_rows=rows, every_seconds=every, on_step=move
        )
    finish(console, layout.result("append"), run, append_parts(run), run.failures)


@click.command("clustered")
@layout_options
@click.option("--rows", type=click.IntRange(min=1000), default=DEFAULT_GRID.rows, show_default=True, help="Of a table.")
@click.option("--trials", type=POSITIVE, default=DEFAULT_TRIALS, show_default=True, help="Queries of each cell.")
@click.option(
    "--repeats", type=click.IntRange(min=0), default=DEFAULT_REPEATS, show_default=True, help="Pairs of timed scans."
)
def clustered_command(layout: Layout, rows: int, trials: int, repeats: int) -> None:
    """Plan queries of keys in bursts: what is kept, beside what holds a match; exit 1 if a match is dropped."""
    console = make_console()
    with console.status("clustered") as status:
        run = measure_clustered(
            layout.root / "clustered", grid=Grid(rows), trials=trials, repeats=repeats, on_step=status.update
        )
    finish(console, layout.result("clustered"), run, clustered_parts(run), run.failures)


@click.command("scale")
@layout_options
@click.option("--row-groups", "sizes", type=POSITIVE, multiple=True, help="N; may be given again.")
@repeat_option
def scale_command(layout: Layout, sizes: tuple[int, ...], repeats: int) -> None:
    """Plan over simulated indexes of 10^3 to 10^6 row groups: time, reads, memory, and what dominates."""
    console = make_console()
    with console.status("scale") as status:
        scale = measure_scale(layout.root / "scale", sizes or DEFAULT_SIZES, repeats=repeats, on_step=status.update)
    finish(console, layout.result("scale"), scale, scale_parts(scale), scale.failures)


@click.command("store")
@layout_options
@spark_options
@repeat_option
@click.option(
    "--milliseconds",
    type=click.FloatRange(min=0),
    multiple=True,
    default=DEFAULT_MILLISECONDS,
    show_default=True,
    help="From a request to its answer; may be given again.",
)
@click.option(
    "--bandwidth",
    type=click.FloatRange(min=0, min_open=True),
    default=DEFAULT_MEGABYTES,
    show_default=True,
    help="MB a second each way.",
)
@click.option("--spark/--no-spark", "with_spark", default=True, help="Measure Spark, too.")
def store_command(
    layout: Layout,
    size: SparkSize,
    repeats: int,
    milliseconds: tuple[float, ...],
    bandwidth: float,
    with_spark: bool,
) -> None:
    """Work on lineorder in an object store: rounds, requests, bytes and seconds at several distances."""
    console = make_console()
    queries = fit_queries(layout, STORE_QUERIES)
    with ExitStack() as stack:
        spark = stack.enter_context(size.session(layout, console, [S3_SUPPORT])) if with_spark else None
        move = stack.enter_context(step_bar(console, "store"))
        run = measure_store(
            layout,
            queries,
            milliseconds=milliseconds,
            megabytes_a_second=bandwidth,
            repeats=repeats,
            spark=spark,
            on_step=move,
        )
    finish(console, layout.result("store"), run, store_parts(run), run.failures)
