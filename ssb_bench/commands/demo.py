"""The demonstration: data, table, an index built while queries run, and the comparison."""

from functools import partial
from typing import TypeAlias

from pyspark.sql import SparkSession
from rich.console import Group
from rich.live import Live
from rich.table import Table

from planner.report.scan_plan import ScanPlan
from puffin_index import BuildProgress, TableIndex
from ssb_bench.data.layout import NAMESPACE
from ssb_bench.data.workload import FittedQuery
from ssb_bench.spark_runs.bench import Bench
from ssb_bench.spark_runs.index import define_index, record_build
from ssb_bench.spark_runs.load import load
from ssb_bench.spark_runs.measure import hooked, measure, with_report
from ssb_bench.spark_runs.session import CATALOG
from ssb_bench.studies.run import fit_queries, run_queries

Seen: TypeAlias = tuple[float, ScanPlan | None]
"""One execution of a query while the index is built: its seconds and the planner's report; None without any index."""


def show(bench: Bench, *, row_group_rows: int, repeats: int) -> None:
    """Go the whole way from the SSB files, which must be there, to a run of the queries.

    A table and an index from an earlier run are used.
    """
    queries = fit_queries(bench.layout)
    with bench.session() as spark:
        loaded = load(spark, bench.layout, row_group_rows=row_group_rows)
        size = f"{loaded.data_bytes / 1e6:.0f} MB"
        bench.console.print(f"{loaded.row_groups} row groups in {loaded.data_files} files, {size}")
        watch_build(bench, spark, define_index(bench.layout), queries)
        run_queries(bench, queries, repeats=repeats)


def watch_build(bench: Bench, spark: SparkSession, index: TableIndex, queries: list[FittedQuery]) -> None:
    """Build the index in the background while the queries run again and again, until the index is complete.

    Raises BuildError if the build fails.
    """
    console = bench.console
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
                    live.update(_seen_so_far(seen, handle.progress()))
        if not console.is_terminal:
            console.print()  # a pipe gets the last state without an end of line
        report = handle.wait()
    record_build(bench.layout, report, in_background=True)
    text = f"index of {report.row_groups} row groups built in {report.seconds:.1f} s beside the queries"
    console.print(text if report.rows else "the index was there already; nothing to build")


def _seen_so_far(seen: dict[str, list[Seen]], built: BuildProgress) -> Group:
    headings = ("query", "executions", "first s", "latest s", "kept at first", "kept now", "not yet indexed")
    table = Table(*headings, title="queries while the index is built", box=None)
    for name, executions in seen.items():
        row = [name, str(len(executions))]
        if executions:
            (first_seconds, first), (seconds, latest) = executions[0], executions[-1]
            row += [f"{first_seconds:.2f}", f"{seconds:.2f}", "all" if first is None else str(first.kept)]
            row += ["all", "all"] if latest is None else [str(latest.kept), str(latest.unindexed)]
        table.add_row(*row)
    return Group(table, f"build: {built}")
