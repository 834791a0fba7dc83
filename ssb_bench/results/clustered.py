"""What was kept of tables whose keys come in bursts, beside what holds a match."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from ssb_bench.results.statistics import ratio

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
