"""The arms of a comparison in one Spark application: without the index, with it, and with perfect pruning.

What a query must answer: asked of DuckDB on the source files, and compared by value with what Spark gives.

A `select *` of many rows is compared by a digest: the count of rows, the sum of every numeric column, and least value,
greatest value and total length of every text column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import planner
from planner.report.scan_plan import ScanPlan
from ssb_bench.data.dataset import open_duckdb
from ssb_bench.data.layout import NAMESPACE, Layout
from ssb_bench.data.workload import FittedQuery
from ssb_bench.spark_runs.measure import Answer, Measurement, answer_of, in_turns, measure, rows_text
from ssb_bench.spark_runs.perfect import Survivors, perfect_pruning
from ssb_bench.spark_runs.session import CATALOG

MOST_ROWS_COMPARED: Final = 20_000
_NUMBERS: Final = (
    *("lo_orderkey", "lo_linenumber", "lo_custkey", "lo_partkey", "lo_suppkey", "lo_orderdate", "lo_shippriority"),
    *("lo_quantity", "lo_extendedprice", "lo_ordtotalprice", "lo_discount", "lo_revenue", "lo_supplycost", "lo_tax"),
    "lo_commitdate",
)
_TEXTS: Final = ("lo_orderpriority", "lo_shipmode")


def fetches(query: FittedQuery) -> bool:
    """Whether a query gives so few rows that every execution can fetch them: not a `select *`."""
    return query.query.workload != "rows"


def answer_due(layout: Layout, query: FittedQuery) -> tuple[str, Answer]:
    """Ask DuckDB on the source files; give the SQL (the query, or the digest of its rows) and the answer.

    Raises:
        duckdb.Error: If DuckDB cannot read the query.
    """
    with open_duckdb(layout) as connection:
        sql, rows = query.sql, 0
        if not fetches(query):
            counted = connection.execute(f"SELECT count(*) FROM ({query.sql}) AS matching").fetchone()
            rows = 0 if counted is None else int(counted[0])
            sql = _digest_sql(query.sql) if rows > MOST_ROWS_COMPARED else sql
        answer = answer_of(connection.execute(sql).fetchall())
    return sql, answer if sql == query.sql else replace(answer, text=rows_text(rows))


def _digest_sql(sql: str) -> str:
    parts = ["count(*)", *(f"sum(CAST({column} AS BIGINT))" for column in _NUMBERS)]
    for column in _TEXTS:
        parts += [f"min({column})", f"max({column})", f"sum(length({column}))"]
    return f"SELECT {', '.join(parts)} FROM ({sql}) AS matching"


R = TypeVar("R")
Arm = Literal["without", "with", "perfect"]
ARMS: Final[tuple[Arm, ...]] = ("without", "with", "perfect")
MOST_PAIRS: Final = 5
"""Executions with the index and with perfect pruning beside one without, at most."""


@dataclass(frozen=True, slots=True)
class Sessions:
    """One session for each arm, all of one application, and what tells perfect pruning the row groups with a match."""

    of: Mapping[Arm, SparkSession]
    keep: Callable[[Survivors], None]


@dataclass(frozen=True, slots=True)
class Task:
    """One query that is to be run.

    Attributes:
        query: The query.
        checking_sql: The SQL whose answer is compared.
        due: The answer that DuckDB gives.
        survivors: The row groups that hold a match; None if there is no perfect pruning to compare with.
        refusal: Why DuckDB could not answer the query; then the query is not run.
    """

    query: FittedQuery
    checking_sql: str
    due: Answer
    survivors: Survivors | None
    refusal: str | None = None

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The arms that run the query."""
        return ARMS if self.survivors is not None else ARMS[:2]


@dataclass(slots=True)
class Executions:
    """The executions of one query so far, with the first, which warms up, and the error that ended them.

    Attributes:
        measurements: By arm, in order.
        answers: What the arms answered.
        reports: The planner's reports, one for each execution with the index.
        error: The error that ended the executions, or None.
    """

    measurements: dict[Arm, list[Measurement]] = field(default_factory=lambda: {arm: [] for arm in ARMS})
    answers: set[Answer] = field(default_factory=set)
    reports: list[ScanPlan] = field(default_factory=list)
    error: str | None = None

    @property
    def round_seconds(self) -> float:
        """Time of the last round."""
        return sum(runs[-1].seconds for runs in self.measurements.values() if runs)

    @property
    def pairs(self) -> int:
        """How many pairs of executions with the index and with perfect pruning fit into the time of one without.

        Where both skip nearly all, they differ by a few milliseconds, which a few pairs cannot tell.
        """
        last = {arm: runs[-1].seconds for arm, runs in self.measurements.items() if runs}
        if len(last) < len(ARMS):
            return 1
        return min(MOST_PAIRS, max(1, int(last["without"] / (last["with"] + last["perfect"]))))


@contextmanager
def hooked(session: SparkSession, *, strict: bool = False, aggregates: bool = True) -> Iterator[SparkSession]:
    """Install the hook in a session, and take it out at the end.

    Args:
        session: The session.
        strict: Raise errors of the index.
        aggregates: Answer aggregates from the index; False where counts stand for scans.
    """
    session.conf.set("spark.puffin-index.aggregates", str(aggregates).lower())
    planner.enable(session, strict=strict)
    try:
        yield session
    finally:
        planner.disable(session)


@contextmanager
def open_sessions(spark: SparkSession, namespace: str = NAMESPACE) -> Iterator[Sessions]:
    """Give a session for each arm: the hook stays in one of them and perfect pruning in another."""
    sessions: dict[Arm, SparkSession] = {arm: spark.newSession() for arm in ARMS}
    for session in sessions.values():
        session.sql(f"USE {CATALOG}.{namespace}")
    with hooked(sessions["with"]), perfect_pruning(sessions["perfect"]) as keep:
        yield Sessions(sessions, keep)


def execute_rounds(sessions: Sessions, task: Task, rounds: int, executions: Executions) -> None:
    """Execute a query in some rounds on each arm, unless it has failed before."""
    if executions.error is not None:
        return
    # The first arm once a round, the fast ones as often as fits.
    turn = [task.arms[0], *[*task.arms[1:]] * executions.pairs]
    try:
        for arm in in_turns(turn, rounds):
            _execute(sessions, task, arm, executions)
    except (PySparkException, Py4JError) as error:
        executions.error = (str(error).strip().splitlines() or [type(error).__name__])[0]


def with_report(spark: SparkSession, action: Callable[[], R]) -> tuple[R, ScanPlan | None]:
    """Do something, and give its result and the planner's report of it; None if the planner reported nothing."""
    before = planner.reports(spark)[-1:]
    result = action()
    after = planner.reports(spark)[-1:]
    return result, after[0] if after and (not before or after[0] is not before[0]) else None


def _execute(sessions: Sessions, task: Task, arm: Arm, executions: Executions) -> None:
    spark = sessions.of[arm]
    if arm == "perfect" and task.survivors is not None:
        sessions.keep(task.survivors)
    measured, report = with_report(spark, lambda: measure(spark, task.query.sql, fetch=fetches(task.query)))
    if report is not None:
        executions.reports.append(report)
    if measured.answer is not None:
        executions.answers.add(measured.answer)
    elif not executions.measurements[arm]:
        executions.answers.add(answer_of(spark.sql(task.checking_sql).collect()))
    executions.measurements[arm].append(measured)
