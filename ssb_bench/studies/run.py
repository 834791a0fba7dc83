"""Queries without the index and with it, in one application, each side in a session of its own.

Answers are compared with DuckDB's on the source files, those of a `select *` by a digest.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Final

import duckdb
from pyspark.sql import SparkSession

from planner.report.scan_plan import ScanPlan
from ssb_bench.data.dataset import open_duckdb, require_dataset
from ssb_bench.data.layout import BenchError, Layout
from ssb_bench.data.workload import ALL_QUERIES, QUERIES_OF, VOLCANO_QUERIES, Query, Workload, fit, load_query
from ssb_bench.spark_runs.bench import Bench, Repeats, Seen, Task
from ssb_bench.spark_runs.load import note_table, require_load
from ssb_bench.spark_runs.measure import Answer, answer_of, both_sides, measure as measure_query, rows_text

TITLE = "Queries in Spark"
HEADINGS: Final[dict[Workload, str]] = {
    "count": "Q1-Q7, count(*)",
    "rows": "Q1-Q7, select *",
    "aggregate": "Q1-Q7, aggregates",
    "ssb": "The 13 standard queries, where nothing can be skipped",
    "shapes": "Joins, subqueries, first rows, functions: what the rest of a query implies",
}
_NUMBERS: Final = (
    "orderkey linenumber custkey partkey suppkey orderdate shippriority quantity extendedprice ordtotalprice discount "
    "revenue supplycost tax commitdate"
)
_TEXTS: Final = "orderpriority shipmode"


def measure(
    bench: Bench,
    *,
    repeats: Repeats = 5,
    query: Annotated[tuple[str, ...], "A query, such as q1, q1-rows, q1-aggregate or q1.1.", ALL_QUERIES] = (),
    workload: Annotated[
        tuple[str, ...], "Q1-Q7 as count (the default), rows or aggregate; ssb; shapes.", QUERIES_OF
    ] = (),
) -> None:
    """Run queries without the index and with it; exit 1 if an answer or a count is wrong."""
    require_load(bench.layout)
    names = [*query, *(name for own, names in QUERIES_OF.items() if own in workload for name in names)]
    run_queries(bench, fit_queries(bench.layout, names or VOLCANO_QUERIES), repeats=repeats)


def fit_queries(layout: Layout, names: Sequence[str] = VOLCANO_QUERIES) -> list[Query]:
    """Fit the literals of queries to the SSB files."""
    require_dataset(layout)
    with open_duckdb(layout) as connection:
        return [fit(load_query(name), connection) for name in names]


def run_queries(bench: Bench, queries: Sequence[Query], *, repeats: int = 5) -> None:
    """Measure queries; nothing else may run in the session."""
    loaded = note_table(bench)
    due: dict[str, Answer] = {}
    for query in queries:
        bench.note(query.name, title=query.title, literals="; ".join(map(str, query.parameters)) or "none")
        try:
            due[query.name] = answer_due(bench.layout, query)
        except duckdb.Error as error:
            bench.troubles.append(f"{query.name}: {str(error).splitlines()[0]}")
    with bench.session() as spark, both_sides(spark) as sessions:
        known = [query for query in queries if query.name in due]
        tasks = [task_of(query, sessions, loaded.rows, due[query.name]) for query in known]
        bench.compare(tasks, repeats=repeats)


def answer_due(layout: Layout, query: Query) -> Answer:
    """Ask DuckDB on the source files, or raise duckdb.Error if DuckDB cannot read the query."""
    with open_duckdb(layout) as connection:
        rows = connection.execute(checking_sql(query)).fetchall()
    answer = answer_of(rows)
    return replace(answer, text=rows_text(rows[0][0])) if query.workload == "rows" else answer


def checking_sql(query: Query) -> str:
    """Give the SQL whose answer is compared: the query, or the digest of the rows of a `select *`."""
    if query.workload != "rows":
        return query.sql
    parts = ["count(*)", *(f"sum(CAST(lo_{column} AS BIGINT))" for column in _NUMBERS.split())]
    parts += [f"min(lo_{it}), max(lo_{it}), sum(length(lo_{it}))" for it in _TEXTS.split()]
    return f"SELECT {', '.join(parts)} FROM ({query.sql}) AS matching"


def task_of(query: Query, sessions: dict[str, SparkSession], table_rows: int, due: Answer) -> Task:
    """Execute a query, compare its rows the first time, and what was read with what the planner kept."""
    checked, reports = set[str](), list[ScanPlan]()

    def execute(side: str) -> Seen:
        spark = sessions[side]
        measured = measure_query(spark, query.sql, fetch=query.workload != "rows")
        answer, counts, plan = measured.answer, measured.counts, measured.plan
        if answer is None and side not in checked:
            answer = answer_of(spark.sql(checking_sql(query)).collect())
        checked.add(side)
        # A join without a filter on lineorder need not have a plan, and reads other tables as well.
        if query.workload not in ("ssb", "shapes"):
            if side == "with" and plan is None:
                raise BenchError("the planner reported nothing: the index was not used")
            kept = table_rows if plan is None or plan.unindexed else plan.kept_rows
            if measured.rows_read > kept:
                raise BenchError(
                    f"Spark read {measured.rows_read:,} rows, but there are {kept:,} in what it was to read"
                )
        if side == "without" and reports:
            counts = {"row groups": reports[-1].row_groups} | counts
        if plan is not None:
            reports.append(plan)
            counts = {"row groups": plan.kept, **counts, "answered row groups": plan.reason_counts().get("answered", 0)}
            # The most: later plans have some of it in memory.
            counts["index bytes"] = max(report.index_bytes_read for report in reports)
        return Seen(answer, counts, measured.seconds)

    return Task(query.name, {side: partial(execute, side) for side in sessions}, due, HEADINGS[query.workload])
