"""Reading row groups of a planned scan: exact rows are taken, other rows are tested, deleted rows are left out.

Wanted rows of a column are read by pages where that pays, by whole column chunks otherwise.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyroaring import BitMap

from planner.arrow.file_columns import FileColumns, constants_of
from planner.condition.rows import Residual, values_of
from planner.prune.verdicts import Reason
from planner.query import QueryAnswer
from planner.snapshot.equality_deletes import deleted_rows, with_dropped_columns
from planner.snapshot.files import ScanFile
from puffin_index.data.column_source import reading_of
from puffin_index.data.deletes import deleted_positions
from puffin_index.data.file_fields import FileField
from puffin_index.data.page_index import ColumnChunk, most_pages
from puffin_index.data.page_reader import LeafPages, PageReader, can_assemble, joined
from puffin_index.data.parquet import OpenParquet, coded_by_dictionary, fetch_columns, open_parquet, open_parquet_file
from puffin_index.display import format_bytes
from puffin_index.errors import CorruptFileError, UnsupportedError
from puffin_index.jobs.log_lines import level_of_trouble
from puffin_index.keys.map_key import ColumnId, column_and_key
from puffin_index.kinds.base import RowSet
from puffin_index.storage.arrays import Flags, Ints
from puffin_index.storage.files import is_local
from puffin_index.storage.parallel import MOST_AT_ONCE

_log = logging.getLogger(__name__)

_CORES: Final = os.cpu_count() or 1

_FEW_ROWS: Final = 0.1
"""Where at most this share of the rows is wanted, strings are made after the rows are chosen."""

_LARGEST_SHARE: Final = 0.6
"""Of the bytes of a column. At this share, pages take 0.7 of the processor time of the whole; at 0.95, all of it."""

_LEAST_SAVING: Final = 0.25
"""Of the bytes of all columns: less did not pay for a second way to read."""

_UNPACKED: Final = 4
"""A byte of a file takes about this many bytes of memory."""


Values: TypeAlias = dict[ColumnId, pa.Array | pa.ChunkedArray]
"""The values of some columns in the same rows."""


@dataclass(slots=True)
class DataRead:
    """Bytes, and data pages of chunks read by pages, summed up over row groups and threads."""

    pages: int = 0
    pages_read: int = 0
    chunks: int = 0
    bytes: int = 0
    bytes_read: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, bytes_read: int, chunk_bytes: int, *, pages_read: int = 0, pages: int = 0, chunks: int = 0) -> None:
        """Count a column chunk that was read whole or by pages."""
        with self._lock:
            self.pages_read += pages_read
            self.pages += pages
            self.chunks += chunks
            self.bytes_read += bytes_read
            self.bytes += chunk_bytes

    def __str__(self) -> str:
        of_bytes = f"{format_bytes(self.bytes_read)} of {format_bytes(self.bytes)}"
        return f"{self.pages_read:,} of {self.pages:,} pages and {self.chunks:,} whole column chunks, {of_bytes}"


@dataclass(frozen=True, slots=True)
class RowGroupTask:
    """One row group to read, and the rows that can match (None: no index tells). Exact rows need no test."""

    file: ScanFile
    ordinal: int
    rows: RowSet | None
    memory_bytes: int


def tasks_of(planned: QueryAnswer, table: Table, positions: Ints) -> Iterator[RowGroupTask]:
    """Give the row groups at ascending positions of a plan to read. The footer of a file without an index is read.

    Raises UnsupportedError if a data file is not Parquet.
    """
    plan, seen = planned.plan, -1
    for at in positions.tolist():
        number = int(plan.file_of[at])
        file = planned.scan.files[number]
        assert isinstance(file, ScanFile)
        _check_readable(file)
        if planned.scan.is_indexed[at]:
            yield _task(file, int(plan.ordinals[at]), int(plan.row_counts[at]), _known_rows(planned, at))
        elif number != seen:
            # The footer says which row groups there are; the manifest may be wrong.
            with open_parquet(table.io, file.file.path, file.file.file_size) as parquet:
                groups = [parquet.metadata.row_group(i).num_rows for i in range(parquet.metadata.num_row_groups)]
            yield from (_task(file, ordinal, rows, None) for ordinal, rows in enumerate(groups))
        seen = number


def _check_readable(file: ScanFile) -> None:
    if file.file.format != "PARQUET":
        raise UnsupportedError(f"data file {file.file.path} is {file.file.format}; only Parquet can be read here")


def _task(file: ScanFile, ordinal: int, row_count: int, rows: RowSet | None) -> RowGroupTask:
    return RowGroupTask(
        file, ordinal, rows, _UNPACKED * file.file.file_size * row_count // max(1, file.file.record_count)
    )


def _known_rows(planned: QueryAnswer, at: int) -> RowSet | None:
    if planned.plan.reasons[at] == Reason.ALL_ROWS_MATCH:
        return RowSet(BitMap(range(int(planned.plan.row_counts[at]))), exact=True)
    return planned.row_sets.of(int(planned.scan.numbers[at]))


@dataclass(frozen=True, slots=True)
class RowGroupReader:
    """Reads row groups of one scan, and rows that satisfy a predicate if any. Safe to share between threads.

    Few row groups need columns decoded side by side to keep all cores busy.
    """

    table: Table
    schema: Schema
    residual: Residual | None
    side_by_side: bool = False
    data_read: DataRead = field(default_factory=DataRead)
    _columns_of: dict[str, FileColumns] = field(default_factory=dict, repr=False)

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

    def values(self, task: RowGroupTask, column_ids: Sequence[ColumnId]) -> tuple[Values, int]:
        """Read the values that some columns have in the matching rows of a row group, as the data file has them.

        Returns the values of each column (one for all rows where the file lacks the column), and the number of rows.
        """
        with self._opened(task) as (columns, group):
            _, values, row_count = self._values(columns, group, task, column_ids)
        return values, row_count

    def located(self, task: RowGroupTask, column_ids: Sequence[ColumnId]) -> tuple[Values, Ints]:
        """Read values as `values` does. Returns them, and the position in the data file of each matching row."""
        with self._opened(task) as (columns, group):
            rows, values, row_count = self._values(columns, group, task, column_ids)
            return values, group.first_row + (np.arange(row_count) if rows is None else rows)

    def _values(
        self, columns: FileColumns, group: RowGroupColumns, task: RowGroupTask, column_ids: Sequence[ColumnId]
    ) -> tuple[Ints | None, Values, int]:
        rows, tested = self._matching_rows(group, columns, task)
        fields = columns.fields_of(column_and_key(column)[0] for column in column_ids)
        table = _with_columns(tested, group, fields, rows)
        values = {column: values_of(column, lambda field_id: columns.values(table, field_id)) for column in column_ids}
        return rows, values, table.num_rows

    @contextmanager
    def _opened(self, task: RowGroupTask) -> Iterator[tuple[FileColumns, RowGroupColumns]]:
        with open_parquet_file(self.table.io, task.file.file.path, task.file.file.file_size) as opened:
            yield (
                self._columns(opened, task),
                RowGroupColumns(opened, task.ordinal, self.data_read, self.side_by_side),
            )

    def _columns(self, opened: OpenParquet, task: RowGroupTask) -> FileColumns:
        location, entry = task.file.file.path, task.file.entry
        columns = self._columns_of.get(location)
        if columns is None:
            constants = constants_of(entry.partition, self.table.specs()[entry.spec_id])
            schema = with_dropped_columns(self.table, self.schema, task.file.equality_deletes)
            reading = reading_of(self.table, schema)
            columns = FileColumns.of(reading, opened.parquet, constants, location)
            # Where two threads make the columns of one file, either result may stay.
            self._columns_of[location] = columns
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
        missing = [one for one in fields if one.field.name not in tested.column_names]
        if missing:
            tested = joined(group.read(missing, rows), tested)
        deleted = deleted_rows(self.table.io, deletes, partial(columns.values, tested), tested.num_rows)
        return _chosen(rows, tested, ~deleted)

    def _satisfying(
        self, group: RowGroupColumns, columns: FileColumns, task: RowGroupTask
    ) -> tuple[Ints | None, pa.Table]:
        """The rows that match, without those deleted by position, and the columns that were tested."""
        rows = self._candidates(group, task)
        row_count = group.row_count if rows is None else len(rows)
        # A table without columns has no length; a column of NULLs gives one.
        tested = pa.table({"": pa.nulls(row_count)})
        if self.residual is None or not row_count or (task.rows is not None and task.rows.exact):
            return rows, tested
        fields = columns.fields_of(self.residual.field_ids)
        if fields:
            tested = group.read(fields, rows)
        matching = self.residual.matching(lambda field_id: columns.values(tested, field_id), row_count)
        # One value stands for all rows where the file has none of the columns.
        return _chosen(rows, tested, np.broadcast_to(matching, row_count))

    def _candidates(self, group: RowGroupColumns, task: RowGroupTask) -> Ints | None:
        """The rows of a row group that can match and are not deleted, ascending; None for all.

        Raises CorruptFileError if the index knows rows that the row group does not have.
        """
        rows = None if task.rows is None else np.frombuffer(task.rows.rows.to_array(), np.uint32).astype(np.int64)
        if rows is not None and len(rows) and rows[-1] >= group.row_count:
            raise CorruptFileError(
                f"row group {task.ordinal} has {group.row_count} rows, and the index knows row {rows[-1]}",
                location=task.file.file.path,
            )
        if rows is not None and len(rows) == group.row_count:
            rows = None
        deleted = self._deleted(group, task)
        if deleted is None:
            return rows
        return np.flatnonzero(~deleted) if rows is None else rows[~deleted[rows]]

    def _deleted(self, group: RowGroupColumns, task: RowGroupTask) -> Flags | None:
        if not task.file.deletes:
            return None
        first, row_count = group.first_row, group.row_count
        positions = deleted_positions(self.table.io, task.file.file.path, task.file.deletes)
        here = positions & BitMap(range(first, first + row_count))
        if not here:
            return None
        flags = np.zeros(row_count, np.bool_)
        flags[np.frombuffer(here.to_array(), np.uint32) - np.uint32(first)] = True
        return flags


def _chosen(rows: Ints | None, tested: pa.Table, wanted: Flags) -> tuple[Ints | None, pa.Table]:
    if wanted.all():
        return rows, tested
    return np.flatnonzero(wanted) if rows is None else rows[wanted], tested.filter(pa.array(wanted))


def _with_columns(tested: pa.Table, group: RowGroupColumns, fields: Sequence[FileField], rows: Ints | None) -> pa.Table:
    """Some columns in the matching rows; tested columns are not read again."""
    missing = [one for one in fields if one.field.name not in tested.column_names]
    if not missing:
        return tested
    read_before = [one.field.name for one in fields if one not in missing]
    return joined(group.read(missing, rows), tested.select(read_before))


@dataclass(frozen=True, slots=True)
class RowGroupColumns:
    """The columns of one row group of an open file; with `side_by_side`, whole columns are decoded side by side."""

    opened: OpenParquet
    ordinal: int
    data_read: DataRead
    side_by_side: bool

    @property
    def row_count(self) -> int:
        """The rows of the row group."""
        return int(self.opened.parquet.metadata.row_group(self.ordinal).num_rows)

    @property
    def first_row(self) -> int:
        """The position in the file of the first row."""
        footer = self.opened.parquet.metadata
        return sum(footer.row_group(before).num_rows for before in range(self.ordinal))

    def read(self, fields: Sequence[FileField], rows: Ints | None) -> pa.Table:
        """Read some rows (ascending; None for all) of at least one top-level field of the file.

        Raises CorruptFileError if the file cannot be decoded.
        """
        if rows is None:
            return self._whole(fields)
        if not len(rows):
            return pa.schema([field.field for field in fields]).empty_table()
        table = self._by_pages(fields, rows)
        names = set() if table is None else set(table.column_names)
        rest = [field for field in fields if field.field.name not in names]
        if table is not None and not rest:
            return table
        few = len(rows) <= _FEW_ROWS * self.row_count
        whole = self._whole(rest, as_dictionaries=few).take(pa.array(rows))
        if few:
            whole = whole.cast(pa.schema([field.field for field in rest]))
        return whole if table is None else joined(table, whole)

    def _whole(self, fields: Sequence[FileField], *, as_dictionaries: bool = False) -> pa.Table:
        """Whole columns; strings of a dictionary as they are stored, if wanted."""
        # By ordinals of leaves: names may have dots in them.
        leaves = _leaves(fields)
        group = self.opened.parquet.metadata.row_group(self.ordinal)
        for leaf in leaves:
            size = group.column(leaf).total_compressed_size
            self.data_read.add(size, size, chunks=1)
        parquet = self.opened.with_dictionaries(coded_by_dictionary(group, fields) if as_dictionaries else [])
        fetch_columns(parquet, [(self.ordinal, leaves)])
        try:
            return parquet.reader.read_row_group(self.ordinal, column_indices=leaves, use_threads=self.side_by_side)
        except pa.ArrowInvalid as error:
            raise CorruptFileError(f"row group {self.ordinal}: {error}", location=self.opened.file.location) from error

    def _by_pages(self, fields: Sequence[FileField], rows: Ints) -> pa.Table | None:
        """The columns that were read by pages; None if none was."""
        if len(rows) > _LARGEST_SHARE * self.row_count:
            return None
        group = self.opened.parquet.metadata.row_group(self.ordinal)
        paged = [field for field in fields if all(group.column(leaf).has_offset_index for leaf in field.leaves)]
        if not paged:
            return None
        column_bytes = sum(group.column(leaf).total_compressed_size for leaf in _leaves(fields))
        try:
            return self._pages(paged, rows, column_bytes)
        except CorruptFileError as damage:
            level = level_of_trouble(self.opened.file.location)
            _log.log(level, "row group %d is read whole, as its pages cannot be read alone: %s", self.ordinal, damage)
            return None

    def _pages(self, fields: Sequence[FileField], rows: Ints, column_bytes: int) -> pa.Table | None:
        reader = replace(
            PageReader.of(self.opened.parquet, self.opened.file, self.ordinal),
            requests_at_once=1 if is_local(self.opened.file.location) else MOST_AT_ONCE,
            parts=_CORES if self.side_by_side else 1,
        )
        chunks = reader.chunks(frozenset(_leaves(fields)))
        fields = [
            field
            for field in fields
            if can_assemble(field.field.type) and _may_gain(field, chunks, rows, self.row_count)
        ]
        chosen = _chosen_pages(fields, reader, chunks, rows)
        saved = sum(own.chunk.size - own.byte_count for own in chosen.values())
        if not chosen or saved < _LEAST_SAVING * column_bytes:
            return None
        table = reader.read([field for field in fields if field.leaves[0] in chosen], chosen, rows)
        for leaf in chosen.values():
            self.data_read.add(
                leaf.byte_count, leaf.chunk.size, pages_read=len(leaf.pages), pages=leaf.index.page_count
            )
        return table


def _leaves(fields: Sequence[FileField]) -> list[int]:
    return [leaf for field in fields for leaf in field.leaves]


def _may_gain(field: FileField, chunks: Mapping[int, ColumnChunk], rows: Ints, row_count: int) -> bool:
    """Whether the offset indexes of a field are worth a read."""
    if any(leaf not in chunks or chunks[leaf].offset_index is None for leaf in field.leaves):
        return False
    pages = [most_pages(chunks[leaf]) for leaf in field.leaves]
    sizes = [chunks[leaf].size for leaf in field.leaves]
    # More pages than there are give a smaller share, so that a column that can gain is not left out.
    needed = sum(size * _needed(rows, row_count, count) / count for size, count in zip(sizes, pages, strict=True))
    return needed <= _LARGEST_SHARE * sum(sizes)


def _needed(rows: Ints, row_count: int, pages: int) -> int:
    """How many pages of equal length hold some ascending rows."""
    bounds = np.arange(pages + 1) * row_count // pages
    return int(np.count_nonzero(np.diff(np.searchsorted(rows, bounds))))


def _chosen_pages(
    fields: Sequence[FileField], reader: PageReader, chunks: Mapping[int, ColumnChunk], rows: Ints
) -> dict[int, LeafPages]:
    """Choose the pages of each leaf of the fields that are to be read by pages; reads their offset indexes."""
    indexes = reader.offset_indexes({leaf: chunks[leaf] for field in fields for leaf in field.leaves})
    chosen: dict[int, LeafPages] = {}
    for one in fields:
        if indexes.keys() >= set(one.leaves):
            leaves = {leaf: reader.pages(leaf, chunks[leaf], indexes[leaf], rows) for leaf in one.leaves}
            own = leaves.values()
            if sum(leaf.byte_count for leaf in own) <= _LARGEST_SHARE * sum(leaf.chunk.size for leaf in own):
                chosen |= leaves
    return chosen
