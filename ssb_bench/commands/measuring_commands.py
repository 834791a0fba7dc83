"""The commands that measure with the SSB data: run, systems, append, interference."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ssb_bench.commands.demo import publish
from ssb_bench.commands.options import (
    FILE,
    POSITIVE,
    SparkSize,
    finish,
    layout_options,
    make_console,
    output_option,
    repeat_option,
    spark_options,
)
from ssb_bench.data.layout import Layout
from ssb_bench.data.progress import step_bar
from ssb_bench.data.workload import ALL_QUERIES, QUERIES_OF, ROWS_QUERIES, VOLCANO_QUERIES, Workload
from ssb_bench.report.run_report import literal_parts
from ssb_bench.report.study_reports import append_parts, paired_parts
from ssb_bench.report.systems_report import systems_parts
from ssb_bench.report.terminal import render
from ssb_bench.spark_runs.bloom_table import make_bloom_table
from ssb_bench.spark_runs.load import require_load
from ssb_bench.spark_runs.run import fit_queries, run_queries, stamped_path
from ssb_bench.studies.append import DEFAULT_BATCH_ROWS, DEFAULT_EVERY_SECONDS, measure_appends
from ssb_bench.studies.interference import LIMIT, measure_interference
from ssb_bench.systems.peers import SYSTEM_NAMES, SYSTEMS
from ssb_bench.systems.run import run_systems

SYSTEMS_QUERIES = (*VOLCANO_QUERIES, *ROWS_QUERIES[:-1])
"""All but the rows of Q7, which are most of the table."""

APPEND_QUERIES = VOLCANO_QUERIES[:-1]
"""All but Q7, which the index does not help."""


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
    """Run queries without the index, with it, and with perfect pruning; exit 1 if an answer or a count is wrong."""
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
@output_option("with a date in the runs' directory")
def systems_command(
    layout: Layout,
    size: SparkSize,
    repeats: int,
    names: tuple[str, ...],
    queries: tuple[str, ...],
    output: Path | None,
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
    path = output or stamped_path(layout, "systems", run.started_at)
    finish(console, path, run, systems_parts(run), run.failures)


@click.command("append")
@layout_options
@spark_options
@click.option("--batches", type=POSITIVE, default=20, show_default=True, help="Appends.")
@click.option("--batch-rows", type=POSITIVE, default=DEFAULT_BATCH_ROWS, show_default=True)
@click.option(
    "--every", type=click.FloatRange(min=0), default=DEFAULT_EVERY_SECONDS, show_default=True, help="Seconds."
)
@output_option("append.json in the scale factor's directory")
def append_command(
    layout: Layout, size: SparkSize, batches: int, batch_rows: int, every: float, output: Path | None
) -> None:
    """Append batches while a watch indexes them and queries run: the lag of the index, the times of the queries."""
    console = make_console()
    queries = fit_queries(layout, APPEND_QUERIES)
    with size.session(layout, console) as spark, step_bar(console, "append") as move:
        run = measure_appends(
            spark, layout, queries, batches=batches, batch_rows=batch_rows, every_seconds=every, on_step=move
        )
    finish(console, output or layout.root / "append.json", run, append_parts(run), run.failures)


@click.command("interference")
@layout_options
@spark_options
@repeat_option
def interference_command(layout: Layout, size: SparkSize, repeats: int) -> None:
    """Measure what a build in the background costs the queries of the same application."""
    console = make_console()
    require_load(layout)
    queries = fit_queries(layout)
    with size.session(layout, console) as spark, step_bar(console, "interference") as move:
        results = measure_interference(spark, layout, queries, repeats=repeats, on_step=move)
    console.print(render(paired_parts(results, "queries without and with a build beside them, ms", LIMIT)))
