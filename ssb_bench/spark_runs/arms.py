"""The arms of a comparison in one Spark application: without the index, with it, and with perfect pruning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Literal

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import planner
from planner.scans.scan_plan import ScanPlan
from ssb_bench.data.layout import NAMESPACE
from ssb_bench.data.workload import FittedQuery
from ssb_bench.spark_runs.answers import fetches, spark_answer
from ssb_bench.spark_runs.measure import Answer, Measurement, measure
from ssb_bench.spark_runs.perfect import PerfectPruning, perfect_pruning
from ssb_bench.spark_runs.session import CATALOG
from ssb_bench.spark_runs.survivors import Survivors

Arm = Literal["without", "with", "perfect"]
ARMS: Final[tuple[Arm, ...]] = ("without", "with", "perfect")
MOST_PAIRS: Final = 5
"""Executions with the index and with perfect pruning beside one without, at most."""


@dataclass(frozen=True, slots=True)
class Sessions:
    """One session for each arm, all of one application, and the handle of perfect pruning."""

    of: Mapping[Arm, SparkSession]
    perfect: PerfectPruning


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be run of one query.

    Attributes:
        query: The query.
        checking_sql: The SQL whose answer is compared.
        due: What it must answer.
        survivors: The row groups that hold a match; None if there is no perfect pruning to compare with.
        refusal: Why DuckDB could not answer it; then it is not run.
    """

    query: FittedQuery
    checking_sql: str
    due: Answer
    survivors: Survivors | None
    refusal: str | None = None

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The arms that run it."""
        return ARMS if self.survivors is not None else ARMS[:2]


@dataclass(slots=True)
class Executions:
    """The executions of one query so far, the one that warms up included, and the error that ended them.

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
        """How many executions with the index and with perfect pruning fit into the time of one without.

        Their difference is a few milliseconds where either skips nearly all: it takes more of them to tell it.
        """
        last = {arm: runs[-1].seconds for arm, runs in self.measurements.items() if runs}
        if len(last) < len(ARMS):
            return 1
        return min(MOST_PAIRS, max(1, int(last["without"] / (last["with"] + last["perfect"]))))


@contextmanager
def open_sessions(spark: SparkSession, namespace: str = NAMESPACE) -> Iterator[Sessions]:
    """Give a session for each arm: the hook stays in one of them and perfect pruning in another."""
    sessions: dict[Arm, SparkSession] = {arm: spark.newSession() for arm in ARMS}
    for session in sessions.values():
        session.sql(f"USE {CATALOG}.{namespace}")
    planner.enable(sessions["with"])
    try:
        with perfect_pruning(sessions["perfect"]) as perfect:
            yield Sessions(sessions, perfect)
    finally:
        planner.disable(sessions["with"])


def execute_rounds(sessions: Sessions, task: Task, rounds: int, executions: Executions) -> None:
    """Execute a query so many times on each arm, unless it has failed before."""
    if executions.error is not None:
        return
    try:
        for arm in _order(task.arms, rounds, executions.pairs):
            _execute(sessions, task, arm, executions)
    except (PySparkException, Py4JError) as error:
        executions.error = (str(error).strip().splitlines() or [type(error).__name__])[0]


def newest_report(spark: SparkSession) -> ScanPlan | None:
    """Give the planner's newest report of a scan, or None if there is none."""
    reports = planner.reports(spark)
    return reports[-1] if reports else None


def _order(arms: Sequence[Arm], rounds: int, pairs: int) -> Iterator[Arm]:
    """Give the arms in turn, forwards and backwards: without, with, perfect, ..., ..., perfect, with, without, ..."""
    turn = [arms[0], *[*arms[1:]] * pairs]
    for number in range(rounds):
        yield from turn if number % 2 == 0 else reversed(turn)


def _execute(sessions: Sessions, task: Task, arm: Arm, executions: Executions) -> None:
    spark = sessions.of[arm]
    if arm == "perfect" and task.survivors is not None:
        sessions.perfect.keep(task.survivors)
    before = newest_report(spark)
    measured = measure(spark, task.query.sql, fetch=fetches(task.query))
    after = newest_report(spark)
    if after is not None and after is not before:
        executions.reports.append(after)
    if measured.answer is not None:
        executions.answers.add(measured.answer)
    elif not executions.measurements[arm]:
        executions.answers.add(spark_answer(spark, task.checking_sql))
    executions.measurements[arm].append(measured)
