"""The demonstration: data, table, an index built while queries run, and the comparison."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from puffin_index import TableIndex
from ssb_bench.data.dataset import generate
from ssb_bench.data.layout import NAMESPACE, Layout
from ssb_bench.data.progress import build_text, step_bar
from ssb_bench.data.records import write_record
from ssb_bench.data.workload import FittedQuery
from ssb_bench.report.document import Part, Table
from ssb_bench.report.figures import draw_run, save
from ssb_bench.report.run_report import literal_parts, run_parts
from ssb_bench.report.terminal import render
from ssb_bench.results.run import Run
from ssb_bench.spark_runs.arms import hooked, with_report
from ssb_bench.spark_runs.indexing import IndexColumns, define_index, record_build
from ssb_bench.spark_runs.load import load, require_load
from ssb_bench.spark_runs.measure import measure
from ssb_bench.spark_runs.run import fit_queries, run_queries, stamped_path
from ssb_bench.spark_runs.session import CATALOG


@dataclass(frozen=True, slots=True)
class Seen:
    """One execution of a query while the index was built.

    Attributes:
        seconds: Wall time.
        row_groups: Row groups of the scan.
        kept: Row groups that the planner kept.
        unindexed: Row groups that had no index yet.
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

    A table and an index from an earlier run are used, unless `anew` is set.

    Returns:
        The run, and the path of its JSON file; the picture lies beside it.
    """
    with step_bar(console, "load") as move:
        loaded = load(spark, layout, row_group_rows=row_group_rows, anew=anew, on_step=move)
    console.print(f"{loaded.row_groups} row groups in {loaded.data_files} files, {loaded.data_bytes / 1e6:.0f} MB")
    queries = fit_queries(layout)
    console.print(render(literal_parts(queries)))
    watch_build(spark, layout, define_index(layout, columns), queries, console)
    with step_bar(console, "compare") as move:
        run = run_queries(spark, layout, queries, repeats=repeats, on_step=move)
    path = stamped_path(layout, "run", run.started_at)
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
    write_record(path, run)
    save(draw_run(run), path.with_suffix(".png"))
    console.print(render(run_parts(run)))
    console.print(f"run: {path}\npicture: {path.with_suffix('.png')}", soft_wrap=True)


def watch_build(
    spark: SparkSession, layout: Layout, index: TableIndex, queries: list[FittedQuery], console: Console
) -> None:
    """Build the index in the background while the queries run again and again, until the index is complete.

    Raises:
        BuildError: If the build fails.
    """
    spark.sql(f"USE {CATALOG}.{NAMESPACE}")
    row_groups = require_load(layout).row_groups
    seen: dict[str, list[Seen]] = {query.query.name: [] for query in queries}
    progress = Progress(TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    task = progress.add_task("build", total=None)
    with hooked(spark):
        handle = index.build_async(spark)
        with Live(console=console, refresh_per_second=4) as live:
            finished = False
            # One more round after the end shows every query with the whole index.
            while not finished:
                finished = handle.status() != "running"
                for query in queries:
                    seen[query.query.name].append(_run_once(spark, query, row_groups))
                    built = handle.progress()
                    progress.update(
                        task, description=build_text(built), completed=built.rows_done, total=built.rows_total or None
                    )
                    live.update(Group(progress, render(_seen_parts(seen))))
        if not console.is_terminal:
            console.print()  # a pipe gets the last state without an end of line
        report = handle.wait()
    record_build(layout, report, in_background=True)
    text = f"index of {report.row_groups} row groups built in {report.seconds:.1f} s beside the queries"
    console.print(text if report.rows else "the index was there already; nothing to build")


def _run_once(spark: SparkSession, query: FittedQuery, row_groups: int) -> Seen:
    measured, report = with_report(spark, lambda: measure(spark, query.sql))
    if report is None:
        return Seen(measured.seconds, row_groups, row_groups, row_groups)  # no index of any file yet
    return Seen(measured.seconds, report.row_groups, report.kept, report.unindexed)


def _seen_parts(seen: dict[str, list[Seen]]) -> Iterator[Part]:
    rows = []
    for name, executions in seen.items():
        row = [name, str(len(executions))]
        if executions:
            first, latest = executions[0], executions[-1]
            row += [f"{first.seconds:.2f}", f"{latest.seconds:.2f}"]
            row += [str(count) for count in (latest.row_groups, first.kept, latest.kept, latest.unindexed)]
        rows.append(row)
    headings = ("executions", "first s", "latest s", "row groups", "kept at first", "kept now", "not yet indexed")
    yield Table(("query", *headings), rows, "queries while the index is built")
