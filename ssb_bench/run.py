"""Run the queries without and with the index, side by side, and compare what they answer and what they read.

Rules: both sides in one application, on one table, each in a session of its own (the hook is installed in one of them
and stays there, as in real use); first all queries once on each side to warm up (those times are kept as
`first_seconds`); then each query in turn without, with, with, without, ... so that a drift of the machine hits both
sides; answers compared by value with each other and with DuckDB on the source files; a failure is a row with a reason.
"""

from __future__ import annotations

import datetime
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import planner
from planner.scan_plan import ScanPlan
from ssb_bench.dataset import Step, open_duckdb, require_dataset
from ssb_bench.errors import BenchError
from ssb_bench.indexing import describe_index, open_index
from ssb_bench.layout import NAMESPACE, Layout
from ssb_bench.load import require_load
from ssb_bench.machine import describe_machine
from ssb_bench.measure import Answer, Measurement, answer_of, measure
from ssb_bench.results import Plan, QueryResult, Run, Side, TableFacts
from ssb_bench.session import CATALOG
from ssb_bench.workload import VOLCANO_QUERIES, DuckValues, FittedQuery, fit, load_query

SideName = Literal["without", "with"]


@dataclass(slots=True)
class _Collected:
    """The executions of one query so far, the one that warms up included, and the error that ended them."""

    measurements: dict[SideName, list[Measurement]] = field(default_factory=lambda: {"without": [], "with": []})
    reports: list[ScanPlan] = field(default_factory=list)
    error: str | None = None


def fit_queries(layout: Layout, names: Sequence[str] = VOLCANO_QUERIES) -> list[FittedQuery]:
    """Fit the literals of queries to the SSB files."""
    require_dataset(layout)
    with open_duckdb(layout) as connection:
        return [fit(load_query(name), DuckValues(connection)) for name in names]


def run_queries(
    spark: SparkSession,
    layout: Layout,
    queries: Sequence[FittedQuery],
    *,
    repeats: int = 5,
    on_step: Callable[[Step], None] = lambda _: None,
) -> Run:
    """Measure queries without and with the index.

    Args:
        spark: A session over the layout's warehouse; nothing else may run in it.
        layout: The data.
        queries: What to run.
        repeats: Measured executions of each query on each side.
        on_step: Called before each query and once at the end.

    Returns:
        The run; `failures` in it is empty if all went well.

    Raises:
        BenchError: If the table is not loaded, or `repeats` is not positive.
        NotFoundError: If the table has no index.
    """
    if repeats < 1:
        raise BenchError(f"{repeats} repeats are none")
    loaded, index = require_load(layout), open_index(layout)
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    collected = [_Collected() for _ in queries]
    with _both_sides(spark) as sessions:
        for number, (what, rounds) in enumerate([("warming up", 1)] * len(queries) + [("", repeats)] * len(queries)):
            query, executions = queries[number % len(queries)], collected[number % len(queries)]
            on_step(Step(number, 2 * len(queries), what or f"{query.query.name}, {query.query.title}"))
            _execute_rounds(sessions, query, rounds, executions)
    on_step(Step(2 * len(queries), 2 * len(queries), "done"))
    results = [
        _compare(layout, query, executions, repeats, loaded.rows)
        for query, executions in zip(queries, collected, strict=True)
    ]
    return Run(
        started_at=started,
        scale_factor=layout.scale_factor,
        repeats=repeats,
        machine=describe_machine(spark),
        table=TableFacts(
            loaded.rows,
            loaded.data_files,
            loaded.row_groups,
            loaded.row_group_rows,
            loaded.data_bytes,
            loaded.write_seconds,
        ),
        index=describe_index(layout, index),
        queries=tuple(results),
    )


def run_path(layout: Layout, run: Run) -> Path:
    """Name the file of a run by its begin."""
    stamp = datetime.datetime.fromisoformat(run.started_at).strftime("%Y%m%dT%H%M%SZ")
    return layout.runs / f"run-{stamp}.json"


def newest_report(spark: SparkSession) -> ScanPlan | None:
    """Give the planner's newest report of a scan, or None if there is none."""
    reports = planner.reports(spark)
    return reports[-1] if reports else None


@contextmanager
def _both_sides(spark: SparkSession) -> Iterator[dict[SideName, SparkSession]]:
    """Give a session without the hook and one with it, both of one application."""
    sessions: dict[SideName, SparkSession] = {"without": spark.newSession(), "with": spark.newSession()}
    for session in sessions.values():
        session.sql(f"USE {CATALOG}.{NAMESPACE}")
    planner.enable(sessions["with"])
    try:
        yield sessions
    finally:
        planner.disable(sessions["with"])


def _execute_rounds(
    sessions: dict[SideName, SparkSession], query: FittedQuery, rounds: int, collected: _Collected
) -> None:
    """Execute a query so many times on each side, unless it has failed before."""
    try:
        for side in _order(rounds if collected.error is None else 0):
            _execute(sessions[side], query.sql, side, collected)
    except (PySparkException, Py4JError) as error:
        collected.error = (str(error).strip().splitlines() or [type(error).__name__])[0]


def _compare(layout: Layout, query: FittedQuery, collected: _Collected, repeats: int, table_rows: int) -> QueryResult:
    """Compare the answers with each other and with DuckDB, and what was read with what the planner kept."""
    if collected.error is not None:
        return _result(query, None, False, None, None, None, [collected.error])
    failures: list[str] = []
    due = _duckdb_answer(layout, query.sql)
    answers = {run.answer for runs in collected.measurements.values() for run in runs}
    if answers != {due}:
        failures.append(f"the answers differ: DuckDB {due.text}, Spark {', '.join(sorted(a.text for a in answers))}")
    plan = _plan_of(collected.reports, 1 + repeats, failures)
    without, with_index = (_side_of(collected.measurements[side]) for side in ("without", "with"))
    if plan is not None and not plan.unindexed and with_index.rows_read > plan.kept_rows:
        failures.append(
            f"Spark read {with_index.rows_read:,} rows, but the row groups that were kept have {plan.kept_rows:,}"
        )
    if without.rows_read > table_rows:
        failures.append(f"Spark read {without.rows_read:,} rows of a table of {table_rows:,}")
    return _result(query, due, answers == {due}, without, with_index, plan, failures)


def _order(rounds: int) -> Iterator[SideName]:
    """Give the sides in turn: without, with, with, without, without, ..."""
    for number in range(rounds):
        yield from ("without", "with") if number % 2 == 0 else ("with", "without")


def _execute(spark: SparkSession, sql: str, side: SideName, collected: _Collected) -> None:
    before = newest_report(spark)
    collected.measurements[side].append(measure(spark, sql))
    after = newest_report(spark)
    if after is not None and after is not before:
        collected.reports.append(after)


def _duckdb_answer(layout: Layout, sql: str) -> Answer:
    with open_duckdb(layout) as connection:
        return answer_of(connection.execute(sql).fetchall())


def _plan_of(reports: Sequence[ScanPlan], executions: int, failures: list[str]) -> Plan | None:
    if len(reports) != executions:
        failures.append(f"the planner reported {len(reports)} of {executions} scans: the index was not used")
        return None
    last = reports[-1]
    return Plan(
        row_groups=last.row_groups,
        kept=last.kept,
        unindexed=last.unindexed,
        kept_rows=last.kept_rows,
        index_bytes_read=max(report.index_bytes_read for report in reports),
        planning_seconds=statistics.median(report.planning_seconds for report in reports[1:]),
    )


def _side_of(measurements: Sequence[Measurement]) -> Side:
    """Sum up the executions of one side: the first apart, the others as timings, the last for what was read."""
    first, *measured = measurements
    last = measured[-1]
    process_bytes = [run.process_bytes for run in measured if run.process_bytes is not None]
    return Side(
        first_seconds=first.seconds,
        seconds=tuple(run.seconds for run in measured),
        rows_read=last.read.rows,
        # The least: whatever else the process reads now and then is not the query's.
        bytes_read=min(process_bytes) if process_bytes else None,
        spark_input_bytes=last.read.spark_bytes,
        tasks=last.read.tasks,
    )


def _result(
    query: FittedQuery,
    answer: Answer | None,
    answers_equal: bool,
    without_index: Side | None,
    with_index: Side | None,
    plan: Plan | None,
    failures: Sequence[str],
) -> QueryResult:
    return QueryResult(
        name=query.query.name,
        title=query.query.title,
        sql=query.sql,
        literals=tuple(str(literal) for literal in query.literals),
        answer=None if answer is None else answer.text,
        answers_equal=answers_equal,
        without_index=without_index,
        with_index=with_index,
        plan=plan,
        failures=tuple(failures),
    )
