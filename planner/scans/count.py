"""Counting matching rows: from exact row sets of the index, and by reading the other row groups that are kept."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from planner.aggregates.question import ALL_ROWS
from planner.clock import DEFAULT_MILLISECONDS
from planner.condition.session_time import DEFAULT_ZONE
from planner.prune.gate import ROWS_BYTE_BUDGET, Limits
from planner.report.scan_plan import ScanPlan
from planner.scans.arrow_scan import in_order, residual_of
from planner.scans.plan import plan_scan
from planner.scans.reading.data_read import DataRead
from planner.scans.row_group_reader import RowGroupReader, tasks_of
from planner.scans.wanted import Keys, Wanted
from puffin_index.display import Cell, Described, Report, share_of
from puffin_index.table_index import TableIndex


@dataclass(frozen=True, slots=True)
class RowCount(Described):
    """How many rows match, and what counting took.

    Attributes:
        rows: Matching rows.
        row_groups: Row groups of the scan.
        row_groups_read: Row groups whose data had to be read.
        data_read: Pages, column chunks and bytes that were read of them.
        seconds: Time spent.
        plan: The scan plan behind the count.
    """

    rows: int
    row_groups: int
    row_groups_read: int
    seconds: float
    plan: ScanPlan
    data_read: DataRead = field(default_factory=DataRead)
    JSON = (
        *("plan.table", "plan.snapshot_id", "plan.where", "rows", "row_groups", "row_groups_read", "data_read"),
        *("plan.index_bytes_read", "plan.index_reads", "seconds", "plan.unused", "plan.warnings"),
    )

    def __repr__(self) -> str:
        read = f"{self.row_groups_read} of {self.row_groups} row groups read"
        return f"RowCount({self.rows:,} rows, {read}, {self.seconds * 1000:.0f} ms)"

    def describe(self) -> Report:
        """Describe the count, and its plan below."""
        facts: dict[str, Cell] = {
            "row groups read": share_of(self.row_groups_read, self.row_groups),
            "data read": str(self.data_read),
            "seconds": f"{self.seconds:.3f}",
        }
        return Report(f"{self.rows:,} rows", facts, below=self.plan.describe())


def count(
    index: TableIndex,
    where: str | None = None,
    snapshot_id: int | None = None,
    *,
    planning_milliseconds: float = DEFAULT_MILLISECONDS,
    refresh: bool = True,
    keys: Keys | None = None,
    session_zone: str = DEFAULT_ZONE,
) -> RowCount:
    """Count the rows of a table that satisfy a predicate.

    Args:
        index: The table's index.
        where: SQL WHERE text; None for all rows.
        snapshot_id: The snapshot to count in, None for the current one.
        planning_milliseconds: How long judging files and row groups may take; undecided ones are read.
        refresh: Ask the catalog for the newest versions of table and index first. Otherwise the count uses the versions
            that `index` knows.
        keys: Values by column name, such as the keys of a join: only rows that have one of them are counted.
        session_zone: The time zone of timestamps that name none.

    Raises:
        WhereSyntaxError: If the text does not parse.
        NotFoundError: If the text names a column that the table lacks, or there is no such snapshot.
        UnsupportedError: If rows have to be read, and a part of the text, a row, a data file's format or equality
            deletes make that impossible here.
    """
    started = time.perf_counter()
    limits = Limits(byte_budget=ROWS_BYTE_BUDGET, rows_wanted=True, seconds=planning_milliseconds / 1000)
    wanted = Wanted(keys or {})
    planned = plan_scan(
        index,
        where,
        snapshot_id,
        limits,
        refresh=refresh,
        wanted=wanted,
        question=ALL_ROWS,
        session_zone=session_zone,
    )
    assert planned.aggregates is not None
    count, read, data_read = planned.aggregates.partial.row_count, 0, DataRead()
    if len(planned.aggregates.unread):
        table = index.data_table
        reader = RowGroupReader(table, planned.request.schema, residual_of(planned), data_read=data_read)
        for rows in in_order(reader.count, tasks_of(planned, table, planned.aggregates.unread)):
            count, read = count + rows, read + 1
    plan = planned.plan
    return RowCount(count, plan.row_groups, read, time.perf_counter() - started, plan, data_read)
