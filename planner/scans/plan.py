"""Planning a scan: WHERE text or an Iceberg expression, a snapshot and an index give a scan plan."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from typing import TYPE_CHECKING

import xxhash
from cachetools import LRUCache
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from planner.aggregates.question import Question
from planner.clock import DEFAULT_MILLISECONDS, Clock
from planner.predicate.bind import bind
from planner.predicate.junctions import fold_junctions
from planner.predicate.nodes import Predicate
from planner.predicate.session_time import DEFAULT_ZONE, in_session, zone_named
from planner.predicate.tree import PredicateTree
from planner.predicate.unused import quoted_names, unused_leaf
from planner.prune.distributed import Executors, PlanningMode
from planner.prune.gate import DEFAULT_BYTE_BUDGET, DEFAULT_LIMITS, Limits
from planner.query import Piece, QueryAnswer, QueryRequest, answer_query
from planner.report.scan_plan import ScanPlan
from planner.scans.tried_values import TriedValues
from planner.scans.wanted import ALL_ROWS, Keys, Wanted, first_rows
from planner.snapshot.scan import Scan
from planner.snapshot.snapshot_files import ScanFile, list_scan_files
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
        for_spark=True,
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
    for_spark: bool = False,
    wanted: Wanted = ALL_ROWS,
    question: Question | None = None,
    session_zone: str = DEFAULT_ZONE,
) -> QueryAnswer:
    """Plan a scan of a table, for somebody who reads, counts or aggregates the rows.

    Args:
        index: The table's index.
        where: SQL WHERE text, or an expression of the SQL dialect without NOT; None for everything.
        snapshot_id: The snapshot to scan, None for the current one.
        limits: Bounds.
        spark: A session whose executors may plan.
        planning_mode: `local`, `distributed`, or `auto` for what suits the number of row groups.
        refresh: Ask the catalog for the newest versions of table and index first.
        for_spark: The reader reads ranges of bytes, so that some data files are read whole or not at all.
        wanted: What the rest of the query says.
        question: Aggregates of the rows; None if the rows are wanted.
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
    scan = Scan.of_files(view, data_files, files, table.io, index.name, snapshot.snapshot_id if snapshot else None)
    tried = TriedValues(schema, view, scan.row_groups.numbers[scan.is_indexed], limits.byte_budget, clock)
    predicate = bind(expression, schema, evaluate=tried.predicate, unused=tried.unused.append)
    unused = dict.fromkeys(unused_leaf(leaf, schema) for leaf in tried.unused)
    unused |= dict.fromkeys(quoted_names(where, schema) if isinstance(where, str) else ())
    executors = None
    if spark is not None:
        executors = Executors(context_of(spark, "plan without a session"), index.index_table, planning_mode)
    request = QueryRequest(
        scan=scan,
        predicate=predicate,
        where=_text_of(where),
        pieces=tuple(map(Piece, (*wanted.implied, *tried.implied))),
        unused=tuple(unused),
        first_rows=first,
        question=question,
        for_spark=for_spark,
        limits=replace(limits, seconds=clock.seconds_left),
        executors=executors,
        schema=schema,
        condition=expression,
        ahead=ahead,
        started=started,
    )
    return answer_query(request)


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
    return answer_query(QueryRequest(scan=Scan.of_files(view, files), predicate=predicate, limits=limits)).plan
