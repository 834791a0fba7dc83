"""The Arrow scan: the rows of a planned scan as record batches, read by pyarrow without a JVM."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from planner.arrow.plan import plan_scan
from planner.arrow.row_group_columns import DataRead
from planner.arrow.row_group_reader import RowGroupReader, RowGroupTask, tasks_of
from planner.arrow.wanted_keys import Keys
from planner.clock import DEFAULT_MILLISECONDS
from planner.condition.rows import Residual
from planner.condition.session_time import DEFAULT_ZONE
from planner.condition.tree.nodes import EVERY_ROW
from planner.first_rows.search import Order
from planner.prune.gate import Limits
from planner.query import QueryAnswer
from puffin_index.definition.column_names import field_named
from puffin_index.errors import UnsupportedError
from puffin_index.keys.arrow_keys import column_of
from puffin_index.keys.columns import SortedColumn
from puffin_index.keys.value_types import value_type_of
from puffin_index.storage.files import is_local
from puffin_index.storage.parallel import release_memory
from puffin_index.table_index import TableIndex

READ_LIMITS: Final = Limits(pages=True)
"""Of plans whose rows are read here. Where rows are only counted or located, an index is worth its bytes anyway."""

_AHEAD_BYTES = 256 << 20
"""Memory for row groups that are read ahead. At least one row group is always read."""

_THREADS = max(4, os.cpu_count() or 1)
_REMOTE_THREADS = 32
"""Row groups at one time in a store, where each waits most of the time."""

T = TypeVar("T")


def scan(
    index: TableIndex,
    where: str | None = None,
    columns: Sequence[str] | None = None,
    snapshot_id: int | None = None,
    *,
    planning_milliseconds: float = DEFAULT_MILLISECONDS,
    refresh: bool = True,
    keys: Keys | None = None,
    order_by: str | None = None,
    limit: int | None = None,
    session_zone: str = DEFAULT_ZONE,
    data_read: DataRead | None = None,
) -> pa.RecordBatchReader:
    """Read the rows of a table that satisfy a predicate, from the row groups that the planner keeps.

    Planning is done when this returns. Data is read some row groups ahead of the batches that are asked for. Batches
    come in the order of data files and row groups. A row group that cannot be read raises from the reader.

    The arguments and errors are those of `planner.plan`. `columns` names columns, nested ones dotted; None for all. The
    reader's schema is the table's Arrow schema of these columns, in their order. With `order_by`, rows come in this
    order, and all of them are read before the first one comes. `data_read` counts pages, column chunks and bytes that
    are read while batches are asked for.

    Raises UnsupportedError if only Spark knows for certain what a part of the text means (a literal of another type
    than its column, an expression), or if no column is chosen; from the reader, too, if only Spark knows whether a row
    satisfies the text (upper case of text that is not ASCII).
    """
    planned = plan_scan(
        index,
        where,
        snapshot_id,
        replace(READ_LIMITS, seconds=planning_milliseconds / 1000),
        refresh=refresh,
        keys=keys,
        order_by=order_by,
        limit=limit,
        session_zone=session_zone,
    )
    projection = project(planned.request.schema, columns)
    first = planned.request.first_rows
    order = None if first is None else first.order
    ordered = [own for own in planned.request.schema.fields if order is not None and own.field_id == order.field_id]
    read = Schema(*{own.field_id: own for own in (*projection.fields, *ordered)}.values())
    batches = batches_of(index, planned, read, data_read or DataRead(), residual_of(planned))
    if first is None:
        return _reader(projection, batches)
    if order is None:
        return _reader(projection, any_rows(batches, first.count))
    rows = _first_of(_reader(read, batches).read_all(), order, ordered[0], first.count)
    return _reader(projection, rows.select([field.name for field in projection.fields]).to_batches())


def _first_of(table: pa.Table, order: Order, field: NestedField, count: int) -> pa.Table:
    """The first rows of a table in the order of a column; among equal ones those that come first in the table."""
    column = column_of(table.column(field.name), value_type_of(field.field_type))
    ranks = SortedColumn(column).codes.astype(np.int64)
    ranks = -ranks if order.descending else ranks
    if column.valid is not None:
        ranks[~column.valid] = -len(ranks) if order.nulls_first else len(ranks)
    return table.take(pa.array(np.argsort(ranks, kind="stable")[:count]))


def _reader(projection: Schema, batches: Iterable[pa.RecordBatch]) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(schema_to_pyarrow(projection, include_field_ids=False), batches)


def any_rows(batches: Iterable[pa.RecordBatch], count: int) -> Iterator[pa.RecordBatch]:
    """The first batches that have `count` rows."""
    for batch in batches:
        if count <= 0:
            return
        yield batch.slice(0, count)
        count -= batch.num_rows


def batches_of(
    index: TableIndex, planned: QueryAnswer, projection: Schema, data_read: DataRead, residual: Residual | None
) -> Iterator[pa.RecordBatch]:
    """The rows of the row groups that a plan keeps, as far as they satisfy a residual."""
    kept = np.flatnonzero(planned.plan.kept_mask)
    reader = RowGroupReader(index.data_table, planned.request.schema, residual, len(kept) < _THREADS, data_read)
    tasks, target = tasks_of(planned, reader.table, kept), schema_to_pyarrow(projection, include_field_ids=False)
    read = in_order(lambda task: reader.read(task, projection, target), tasks)
    return (batch for batches in read for batch in batches)


def residual_of(planned: QueryAnswer) -> Residual | None:
    """The predicate of a planned scan as a test of rows; None if all rows match."""
    condition = planned.request.condition
    return None if condition == EVERY_ROW else Residual.certain(condition)


def project(schema: Schema, columns: Sequence[str] | None) -> Schema:
    """Choose columns of a schema, in the order in which they are named; raise NotFoundError, or UnsupportedError."""
    if columns is None:
        return schema
    if isinstance(columns, str):
        raise UnsupportedError(f"columns={columns!r} is one text: give a list of names, columns=[{columns!r}]")
    if not columns:
        raise UnsupportedError("a scan without columns: name one or more, or use planner.count")
    ids = [field_named(schema, name).field_id for name in columns]
    chosen = schema.select(*(str(schema.find_column_name(one)) for one in ids))
    whole = {field_id: field for field in chosen.fields for field_id in Schema(field).field_ids}
    return Schema(*dict.fromkeys(whole[one] for one in ids))


def _read_and_release(read: Callable[[RowGroupTask], T], task: RowGroupTask) -> T:
    try:
        return read(task)
    finally:
        release_memory()


def in_order(read: Callable[[RowGroupTask], T], tasks: Iterable[RowGroupTask]) -> Iterator[T]:
    """Read row groups in parallel, ahead within bounded memory; give the results in the order of the tasks."""
    ahead: deque[tuple[int, Future[T]]] = deque()
    held_bytes = 0
    pool: ThreadPoolExecutor | None = None
    threads = _THREADS
    try:
        for task in tasks:
            if pool is None:
                is_far = not is_local(task.file.file.path)
                threads = _REMOTE_THREADS if is_far else _THREADS
                pool, read = ThreadPoolExecutor(threads), partial(_read_and_release, read) if is_far else read
            while ahead and (held_bytes + task.memory_bytes > _AHEAD_BYTES or len(ahead) > 2 * threads):
                size, first = ahead.popleft()
                yield first.result()
                held_bytes -= size
            ahead.append((task.memory_bytes, pool.submit(read, task)))
            held_bytes += task.memory_bytes
        while ahead:
            yield ahead.popleft()[1].result()
    finally:
        if pool is not None:
            pool.shutdown(cancel_futures=True)
            # Frees what the allocator still holds for the threads of the pool.
            release_memory()
