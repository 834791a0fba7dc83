"""Where rows of some keys are: data file and position, as writers of position deletes and deletion vectors need them.

Rows and keys come from the index where it knows both exactly, otherwise from data. Rows of several key columns are
planned by each column; a join leaves those that have the keys of one row. The join compares keys in their key domain,
where NaN equals NaN and both zeros are equal. Only data tells the zeros apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from planner.aggregates.answer import UNBOUNDED, costs_of_data
from planner.aggregates.indexed import Unit, each_unit
from planner.aggregates.known_rows import KnownRows
from planner.aggregates.partial import key_type
from planner.aggregates.question import AskedColumn, Question, find_asked
from planner.arrow.aggregate import EXACT_ROWS, log_warnings
from planner.arrow.arrow_scan import in_order, residual_of
from planner.arrow.plan import plan_scan, snapshot_of
from planner.arrow.row_group_columns import DataRead
from planner.arrow.row_group_reader import RowGroupReader, RowGroupTask, tasks_of
from planner.arrow.wanted_keys import Keys, KeysError, arrays_of, asked_keys
from planner.clock import DEFAULT_MILLISECONDS
from planner.query import QueryAnswer
from planner.view.cache import SharedPayloads
from planner.view.directories import IndexReads
from puffin_index.keys.arrow_keys import NEGATIVE_ZERO_KEY, arrow_of_keys, key_array, signed_keys
from puffin_index.keys.map_key import ColumnId
from puffin_index.storage.arrays import Ints
from puffin_index.storage.ranged import Reading
from puffin_index.table_index import TableIndex

_ROWS_AT_ONCE: Final = 1 << 20
"""About this many rows are joined with the keys at once, and get their paths at once."""


def locate(
    index: TableIndex,
    keys: Keys,
    snapshot_id: int | None = None,
    *,
    planning_milliseconds: float = DEFAULT_MILLISECONDS,
    refresh: bool = True,
    data_read: DataRead | None = None,
) -> pa.Table:
    """Find the live rows of a table that have some keys, and where these rows are.

    Keys are equal as in a join: NULL equals nothing, NaN equals NaN, -0.0 equals 0.0. Index troubles are logged as
    warnings, and data is read instead.

    Args:
        keys: Values by column name, of the column's kind: Arrow arrays, numpy arrays or lists. Several columns have
            values of equal lengths, of which each row is one key.
        data_read: Counts pages, column chunks and bytes of data that are read.

    The other arguments, and errors of columns, keys and snapshots, are those of `planner.plan`.

    Returns:
        One row for each row found, by data file in the order of a scan, and by position: `_file` (string, the
        location), `_pos` (int64, from 0 in the file), and the key columns in the order and by the names of `keys`, with
        the table's Arrow types and the values of the row.

    Raises KeysError if no column is named, or columns have different numbers of keys, UnsupportedError if keys are not
    of the type of their column, or a data file's format makes reading rows impossible here.
    """
    if refresh:
        index.refresh()
    asked = _AskedKeys.of(keys, snapshot_of(index.data_table, snapshot_id)[1])
    limits = replace(EXACT_ROWS, seconds=planning_milliseconds / 1000)
    shared = SharedPayloads(list(asked.by_id))
    planned = plan_scan(index, None, snapshot_id, limits, refresh=False, keys=asked.values, shared=shared)
    found, unread, warnings = _of_indexes(planned, asked)
    log_warnings((*planned.plan.warnings, *warnings))
    read = _of_data(index, planned, unread, asked, data_read or DataRead())
    return asked.table_of(asked.joined(chain(found, read)), planned.scan.paths)


@dataclass(frozen=True, slots=True, eq=False)
class _AskedKeys:
    """Keys that are looked for: columns and values by name, and the distinct keys. Rows with a NULL are left out.

    Located rows are tables of `_file` (a number of the scan), `_pos` and the key of each column by name.
    """

    columns: Mapping[str, AskedColumn]
    values: Mapping[str, pa.Array]
    keys: pa.Table

    @classmethod
    def of(cls, keys: Keys, schema: Schema) -> _AskedKeys:
        if "_file" in keys or "_pos" in keys:
            raise KeysError("_file and _pos are the place of a row; no key column may have these names")
        columns = {name: find_asked(schema, name) for name in keys}
        arrays = arrays_of(keys)
        every = {name: asked_keys(name, array, columns[name].value_type) for name, array in arrays.items()}
        is_known = np.logical_and.reduce([own.is_valid().to_numpy(zero_copy_only=False) for own in every.values()])
        rows = pa.array(np.flatnonzero(is_known))
        distinct = pa.table(every).take(rows).group_by(list(every)).aggregate([])
        return cls(columns, {name: array.take(rows) for name, array in arrays.items()}, distinct)

    @property
    def by_id(self) -> dict[ColumnId, AskedColumn]:
        return {asked.column: asked for asked in self.columns.values()}

    @property
    def unknown(self) -> tuple[AskedColumn, ...]:
        """The columns whose value in a located row is not known: there are several keys, or zeros among them."""
        return tuple(
            asked
            for name, asked in self.columns.items()
            if len(keys := self.keys[name].unique()) > 1 or (asked.value_type.is_floating and _has_zero(keys))
        )

    def located(self, files: Ints, positions: Ints, keys: Mapping[ColumnId, pa.Array]) -> pa.Table:
        own = {
            name: keys[asked.column] if asked.column in keys else pa.repeat(self.keys[name][0], len(positions))
            for name, asked in self.columns.items()
        }
        return pa.table({"_file": files, "_pos": positions, **own})

    def of_unit(self, unit: Unit) -> Reading[pa.Table | None]:
        """Locate the rows of a unit by the index; None if a key is a zero, whose sign no index knows."""
        found = yield from unit.keys()
        keys = {column: key_array(own) for column, own in found.items()}
        if any(self.by_id[column].value_type.is_floating and _has_zero(own) for column, own in keys.items()):
            return None
        return self.located(*unit.rows.located(unit.positions), keys)

    def joined(self, parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Leave the rows that have all keys of one row; the keys of one column have been looked for as they are."""
        if len(self.columns) == 1:
            yield from parts
            return
        keys = self.keys
        for place, asked in enumerate(self.columns.values()):
            if asked.value_type.is_floating:
                zeros = keys.filter(pc.equal(keys[place], 0))
                negative = pa.repeat(pa.scalar(NEGATIVE_ZERO_KEY, pa.int64()), len(zeros))
                keys = pa.concat_tables([keys, zeros.set_column(place, keys.column_names[place], negative)])
        for rows in _gathered(parts):
            yield rows.join(keys, keys.column_names, join_type="left semi")

    def table_of(self, parts: Iterable[pa.Table], paths: Sequence[str]) -> pa.Table:
        types = {name: key_type(asked.value_type) for name, asked in self.columns.items()}
        none = pa.schema({"_file": pa.int64(), "_pos": pa.int64(), **types}).empty_table()
        rows = pa.concat_tables([none, *parts]).sort_by([("_file", "ascending"), ("_pos", "ascending")])
        rows, known = rows.combine_chunks(), pa.array(paths, pa.string())
        # An Arrow string array has at most 2 GiB.
        some = [rows["_file"].slice(first, _ROWS_AT_ONCE) for first in range(0, len(rows), _ROWS_AT_ONCE)]
        files = pa.chunked_array([known.take(own.combine_chunks()) for own in some], pa.string())
        values = {
            name: arrow_of_keys(
                rows[name].combine_chunks(), asked.value_type, schema_to_pyarrow(asked.type, include_field_ids=False)
            )
            for name, asked in self.columns.items()
        }
        return pa.table({"_file": files, "_pos": rows["_pos"], **values})


def _has_zero(keys: pa.Array | pa.ChunkedArray) -> bool:
    return bool(pc.any(pc.equal(keys, 0), min_count=0).as_py())


def _gathered(parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Make fewer tables of many rows, so that a join pays."""
    waiting: list[pa.Table] = []
    rows = 0
    for part in parts:
        waiting.append(part)
        rows += part.num_rows
        if rows >= _ROWS_AT_ONCE:
            yield pa.concat_tables(waiting)
            waiting, rows = [], 0
    if waiting:
        yield pa.concat_tables(waiting)


def _of_indexes(planned: QueryAnswer, asked: _AskedKeys) -> tuple[list[pa.Table], Ints, list[str]]:
    """Locate rows by indexes. Returns them, the positions of the row groups to be read, and index troubles."""
    plan, reads = planned.plan, IndexReads(shared=planned.request.shared)
    known = KnownRows(planned.scan, planned.request.predicate, planned.pruned)
    left, found = known.positions, list[pa.Table]()
    if len(left) and not asked.unknown:
        found, left = [asked.located(*known.located(left), {})], left[:0]
    elif len(left):
        question = Question((), (), asked.unknown)
        costs = costs_of_data(known, question)[left]
        found, left = each_unit(question, known, left, reads, costs, UNBOUNDED, asked.of_unit)
    unread = np.union1d(left, np.setdiff1d(np.flatnonzero(plan.kept_mask), known.positions))
    return found, unread, list(map(str, reads.troubles))


def _of_data(
    index: TableIndex, planned: QueryAnswer, unread: Ints, asked: _AskedKeys, data_read: DataRead
) -> Iterator[pa.Table]:
    reader = RowGroupReader(index.data_table, planned.request.schema, residual_of(planned), data_read=data_read)
    numbers = {path: number for number, path in enumerate(planned.scan.paths)}

    def read(task: RowGroupTask) -> pa.Table:
        values, positions = reader.values(task, list(asked.by_id))
        keys = {column: signed_keys(own, asked.by_id[column].value_type) for column, own in values.items()}
        return asked.located(np.full(len(positions), numbers[task.file.file.path]), positions, keys)

    return in_order(read, tasks_of(planned, reader.table, unread))
