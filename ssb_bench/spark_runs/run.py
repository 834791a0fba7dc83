"""Run the queries without the index and with it, side by side; compare answers and reads.

- Both sides run in one application, on one table, each in a session of its own.
- Each query runs once on each side to warm up (`first_seconds`). Then the sides run in turns (without, with, with,
  without), so that a drift of the machine hits both.
- Answers are compared by value, with each other and with DuckDB's on the source files. A `select *` is compared by a
  digest: the count of rows, the sum of every numeric column, and least value, greatest value and total length of every
  text column.
- A failure is a row with a reason.
- A slow query runs as many rounds as fit `ROUNDS_SECONDS`, two at least.
"""

from __future__ import annotations

import datetime
import logging
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Final, Literal, TypeVar

import duckdb
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import planner
from planner.report.scan_plan import ScanPlan
from ssb_bench.data.dataset import open_duckdb, require_dataset
from ssb_bench.data.layout import NAMESPACE, BenchError, Layout
from ssb_bench.data.workload import VOLCANO_QUERIES, FittedQuery, Values, fit, load_query
from ssb_bench.results.run import Plan, QueryResult, Run, Side, TableFacts
from ssb_bench.spark_runs.index import describe_index, open_index
from ssb_bench.spark_runs.load import require_load
from ssb_bench.spark_runs.measure import Answer, Measurement, answer_of, in_turns, measure, rows_text
from ssb_bench.spark_runs.session import CATALOG, describe_machine

_log = logging.getLogger(__name__)
R = TypeVar("R")
_Arm = Literal["without", "with"]
_ARMS: Final[tuple[_Arm, ...]] = ("without", "with")

_AGGREGATES: Final = "spark.puffin-index.aggregates"
ROUNDS_SECONDS: Final = 15.0
LEAST_ROUNDS: Final = 2
_NUMBERS: Final = (
    *("lo_orderkey", "lo_linenumber", "lo_custkey", "lo_partkey", "lo_suppkey", "lo_orderdate", "lo_shippriority"),
    *("lo_quantity", "lo_extendedprice", "lo_ordtotalprice", "lo_discount", "lo_revenue", "lo_supplycost", "lo_tax"),
    "lo_commitdate",
)
_TEXTS: Final = ("lo_orderpriority", "lo_shipmode")


def fit_queries(layout: Layout, names: Sequence[str] = VOLCANO_QUERIES) -> list[FittedQuery]:
    """Fit the literals of queries to the SSB files."""
    require_dataset(layout)
    with open_duckdb(layout) as connection:
        return [fit(load_query(name), Values(connection)) for name in names]


def run_queries(
    spark: SparkSession,
    layout: Layout,
    queries: Sequence[FittedQuery],
    *,
    repeats: int = 5,
) -> Run:
    """Measure queries without the index and with it; nothing else may run in the session.

    Raises BenchError if the table is not loaded or `repeats` is not positive, NotFoundError without an index.
    """
    if repeats < 1:
        raise BenchError(f"repeats must be at least 1, not {repeats}")
    loaded, index = require_load(layout), open_index(layout)
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    _log.info("asking DuckDB for the answers")
    running = [_Running.of(layout, query) for query in queries]
    with _open_sessions(spark) as sessions:
        for one in running:
            _log.info("warming up %s", one.query.query.name)
            one.execute(sessions, 1)
        for one in running:
            _log.info("measuring %s, %s", one.query.query.name, one.query.query.title)
            one.execute(sessions, rounds_within(one.round_seconds, repeats))
    return Run(
        started_at=started,
        scale_factor=layout.scale_factor,
        repeats=repeats,
        machine=describe_machine(spark),
        # The facts of a table are some of those of its load.
        table=TableFacts(**{field.name: getattr(loaded, field.name) for field in fields(TableFacts)}),
        index=describe_index(layout, index),
        queries=tuple(one.result(loaded.rows) for one in running),
    )


def rounds_within(round_seconds: float, repeats: int) -> int:
    """Say how many rounds of a query are run: `repeats`, or fewer where one takes long."""
    fitting = repeats if round_seconds <= 0 else int(ROUNDS_SECONDS / round_seconds)
    return min(repeats, max(LEAST_ROUNDS, fitting))


def stamped_path(layout: Layout, started_at: str) -> Path:
    """Name the file of a run by its begin, ISO 8601 in UTC."""
    stamp = datetime.datetime.fromisoformat(started_at).strftime("%Y%m%dT%H%M%SZ")
    return layout.runs / f"run-{stamp}.json"


@contextmanager
def hooked(session: SparkSession, *, aggregates: bool = True) -> Iterator[SparkSession]:
    """Install the hook in a session, which answers aggregates or scans for them; undo both at the end."""
    before = session.conf.get(_AGGREGATES, None)
    session.conf.set(_AGGREGATES, str(aggregates).lower())
    planner.enable(session)
    try:
        yield session
    finally:
        planner.disable(session)
        if before is None:
            session.conf.unset(_AGGREGATES)
        else:
            session.conf.set(_AGGREGATES, before)


def with_report(spark: SparkSession, action: Callable[[], R]) -> tuple[R, ScanPlan | None]:
    """Do something, and give its result and the planner's report of it; None if the planner reported nothing."""
    before = planner.reports(spark)[-1:]
    result = action()
    after = planner.reports(spark)[-1:]
    return result, after[0] if after and (not before or after[0] is not before[0]) else None


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


@contextmanager
def _open_sessions(spark: SparkSession) -> Iterator[dict[_Arm, SparkSession]]:
    """Give a session for each side, with the hook in one of them."""
    sessions: dict[_Arm, SparkSession] = {arm: spark.newSession() for arm in _ARMS}
    for session in sessions.values():
        session.sql(f"USE {CATALOG}.{NAMESPACE}")
    with hooked(sessions["with"]):
        yield sessions


@dataclass(slots=True)
class _Running:
    """One query, DuckDB's answer, the executions so far (the first warms up), and the error that ended them, if any."""

    query: FittedQuery
    due: Answer
    error: str | None = None
    measurements: dict[_Arm, list[Measurement]] = field(default_factory=lambda: {arm: [] for arm in _ARMS})
    answers: set[Answer] = field(default_factory=set)
    reports: list[ScanPlan] = field(default_factory=list)

    @classmethod
    def of(cls, layout: Layout, query: FittedQuery) -> _Running:
        try:
            return cls(query, answer_due(layout, query))
        except duckdb.Error as error:
            return cls(query, Answer("", ""), str(error).splitlines()[0])

    @property
    def round_seconds(self) -> float:
        """Time of the last round."""
        return sum(runs[-1].seconds for runs in self.measurements.values() if runs)

    def execute(self, sessions: Mapping[_Arm, SparkSession], rounds: int) -> None:
        """Execute the query in some rounds on each side, unless it has failed before."""
        if self.error is not None:
            return
        try:
            for arm in in_turns(_ARMS, rounds):
                self._execute(sessions[arm], arm)
        except (PySparkException, Py4JError) as error:
            self.error = (str(error).strip().splitlines() or [type(error).__name__])[0]

    def _execute(self, spark: SparkSession, arm: _Arm) -> None:
        is_fetched = _is_fetched(self.query)
        measured, report = with_report(spark, lambda: measure(spark, self.query.sql, fetch=is_fetched))
        if report is not None:
            self.reports.append(report)
        if measured.answer is not None:
            self.answers.add(measured.answer)
        elif not self.measurements[arm]:
            self.answers.add(answer_of(spark.sql(checking_sql(self.query)).collect()))
        self.measurements[arm].append(measured)

    def result(self, table_rows: int) -> QueryResult:
        """Compare the answers with each other and with DuckDB, and what was read with what the planner kept."""
        query = self.query.query
        bare = QueryResult(
            name=query.name,
            title=query.title,
            sql=self.query.sql,
            literals=tuple(str(literal) for literal in self.query.literals),
            workload=query.workload,
        )
        if self.error is not None:
            return replace(bare, failures=(self.error,))
        without, with_index = (_side_of(self.measurements[arm]) for arm in _ARMS)
        plan = self._plan()
        return replace(
            bare,
            answer=self.due.text,
            answers_equal=self.answers == {self.due},
            without_index=without,
            with_index=with_index,
            plan=plan,
            failures=tuple(self._failures(without, with_index, plan, table_rows)),
        )

    def _failures(self, without: Side, with_index: Side, plan: Plan | None, table_rows: int) -> Iterator[str]:
        if self.answers != {self.due}:
            texts = ", ".join(sorted(answer.text for answer in self.answers))
            yield f"the answers differ: DuckDB {self.due.text}, Spark {texts}"
        # A join without a filter on lineorder need not have a plan, and reads other tables as well.
        if self.query.query.workload in ("ssb", "shapes"):
            return
        if plan is None:
            count = len(self.measurements["with"])
            yield f"the planner reported {len(self.reports)} of {count} scans: the index was not used"
        elif not plan.unindexed and with_index.rows_read > plan.kept_rows:
            yield f"Spark read {with_index.rows_read:,} rows, but the kept row groups have {plan.kept_rows:,}"
        if without.rows_read > table_rows:
            yield f"Spark read {without.rows_read:,} rows of a table of {table_rows:,}"

    def _plan(self) -> Plan | None:
        """Sum up the planner's reports; None if there is not one for each execution with the index."""
        if len(self.reports) != len(self.measurements["with"]):
            return None
        last = self.reports[-1]
        return Plan(
            row_groups=last.row_groups,
            kept=last.kept,
            unindexed=last.unindexed,
            kept_rows=last.kept_rows,
            index_bytes_read=max(report.index_bytes_read for report in self.reports),
            planning_seconds=statistics.median(report.planning_seconds for report in self.reports[1:]),
            answered=last.reason_counts().get("answered", 0),
        )


def _side_of(measurements: Sequence[Measurement]) -> Side:
    """Sum up the executions of one side: the first apart, the others as timings, the last for what was read."""
    first, *measured = measurements
    process_bytes = [run.process_bytes for run in measured if run.process_bytes is not None]
    return Side(
        first_seconds=first.seconds,
        seconds=tuple(run.seconds for run in measured),
        rows_read=measured[-1].rows_read,
        # The least: sometimes the process reads what is not the query's.
        bytes_read=min(process_bytes) if process_bytes else None,
    )
