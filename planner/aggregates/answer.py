"""Aggregates of a table's rows: each row group from the cheapest of three buckets that gives its part exactly."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
from pyiceberg.table import Table

from planner.aggregates.indexed import answer_units
from planner.aggregates.known_rows import KnownRows
from planner.aggregates.partial import Partial
from planner.aggregates.question import Question, ask
from planner.aggregates.result import table_of
from planner.aggregates.settled import settle
from planner.aggregates.unread import read_partial
from planner.clock import DEFAULT_MILLISECONDS
from planner.predicate.session_time import DEFAULT_ZONE
from planner.prune.gate import ROWS_BYTE_BUDGET, Limits
from planner.prune.pruned import kept_mask
from planner.scans.count import count_known
from planner.scans.plan import plan_scan, snapshot_of
from planner.scans.planned_scan import PlannedScan
from planner.scans.scan_plan import ScanPlan
from planner.scans.wanted import Keys, Wanted
from planner.view.directories import IndexReads
from planner.view.index_view import IndexView
from planner.view.shared_payloads import sharing_payloads
from puffin_index.jobs.log_lines import level_of_trouble
from puffin_index.keys.map_key import column_and_key
from puffin_index.storage.arrays import Floats, Ints
from puffin_index.storage.files import READ_COUNT
from puffin_index.table_index import TableIndex

_log = logging.getLogger(__name__)

_EXACT_ROWS: Final = Limits(byte_budget=ROWS_BYTE_BUDGET, rows_wanted=True)

COLUMN_SHARE: Final = 0.1
"""The share of a data file that a column takes if the manifest does not tell."""

ROW_GROUP_OVERHEAD_BYTES: Final = 128 * 1024
"""What reading a row group costs besides the bytes of its columns, in bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What is known of a question before data is read.

    Attributes:
        settled: What statistics give.
        indexed: What indexes give.
        unread: The row groups of the plan whose data has to be read, ascending: the rest of the answer, exactly.
        row_groups_settled: Row groups that statistics answer.
        row_groups_indexed: Row groups that indexes answer.
        reads: What was read of the index for the answer, besides the plan, and troubles.
    """

    settled: Partial
    indexed: Partial
    unread: Ints
    row_groups_settled: int
    row_groups_indexed: int
    reads: IndexReads = field(default_factory=IndexReads)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Index troubles, as sentences."""
        return tuple(f"{trouble.segment}: {trouble.reason}" for trouble in self.reads.troubles)

    @property
    def partial(self) -> Partial:
        """What statistics and indexes give together."""
        return Partial.merged(self.settled.question, [self.settled, self.indexed])


def answer_scan(planned: PlannedScan, table: Table, question: Question) -> Answer:
    """Answer a question about a planned scan; exact rows were wanted (`Limits.rows_wanted`)."""
    if question.every_column:
        rows = KnownRows.of_scan(planned, table.io)
        return answer(planned.view, rows, question, _data_costs(planned, question))
    # Manifests tell the rows of files without an index.
    row_count, unread = count_known(planned)
    counted = Partial.of_table(question, {"rows": pa.array([row_count], pa.int64())})
    return Answer(counted, Partial.merged(question, []), unread, planned.plan.kept - len(unread), 0)


def _data_costs(planned: PlannedScan, question: Question) -> Floats:
    """The cost of reading the data of each row group, in weighed bytes."""
    plan = planned.plan
    of_file = np.zeros(len(planned.files))
    for number in np.unique(plan.file_of[plan.kept_mask]).tolist():
        entry = planned.files[number].entry
        sizes, guess = entry.column_sizes or {}, entry.file_size_in_bytes * COLUMN_SHARE
        fields = [column_and_key(asked.column)[0] for asked in question.every_column]
        of_file[number] = sum(sizes.get(field, guess) for field in fields) / max(entry.record_count, 1)
    costs: Floats = of_file[plan.file_of] * plan.row_counts + ROW_GROUP_OVERHEAD_BYTES
    return costs


def answer(
    view: IndexView,
    rows: KnownRows,
    question: Question,
    data_costs: Floats | None = None,
    limits: Limits | None = None,
) -> Answer:
    """Answer a question from statistics and indexes as far as they are exact.

    Args:
        view: The index.
        rows: The matching rows.
        question: The question, bound to the schema of the scan.
        data_costs: For each row group of the scan what reading the row group costs, in weighed bytes. Indexes that cost
            more are not read. None reads them anyway: for those who save a job without any data.
        limits: How many weighed bytes of index may be read, and for how long; None for no such bounds. Row groups
            beyond these bounds are unread.
    """
    reads = IndexReads()
    token = READ_COUNT.set(reads.count)
    try:
        return _answer(view, rows, question, data_costs, limits, reads)
    finally:
        READ_COUNT.reset(token)


def _answer(
    view: IndexView,
    rows: KnownRows,
    question: Question,
    data_costs: Floats | None,
    limits: Limits | None,
    reads: IndexReads,
) -> Answer:
    nothing, kept = Partial.merged(question, []), np.flatnonzero(kept_mask(rows.reasons))
    if question.needs_data:
        return Answer(nothing, nothing, kept, 0, 0, reads)
    if not question.every_column:
        known = rows.matches[kept] >= 0
        counted = Partial.of_table(question, {"rows": pa.array([rows.matches[kept[known]].sum()], pa.int64())})
        return Answer(counted, nothing, kept[~known], int(known.sum()), 0, reads)
    whole = rows.positions[rows.is_whole[rows.positions]]
    settled, is_settled = settle(view, question, rows.row_groups.numbers[whole], reads)
    others = np.setdiff1d(rows.positions, whole[is_settled])
    costs = None if data_costs is None else data_costs[others]
    indexed, left = answer_units(view, question, rows, others, reads, costs, limits)
    unread = np.union1d(left, np.setdiff1d(kept, rows.positions))
    return Answer(
        nothing if settled is None else settled,
        Partial.merged(question, indexed),
        unread,
        int(is_settled.sum()),
        len(others) - len(left),
        reads,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Aggregated:
    """Aggregates, and what they took.

    Attributes:
        table: The result: columns to group by, then aggregates.
        row_groups: Row groups of the scan.
        row_groups_settled: Row groups that statistics answered.
        row_groups_indexed: Row groups that indexes answered.
        row_groups_read: Row groups whose data had to be read.
        index_reads: Requests for index bytes.
        index_bytes_read: Index bytes that were read.
        seconds: Time spent.
        warnings: Index troubles, as sentences.
        plan: The scan plan behind the answer.
    """

    table: pa.Table
    row_groups: int
    row_groups_settled: int
    row_groups_indexed: int
    row_groups_read: int
    index_reads: int
    index_bytes_read: int
    seconds: float
    warnings: tuple[str, ...]
    plan: ScanPlan

    def to_json(self) -> dict[str, object]:
        """The answer as `puffin-index aggregate --json` prints it; JSON has decimals, dates and times as text."""
        return {
            "table": self.plan.table,
            "snapshot_id": self.plan.snapshot_id,
            "where": self.plan.where,
            "columns": self.table.column_names,
            "rows": [list(row.values()) for row in self.table.to_pylist()],
            "row_groups": self.row_groups,
            "row_groups_settled": self.row_groups_settled,
            "row_groups_indexed": self.row_groups_indexed,
            "row_groups_read": self.row_groups_read,
            "index_bytes_read": self.index_bytes_read,
            "index_reads": self.index_reads,
            "seconds": self.seconds,
            "unused": [unused.to_json() for unused in self.plan.unused],
            "warnings": list(self.warnings),
        }


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
    for warning in found.warnings:
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
            index, where, snapshot_id, limits, refresh=False, wanted=Wanted(keys or {}), session_zone=session_zone
        )
        found = answer_scan(planned, index.data_table, question)
    read, row_groups_read = read_partial(planned, index.data_table, question, found.unread)
    table = table_of(Partial.merged(question, [found.partial, read]))
    plan = planned.plan
    return Aggregated(
        table=table,
        row_groups=plan.row_groups,
        row_groups_settled=found.row_groups_settled,
        row_groups_indexed=found.row_groups_indexed,
        row_groups_read=row_groups_read,
        index_reads=plan.index_reads + found.reads.count.requests,
        index_bytes_read=plan.index_bytes_read + found.reads.count.bytes,
        seconds=time.perf_counter() - started,
        warnings=tuple(dict.fromkeys((*plan.warnings, *found.warnings))),
        plan=plan,
    )
