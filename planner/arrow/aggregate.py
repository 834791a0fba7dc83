"""Counts and aggregates of a table's rows: from the index as far as it is exact, otherwise from data."""

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa

from planner.aggregates.partial import Partial, table_of
from planner.aggregates.question import Question, ask
from planner.arrow.arrow_scan import in_order, residual_of
from planner.arrow.plan import plan_scan, snapshot_of
from planner.arrow.row_group_columns import DataRead
from planner.arrow.row_group_reader import RowGroupReader, RowGroupTask, tasks_of
from planner.arrow.wanted_keys import Keys
from planner.clock import DEFAULT_MILLISECONDS
from planner.condition.arrow.read import ReadExpression
from planner.condition.session_time import DEFAULT_ZONE
from planner.prune.gate import ROWS_BYTE_BUDGET, Limits
from planner.report.scan_plan import ScanPlan
from puffin_index.display import Cell, Described, Grid, Report, share_of
from puffin_index.jobs.log_lines import level_of_trouble
from puffin_index.keys.arrow_keys import column_of, signed_zeros
from puffin_index.table_index import TableIndex

_log = logging.getLogger(__name__)

_SHOWN_GROUPS: Final = 100
EXACT_ROWS: Final = Limits(byte_budget=ROWS_BYTE_BUDGET, rows_wanted=True)
"""Row sets are worth their bytes where no row group is dropped."""

_JOINED_AT: Final = 256
"""This many partial answers are joined to one, so that memory does not grow with the row groups."""


@dataclass(frozen=True, slots=True)
class RowCount(Described):
    """How many rows match, the row groups and data that were read for it, and the scan plan behind the count."""

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


@dataclass(frozen=True, slots=True, eq=False)
class Aggregated(Described):
    """Aggregates and the plan behind them: of the row groups, statistics settled some, indexes answered some."""

    table: pa.Table
    row_groups: int
    row_groups_settled: int
    row_groups_indexed: int
    row_groups_read: int
    seconds: float
    plan: ScanPlan
    data_read: DataRead = field(default_factory=DataRead, repr=False)

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

    The arguments are those of `planner.plan`. Rows are read where the index does not know how many match. Raises what
    `aggregate` raises of a WHERE, a snapshot and rows that have to be read.
    """
    limits = replace(EXACT_ROWS, seconds=planning_milliseconds / 1000)
    found = aggregate_with_plan(index, where, "count(*)", (), snapshot_id, limits, refresh, keys, session_zone)
    rows = found.table.column(0)[0].as_py()
    return RowCount(rows, found.row_groups, found.row_groups_read, found.seconds, found.plan, found.data_read)


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

    `aggregates` are texts such as `count(*)`, `sum(c) AS n`, `avg(c)`, `min(c)`, `max(c)`, `count(DISTINCT c)`,
    `bool_and(c)`, `bool_or(c)`; one text may have several, between commas. So may `group_by`, which names columns. The
    other arguments and errors are those of `planner.plan`.

    Raises AggregateSyntaxError if an aggregate does not parse, AggregateOverflowError if a sum or an average does not
    fit its type, UnsupportedError if an aggregate does not take the type of its column, or if rows have to be read, and
    a part of the text, a row, a data file's format or equality deletes make that impossible here.
    """
    limits = replace(EXACT_ROWS, seconds=planning_milliseconds / 1000)
    found = aggregate_with_plan(index, where, aggregates, group_by, snapshot_id, limits, refresh, keys, session_zone)
    log_warnings(found.plan.warnings)
    return found.table


def log_warnings(warnings: Iterable[str]) -> None:
    """Log what is in trouble of an index, for results that do not tell."""
    for warning in warnings:
        # A sentence about a segment begins with its location.
        _log.log(level_of_trouble(warning.partition(": ")[0]), "%s", warning)


def aggregate_with_plan(
    index: TableIndex,
    where: str | ReadExpression | None,
    aggregates: str | Sequence[str],
    group_by: str | Sequence[str] = (),
    snapshot_id: int | None = None,
    limits: Limits = EXACT_ROWS,
    refresh: bool = True,
    keys: Keys | None = None,
    session_zone: str = DEFAULT_ZONE,
) -> Aggregated:
    """Aggregate as `aggregate` does, and tell what it took."""
    started = time.perf_counter()
    if refresh:
        index.refresh()
    question = ask(aggregates, group_by, snapshot_of(index.data_table, snapshot_id)[1])
    planned = plan_scan(
        index, where, snapshot_id, limits, refresh=False, keys=keys, question=question, session_zone=session_zone
    )
    known = planned.aggregates
    assert known is not None
    parts, row_groups_read, data_read = [known.partial], 0, DataRead()
    if len(known.unread):
        reader = RowGroupReader(index.data_table, planned.request.schema, residual_of(planned), data_read=data_read)
        for part in in_order(lambda task: _read(reader, task, question), tasks_of(planned, reader.table, known.unread)):
            parts.append(part)
            row_groups_read += 1
            if len(parts) == _JOINED_AT:
                parts = [Partial.merged(question, parts)]
    return Aggregated(
        table=table_of(Partial.merged(question, parts)),
        row_groups=planned.plan.row_groups,
        row_groups_settled=known.row_groups_settled,
        row_groups_indexed=known.row_groups_indexed,
        row_groups_read=row_groups_read,
        seconds=time.perf_counter() - started,
        plan=planned.plan,
        data_read=data_read,
    )


def _read(reader: RowGroupReader, task: RowGroupTask, question: Question) -> Partial:
    values, positions = reader.values(task, [asked.column for asked in question.every_column])
    columns = {asked.column: column_of(values[asked.column], asked.value_type) for asked in question.every_column}
    zeros = {
        asked.column: signed_zeros(values[asked.column], columns[asked.column])
        for asked in question.columns
        if asked.ends and asked.value_type.is_floating
    }
    return Partial.of_rows(question, columns, len(positions), signed_zeros=zeros)
