"""What was measured while data arrived."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ssb_bench.results.statistics import Summary, summarize


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
