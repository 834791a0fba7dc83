"""What was measured while data arrived.

What was kept of tables whose keys come in bursts, beside what holds a match. What was measured of tables in a store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from ssb_bench.results.statistics import Summary, ratio, summarize


@dataclass(frozen=True, slots=True)
class Appended:
    """One batch.

    Attributes:
        rows: Its rows.
        write_seconds: Time that Spark took to append it.
        committed_seconds: Its commit, in seconds after the first append began.
        lag_seconds: Time from its commit to the commit of its index; None if the batch was never indexed.
    """

    rows: int
    write_seconds: float
    committed_seconds: float
    lag_seconds: float | None


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of a query with the hook while data arrived.

    Attributes:
        query: Name of the query.
        started_seconds: Start of the execution, in seconds after the first append began.
        seconds: Wall time.
        row_groups: Row groups of the scan; None if there was no index yet.
        kept: Row groups that the planner kept.
        unindexed: Row groups that were kept because they had no index yet.
    """

    query: str
    started_seconds: float
    seconds: float
    row_groups: int | None
    kept: int | None
    unindexed: int | None


@dataclass(frozen=True, slots=True)
class AppendRun:
    """Batches, and the queries that ran meanwhile and afterwards.

    Attributes:
        scale_factor: Scale factor of the data that the batches are cut from.
        every_seconds: Pace of the appends; an append waits for the one before it.
        row_group_rows: Rows of a row group.
        machine: Hardware and versions.
        appended: The batches, in order.
        executions: The queries while data arrived, in order.
        settled_without: Seconds of each query without the hook, after all was indexed.
        settled_with: The same with the hook, in turns with the former.
        failures: What went wrong, one sentence each.
    """

    FORMAT: ClassVar = "ssb-bench/append/1"

    scale_factor: float
    every_seconds: float
    row_group_rows: int
    machine: dict[str, str | int]
    appended: tuple[Appended, ...]
    executions: tuple[Execution, ...]
    settled_without: dict[str, list[float]]
    settled_with: dict[str, list[float]]
    failures: tuple[str, ...]

    @property
    def lag(self) -> Summary | None:
        """The lags of the indexed batches; None if no batch was indexed."""
        lags = [batch.lag_seconds for batch in self.appended if batch.lag_seconds is not None]
        return summarize(lags) if lags else None

    def meanwhile(self, query: str) -> list[float]:
        """Give the seconds of a query while data arrived."""
        return [execution.seconds for execution in self.executions if execution.query == query]


MOST_KEPT: Final = 1.1
"""An index may keep this many times the row groups that hold a match, wherever fewer than half of them do."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One query of one column. Row groups and bytes are sums over the trials.

    Attributes:
        size: Row-group size of the table.
        order: Order of the keys over time.
        kind: Type of the keys.
        burst: Rows in which a key comes at a time.
        query: The query.
        row_groups: Row groups of the table.
        matching: Row groups that hold a match.
        kept: Row groups that the planner keeps.
        without: Row groups that minimum and maximum keep.
        wrong: Row groups that hold a match and are dropped.
        index_bytes: Index bytes that were read.
        data_bytes: Bytes of the row groups that minimum and maximum keep.
        planning_seconds: The longest of the plans.
    """

    size: str
    order: str
    kind: str
    burst: int
    query: str
    row_groups: int = 0
    matching: int = 0
    kept: int = 0
    without: int = 0
    wrong: int = 0
    index_bytes: int = 0
    data_bytes: int = 0
    planning_seconds: float = 0.0

    @property
    def name(self) -> str:
        """Which cell it is."""
        return f"{self.query} of {self.kind}s in bursts of {self.burst}, {self.order}, row groups of {self.size}"

    @property
    def is_selective(self) -> bool:
        """Whether fewer than half of the row groups hold a match."""
        return 2 * self.matching < self.row_groups

    @property
    def is_missed(self) -> bool:
        """Whether too many row groups are kept."""
        return self.is_selective and self.kept > MOST_KEPT * self.matching


@dataclass(frozen=True, slots=True)
class TimedScan:
    """Reading the rows of a query without Spark.

    Attributes:
        size: Row-group size of the table.
        query: The query.
        row_groups: Row groups of the table.
        kept: Row groups that the planner keeps.
        without_seconds: Times of PyIceberg's scan.
        with_seconds: Times of the planner's scan, as many: times at the same place are a pair.
    """

    size: str
    query: str
    row_groups: int
    kept: int
    without_seconds: tuple[float, ...]
    with_seconds: tuple[float, ...]

    @property
    def speed_up(self) -> float:
        """Time without by time with, of medians."""
        return ratio(self.without_seconds, self.with_seconds)


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A table.

    Attributes:
        size: Row-group size that was asked for.
        row_groups: Row groups.
        row_group_rows: The most rows of a row group.
        data_bytes: Bytes of the data files.
        index_bytes: Bytes of the index.
    """

    size: str
    row_groups: int
    row_group_rows: int
    data_bytes: int
    index_bytes: int


@dataclass(frozen=True, slots=True)
class ClusteredRun:
    """What was measured.

    Attributes:
        rows: Rows of each table.
        trials: Queries of each cell.
        machine: Hardware and versions.
        tables: The tables.
        cells: The cells.
        scans: Times of some queries.
        failures: Wrong answers and index troubles.
    """

    FORMAT: ClassVar = "ssb-bench/clustered/1"

    rows: int
    trials: int
    machine: dict[str, str | int]
    tables: tuple[TableFacts, ...]
    cells: tuple[Cell, ...]
    scans: tuple[TimedScan, ...]
    failures: tuple[str, ...]


Side = Literal["index", "none"]


@dataclass(frozen=True, slots=True)
class StoreStep:
    """One piece of work at one distance: a median execution.

    Attributes:
        milliseconds: From a request to the first byte of its answer.
        megabytes_a_second: Bandwidth each way; None for no bound.
        name: What was done.
        side: With the index, or without any.
        seconds: Wall time.
        rounds: Sequential rounds: the longest chain of requests, each of which began after the end of the one before.
        requests: Requests.
        by_kind: Requests of each kind: `GET`, `RANGE`, `HEAD`, `LIST`, `PUT`, `POST`, `DELETE`.
        most_at_once: The most requests under way at one time.
        bytes_in: Bytes read.
        bytes_out: Bytes written.
        answer: Rows that were counted, read or indexed, or segments that were left; None if nothing was.
    """

    milliseconds: float
    megabytes_a_second: float | None
    name: str
    side: Side
    seconds: float
    rounds: int
    requests: int
    by_kind: dict[str, int]
    most_at_once: int
    bytes_in: int
    bytes_out: int
    answer: int | None


@dataclass(frozen=True, slots=True)
class StoreRun:
    """Work on tables in a store.

    Attributes:
        scale_factor: Scale factor of lineorder.
        machine: Hardware and versions.
        rows: Rows of lineorder.
        data_files: Its data files.
        data_bytes: Their bytes.
        index_bytes: Bytes of its index.
        segments: Segments of its index.
        steps: What was measured.
        failures: Answers with the index that differ from those without.
    """

    scale_factor: float
    machine: dict[str, str | int]
    rows: int
    data_files: int
    data_bytes: int
    index_bytes: int
    segments: int
    steps: tuple[StoreStep, ...]
    failures: tuple[str, ...]
