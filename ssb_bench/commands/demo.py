"""The demonstration: data, table, an index built while queries run, and the comparison."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

import planner
from puffin_index import TableIndex
from ssb_bench.data.dataset import generate
from ssb_bench.data.layout import NAMESPACE, Layout
from ssb_bench.data.progress import build_text, step_bar
from ssb_bench.data.workload import FittedQuery
from ssb_bench.report.plot import plot_run
from ssb_bench.report.terminal import render_literals, render_run
from ssb_bench.results.results import Run, write_run
from ssb_bench.spark_runs.indexing import IndexColumns, define_index, record_build
from ssb_bench.spark_runs.load import load, require_load
from ssb_bench.spark_runs.measure import measure
from ssb_bench.spark_runs.run import fit_queries, newest_report, run_path, run_queries
from ssb_bench.spark_runs.session import CATALOG


@dataclass(frozen=True, slots=True)
class Seen:
    """One execution of a query while the index was built.

    Attributes:
        seconds: Wall time.
        row_groups: Row groups of the scan.
        kept: Those that the planner kept.
        unindexed: Those that had no index yet.
    """

    seconds: float
    row_groups: int
    kept: int
    unindexed: int


def show(
    spark: SparkSession,
    layout: Layout,
    *,
    row_group_rows: int,
    columns: IndexColumns,
    repeats: int,
    console: Console,
    anew: bool = False,
) -> tuple[Run, Path]:
    """Go the whole way from the SSB files, which must be there, to the picture.

    What a run before has left is used, unless `anew` is set: then the table and its index are made anew.

    Returns:
        The run, and the path of its JSON file; the picture lies beside it.
    """
    with step_bar(console, "load") as move:
        loaded = load(spark, layout, row_group_rows=row_group_rows, anew=anew, on_step=move)
    console.print(f"{loaded.row_groups} row groups in {loaded.data_files} files, {loaded.data_bytes / 1e6:.0f} MB")
    queries = fit_queries(layout)
    console.print(render_literals(queries))
    watch_build(spark, layout, define_index(layout, columns), queries, console)
    with step_bar(console, "compare") as move:
        run = run_queries(spark, layout, queries, repeats=repeats, on_step=move)
    path = run_path(layout, run)
    publish(run, path, console)
    return run, path


def make_dataset(
    layout: Layout, console: Console, *, keep_tpch: bool = False, threads: int = 2, memory_limit: str = "2GB"
) -> None:
    """Make the SSB files under a progress bar."""
    with step_bar(console, "generate") as move:
        generate(layout, keep_tpch=keep_tpch, threads=threads, memory_limit=memory_limit, on_step=move)


def publish(run: Run, path: Path, console: Console) -> None:
    """Write a run as JSON and as a picture, and print it."""
    write_run(run, path)
    plot_run(run, path.with_suffix(".png"))
    console.print(render_run(run))
    console.print(f"run: {path}\npicture: {path.with_suffix('.png')}", soft_wrap=True)


def watch_build(
    spark: SparkSession, layout: Layout, index: TableIndex, queries: list[FittedQuery], console: Console
) -> None:
    """Build the index in the background of the application while the queries run, again and again, until it is there.

    Raises:
        BuildError: If the build fails.
    """
    spark.sql(f"USE {CATALOG}.{NAMESPACE}")
    planner.enable(spark)
    row_groups = require_load(layout).row_groups
    seen: dict[str, list[Seen]] = {query.query.name: [] for query in queries}
    progress = Progress(TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    task = progress.add_task("build", total=None)
    handle = index.build_async(spark)
    with Live(console=console, refresh_per_second=4) as live:
        finished = False
        # One round more after the end, so that the last line of every query is with the whole index.
        while not finished:
            finished = handle.status() != "running"
            for query in queries:
                seen[query.query.name].append(_run_once(spark, query, row_groups))
                built = handle.progress()
                progress.update(
                    task, description=build_text(built), completed=built.rows_done, total=built.rows_total or None
                )
                live.update(Group(progress, _render_seen(seen)))
    if not console.is_terminal:
        console.print()  # a pipe gets the last state without an end of line
    report = handle.wait()
    record_build(layout, report, in_background=True)
    planner.disable(spark)
    text = f"index of {report.row_groups} row groups built in {report.seconds:.1f} s beside the queries"
    console.print(text if report.rows else "the index was there already; nothing to build")


def _run_once(spark: SparkSession, query: FittedQuery, row_groups: int) -> Seen:
    before = newest_report(spark)
    seconds = measure(spark, query.sql).seconds
    after = newest_report(spark)
    if after is None or after is before:
        return Seen(seconds, row_groups, row_groups, row_groups)  # no index of any file yet
    return Seen(seconds, after.row_groups, after.kept, after.unindexed)


def _render_seen(seen: dict[str, list[Seen]]) -> RenderableType:
    table = Table(title="queries while the index is built", title_justify="left", title_style="bold")
    table.add_column("query", style="bold")
    for heading in ("executions", "first s", "latest s", "row groups", "kept at first", "kept now", "not yet indexed"):
        table.add_column(heading, justify="right")
    for name, executions in seen.items():
        if not executions:
            table.add_row(name, "0")
            continue
        first, latest = executions[0], executions[-1]
        planned = [str(count) for count in (latest.row_groups, first.kept, latest.kept, latest.unindexed)]
        table.add_row(name, str(len(executions)), f"{first.seconds:.2f}", f"{latest.seconds:.2f}", *planned)
    return table
