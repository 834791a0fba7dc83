"""What the studies measured: appends, keys in bursts, stores, planning at scale, systems, writes, doors."""

import statistics
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal

from ssb_bench.results.run import Summary, summarize
from ssb_bench.stores.traffic import Traffic


@dataclass(frozen=True, slots=True)
class Appended:
    """One batch, its commit after the first append began, and the time to the commit of its index, if any."""

    rows: int
    write_seconds: float
    committed_seconds: float
    lag_seconds: float | None


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of a query with the hook since the first append; no numbers without an index."""

    query: str
    started_seconds: float
    seconds: float
    row_groups: int | None
    kept: int | None
    unindexed: int | None


@dataclass(frozen=True, slots=True)
class AppendRun:
    """Batches, one every so many seconds or when the one before it is written, and the queries that ran meanwhile."""

    FORMAT: ClassVar = "ssb-bench/append/2"

    scale_factor: float
    every_seconds: float
    row_group_rows: int
    machine: dict[str, str | int]
    appended: tuple[Appended, ...]
    executions: tuple[Execution, ...]
    failures: tuple[str, ...]

    @property
    def lag(self) -> Summary | None:
        """The lags of the indexed batches; None if no batch was indexed."""
        lags = [batch.lag_seconds for batch in self.appended if batch.lag_seconds is not None]
        return summarize(lags) if lags else None

    def by_query(self) -> dict[str, list[Execution]]:
        """Give the executions of each query, in order."""
        of_query: dict[str, list[Execution]] = {}
        for execution in self.executions:
            of_query.setdefault(execution.query, []).append(execution)
        return of_query


MOST_KEPT: Final = 1.1
"""An index may keep this many times the row groups that hold a match, wherever fewer than half of them do."""


@dataclass(frozen=True, slots=True)
class BurstCell:
    """One query of one column that comes in bursts of so many rows. Row groups and bytes are sums over the trials.

    `without` counts what minimum and maximum keep, whose bytes are `data_bytes`; `wrong` those dropped with a match.
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

    @property
    def share_read(self) -> float:
        """The index bytes that were read, as a share of the data bytes."""
        return self.index_bytes / max(self.data_bytes, 1)


@dataclass(frozen=True, slots=True)
class BurstTable:
    """A table; a row group has at most `row_group_rows` rows."""

    size: str
    row_groups: int
    row_group_rows: int
    data_bytes: int
    index_bytes: int


MOST_REGRET: Final = 0.02
LEAST_REGRET_SECONDS: Final = 0.015
"""Planning that drops nothing may take this share of the query, or so many seconds if that is more."""


@dataclass(frozen=True, slots=True)
class Regret:
    """Queries that can drop nothing: the seconds of planning with the index, and of the scans without an index."""

    query: str
    planning_seconds: tuple[float, ...]
    scan_seconds: tuple[float, ...]
    index_bytes: int
    dropped: int

    @property
    def share(self) -> float:
        """What planning takes of the scan, by medians."""
        return statistics.median(self.planning_seconds) / statistics.median(self.scan_seconds)

    @property
    def is_missed(self) -> bool:
        """Whether planning takes too long."""
        return self.share > MOST_REGRET and statistics.median(self.planning_seconds) > LEAST_REGRET_SECONDS


@dataclass(frozen=True, slots=True)
class ClusteredRun:
    """What was measured."""

    FORMAT: ClassVar = "ssb-bench/clustered/3"

    rows: int
    trials: int
    machine: dict[str, str | int]
    tables: tuple[BurstTable, ...]
    cells: tuple[BurstCell, ...]
    failures: tuple[str, ...]
    regrets: tuple[Regret, ...] = ()


@dataclass(frozen=True, slots=True)
class WriteStep:
    """One statement or question about rows by keys: the seconds of its executions, without the hook and with it.

    Attributes:
        kept: Row groups that the scan of the keys reads with the hook; None of what Spark does not run.
        holding: Row groups that hold a key.
        least_ratio: How many times as fast the hook shall make it at least; None without such a target.
        most_seconds: What it shall take with the hook at most; None without such a target.
    """

    name: str
    keys: str
    without: tuple[float, ...]
    with_index: tuple[float, ...]
    kept: int | None
    holding: int
    least_ratio: float | None = None
    most_seconds: float | None = None

    @property
    def ratio(self) -> float:
        """How many times as fast the hook makes it, by the medians."""
        return statistics.median(self.without) / statistics.median(self.with_index)

    @property
    def is_slow(self) -> bool:
        """Whether a target of time is missed."""
        is_below = self.least_ratio is not None and self.ratio < self.least_ratio
        return is_below or (self.most_seconds is not None and statistics.median(self.with_index) > self.most_seconds)

    @property
    def is_missed(self) -> bool:
        """Whether too many row groups are read."""
        return self.kept is not None and self.kept > MOST_KEPT * self.holding


@dataclass(frozen=True, slots=True)
class WritesRun:
    """What writes by keys took; each began with the same snapshot of the table, of so many rows."""

    FORMAT: ClassVar = "ssb-bench/writes/1"

    scale_factor: float
    machine: dict[str, str | int]
    rows: int
    data_files: int
    row_groups: int
    data_bytes: int
    index_bytes: int
    steps: tuple[WriteStep, ...]
    failures: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DoorStep:
    """The seconds of something, and of what it is held against, in turns; none of what is not there."""

    name: str
    against: str
    others: tuple[float, ...]
    seconds: tuple[float, ...]
    most_seconds: float | None = None

    @property
    def is_slow(self) -> bool:
        """Whether its target is missed."""
        return self.most_seconds is not None and statistics.median(self.seconds) > self.most_seconds


@dataclass(frozen=True, slots=True)
class DoorsRun:
    """Queries through Spark's doors, starts of the plugin, and look-ups by key."""

    FORMAT: ClassVar = "ssb-bench/doors/1"

    scale_factor: float
    machine: dict[str, str | int]
    rows: int
    row_groups: int
    steps: tuple[DoorStep, ...]
    failures: tuple[str, ...]


Side = Literal["index", "none"]


@dataclass(frozen=True, slots=True)
class StoreStep:
    """One piece of work at one distance, in milliseconds to the first byte: a median execution, and what it counted."""

    milliseconds: float
    name: str
    side: Side
    seconds: float
    traffic: Traffic
    answer: int | None


@dataclass(frozen=True, slots=True)
class StoreRun:
    """Work on tables in a store; the bandwidth is that of each way, None for no bound."""

    scale_factor: float
    machine: dict[str, str | int]
    megabytes_a_second: float | None
    data_files: int
    data_bytes: int
    index_bytes: int
    segments: int
    steps: tuple[StoreStep, ...]
    failures: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Probe:
    """What planning one predicate over a simulated index took; the peak is of the whole process."""

    open_seconds: float
    cold_seconds: float
    warm_seconds: tuple[float, ...]
    cold_requests: int
    cold_bytes: int
    warm_requests: int
    warm_bytes: int
    kept: int
    needle_kept: bool
    peak_bytes: int
    stage_seconds: dict[str, float]

    @property
    def warm_median_seconds(self) -> float:
        """Median of the later plans."""
        return statistics.median(self.warm_seconds)


@dataclass(frozen=True, slots=True)
class ScalePoint:
    """One scenario over one simulated index."""

    scenario: str
    row_groups: int
    index_bytes: int
    probe: Probe | None
    failure: str | None


@dataclass(frozen=True, slots=True)
class Scale:
    """Planning over simulated indexes."""

    FORMAT: ClassVar = "ssb-bench/scale/3"

    machine: dict[str, str | int]
    points: tuple[ScalePoint, ...]

    @property
    def failures(self) -> list[str]:
        """What is wrong: probes that failed, and needles that were not found."""
        lost = "the matching row group was dropped"
        return [
            f"{point.scenario}, {point.row_groups:,} row groups: {point.failure or lost}"
            for point in self.points
            if point.probe is None or not point.probe.needle_kept
        ]


@dataclass(slots=True)
class SystemResult:
    """One system on the queries, with what it tells of itself, or why it did not run at all."""

    name: str
    title: str
    facts: dict[str, str | float] = field(default_factory=dict)
    failure: str | None = None
    cold: dict[str, float | None] = field(default_factory=dict)
    warm: dict[str, list[float]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def median(self, query: str) -> float | None:
        """Median of a query's warm times; None after a failure."""
        seconds = self.warm.get(query)
        return summarize(seconds).median_seconds if seconds and query not in self.failures else None


@dataclass(frozen=True, slots=True)
class SystemsRun:
    """A comparison of systems; `queries` has the predicate of each query, in order."""

    FORMAT: ClassVar = "ssb-bench/systems/2"

    started_at: str
    scale_factor: float
    rows: int
    row_groups: int
    data_bytes: int
    machine: dict[str, str | int]
    queries: dict[str, str]
    systems: tuple[SystemResult, ...]

    @property
    def failures(self) -> list[str]:
        """What went wrong while a system ran; one that could not be run at all is listed, but is no failure."""
        return [f"{s.name}, {query}: {why}" for s in self.systems for query, why in s.failures.items()]
