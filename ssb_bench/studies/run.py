"""Queries without the index and with it, in one application, each side in a session of its own.

Answers are compared with DuckDB's on the source files. A `select *` is compared by a digest: the count of rows, the
sum of every numeric column, and least value, greatest value and total length of every text column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Final

import duckdb
from pyspark.sql import SparkSession

from planner.report.scan_plan import ScanPlan
from ssb_bench.data.dataset import open_duckdb, require_dataset
from ssb_bench.data.layout import NAMESPACE, BenchError, Layout
from ssb_bench.data.workload import (
    ALL_QUERIES,
    QUERIES_OF,
    VOLCANO_QUERIES,
    FittedQuery,
    Values,
    Workload,
    fit,
    load_query,
)
from ssb_bench.results.record import Number
from ssb_bench.spark_runs.bench import Bench, Repeats, Seen, Task
from ssb_bench.spark_runs.index import describe_index, open_index
from ssb_bench.spark_runs.load import require_load
from ssb_bench.spark_runs.measure import Answer, answer_of, hooked, measure as measure_query, rows_text, with_report
from ssb_bench.spark_runs.session import CATALOG

TITLE = "Queries in Spark"
HEADINGS: Final[dict[Workload, str]] = {
    "count": "Q1-Q7, count(*)",
    "rows": "Q1-Q7, select *",
    "aggregate": "Q1-Q7, aggregates",
    "ssb": "The 13 standard queries, where nothing can be skipped",
    "shapes": "Joins, subqueries, first rows, functions: what the rest of a query implies",
}
_NUMBERS: Final = (
    *("lo_orderkey", "lo_linenumber", "lo_custkey", "lo_partkey", "lo_suppkey", "lo_orderdate", "lo_shippriority"),
    *("lo_quantity", "lo_extendedprice", "lo_ordtotalprice", "lo_discount", "lo_revenue", "lo_supplycost", "lo_tax"),
    "lo_commitdate",
)
_TEXTS: Final = ("lo_orderpriority", "lo_shipmode")


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


def fit_queries(layout: Layout, names: Sequence[str] = VOLCANO_QUERIES) -> list[FittedQuery]:
    """Fit the literals of queries to the SSB files."""
    require_dataset(layout)
    with open_duckdb(layout) as connection:
        return [fit(load_query(name), Values(connection)) for name in names]


def run_queries(bench: Bench, queries: Sequence[FittedQuery], *, repeats: int = 5) -> None:
    """Measure queries; nothing else may run in the session.

    Raises BenchError if the table is not loaded, NotFoundError without an index.
    """
    loaded = require_load(bench.layout)
    bench.note("table", **loaded.facts)
    bench.note("index", **describe_index(bench.layout, open_index(bench.layout)))
    due: dict[str, Answer] = {}
    for query in queries:
        bench.note(query.query.name, title=query.query.title, literals="; ".join(map(str, query.literals)) or "none")
        try:
            due[query.query.name] = answer_due(bench.layout, query)
        except duckdb.Error as error:
            bench.troubles.append(f"{query.query.name}: {str(error).splitlines()[0]}")
    with bench.session() as spark, open_sessions(spark) as sessions:
        spark_queries = [_Query(query, sessions, loaded.rows) for query in queries if query.query.name in due]
        bench.compare((one.task(due[one.query.query.name]) for one in spark_queries), repeats=repeats)


@contextmanager
def open_sessions(spark: SparkSession) -> Iterator[dict[str, SparkSession]]:
    """Give a session for each side, with the hook in one of them."""
    sessions = {side: spark.newSession() for side in ("without", "with")}
    for session in sessions.values():
        session.sql(f"USE {CATALOG}.{NAMESPACE}")
    with hooked(sessions["with"]):
        yield sessions


def answer_due(layout: Layout, query: FittedQuery) -> Answer:
    """Ask DuckDB on the source files, or raise duckdb.Error if DuckDB cannot read the query."""
    with open_duckdb(layout) as connection:
        rows = connection.execute(checking_sql(query)).fetchall()
    answer = answer_of(rows)
    return answer if _is_fetched(query) else replace(answer, text=rows_text(rows[0][0]))


def _is_fetched(query: FittedQuery) -> bool:
    """Whether a query gives so few rows that every execution can fetch them: not a `select *`."""
    return query.query.workload != "rows"


def checking_sql(query: FittedQuery) -> str:
    """Give the SQL whose answer is compared: the query, or the digest of its rows."""
    if _is_fetched(query):
        return query.sql
    parts = ["count(*)", *(f"sum(CAST({column} AS BIGINT))" for column in _NUMBERS)]
    for column in _TEXTS:
        parts += [f"min({column})", f"max({column})", f"sum(length({column}))"]
    return f"SELECT {', '.join(parts)} FROM ({query.sql}) AS matching"


@dataclass(slots=True)
class _Query:
    """A query, and the planner's reports of it."""

    query: FittedQuery
    sessions: dict[str, SparkSession]
    table_rows: int
    checked: set[str] = field(default_factory=set)
    reports: list[ScanPlan] = field(default_factory=list)

    def task(self, due: Answer) -> Task:
        works = {side: partial(self.execute, side) for side in self.sessions}
        return Task(self.query.query.name, works, due, HEADINGS[self.query.query.workload])

    def execute(self, side: str) -> Seen:
        """Execute the query, compare its rows the first time, and what was read with what the planner kept."""
        spark, is_fetched = self.sessions[side], _is_fetched(self.query)
        measured, plan = with_report(spark, lambda: measure_query(spark, self.query.sql, fetch=is_fetched))
        answer = measured.answer
        if answer is None and side not in self.checked:
            answer = answer_of(spark.sql(checking_sql(self.query)).collect())
        self.checked.add(side)
        if plan is not None:
            self.reports.append(plan)
        # A join without a filter on lineorder need not have a plan, and reads other tables as well.
        if self.query.query.workload not in ("ssb", "shapes"):
            self._check(side, plan, measured.rows_read)
        return Seen(answer, self._counts(side, plan, measured.rows_read, measured.process_bytes), measured.seconds)

    def _check(self, side: str, plan: ScanPlan | None, rows_read: int) -> None:
        if side == "without":
            kept = self.table_rows
        elif plan is None:
            raise BenchError("the planner reported nothing: the index was not used")
        else:
            kept = self.table_rows if plan.unindexed else plan.kept_rows
        if rows_read > kept:
            raise BenchError(f"Spark read {rows_read:,} rows, but there are {kept:,} in what it was to read")

    def _counts(self, side: str, plan: ScanPlan | None, rows_read: int, process_bytes: int | None) -> dict[str, Number]:
        read: dict[str, Number] = {} if process_bytes is None else {"read bytes": process_bytes}
        read["rows read"] = rows_read
        if side == "without":
            return ({"row groups": self.reports[-1].row_groups} if self.reports else {}) | read
        if plan is None:
            return read
        return {
            "row groups": plan.kept,
            **read,
            "answered row groups": plan.reason_counts().get("answered", 0),
            # The most: later plans have some of it in memory.
            "index bytes": max(report.index_bytes_read for report in self.reports),
            "plan seconds": plan.planning_seconds,
        }
