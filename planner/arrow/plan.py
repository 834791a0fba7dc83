"""Planning a scan: WHERE text, keys of other tables, an order, a snapshot and an index give a scan plan."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import xxhash
from cachetools import LRUCache
from pyiceberg.expressions.literals import literal
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from planner.aggregates.question import Question
from planner.clock import DEFAULT_MILLISECONDS, Clock
from planner.condition.arrow.read import ReadExpression
from planner.condition.columns import FoundColumn, find_column, quoted_names, unused_parts
from planner.condition.comparisons import Column, nan_test
from planner.condition.implied import Implied
from planner.condition.places import set_tests
from planner.condition.session_time import DEFAULT_ZONE, zone_named
from planner.condition.sql.parser import read_where
from planner.condition.tree.nodes import EVERY_ROW, NO_ROW, Predicate, joined
from planner.condition.tree.simplify import among_keys, simplified
from planner.condition.tree.tree import PredicateTree
from planner.first_rows.search import FirstRows, Order
from planner.prune.distributed import Executors, PlanningMode
from planner.prune.gate import DEFAULT_BYTE_BUDGET, DEFAULT_LIMITS, Limits
from planner.query import QueryAnswer, QueryRequest, answer_query
from planner.report.scan_plan import ScanPlan
from planner.snapshot.files import ScanFile, list_scan_files
from planner.snapshot.scan import Scan
from planner.view.cache import SharedPayloads
from planner.view.column_values import TriedValues
from planner.view.index_view import IndexView
from puffin_index.data.column_source import Reading, reading_of
from puffin_index.data.data_table import DataFile
from puffin_index.errors import NotFoundError, PuffinIndexError, UnsupportedError
from puffin_index.index_table.table import read_entries
from puffin_index.jobs.engine import context_of
from puffin_index.keys.arrow_keys import column_of
from puffin_index.keys.columns import Column as KeyColumn
from puffin_index.keys.value_types import ValueType, value_type_of
from puffin_index.storage.caches import cleared_by
from puffin_index.storage.files import READ_COUNT, ReadCount, is_local
from puffin_index.table_index import TableIndex

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Keys: TypeAlias = Mapping[str, Any]
"""Values by column name: Arrow arrays, numpy arrays or lists."""

_WITHOUT_VIEWS: Final = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
"""Arrow's functions do not take views of strings yet."""

_ORDER = re.compile(
    r"\s*(?:`((?:[^`]|``)+)`|([^\s`]+))(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?\s*", re.IGNORECASE
)

_views: LRUCache[str, IndexView] = LRUCache(maxsize=32)
_views_lock = threading.Lock()
cleared_by(_views.clear, _views_lock)


class OrderSyntaxError(PuffinIndexError):
    """Say that a text is no order."""


def view_of(index_table: Table, reading: Reading) -> IndexView:
    """The view of an index table's current version, without indexes that a build found in other columns than `reading`.

    Views are kept: a version never changes.
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


class KeysError(PuffinIndexError, ValueError):
    """Say that keys are of no column, no lists of values, or lists of different lengths."""


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
    """A snapshot of a table (None for an empty table) and the schema that a scan of it has.

    Raises NotFoundError if there is no such snapshot.
    """
    if snapshot_id is None:
        return table.current_snapshot(), table.schema()
    snapshot = table.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise NotFoundError(f"table {'.'.join(table.name())} has no snapshot {snapshot_id}")
    return snapshot, table.schema() if snapshot.schema_id is None else table.schemas()[snapshot.schema_id]


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

    `where` may also be an expression of Arrow's.

    With `for_spark`, the reader reads ranges of bytes, so that some data files are read whole or not at all. `question`
    asks for aggregates of the rows. `shared` keeps what is opened of some columns.
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
    first = _first_rows(order_by, limit, schema)
    clock = Clock(limits.seconds)
    ahead = ReadCount()
    # Executors that plan read directories themselves.
    files, view = _read_tables(index, snapshot, schema, simplified(condition), clock, ahead if spark is None else None)
    data_files = [file.file for file in files]
    scan = Scan.of_files(view, data_files, files, table.io, index.name, snapshot.snapshot_id if snapshot else None)
    tried = TriedValues(schema, view, scan.numbers[scan.is_indexed], limits.byte_budget, clock)
    predicate = simplified(condition, tried.decide)
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
        for_spark=for_spark,
        limits=replace(limits, seconds=clock.seconds_left),
        executors=executors,
        schema=schema,
        condition=condition,
        ahead=ahead,
        shared=shared,
        started=started,
    )
    return answer_query(request)


def _read_tables(
    index: TableIndex,
    snapshot: Snapshot | None,
    schema: Schema,
    predicate: Predicate,
    clock: Clock,
    ahead: ReadCount | None,
) -> tuple[tuple[ScanFile, ...], IndexView]:
    """Read the manifests of the data table, and in a store beside them the index table and directories that matter.

    `ahead` counts the reads of directories; None reads none.
    """
    table, reading = index.data_table, reading_of(index.data_table, schema)

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


def plan_files(
    view: IndexView, predicate: Predicate, files: Sequence[DataFile], limits: Limits = DEFAULT_LIMITS
) -> ScanPlan:
    """Plan the scan of some data files without their table; deletes are not looked at."""
    return answer_query(QueryRequest(scan=Scan.of_files(view, files), predicate=predicate, limits=limits)).plan


def with_keys(condition: Predicate, keys: Keys, schema: Schema) -> tuple[Predicate, list[Implied]]:
    """A condition that also says which keys are wanted, and what they imply."""
    columns = {name: find_column(schema, name) for name in keys}
    arrays = {name: arrow_array(name, values) for name, values in keys.items()}
    tests = [_one_of(columns[name], array) for name, array in arrays.items()]
    implied = [Implied("keys", f"{name} in {len(array)} keys") for name, array in arrays.items()]
    return joined([condition, *tests], is_and=True), implied


def _one_of(found: FoundColumn, array: pa.Array | pa.ChunkedArray) -> Predicate:
    """The condition that a column has one of some values. NULL equals nothing, and NaN equals NaN, as in a join."""
    if found.value_type is not None:
        with suppress(UnsupportedError):
            return among_keys(found.column, keys_of_kind(array, found.value_type), len(array))
    members = array.drop_null().to_pylist()
    column = Column(found)
    numbers = [value for value in members if not (isinstance(value, float) and math.isnan(value))]
    text = f"{found.name} IN ({len(members)} keys)"
    test = column.truth(lambda scale: set_tests(map(literal, numbers), scale), text).yes if numbers else NO_ROW
    return test if len(numbers) == len(members) else joined([test, nan_test(column, text).yes], is_and=False)


def arrow_array(name: str, values: Any) -> pa.Array | pa.ChunkedArray:
    """The keys of a column as Arrow has them, without dictionary coding and views.

    Raises KeysError if they are no list, or a list that Arrow has no type for.
    """
    if isinstance(values, str | bytes):
        raise KeysError(f"keys of {name}: {values!r} is one value, and not a list of values")
    try:
        array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
    except (TypeError, OverflowError, pa.ArrowException) as error:
        raise KeysError(f"keys of {name}: {error}") from error
    coded = array.type
    plain = coded.value_type if pa.types.is_dictionary(coded) else coded
    plain = _WITHOUT_VIEWS.get(plain, plain)
    return array if plain == coded else array.cast(plain)


def keys_of_kind(array: pa.Array | pa.ChunkedArray, value_type: ValueType) -> KeyColumn:
    """The keys of values for a column of a type.

    Raises UnsupportedError if the values are of another kind than the column, or one does not fit it.
    """
    found, name = array.type, value_type.name
    # A data file may store text as bytes and an instant without a zone; of keys, the types say what is meant.
    is_other = (pa.types.is_timestamp(found) and (found.tz is not None) != name.startswith("timestamptz")) or (
        name == "string" and "binary" in str(found)
    )
    if is_other:
        raise UnsupportedError(f"a {name} column cannot hold Arrow {found} values")
    if pa.types.is_decimal(found) and value_type.is_decimal:
        try:
            array = array.cast(pa.decimal128(value_type.decimal_precision, value_type.decimal_scale))
        except pa.ArrowInvalid as error:
            raise UnsupportedError(f"a {name} column cannot hold a key: {error}") from error
    return column_of(array, value_type)


def _first_rows(order_by: str | None, limit: int | None, schema: Schema) -> FirstRows | None:
    """Read which rows are wanted, by a top-level column as in SQL: `c`, `c DESC`, `c ASC NULLS LAST`; None if all are.

    As in Spark, NULL is less than all values unless the text says where NULL goes. Raises OrderSyntaxError if the text
    is no order, or has no limit or a negative one, NotFoundError without such a column, UnsupportedError if its values
    have no order.
    """
    if limit is None:
        if order_by is not None:
            raise OrderSyntaxError("an order needs a limit: without one, all rows are wanted")
        return None
    if limit < 0:
        raise OrderSyntaxError(f"a limit of {limit} rows")
    if order_by is None:
        return FirstRows(limit, None, f"any rows limit {limit}")
    found = _ORDER.fullmatch(order_by)
    if found is None:
        raise OrderSyntaxError(f"ORDER BY one column, as `c DESC NULLS LAST`, and not {order_by!r}")
    quoted, plain, direction, nulls = found.groups()
    name = quoted.replace("``", "`") if quoted else plain
    column = find_column(schema, name).column
    field = next((one for one in schema.fields if one.field_id == column), None)
    if field is None:
        raise UnsupportedError(f"ORDER BY {name}: only whole columns are ordered")
    descending = (direction or "asc").lower() == "desc"
    nulls_first = not descending if nulls is None else nulls.lower() == "first"
    order = Order(field.field_id, value_type_of(field.field_type).name, descending, nulls_first)
    return FirstRows(limit, order, f"order by {order_by} limit {limit}")
