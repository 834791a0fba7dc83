"""The demonstration: data, table, an index built while queries run, and the comparison."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TypeAlias

from pyspark.sql import SparkSession
from rich.console import Console
from rich.live import Live

from planner.report.scan_plan import ScanPlan
from puffin_index import BuildProgress, TableIndex
from ssb_bench.data.layout import NAMESPACE, Layout, write_record
from ssb_bench.data.workload import FittedQuery
from ssb_bench.report.document import Line, Part, Table, render
from ssb_bench.report.figures import draw_run, save
from ssb_bench.report.reports import literal_parts, run_parts
from ssb_bench.results.run import Run
from ssb_bench.spark_runs.index import define_index, record_build
from ssb_bench.spark_runs.load import load
from ssb_bench.spark_runs.measure import measure
from ssb_bench.spark_runs.run import fit_queries, hooked, run_queries, stamped_path, with_report
from ssb_bench.spark_runs.session import CATALOG

Seen: TypeAlias = tuple[float, ScanPlan | None]
"""One execution of a query while the index is built: its seconds and the planner's report; None without any index."""


def show(
    spark: SparkSession, layout: Layout, *, row_group_rows: int, repeats: int, console: Console
) -> tuple[Run, Path]:
    """Go the whole way from the SSB files, which must be there, to the run and the path of its JSON file.

    The picture lies beside it. A table and an index from an earlier run are used.
    """
    loaded = load(spark, layout, row_group_rows=row_group_rows)
    console.print(f"{loaded.row_groups} row groups in {loaded.data_files} files, {loaded.data_bytes / 1e6:.0f} MB")
    queries = fit_queries(layout)
    console.print(render(literal_parts(queries)))
    watch_build(spark, layout, define_index(layout), queries, console)
    run = run_queries(spark, layout, queries, repeats=repeats)
    path = stamped_path(layout, run.started_at)
    publish(run, path, console)
    return run, path


def publish(run: Run, path: Path, console: Console) -> None:
    """Write a run as JSON and as a picture, and print it."""
    write_record(path, run)
    save(draw_run(run), path.with_suffix(".png"))
    console.print(render(run_parts(run)))
    console.print(f"run: {path}\npicture: {path.with_suffix('.png')}", soft_wrap=True)


def watch_build(
    spark: SparkSession, layout: Layout, index: TableIndex, queries: list[FittedQuery], console: Console
) -> None:
    """Build the index in the background while the queries run again and again, until the index is complete.

    Raises BuildError if the build fails.
    """
    spark.sql(f"USE {CATALOG}.{NAMESPACE}")
    seen: dict[str, list[Seen]] = {query.query.name: [] for query in queries}
    with hooked(spark):
        handle = index.build_async(spark)
        with Live(console=console, refresh_per_second=4) as live:
            finished = False
            # One more round after the end shows every query with the whole index.
            while not finished:
                finished = handle.status() != "running"
                for query in queries:
                    measured, plan = with_report(spark, partial(measure, spark, query.sql))
                    seen[query.query.name].append((measured.seconds, plan))
                    live.update(render(_seen_parts(seen, handle.progress())))
        if not console.is_terminal:
            console.print()  # a pipe gets the last state without an end of line
        report = handle.wait()
    record_build(layout, report, in_background=True)
    text = f"index of {report.row_groups} row groups built in {report.seconds:.1f} s beside the queries"
    console.print(text if report.rows else "the index was there already; nothing to build")


def _seen_parts(seen: dict[str, list[Seen]], built: BuildProgress) -> Iterator[Part]:
    rows = []
    for name, executions in seen.items():
        row = [name, str(len(executions))]
        if executions:
            (first_seconds, first), (seconds, latest) = executions[0], executions[-1]
            row += [f"{first_seconds:.2f}", f"{seconds:.2f}", "all" if first is None else str(first.kept)]
            row += ["all", "all"] if latest is None else [str(latest.kept), str(latest.unindexed)]
        rows.append(row)
    headings = ("query", "executions", "first s", "latest s", "kept at first", "kept now", "not yet indexed")
    yield Table(headings, rows, "queries while the index is built")
    yield Line(f"build: {built}")
