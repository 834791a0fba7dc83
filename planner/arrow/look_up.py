"""Looking rows up by key: what does not depend on the keys (schema, data files, view) is prepared once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from planner.aggregates.question import AskedColumn, find_asked
from planner.arrow.aggregate import EXACT_ROWS, log_warnings
from planner.arrow.arrow_scan import in_order, project
from planner.arrow.plan import scan_of, snapshot_of
from planner.arrow.row_group_columns import DataRead
from planner.arrow.row_group_reader import RowGroupReader, RowGroupTask, tasks_of
from planner.arrow.wanted_keys import Keys, KeysError, arrays_of, asked_keys, with_keys
from planner.clock import Clock
from planner.condition.rows import Residual
from planner.condition.tree.nodes import EVERY_ROW
from planner.condition.tree.simplify import simplified
from planner.query import QueryRequest, answer_query
from planner.snapshot.scan import Scan
from puffin_index.errors import UnsupportedError
from puffin_index.keys.arrow_keys import column_of, key_array
from puffin_index.keys.map_key import ColumnId
from puffin_index.storage.arrays import Ints
from puffin_index.storage.files import is_local
from puffin_index.table_index import TableIndex

_PLACE: Final = "_key"
_FEW_ROW_GROUPS: Final = 4


def get(
    index: TableIndex,
    keys: Keys,
    columns: Sequence[str] | None = None,
    snapshot_id: int | None = None,
    *,
    refresh: bool = True,
) -> pa.Table:
    """Read the rows of a table that have some keys, in the order of the keys.

    For many look-ups, `prepare` does once what does not depend on the keys. The arguments and errors are those of
    `planner.locate`; `columns` names columns, nested ones dotted; None for all.

    Returns:
        One row for each pair of a key and a live row that has it: `_key` (int64, the place of the key among `keys`) and
        the columns, ordered by `_key`, then by data file and position. So a key that no row has is missing, one that
        several rows have comes several times, and one that is given twice gets its rows twice.
    """
    return prepare(index, [*keys], columns, snapshot_id, refresh=refresh).get(keys)


def prepare(
    index: TableIndex,
    key_columns: Sequence[str],
    columns: Sequence[str] | None = None,
    snapshot_id: int | None = None,
    *,
    refresh_seconds: float | None = None,
    refresh: bool = True,
) -> PreparedGet:
    """Prepare looking up rows by the values of some columns; arguments and errors are otherwise those of `get`.

    `refresh_seconds` is the age from which a look-up asks the catalog for the newest versions of table and index first;
    None looks at the versions of now for ever.
    """
    if isinstance(key_columns, str):
        raise KeysError(f"key_columns={key_columns!r} is one text: give a list of names, key_columns=[{key_columns!r}]")
    if not key_columns:
        raise KeysError("keys are values of one or more columns, and none is named")
    if refresh:
        index.refresh()
    return PreparedGet(index, partial(_Prepared.of, index, tuple(key_columns), columns, snapshot_id), refresh_seconds)


class PreparedGet:
    """Looks rows up by key. `prepare` makes it; threads may share it. `data_read` is what all look-ups read so far."""

    def __init__(
        self, index: TableIndex, prepare: Callable[[DataRead], _Prepared], refresh_seconds: float | None
    ) -> None:
        self.data_read = DataRead()
        self._index = index
        self._refresh_seconds = refresh_seconds
        self._lock = threading.Lock()
        self._prepare = partial(prepare, self.data_read)
        self._prepared = self._prepare()

    def get(self, keys: Keys) -> pa.Table:
        """Read the rows that have some keys, as `get` does; `keys` has the columns for which this was prepared."""
        prepared = self._newest()
        if set(keys) != set(prepared.keys):
            raise KeysError(f"keys are values of {', '.join(prepared.keys)}, and not of {', '.join(keys)}")
        values = arrays_of(keys)
        asked = {name: asked_keys(name, array, prepared.keys[name].value_type) for name, array in values.items()}
        rows = prepared.read(values)
        if len(next(iter(asked.values()))) == 1:
            places = np.zeros(len(rows), np.int64)
        else:
            columns = [(rows.column(own.name), own.value_type) for own in (prepared.keys[name] for name in values)]
            found = [key_array(column_of(*column)) for column in columns]
            places, matches = _joined(list(asked.values()), found)
            rows = rows.take(pa.array(matches))
        return rows.select(prepared.names).add_column(0, _PLACE, pa.array(places, pa.int64()))

    def _newest(self) -> _Prepared:
        """What look-ups need, of versions that are not too old. One thread prepares, the others go on with the old."""
        old, seconds = self._prepared, self._refresh_seconds
        is_old = seconds is not None and time.monotonic() - old.made >= seconds
        if is_old and self._lock.acquire(blocking=False):
            try:
                self._index.refresh()
                self._prepared = self._prepare()
            finally:
                self._lock.release()
        return self._prepared


@dataclass(frozen=True, slots=True, eq=False)
class _Prepared:
    """What look-ups in one version of table and index need; `projection` has the columns of `names` and of the keys."""

    scan: Scan
    schema: Schema
    keys: Mapping[str, AskedColumn]
    projection: Schema
    target: pa.Schema
    names: tuple[str, ...]
    reader: RowGroupReader
    made: float = field(default_factory=time.monotonic)

    @classmethod
    def of(
        cls,
        index: TableIndex,
        key_columns: Sequence[str],
        columns: Sequence[str] | None,
        snapshot_id: int | None,
        data_read: DataRead,
    ) -> _Prepared:
        # Somebody else may refresh the table meanwhile, in place.
        table = copy(index.data_table)
        snapshot, schema = snapshot_of(table, snapshot_id)
        asked = {name: find_asked(schema, name) for name in key_columns}
        whole: dict[ColumnId, NestedField] = {field.field_id: field for field in schema.fields}
        for name, one in asked.items():
            if one.column not in whole:
                raise UnsupportedError(f"rows are looked up by whole columns, and {name} is a part of one")
        wanted = project(schema, columns)
        if _PLACE in (field.name for field in wanted.fields):
            raise KeysError(f"{_PLACE} is the place of a row's key; leave the column of that name out of `columns`")
        read = (*wanted.fields, *(whole[own.column] for own in asked.values()))
        projection = Schema(*{own.field_id: own for own in read}.values())
        return cls(
            scan_of(index, table, snapshot, schema, EVERY_ROW, Clock(np.inf)),
            schema,
            asked,
            projection,
            schema_to_pyarrow(projection, include_field_ids=False),
            tuple(field.name for field in wanted.fields),
            RowGroupReader(table, schema, None, data_read=data_read),
        )

    def read(self, values: Mapping[str, pa.Array]) -> pa.Table:
        """Read the rows that have one of the values in each column; several columns may give rows of no key."""
        condition, _ = with_keys(EVERY_ROW, values, self.schema)
        predicate = simplified(condition)
        request = QueryRequest(
            scan=self.scan, predicate=predicate, limits=EXACT_ROWS, schema=self.schema, condition=condition
        )
        planned = answer_query(request)
        log_warnings(planned.plan.warnings)
        reader = replace(self.reader, residual=Residual(predicate))
        tasks = [*tasks_of(planned, reader.table, np.flatnonzero(planned.plan.kept_mask))]

        def read(task: RowGroupTask) -> list[pa.RecordBatch]:
            return reader.read(task, self.projection, self.target)

        # On a local disk, threads take longer to start than a few row groups to read. A store is asked side by side.
        most = _FEW_ROW_GROUPS if is_local(reader.table.location()) else 1
        parts = map(read, tasks) if len(tasks) <= most else in_order(read, tasks)
        return pa.Table.from_batches(chain.from_iterable(parts), self.target)


def _joined(asked: Sequence[pa.Array], found: Sequence[pa.Array]) -> tuple[Ints, Ints]:
    """The pairs of a key and a row that has it, as places of keys, ascending, and places of rows; NULL has no row."""
    columns = [str(number) for number in range(len(asked))]
    keys = pa.table([*asked, np.arange(len(asked[0]))], [*columns, "key"])
    rows = pa.table([*found, np.arange(len(found[0]))], [*columns, "row"])
    pairs = keys.join(rows, columns, join_type="inner").sort_by([("key", "ascending"), ("row", "ascending")])
    return pairs["key"].to_numpy(), pairs["row"].to_numpy()
