"""Aggregates of a table's rows: from the index as far as it is exact, and from the data of the other row groups."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from planner.aggregates.partial import Partial
from planner.aggregates.question import ask
from planner.aggregates.result import table_of
from planner.clock import DEFAULT_MILLISECONDS
from planner.condition.session_time import DEFAULT_ZONE
from planner.prune.gate import ROWS_BYTE_BUDGET, Limits
from planner.report.scan_plan import ScanPlan
from planner.scans.plan import plan_scan, snapshot_of
from planner.scans.unread import read_partial
from planner.scans.wanted import Keys, Wanted
from planner.view.shared_payloads import sharing_payloads
from puffin_index.display import Cell, Described, Grid, Report, share_of
from puffin_index.jobs.log_lines import level_of_trouble
from puffin_index.table_index import TableIndex

_log = logging.getLogger(__name__)

_SHOWN_GROUPS: Final = 100
_EXACT_ROWS: Final = Limits(byte_budget=ROWS_BYTE_BUDGET, rows_wanted=True)


@dataclass(frozen=True, slots=True, eq=False)
class Aggregated(Described):
    """Aggregates, and what they took.

    Attributes:
        table: The result: columns to group by, then aggregates.
        row_groups: Row groups of the scan.
        row_groups_settled: Row groups that statistics answered.
        row_groups_indexed: Row groups that indexes answered.
        row_groups_read: Row groups whose data had to be read.
        seconds: Time spent.
        plan: The scan plan behind the answer.
    """

    table: pa.Table
    row_groups: int
    row_groups_settled: int
    row_groups_indexed: int
    row_groups_read: int
    seconds: float
    plan: ScanPlan

    JSON = (
        *("plan.table", "plan.snapshot_id", "plan.where", "columns=table.column_names", "rows", "row_groups"),
        *("row_groups_settled", "row_groups_indexed", "row_groups_read", "plan.index_bytes_read", "plan.index_reads"),
        *("seconds", "plan.unused", "plan.warnings"),
    )

    @property
    def rows(self) -> list[list[object]]:
        """The values of each row of the result."""
        return [list(row.values()) for row in self.table.to_pylist()]

    def describe(self) -> Report:
        """Describe the result, and what it took."""
        shown = self.table.slice(0, _SHOWN_GROUPS).to_pylist()
        rows = [["NULL" if value is None else str(value) for value in row.values()] for row in shown]
        more = self.table.num_rows - len(shown)
        facts: dict[str, Cell] = {
            "row groups read": share_of(self.row_groups_read, self.row_groups),
            "answered": f"{self.row_groups_indexed} by indexes, {self.row_groups_settled} by statistics",
            "more": f"{more} rows; --json prints all" if more else "",
            "seconds": f"{self.seconds:.3f}",
        }
        return Report(
            f"{self.table.num_rows:,} groups", facts, (Grid(self.table.column_names, rows),), below=self.plan.describe()
        )


def aggregate(
    index: TableIndex,
    where: str | None = None,
    aggregates: str | Sequence[str] = "count(*)",
    group_by: str | Sequence[str] = (),
    snapshot_id: int | None = None,
    *,
    planning_milliseconds: float = DEFAULT_MILLISECONDS,
    refresh: bool = True,
    keys: Keys | None = None,
    session_zone: str = DEFAULT_ZONE,
) -> pa.Table:
    """Aggregate the rows of a table that satisfy a predicate, from the index as far as it is exact.

    The other row groups are read; index troubles are logged as warnings. Results have the types and values that they
    have in Spark, with one row per group, in the order of the groups; without `group_by` one row.

    Args:
        index: The table's index.
        where: SQL WHERE text; None for all rows.
        aggregates: Texts such as `count(*)`, `sum(c) AS n`, `avg(c)`, `min(c)`, `max(c)`, `count(DISTINCT c)`,
            `bool_and(c)`, `bool_or(c)`; one text may have several, between commas.
        group_by: Names of columns; one text may have several, between commas.
        snapshot_id: The snapshot to read, None for the current one.
        planning_milliseconds: How long judging files and row groups may take; undecided ones are read.
        refresh: Ask the catalog for the newest versions of table and index first.
        keys: Values by column name, such as the keys of a join: only rows that have one of them count.
        session_zone: The time zone of timestamps that name none.

    Raises:
        WhereSyntaxError: If the WHERE text does not parse.
        AggregateSyntaxError: If an aggregate does not parse.
        AggregateOverflowError: If a sum or an average does not fit its type.
        NotFoundError: If there is no such column or snapshot.
        UnsupportedError: If an aggregate does not take the type of its column; if rows have to be read, and a part of
            the text, a data file's format or equality deletes make that impossible here.
    """
    limits = Limits(byte_budget=ROWS_BYTE_BUDGET, rows_wanted=True, seconds=planning_milliseconds / 1000)
    found = aggregate_with_plan(index, where, aggregates, group_by, snapshot_id, limits, refresh, keys, session_zone)
    for warning in found.plan.warnings:
        # A sentence about a segment begins with its location.
        _log.log(level_of_trouble(warning.partition(": ")[0]), "%s", warning)
    return found.table


def aggregate_with_plan(
    index: TableIndex,
    where: str | None,
    aggregates: str | Sequence[str],
    group_by: str | Sequence[str] = (),
    snapshot_id: int | None = None,
    limits: Limits = _EXACT_ROWS,
    refresh: bool = True,
    keys: Keys | None = None,
    session_zone: str = DEFAULT_ZONE,
) -> Aggregated:
    """Aggregate as `aggregate` does, and tell what it took."""
    started = time.perf_counter()
    if refresh:
        index.refresh()
    question = ask(aggregates, group_by, snapshot_of(index.data_table, snapshot_id)[1])
    with sharing_payloads([asked.column for asked in question.every_column]):
        planned = plan_scan(
            index,
            where,
            snapshot_id,
            limits,
            refresh=False,
            wanted=Wanted(keys or {}),
            question=question,
            session_zone=session_zone,
        )
    found = planned.aggregates
    assert found is not None
    read, row_groups_read = read_partial(planned, index.data_table, question, found.unread)
    table = table_of(Partial.merged(question, [found.partial, read]))
    plan = planned.plan
    return Aggregated(
        table=table,
        row_groups=plan.row_groups,
        row_groups_settled=found.row_groups_settled,
        row_groups_indexed=found.row_groups_indexed,
        row_groups_read=row_groups_read,
        seconds=time.perf_counter() - started,
        plan=plan,
    )
