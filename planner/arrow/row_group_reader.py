"""Reading row groups of a planned scan: exact rows are taken, other rows are tested, deleted rows are left out."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyroaring import BitMap

from planner.arrow.file_columns import FileColumns
from planner.arrow.row_group_columns import DataRead, RowGroupColumns
from planner.condition.rows import Residual, values_of
from planner.query import QueryAnswer
from planner.snapshot.equality_deletes import deleted_rows, with_dropped_columns
from planner.snapshot.files import ScanFile
from puffin_index.data.column_source import reading_of
from puffin_index.data.file_fields import FileField
from puffin_index.data.page_reader import joined
from puffin_index.data.parquet import OpenParquet, open_parquet, open_parquet_file
from puffin_index.errors import CorruptFileError, UnsupportedError
from puffin_index.keys.map_key import ColumnId, field_of
from puffin_index.kinds.base import RowSet
from puffin_index.storage.arrays import Flags, Ints

_UNPACKED: Final = 4
"""A byte of a file takes about this many bytes of memory."""


Values: TypeAlias = dict[ColumnId, pa.Array | pa.ChunkedArray]
"""The values of some columns in the same rows."""


@dataclass(frozen=True, slots=True)
class RowGroupTask:
    """One row group to read, and the rows that can match (None: no index tells). Exact rows need no test."""

    file: ScanFile
    ordinal: int
    row_count: int
    rows: RowSet | None

    @property
    def memory_bytes(self) -> int:
        """About what its rows take in memory."""
        return _UNPACKED * self.file.file.file_size * self.row_count // max(1, self.file.file.record_count)


def tasks_of(planned: QueryAnswer, table: Table, positions: Ints) -> Iterator[RowGroupTask]:
    """Give the row groups at ascending positions of a plan to read; raise UnsupportedError if a file is not Parquet."""
    plan, seen = planned.plan, -1
    for at in positions.tolist():
        number = int(plan.file_of[at])
        file = planned.scan.files[number]
        assert isinstance(file, ScanFile)
        if file.file.format != "PARQUET":
            raise UnsupportedError(f"data file {file.file.path} is {file.file.format}; only Parquet can be read here")
        if planned.scan.is_indexed[at]:
            row_count, row_group = int(plan.row_counts[at]), int(planned.scan.numbers[at])
            rows = planned.pruned.rows_of(at, row_group, row_count, planned.request.condition)
            yield RowGroupTask(file, int(plan.ordinals[at]), row_count, rows)
        elif number != seen:
            # The footer says which row groups there are; the manifest may be wrong.
            with open_parquet(table.io, file.file.path, file.file.file_size) as parquet:
                groups = [parquet.metadata.row_group(i).num_rows for i in range(parquet.metadata.num_row_groups)]
            yield from (RowGroupTask(file, ordinal, rows, None) for ordinal, rows in enumerate(groups))
        seen = number


@dataclass(frozen=True, slots=True)
class RowGroupReader:
    """Reads row groups of one scan, and rows that satisfy a predicate if any. Safe to share between threads."""

    table: Table
    schema: Schema
    residual: Residual | None
    side_by_side: bool = False
    data_read: DataRead = field(default_factory=DataRead)
    _columns_of: dict[tuple[object, ...], FileColumns] = field(default_factory=dict, repr=False)

    def read(self, task: RowGroupTask, projection: Schema, target: pa.Schema) -> list[pa.RecordBatch]:
        """Read the matching rows of a row group, in a projection of the schema whose Arrow schema is `target`."""
        with self._opened(task) as (columns, group):
            rows, tested = self._matching_rows(group, columns, task)
            if rows is not None and not len(rows):
                return []
            wanted = columns.fields_of(field.field_id for field in projection.fields)
            table = _with_columns(tested, group, wanted, rows)
        batches: list[pa.RecordBatch] = columns.project(table, projection, target).to_batches()
        return batches

    def values(self, task: RowGroupTask, column_ids: Sequence[ColumnId]) -> tuple[Values, Ints]:
        """Read the values of some columns in a row group's matching rows, and the position of each row in the file."""
        with self._opened(task) as (columns, group):
            rows, tested = self._matching_rows(group, columns, task)
            fields = columns.fields_of(field_of(column) for column in column_ids)
            table = _with_columns(tested, group, fields, rows)
            positions = group.first_row + (np.arange(table.num_rows) if rows is None else rows)
        found = {column: values_of(column, partial(columns.values, table)) for column in column_ids}
        # One value stands for all rows where the file lacks the column.
        first = np.zeros(len(positions), np.int64)
        values = {column: own if len(own) == len(first) else own.take(first) for column, own in found.items()}
        return values, positions

    @contextmanager
    def _opened(self, task: RowGroupTask) -> Iterator[tuple[FileColumns, RowGroupColumns]]:
        with open_parquet_file(self.table.io, task.file.file.path, task.file.file.file_size) as opened:
            group = RowGroupColumns(opened, task.ordinal, self.data_read, self.side_by_side)
            yield self._columns(opened, task), group

    def _columns(self, opened: OpenParquet, task: RowGroupTask) -> FileColumns:
        file, entry = task.file.file, task.file.entry
        # A snapshot may have a data file in several partitions.
        key = (file.path, file.constants_text, task.file.equality_deletes)
        columns = self._columns_of.get(key)
        if columns is None:
            fields = enumerate(self.table.specs()[entry.spec_id].fields)
            # The values of identity partitions, NULLs included, hold whatever the file says.
            are_identity = ((at, own) for at, own in fields if isinstance(own.transform, IdentityTransform))
            constants = {own.source_id: entry.partition[at] for at, own in are_identity}
            schema = with_dropped_columns(self.table, self.schema, task.file.equality_deletes)
            reading = reading_of(self.table, schema)
            columns = FileColumns.of(reading, opened.parquet, constants, file.path)
            # Where two threads make the columns of one file, either result may stay.
            self._columns_of[key] = columns
        return columns

    def _matching_rows(
        self, group: RowGroupColumns, columns: FileColumns, task: RowGroupTask
    ) -> tuple[Ints | None, pa.Table]:
        """The rows that match and are not deleted (None for all), and the columns that were tested, in these rows."""
        rows, tested = self._satisfying(group, columns, task)
        deletes = task.file.equality_deletes
        if not deletes or not tested.num_rows:
            return rows, tested
        fields = columns.fields_of({column.field_id for delete in deletes for column in delete.columns})
        tested = _with_columns(tested, group, fields, rows)
        deleted = deleted_rows(self.table.io, deletes, partial(columns.values, tested), tested.num_rows)
        return _chosen(rows, tested, ~deleted)

    def _satisfying(
        self, group: RowGroupColumns, columns: FileColumns, task: RowGroupTask
    ) -> tuple[Ints | None, pa.Table]:
        rows = self._candidates(group, task)
        row_count = group.row_count if rows is None else len(rows)
        # A table without columns has no length; a column of NULLs gives one, with a name that no file has.
        tested = pa.table({"\0": pa.nulls(row_count)})
        if self.residual is None or not row_count or (task.rows is not None and task.rows.exact):
            return rows, tested
        fields = columns.fields_of(self.residual.field_ids)
        if fields:
            tested = group.read(fields, rows)
        matching = self.residual.matching(partial(columns.values, tested), row_count)
        # One value stands for all rows where the file has none of the columns.
        return _chosen(rows, tested, np.broadcast_to(matching, row_count))

    def _candidates(self, group: RowGroupColumns, task: RowGroupTask) -> Ints | None:
        """The rows of a row group that can match and are not deleted, ascending; None for all."""
        rows, row_count = None if task.rows is None else task.rows.rows, group.row_count
        if rows and rows.max() >= row_count:
            raise CorruptFileError(
                f"row group {task.ordinal} has {row_count} rows, and the index knows row {rows.max()}",
                location=task.file.file.path,
            )
        if deleted := task.file.deleted_rows(self.table.io, group.first_row, row_count):
            rows = (BitMap(range(row_count)) if rows is None else rows) - deleted
        if rows is None or len(rows) == row_count:
            return None
        return np.frombuffer(rows.to_array(), np.uint32).astype(np.int64)


def _chosen(rows: Ints | None, tested: pa.Table, wanted: Flags) -> tuple[Ints | None, pa.Table]:
    if wanted.all():
        return rows, tested
    return np.flatnonzero(wanted) if rows is None else rows[wanted], tested.filter(pa.array(wanted))


def _with_columns(tested: pa.Table, group: RowGroupColumns, fields: Sequence[FileField], rows: Ints | None) -> pa.Table:
    missing = [one for one in fields if one.field.name not in tested.column_names]
    return joined(group.read(missing, rows), tested) if missing else tested
