"""Planning a scan: WHERE text or an Iceberg expression, a snapshot and an index give a scan plan."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import xxhash
from cachetools import LRUCache
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from planner.clock import DEFAULT_MILLISECONDS, Clock
from planner.first_rows.search import Enough, FirstRows, prune_first_rows
from planner.predicate.bind import bind
from planner.predicate.implied import Implied
from planner.predicate.junctions import fold_junctions
from planner.predicate.nodes import Predicate
from planner.predicate.session_time import DEFAULT_ZONE, in_session, zone_named
from planner.predicate.tree import PredicateTree
from planner.predicate.unused import quoted_names, unused_leaf
from planner.prune.distributed import Executors, PlanningMode
from planner.prune.gate import DEFAULT_BYTE_BUDGET, DEFAULT_LIMITS, Limits
from planner.prune.pruned import Pruned, Reason, kept_mask
from planner.scans.planned_scan import PlannedScan
from planner.scans.scan_plan import ScanPlan
from planner.scans.scan_row_groups import ScanRowGroups
from planner.scans.snapshot_files import ScanFile, list_scan_files
from planner.scans.subtract_deletes import AfterDeletes, subtract_deletes
from planner.scans.tried_values import TriedValues
from planner.scans.wanted import ALL_ROWS, Keys, Wanted, first_rows
from planner.scans.whole_files import keep_whole_files
from planner.view.index_view import IndexView
from planner.where.leaf_text import leaf_text
from planner.where.parser import parse_where
from puffin_index.catalogue.index_table import read_entries
from puffin_index.data.column_source import Reading, reading_of
from puffin_index.data.data_table import DataFile
from puffin_index.errors import NotFoundError
from puffin_index.jobs.executors import context_of
from puffin_index.storage.caches import cleared_by
from puffin_index.storage.files import READ_COUNT, ReadCount, is_local
from puffin_index.table_index import TableIndex

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_views: LRUCache[str, IndexView] = LRUCache(maxsize=32)
_views_lock = threading.Lock()
cleared_by(_views.clear, _views_lock)


def view_of(index_table: Table, reading: Reading) -> IndexView:
    """The view of an index table's current version. Views are kept: a version never changes.

    Args:
        index_table: The index table.
        reading: How the scan finds columns in data files. The view leaves out indexes that a build found otherwise.
    """
    snapshot = index_table.current_snapshot()
    version = str(snapshot.snapshot_id) if snapshot else "empty"
    key = f"{index_table.metadata.table_uuid}/{version}"
    with _views_lock:
        view = _views.get(key)
        if view is None:
            view = IndexView(version, read_entries(index_table), index_table.io)
            _views[key] = view
        rejected = reading.rejects(view.sources)
        if not rejected:
            return view
        key = f"{key}/{xxhash.xxh64_hexdigest(repr(sorted(rejected)).encode())}"
        narrowed = _views.get(key)
        if narrowed is None:
            narrowed = _views[key] = view.without_sources(rejected)
    return narrowed


def warnings_of(view: IndexView, pruned: Pruned) -> tuple[str, ...]:
    """The parts of an index that could not be used for a scan, and why, as sentences."""
    outdated = (
        f"field {field_id}: indexes that were built while the table had other column mappings are not used; "
        "`puffin-index build` makes them anew"
        for field_id in sorted({field_id for field_id, _ in view.rejected})
    )
    of_segment: dict[str, list[str]] = {}
    for trouble in pruned.troubles:
        of_segment.setdefault(trouble.segment, []).append(trouble.reason)
    damaged = (
        f"{segment}: {reasons[0]}" + (f"; {len(reasons) - 1} more of this segment" if len(reasons) > 1 else "")
        for segment, reasons in of_segment.items()
    )
    return (*outdated, *damaged)


def plan(
    index: TableIndex,
    where: str | None = None,
    snapshot_id: int | None = None,
    *,
    strict: bool = False,
    byte_budget: int = DEFAULT_BYTE_BUDGET,
    planning_milliseconds: float = DEFAULT_MILLISECONDS,
    spark: SparkSession | None = None,
    planning_mode: PlanningMode = "auto",
    refresh: bool = True,
    keys: Keys | None = None,
    order_by: str | None = None,
    limit: int | None = None,
    session_zone: str = DEFAULT_ZONE,
) -> ScanPlan:
    """Plan a scan of a table by an engine that reads ranges of bytes, as Spark does.

    Args:
        index: The table's index.
        where: SQL WHERE text; None for everything.
        snapshot_id: The snapshot to scan, None for the current one.
        strict: Raise on index trouble instead of keeping the row groups.
        byte_budget: How many index bytes may be read, directories not counted. Row groups beyond the budget are kept.
        planning_milliseconds: How long judging files and row groups may take; undecided ones are kept.
        spark: A session whose executors may plan.
        planning_mode: `local`, `distributed`, or `auto` for what suits the number of row groups.
        refresh: Ask the catalog for the newest versions of table and index first. Otherwise the plan uses the versions
            that `index` knows, so that several queries see one state of the table.
        keys: Values by column name, such as the keys of a join: only rows that have one of them are wanted.
        order_by: The column whose first rows are wanted, as SQL's ORDER BY has it; needs a limit.
        limit: How many rows are wanted; None for all.
        session_zone: The time zone of timestamps that name none, such as `TIMESTAMP '2020-01-01 01:00:00'`.

    Raises:
        WhereSyntaxError: If the text does not parse.
        OrderSyntaxError: If the order is no column with a direction, or the limit does not fit.
        NotFoundError: If the text names a column that the table lacks, or there is no such snapshot.
    """
    limits = Limits(strict, byte_budget, seconds=planning_milliseconds / 1000)
    planned = plan_scan(
        index,
        where,
        snapshot_id,
        limits,
        spark=spark,
        planning_mode=planning_mode,
        refresh=refresh,
        by_byte_ranges=True,
        wanted=Wanted(keys or {}, order_by, limit),
        session_zone=session_zone,
    )
    return planned.plan


def snapshot_of(table: Table, snapshot_id: int | None) -> tuple[Snapshot | None, Schema]:
    """A snapshot of a table (None for an empty table) and the schema that a scan of it has.

    Raises:
        NotFoundError: If there is no such snapshot.
    """
    if snapshot_id is None:
        return table.current_snapshot(), table.schema()
    snapshot = table.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise NotFoundError(f"table {'.'.join(table.name())} has no snapshot {snapshot_id}")
    return snapshot, table.schema() if snapshot.schema_id is None else table.schemas()[snapshot.schema_id]


def plan_scan(
    index: TableIndex,
    where: str | BooleanExpression | None = None,
    snapshot_id: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
    *,
    spark: SparkSession | None = None,
    planning_mode: PlanningMode = "auto",
    refresh: bool = True,
    by_byte_ranges: bool = False,
    wanted: Wanted = ALL_ROWS,
    session_zone: str = DEFAULT_ZONE,
) -> PlannedScan:
    """Plan a scan of a table, for somebody who reads or counts the rows.

    Args:
        index: The table's index.
        where: SQL WHERE text, or an expression of the SQL dialect without NOT; None for everything.
        snapshot_id: The snapshot to scan, None for the current one.
        limits: Bounds.
        spark: A session whose executors may plan.
        planning_mode: `local`, `distributed`, or `auto` for what suits the number of row groups.
        refresh: Ask the catalog for the newest versions of table and index first.
        by_byte_ranges: The reader reads ranges of bytes, so that some data files are read whole or not at all.
        wanted: What the rest of the query says.
        session_zone: The time zone of timestamps that name none.

    Raises:
        WhereSyntaxError: If the text does not parse.
        NotFoundError: If the text names a column that the table lacks, or there is no such snapshot.
    """
    started = time.perf_counter()
    if refresh:
        index.refresh()
    table = index.data_table
    parsed = parse_where(where) if isinstance(where, str) else where or AlwaysTrue()
    snapshot, schema = snapshot_of(table, snapshot_id)
    expression = in_session(parsed, schema, zone_named(session_zone)) if isinstance(where, str) else parsed
    expression = wanted.restricted(expression, schema)
    first = first_rows(wanted.order_by, wanted.limit, schema)
    clock = Clock(limits.seconds)
    ahead = ReadCount()
    # Executors that plan read directories themselves.
    files, view = _read_tables(index, snapshot, schema, expression, clock, ahead if spark is None else None)
    data_files = [file.file for file in files]
    row_groups = ScanRowGroups.of(view, data_files)
    tried = TriedValues(schema, view, row_groups.numbers[row_groups.numbers >= 0], limits.byte_budget, clock)
    predicate = bind(expression, schema, evaluate=tried.predicate, unused=tried.unused.append)
    executors = None
    if spark is not None:
        executors = Executors(context_of(spark, "plan without a session"), index.index_table, planning_mode)
    left = replace(limits, seconds=clock.seconds_left)
    enough = _prune_scan(view, predicate, data_files, row_groups, left, executors, first)
    pruned = enough.pruned
    after = subtract_deletes(
        files,
        row_groups,
        pruned,
        table.io,
        clock,
        all_rows=isinstance(expression, AlwaysTrue),
        strict=limits.strict,
        always=limits.rows_wanted,
    )
    if by_byte_ranges:
        reasons = keep_whole_files(after.reasons, row_groups.file_of, row_groups.is_read_whole)
        after = replace(after, reasons=reasons)
    snapshot_id = snapshot.snapshot_id if snapshot else None
    unused = dict.fromkeys(unused_leaf(leaf, schema) for leaf in tried.unused)
    unused |= dict.fromkeys(quoted_names(where, schema) if isinstance(where, str) else ())
    plan = _scan_plan(
        index.name,
        snapshot_id,
        _text_of(where),
        (*wanted.implied(enough, kept_mask(after.reasons)[row_groups.numbers >= 0]), *tried.implied),
        data_files,
        row_groups,
        pruned,
        after,
        warnings_of(view, pruned),
        started,
    )
    plan = replace(
        plan,
        unused=tuple(unused),
        index_reads=plan.index_reads + ahead.requests,
        index_bytes_read=plan.index_bytes_read + ahead.bytes,
    )
    return PlannedScan(plan, schema, expression, predicate, files, row_groups, view, pruned.row_sets, first)


def _read_tables(
    index: TableIndex,
    snapshot: Snapshot | None,
    schema: Schema,
    expression: BooleanExpression,
    clock: Clock,
    ahead: ReadCount | None,
) -> tuple[tuple[ScanFile, ...], IndexView]:
    """Read the manifests of the data table, and in a store beside them the index table and directories that matter.

    Args:
        index: The table's index.
        snapshot: What is scanned.
        schema: The schema of the snapshot.
        expression: What to look for.
        clock: Bounds the time.
        ahead: Counts the reads of directories; None for none.
    """
    table, reading = index.data_table, reading_of(index.data_table, schema)
    predicate = bind(expression, schema)

    def files() -> tuple[ScanFile, ...]:
        if snapshot is None:
            return ()
        return list_scan_files(table, snapshot, schema, predicate, clock)

    if is_local(index.index_table.location()):
        return files(), view_of(index.index_table, reading)

    def view_with_directories() -> IndexView:
        view = view_of(index.index_table, reading)
        if ahead is not None:
            READ_COUNT.set(ahead)
            view.prefetch({leaf.field_id for leaf in PredicateTree(predicate).leaves})
        return view

    with ThreadPoolExecutor(1, "puffin-index-view") as pool:
        view = pool.submit(copy_context().run, view_with_directories)
        return files(), view.result()


def _text_of(where: str | BooleanExpression | None) -> str:
    """A predicate as text for people. PyIceberg's own text of an expression takes recursion."""
    if where is None or isinstance(where, str):
        return where or "true"
    return fold_junctions(
        where,
        leaf=lambda leaf, negated: leaf_text(~leaf if negated else leaf),
        join=lambda parts, is_and: f"({(' AND ' if is_and else ' OR ').join(parts)})",
        too_deep="...",
    )


def plan_files(
    view: IndexView, predicate: Predicate, files: Sequence[DataFile], limits: Limits = DEFAULT_LIMITS
) -> ScanPlan:
    """Plan the scan of some data files without their table; deletes are not looked at.

    Args:
        view: The index.
        predicate: What to look for.
        files: The data files of the scan.
        limits: Bounds.
    """
    started = time.perf_counter()
    row_groups = ScanRowGroups.of(view, files)
    pruned = _prune_scan(view, predicate, files, row_groups, limits, None).pruned
    after = AfterDeletes(pruned.reasons, pruned.matches)
    return _scan_plan("", None, "", (), files, row_groups, pruned, after, warnings_of(view, pruned), started)


def _scan_plan(
    table: str,
    snapshot_id: int | None,
    where: str,
    implied: tuple[Implied, ...],
    files: Sequence[DataFile],
    row_groups: ScanRowGroups,
    pruned: Pruned,
    after: AfterDeletes,
    warnings: tuple[str, ...],
    started: float,
) -> ScanPlan:
    """Build the scan plan, once everything is known."""
    return ScanPlan(
        table=table,
        snapshot_id=snapshot_id,
        where=where,
        implied=implied,
        data_files=tuple(file.path for file in files),
        file_of=row_groups.file_of,
        ordinals=row_groups.ordinals,
        row_counts=row_groups.row_counts,
        reasons=after.reasons,
        matches=after.matches,
        funnel=(*pruned.stages, *after.stages),
        index_reads=sum(stage.reads for stage in pruned.stages),
        index_bytes_read=sum(stage.bytes_read for stage in pruned.stages),
        planning_seconds=time.perf_counter() - started,
        warnings=(*warnings, *after.warnings),
    )


def _prune_scan(
    view: IndexView,
    predicate: Predicate,
    files: Sequence[DataFile],
    row_groups: ScanRowGroups,
    limits: Limits,
    executors: Executors | None,
    first: FirstRows | None = None,
) -> Enough:
    """Judge the row groups of a scan, those without an index included."""
    indexed = row_groups.numbers >= 0
    numbers = row_groups.numbers[indexed]
    has_deletes = np.array([file.has_deletes for file in files], np.bool_)[row_groups.file_of]
    enough = prune_first_rows(view, predicate, numbers, ~has_deletes[indexed], first, limits, executors)
    reasons = np.full(len(indexed), Reason.UNINDEXED, np.uint8)
    matches = np.full(len(indexed), -1, np.int64)
    reasons[indexed], matches[indexed] = enough.pruned.reasons, enough.pruned.matches
    # With deletes, a count is an upper bound until deleted rows are subtracted.
    matches[has_deletes & (matches > 0)] = -1
    return replace(enough, pruned=replace(enough.pruned, reasons=reasons, matches=matches))
