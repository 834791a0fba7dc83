"""The row groups of an opened data file, read one column at a time: Parquet row groups and ORC stripes alike.

Engines hand a reader a data file and a range of bytes. A row group belongs to a range if its point lies in the range. A
Parquet row group's point is its midpoint, as parquet-java computes it from the footer. An ORC stripe's point is its
first byte.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import BinaryIO, Self, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.orc import ORCFile
from pyiceberg.io import FileIO, InputStream
from pyiceberg.table import Table

from puffin_index.data.column_source import LocatedColumn, Reading, locate_column, reading_of
from puffin_index.data.constants import constant_column
from puffin_index.data.data_table import DataFile, first_data_file
from puffin_index.data.file_fields import FileField, FileFields, Rule, identify_fields
from puffin_index.data.orc_footer import read_footer
from puffin_index.data.parquet import fetch_columns, has_offset_index, parquet_file, row_group_places
from puffin_index.data.stored_types import check_stored, parquet_type
from puffin_index.errors import BuildError, UnsupportedError
from puffin_index.keys.arrow_keys import column_of, gather_column
from puffin_index.keys.columns import Column, SortedColumn, plain_keys
from puffin_index.keys.contents import WORD_BLOCK_ROWS, ContentColumn, SortedContents, gather_contents
from puffin_index.keys.map_key import ColumnId, Contents, MapKey, field_of, values_of_key
from puffin_index.keys.value_types import ValueType
from puffin_index.keys.words import words_of
from puffin_index.storage.files import open_stream
from puffin_index.storage.object_stream import ObjectStream

READ_WHOLE = -1
"""Stands in place of every start if no ranges divide the file into its row groups."""


def range_starts(offsets: Sequence[int], points: Sequence[int], file_size: int) -> tuple[int, ...]:
    """Choose the start of each row group's range; a range ends where the next range in the file begins.

    That is a row group's stated offset where it is exact. All starts are `READ_WHOLE` if points are equal or outside.
    """
    order = np.argsort(np.asarray(points, np.int64), kind="stable")
    point, offset = np.asarray(points, np.int64)[order], np.asarray(offsets, np.int64)[order]
    before = np.concatenate(([-1], point[:-1]))
    if (point <= before).any() or (point >= file_size).any():
        return (READ_WHOLE,) * len(point)
    starts = np.empty(len(point), np.int64)
    starts[order] = np.where((offset > before) & (offset <= point), offset, point)
    return tuple(starts.tolist())


_SAMPLED_ROWS = 32_768

INDEXED_FORMATS = frozenset({"PARQUET", "ORC"})
"""Avro files have no row groups."""

BATCH_ROWS = 262_144
"""The rows to decode at a time, so that a row group of any size needs little more memory than its keys."""

_BUFFER_BYTES = 4 * 1024 * 1024
_ORC_LONG_TYPE = b"iceberg.long-type"
# Older PyArrow releases wrap timestamps that exceed 64-bit nanoseconds, instead of refusing them.
_ORC_TIMESTAMPS_ARE_CHECKED = int(pa.__version__.split(".")[0]) >= 26


@dataclass(frozen=True)
class OpenDataFile(ABC):
    """A data file whose footer agrees with the manifest, or some row groups of it, by their ordinals in the file.

    `row_group_offsets` are the starts of the byte ranges that read each row group alone. `has_pages` says whether an
    offset index tells where pages lie, so that they can be read alone.
    """

    file: DataFile
    row_counts: tuple[int, ...]
    row_group_offsets: tuple[int, ...]
    ordinals: Sequence[int]
    fields: FileFields
    reading: Reading
    has_pages: bool

    def choose(self, chosen: Sequence[int]) -> Self:
        """Choose row groups of the file by their ordinals; the bytes of the result are about theirs."""
        kept = tuple(ordinal for ordinal in chosen if ordinal < len(self.row_counts))
        row_counts = tuple(self.row_counts[ordinal] for ordinal in kept)
        size = self.file.file_size * sum(row_counts) // max(1, self.file.record_count)
        part = replace(self.file, file_size=size, record_count=sum(row_counts), split_offsets=())
        offsets = tuple(self.row_group_offsets[ordinal] for ordinal in kept)
        return replace(self, file=part, row_counts=row_counts, row_group_offsets=offsets, ordinals=kept)

    def locate(self, field_id: int) -> LocatedColumn:
        """Find a column of the table, or raise UnsupportedError if it is uncertain what Iceberg would read."""
        return locate_column(self.fields, self.reading, self.file.constants, field_id, self.file.path)

    def check_type(self, column: ColumnId, value_type: ValueType | None = None) -> None:
        """Check that Iceberg and Arrow read the same values from the file without a loss, or raise UnsupportedError."""
        path = self.locate(field_of(column)).path
        if isinstance(column, Contents) and column.part == "keys":
            value_type = None  # it would be taken for that of the map's values
        if path:
            check_stored(self._stored_type, path[-1], self.reading.schema, self.file.path, value_type)
            self._check_path(path)

    @abstractmethod
    def _stored_type(self, leaf: int) -> str: ...

    def _check_path(self, path: Sequence[FileField]) -> None:
        del path

    def fetch(self, row_groups: Sequence[int], field_id: int) -> None:
        """Begin to read a column from a store, as far as memory allows, for `read_column` in this order; none: stop."""
        del row_groups, field_id

    @abstractmethod
    def read_column(self, row_group: int, column: ColumnId) -> Iterator[pa.Array]:
        """Read a column, or a key of a map, in batches of rows, or raise OSError or pyarrow.ArrowException."""


@dataclass(frozen=True)
class OpenParquetFile(OpenDataFile):
    """A Parquet file."""

    _parquet: pq.ParquetFile

    def _stored_type(self, leaf: int) -> str:
        return parquet_type(self._parquet.schema, leaf)

    def fetch(self, row_groups: Sequence[int], field_id: int) -> None:
        """Begin to read a column of some row groups."""
        path = self.locate(field_id).path
        if path:
            fetch_columns(self._parquet, (), ((self.ordinals[one], path[-1].leaves) for one in row_groups))

    def read_column(self, row_group: int, column: ColumnId) -> Iterator[pa.Array]:
        """Read one column of one row group, some rows at a time."""
        path = self.locate(field_of(column)).path
        leaves = list(path[-1].leaves)
        # Columns are chosen by ordinals of leaves, as names may contain dots or occur twice.
        batches = self._parquet.reader.iter_batches(
            BATCH_ROWS, row_groups=[self.ordinals[row_group]], column_indices=leaves, use_threads=False
        )
        for batch in batches:
            values = batch.column(0)
            for _ in path[1:]:
                # Only one field of each struct was read. struct_field applies the parent's NULLs.
                values = pc.struct_field(values, [0])
            yield values_of_key(values, column.key) if isinstance(column, MapKey) else values


@dataclass(frozen=True)
class OpenOrcFile(OpenDataFile):
    """An ORC file; Arrow reads a column of a stripe as a whole."""

    _orc: ORCFile
    _leaf_types: tuple[str, ...]

    def _stored_type(self, leaf: int) -> str:
        return self._leaf_types[leaf]

    def _check_path(self, path: Sequence[FileField]) -> None:
        if any("." in field.field.name for field in path):
            raise UnsupportedError(f"data file {self.file.path}: ORC columns with a dot in the name cannot be read")
        stored = [child.field.type for child in path[-1].children or path[-1:]]
        is_temporal = any(map(pa.types.is_temporal, stored))
        if is_temporal and self.fields.rule is not Rule.FIELD_IDS:
            # Other writers count dates and times in a time zone and a calendar of their own.
            raise UnsupportedError(f"data file {self.file.path}: dates and times of an imported ORC file")
        if any(map(pa.types.is_timestamp, stored)) and not _ORC_TIMESTAMPS_ARE_CHECKED:
            raise UnsupportedError(f"data file {self.file.path}: ORC timestamps need PyArrow 26 or later")

    def read_column(self, row_group: int, column: ColumnId) -> Iterator[pa.Array]:
        """Read one column of one stripe."""
        path = self.locate(field_of(column)).path
        names = [field.field.name for field in path]
        leaf = path[-1].children[1] if isinstance(column, MapKey) else path[-1]
        batch = self._orc.read_stripe(self.ordinals[row_group], columns=[".".join(names)])
        rows = batch.column(0)
        for name in names[1:]:
            rows = pc.struct_field(rows, name)
        values = values_of_key(rows, column.key) if isinstance(column, MapKey) else rows
        # Iceberg stores times as plain numbers, and marks them beside the field id.
        is_time = (leaf.field.metadata or {}).get(_ORC_LONG_TYPE) == b"TIME"
        yield values.cast(pa.time64("us")) if is_time else values


def read_keys(opened: OpenDataFile, row_group: int, column: ColumnId, value_type: ValueType) -> Column:
    """Read the keys of a column, or of a key of a map, in one row group; all NULL if the file lacks the column.

    Raises UnsupportedError if values are not of this type or would lose something, BuildError if they cannot be read.
    """
    row_count, field_id = opened.row_counts[row_group], field_of(column)
    located = opened.locate(field_id)
    if located.constant is not None:
        return constant_column(located.constant, value_type, row_count)
    if not located.path:
        return column_of(pa.nulls(row_count), value_type)
    opened.check_type(column, value_type)
    try:
        return gather_column(opened.read_column(row_group, column), value_type, row_count)
    except (pa.ArrowException, OSError) as error:
        raise BuildError(str(error)) from error


def read_contents(
    opened: OpenDataFile, row_group: int, column: Contents, value_type: ValueType, block_rows: int = WORD_BLOCK_ROWS
) -> ContentColumn:
    """Read what the rows of a column contain in one row group; all are NULL if the file lacks the column.

    Raises what `read_keys` raises.
    """
    row_count, path = opened.row_counts[row_group], opened.locate(column.field_id).path
    if not path:
        alike = pa.nulls(row_count, pa.list_(pa.null()))
        if column.part == "words":
            # The texts may be the partition's.
            alike = plain_keys(read_keys(opened, row_group, column, value_type))
        return gather_contents([alike], column.part, value_type, row_count, block_rows)
    opened.check_type(column, value_type)
    try:
        return gather_contents(opened.read_column(row_group, column), column.part, value_type, row_count, block_rows)
    except (pa.ArrowException, OSError) as error:
        raise BuildError(str(error)) from error


def share_of_unique_words(table: Table, field_id: int) -> float:
    """Return how much of a text column's words, by length, occurs once in the first rows of a data file."""
    file = first_data_file(table)
    if file is None:
        return 0.0
    with open_data_file(table.io, file, reading_of(table)) as opened:
        if not opened.row_counts or not opened.locate(field_id).path:
            return 0.0
        texts = next(opened.read_column(0, field_id), pa.array([], pa.string()))
        words, counts = words_of(texts[:_SAMPLED_ROWS]).value_counts().flatten()
    lengths, counts = (np.asarray(own.to_numpy(), np.int64) for own in (pc.binary_length(words), counts))
    return float(lengths[counts == 1].sum() / max(lengths @ counts, 1))


def read_sorted(
    opened: OpenDataFile, row_group: int, column: ColumnId, value_type: ValueType, block_rows: int
) -> SortedColumn:
    """Read the keys of what an index is about, to be sorted; raises what `read_keys` raises."""
    if isinstance(column, Contents):
        return SortedContents(read_contents(opened, row_group, column, value_type, block_rows))
    return SortedColumn(read_keys(opened, row_group, column, value_type))


@contextmanager
def open_data_file(io: FileIO, file: DataFile, reading: Reading) -> Iterator[OpenDataFile]:
    """Read a data file's footer and check it against the manifest.

    Raises BuildError if it contradicts the manifest or is gone, UnsupportedError without row groups or known columns.
    """
    if file.format not in INDEXED_FORMATS:
        raise UnsupportedError(f"data file {file.path}: {file.format} files have no row groups")
    try:
        # ORC's reader asks for one piece after the other, which PyArrow's own files buffer.
        stream = open_stream(io, file.path, None if file.format == "ORC" else file.file_size)
    except FileNotFoundError as error:
        raise BuildError(f"data file not found: {file.path}") from error
    with cast(BinaryIO, stream):
        try:
            opened = (_open_orc if file.format == "ORC" else _open_parquet)(stream, file, reading)
        except FileNotFoundError as error:
            raise BuildError(f"data file not found: {file.path}") from error
        except (pa.ArrowException, OSError) as error:
            raise BuildError(f"data file {file.path} cannot be read as {file.format}: {error}") from error
        _check_rows(opened)
        yield opened


def _open_parquet(stream: ObjectStream | InputStream, file: DataFile, reading: Reading) -> OpenParquetFile:
    # A buffered stream avoids holding a whole column chunk in memory.
    parquet = parquet_file(stream, buffer_size=_BUFFER_BYTES)
    ordinals = range(parquet.metadata.num_row_groups)
    row_counts = tuple(parquet.metadata.row_group(ordinal).num_rows for ordinal in ordinals)
    fields = identify_fields(parquet.schema_arrow, file.format, reading.name_mapping)
    assert fields is not None
    if sum(len(field.leaves) for field in fields.fields) != len(parquet.schema):
        raise UnsupportedError(f"data file {file.path}: its columns are nested in a way that is not known")
    # Manifests may list offsets in another order than the row groups, or offsets that readers do not use.
    places, has_pages = row_group_places(parquet.metadata), has_offset_index(parquet.metadata)
    starts = (READ_WHOLE,) * len(ordinals) if places is None else range_starts(*places, file.file_size)
    return OpenParquetFile(file, row_counts, starts, ordinals, fields, reading, has_pages, parquet)


def _open_orc(stream: ObjectStream | InputStream, file: DataFile, reading: Reading) -> OpenOrcFile:
    orc = ORCFile(stream)
    fields = identify_fields(orc.schema, file.format, reading.name_mapping)
    if fields is None:
        raise UnsupportedError(
            f"data file {file.path}: the columns of this ORC file have no field ids, and the table has no name mapping"
        )
    offsets, row_counts, leaf_types = read_footer(orc)
    if sum(len(field.leaves) for field in fields.fields) != len(leaf_types):
        raise UnsupportedError(f"data file {file.path}: its columns are nested in a way that is not known")
    starts = range_starts(offsets, offsets, file.file_size)
    ordinals = range(len(row_counts))
    return OpenOrcFile(
        file, row_counts, starts, ordinals, fields, reading, has_pages=False, _orc=orc, _leaf_types=leaf_types
    )


def _check_rows(opened: OpenDataFile) -> None:
    file, rows = opened.file, sum(opened.row_counts)
    if rows != file.record_count:
        raise BuildError(f"data file {file.path} holds {rows} rows, its manifest entry says {file.record_count}")
    if file.split_offsets and len(file.split_offsets) != len(opened.row_counts):
        raise BuildError(
            f"data file {file.path} has {len(opened.row_counts)} row groups, its manifest entry lists "
            f"{len(file.split_offsets)} split offsets"
        )
