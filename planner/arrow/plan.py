"""Planning a scan: WHERE text, keys of other tables, an order, a snapshot and an index give a scan plan."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from planner.aggregates.question import Question
from planner.arrow.wanted_keys import Keys, with_keys
from planner.clock import DEFAULT_MILLISECONDS, Clock
from planner.condition.arrow.read import ReadExpression
from planner.condition.columns import quoted_names, unused_parts
from planner.condition.session_time import DEFAULT_ZONE, zone_named
from planner.condition.sql.parser import read_where
from planner.condition.tree.nodes import EVERY_ROW, Predicate
from planner.condition.tree.simplify import simplified
from planner.condition.tree.tree import PredicateTree
from planner.first_rows.order_text import read_first_rows
from planner.prune.distributed import Executors, PlanningMode
from planner.prune.gate import DEFAULT_BYTE_BUDGET, DEFAULT_LIMITS, Limits
from planner.query import QueryAnswer, QueryRequest, answer_query
from planner.report.scan_plan import ScanPlan
from planner.snapshot.files import list_scan_files
from planner.snapshot.scan import Scan
from planner.view.cache import SharedPayloads
from planner.view.column_values import TriedValues
from planner.view.index_view import IndexView
from planner.view.views import view_of
from puffin_index.data.column_source import reading_of
from puffin_index.data.data_table import find_snapshot
from puffin_index.jobs.engine import context_of
from puffin_index.storage.files import ReadCount, is_local
from puffin_index.table_index import TableIndex

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
        where: SQL WHERE text; None for everything.
        snapshot_id: The snapshot to scan, None for the current one.
        strict: Raise on index trouble instead of keeping the row groups.
        byte_budget: How many index bytes may be read, directories not counted. Row groups beyond the budget are kept.
        planning_milliseconds: How long judging may take; undecided ones are kept. Both limits grow above 4 GiB of data.
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
        KeysError: If keys are no list.
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
        keys=keys,
        order_by=order_by,
        limit=limit,
        session_zone=session_zone,
    )
    return planned.plan


def snapshot_of(table: Table, snapshot_id: int | None) -> tuple[Snapshot | None, Schema]:
    """A snapshot of a table (None for an empty table), or raise NotFoundError, and the schema that a scan of it has."""
    snapshot = find_snapshot(table, snapshot_id)
    if snapshot_id is None or snapshot is None or snapshot.schema_id is None:
        return snapshot, table.schema()
    return snapshot, table.schemas()[snapshot.schema_id]


def plan_scan(
    index: TableIndex,
    where: str | ReadExpression | None = None,
    snapshot_id: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
    *,
    spark: SparkSession | None = None,
    planning_mode: PlanningMode = "auto",
    refresh: bool = True,
    for_spark: bool = False,
    keys: Keys | None = None,
    order_by: str | None = None,
    limit: int | None = None,
    question: Question | None = None,
    session_zone: str = DEFAULT_ZONE,
    shared: SharedPayloads | None = None,
) -> QueryAnswer:
    """Plan a scan of a table whose rows are read, counted or aggregated; arguments and errors are those of `plan`.

    `where` may also be an expression of Arrow's. With `for_spark`, the reader reads ranges of bytes, so that some data
    files are read whole or not at all. `question` asks for aggregates. `shared` keeps what is opened of some columns.
    """
    started = time.perf_counter()
    if refresh:
        index.refresh()
    table = index.data_table
    snapshot, schema = snapshot_of(table, snapshot_id)
    if isinstance(where, ReadExpression):
        written, text = where.predicate, where.text
    else:
        text = where or "true"
        written = EVERY_ROW if where is None else read_where(where, schema, zone_named(session_zone))
    condition, implied = with_keys(written, keys or {}, schema)
    first = read_first_rows(order_by, limit, schema)
    clock = Clock(limits.seconds)
    ahead = ReadCount()
    # Executors that plan read directories themselves.
    read_ahead, wanted = ahead if spark is None else None, simplified(condition)
    scan = scan_of(index, table, snapshot, schema, wanted, clock, read_ahead, by_ranges=for_spark)
    tried = TriedValues(schema, scan.view, scan.numbers[scan.is_indexed], limits.byte_budget, clock)
    predicate = tried.decided(condition)
    executors = None
    if spark is not None:
        executors = Executors(context_of(spark, "plan without a session"), index.index_table, planning_mode)
    request = QueryRequest(
        scan=scan,
        predicate=predicate,
        where=text,
        implied=(*implied, *tried.implied),
        unused=(*unused_parts(condition), *(quoted_names(where, schema) if isinstance(where, str) else ())),
        first_rows=first,
        question=question,
        limits=replace(limits, seconds=clock.seconds_left),
        executors=executors,
        schema=schema,
        condition=condition,
        ahead=ahead,
        shared=shared,
        started=started,
    )
    return answer_query(request)


def scan_of(
    index: TableIndex,
    table: Table,
    snapshot: Snapshot | None,
    schema: Schema,
    predicate: Predicate,
    clock: Clock,
    ahead: ReadCount | None = None,
    *,
    by_ranges: bool = False,
) -> Scan:
    """Read the manifests of a table, and in a store beside them the index table, and directories if `ahead` counts."""
    is_here = is_local(index.index_table.location())

    def viewed() -> IndexView:
        view = view_of(index.index_table, reading_of(table, schema))
        if ahead is not None and not is_here:
            view.opened.prefetch({leaf.field_id for leaf in PredicateTree(predicate).leaves}, ahead)
        return view

    def scanned(view: Callable[[], IndexView]) -> Scan:
        files = () if snapshot is None else list_scan_files(table, snapshot, schema, predicate, clock)
        number = None if snapshot is None else snapshot.snapshot_id
        data_files = [file.file for file in files]
        return Scan.of_files(view(), data_files, files, table.io, index.name, number, by_ranges=by_ranges)

    if is_here:
        return scanned(viewed)
    with ThreadPoolExecutor(1, "puffin-index-view") as pool:
        return scanned(pool.submit(viewed).result)
