"""What a run of the queries in Spark measured."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ssb_bench.data.layout import BenchError
from ssb_bench.data.workload import Workload


@dataclass(frozen=True, slots=True)
class Summary:
    """What several timings of one thing say."""

    median_seconds: float
    least_seconds: float
    greatest_seconds: float


def summarize(seconds: Sequence[float]) -> Summary:
    """Give median, least and greatest of timings; ValueError if there is none, or one is not finite and above zero."""
    if not seconds or any(not math.isfinite(value) or value <= 0 for value in seconds):
        raise ValueError(f"timings must be finite and greater than zero, and at least one: {seconds}")
    return Summary(statistics.median(seconds), min(seconds), max(seconds))


@dataclass(frozen=True, slots=True)
class Side:
    """One query on one side: its first execution, later ones, and what Spark's tasks and the whole process read."""

    first_seconds: float
    seconds: tuple[float, ...]
    rows_read: int
    bytes_read: int | None


@dataclass(frozen=True, slots=True)
class Plan:
    """What the planner reported for a query: row groups, rows of indexed ones it kept, and medians or most of costs."""

    row_groups: int
    kept: int
    unindexed: int
    kept_rows: int
    index_bytes_read: int
    planning_seconds: float
    answered: int = 0


@dataclass(frozen=True, slots=True)
class QueryResult:
    """One query of a run: fitted literals, the answer (a value or a count of rows), and whether DuckDB gives it, too.

    A missing plan is a failure, but not of the 13 standard queries, where nothing can be skipped.
    """

    name: str
    title: str
    sql: str
    literals: tuple[str, ...]
    workload: Workload = "count"
    answer: str | None = None
    answers_equal: bool = False
    without_index: Side | None = None
    with_index: Side | None = None
    plan: Plan | None = None
    failures: tuple[str, ...] = ()

    @property
    def speed_up(self) -> float | None:
        """Median time without by median time with the index; None after a failure."""
        if self.without_index is None or self.with_index is None:
            return None
        without, with_index = summarize(self.without_index.seconds), summarize(self.with_index.seconds)
        return without.median_seconds / with_index.median_seconds


@dataclass(frozen=True, slots=True)
class TableFacts:
    """The table that was queried; `row_group_rows` as they were asked for."""

    rows: int
    data_files: int
    row_groups: int
    row_group_rows: int
    data_bytes: int
    write_seconds: float


@dataclass(frozen=True, slots=True)
class IndexFacts:
    """The index that was used."""

    columns: dict[str, list[str]]
    column_bytes: dict[str, int]
    indexed_row_groups: int
    index_bytes: int
    build_seconds: float | None
    build_in_background: bool


@dataclass(frozen=True, slots=True)
class Run:
    """One run: its begin (ISO 8601, UTC), the machine, the table, the index, and each query, failed ones too."""

    FORMAT: ClassVar = "ssb-bench/run/3"

    started_at: str
    scale_factor: float
    repeats: int
    machine: dict[str, str | int]
    table: TableFacts
    index: IndexFacts
    queries: tuple[QueryResult, ...]

    @property
    def failures(self) -> list[str]:
        """Everything that went wrong, each with its query's name."""
        return [f"{query.name}: {failure}" for query in self.queries for failure in query.failures]

    @property
    def title(self) -> str:
        """The headline: scale factor, rows, row groups."""
        return (
            f"SSB scale factor {self.scale_factor:g}: {self.table.rows:,} rows of lineorder "
            f"in {self.table.row_groups:,} row groups, {self.table.data_files:,} files"
        )

    def measured(self, workload: Workload) -> list[QueryResult]:
        """Give the queries of a workload that ran without the index and with it."""
        return [query for query in self.queries if query.workload == workload and query.speed_up is not None]


def mean_speed_up(queries: Sequence[QueryResult]) -> float | None:
    """Give the geometric mean of the speed-ups of those queries that did not fail; None if all did."""
    speed_ups = [query.speed_up for query in queries if query.speed_up is not None]
    return statistics.geometric_mean(speed_ups) if speed_ups else None


def newest_run(runs: Path) -> Path:
    """Find the newest run of a directory, or raise BenchError if there is none."""
    found = sorted(runs.glob("run-*.json"))
    if not found:
        raise BenchError(f"no run under {runs}: run `ssb-bench run` first")
    return found[-1]
