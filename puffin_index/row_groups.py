"""The row groups of an opened data file, read one column at a time: Parquet row groups and ORC stripes alike."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.orc import ORCFile
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.types import MapType

from puffin_index.data_table import DataFile
from puffin_index.errors import BuildError, UnsupportedError
from puffin_index.map_key import ColumnId, MapKey, values_of_key
from puffin_index.values import Column, ValueType, column_of, gather_column

INDEXED_FORMATS = frozenset({"PARQUET", "ORC"})
"""Avro files have no row groups."""

BATCH_ROWS = 262_144
"""Rows that are decoded at a time, so that a row group of any size needs little more than its keys."""

_BUFFER_BYTES = 4 * 1024 * 1024
_ORC_FIELD_ID = b"iceberg.id"
_ORC_LONG_TYPE = b"iceberg.long-type"
_FIRST_STRIPE_OFFSET = 3
"""ORC files begin with three bytes of magic."""
# Older releases wrap timestamps around that nanoseconds since 1970 cannot hold, instead of refusing them.
_ORC_TIMESTAMPS_ARE_CHECKED = int(pa.__version__.split(".")[0]) >= 26


class RowGroups(Protocol):
    """A data file and its row groups."""

    @property
    def file(self) -> DataFile:
        """The data file."""

    @property
    def row_counts(self) -> tuple[int, ...]:
        """Rows of each row group."""

    @property
    def row_group_offsets(self) -> tuple[int, ...]:
        """Start of each row group in the file, in bytes."""


class OpenDataFile(RowGroups, Protocol):
    """A data file whose footer has been read and agrees with the manifest."""

    def has_column(self, field_id: int) -> bool:
        """Whether the file itself holds a column."""

    def check_map(self, field_id: int) -> None:
        """Check that a column is a map here, where the file has it.

        Raises:
            UnsupportedError: If it is something else.
        """

    def read_column(self, row_group: int, field_id: int, map_key: str | None = None) -> Iterator[pa.Array]:
        """Read one column of one row group, some rows at a time.

        Args:
            row_group: Its ordinal in the file.
            field_id: The column, which the file has; may be a leaf of structs.
            map_key: Read the values of this key of a map (`puffin_index.map_key`).

        Raises:
            UnsupportedError: If values of this file cannot be read without a loss.
            OSError: If the bytes cannot be read or decoded; `pyarrow.ArrowException` likewise.
        """


@dataclass(frozen=True, slots=True)
class OpenParquetFile:
    """A Parquet file."""

    file: DataFile
    row_counts: tuple[int, ...]
    row_group_offsets: tuple[int, ...]
    _parquet: pq.ParquetFile
    _schema: Schema

    def has_column(self, field_id: int) -> bool:
        """Whether the file itself holds a column."""
        return self._schema.find_column_name(field_id) is not None

    def check_map(self, field_id: int) -> None:
        """Check that a column is a map here, where the file has it."""
        if self.has_column(field_id) and not isinstance(self._schema.find_type(field_id), MapType):
            raise _no_map(self.file, field_id)

    def read_column(self, row_group: int, field_id: int, map_key: str | None = None) -> Iterator[pa.Array]:
        """Read one column of one row group, some rows at a time."""
        name = self._schema.find_column_name(field_id)
        if name is None:
            raise UnsupportedError(f"data file {self.file.path} has no column of field id {field_id}")
        path = name.split(".")
        batches = self._parquet.iter_batches(BATCH_ROWS, row_groups=[row_group], columns=[name], use_threads=False)
        for batch in batches:
            values = _leaf(batch.column(path[0]), path[1:])
            yield values if map_key is None else values_of_key(values, map_key)


@dataclass(frozen=True, slots=True)
class OpenOrcFile:
    """An ORC file; Arrow reads a column of a stripe as a whole."""

    file: DataFile
    row_counts: tuple[int, ...]
    row_group_offsets: tuple[int, ...]
    _orc: ORCFile
    _paths: dict[int, tuple[pa.Field, ...]]

    def has_column(self, field_id: int) -> bool:
        """Whether the file itself holds a column."""
        return field_id in self._paths

    def check_map(self, field_id: int) -> None:
        """Check that a column is a map here, where the file has it."""
        if self.has_column(field_id) and not pa.types.is_map(self._paths[field_id][-1].type):
            raise _no_map(self.file, field_id)

    def read_column(self, row_group: int, field_id: int, map_key: str | None = None) -> Iterator[pa.Array]:
        """Read one column of one stripe."""
        path = self._paths[field_id]
        names = [field.name for field in path]
        leaf = path[-1] if map_key is None else path[-1].type.item_field
        if any("." in name for name in names):
            raise UnsupportedError(f"data file {self.file.path}: ORC columns with a dot in the name cannot be read")
        if pa.types.is_timestamp(leaf.type) and not _ORC_TIMESTAMPS_ARE_CHECKED:
            raise UnsupportedError(f"data file {self.file.path}: ORC timestamps need PyArrow 26 or later")
        batch = self._orc.read_stripe(row_group, columns=[".".join(names)])
        rows = _leaf(batch.column(0), names[1:])
        values = rows if map_key is None else values_of_key(rows, map_key)
        # Iceberg stores times as plain numbers, and says so beside the field id.
        is_time = (leaf.metadata or {}).get(_ORC_LONG_TYPE) == b"TIME"
        yield values.cast(pa.time64("us")) if is_time else values


def _no_map(file: DataFile, field_id: int) -> UnsupportedError:
    return UnsupportedError(f"data file {file.path}: column {field_id} is no map there")


def _leaf(column: pa.Array, path: list[str]) -> pa.Array:
    for part in path:
        # struct_field takes the parent's NULLs along.
        column = pc.struct_field(column, part)
    return column


def read_keys(opened: OpenDataFile, row_group: int, column: ColumnId, value_type: ValueType) -> Column:
    """Read the keys of one column, or of one key of a map, of one row group; NULLs where the file lacks the column.

    Raises:
        UnsupportedError: If the values are none of this type, or cannot be read without a loss.
        BuildError: If the bytes cannot be read or decoded.
    """
    row_count = opened.row_counts[row_group]
    field_id, map_key = (column.field_id, column.key) if isinstance(column, MapKey) else (column, None)
    if not opened.has_column(field_id):
        return column_of(pa.nulls(row_count), value_type)
    try:
        return gather_column(opened.read_column(row_group, field_id, map_key), value_type, row_count)
    except (pa.ArrowException, OSError) as error:
        raise BuildError(str(error)) from error


@contextmanager
def open_data_file(io: FileIO, file: DataFile, name_mapping: NameMapping | None = None) -> Iterator[OpenDataFile]:
    """Read a data file's footer and check it against what the manifest says.

    Raises:
        BuildError: If the file is not there or is not what the manifest describes.
        UnsupportedError: If it has no row groups, or its columns have no field ids.
    """
    if file.format not in INDEXED_FORMATS:
        raise UnsupportedError(f"data file {file.path}: {file.format} files have no row groups")
    try:
        stream = io.new_input(file.path).open(seekable=True)
    except FileNotFoundError as error:
        raise BuildError(f"data file not found: {file.path}") from error
    with stream:
        try:
            opened = _open_orc(stream, file) if file.format == "ORC" else _open_parquet(stream, file, name_mapping)
        except (pa.ArrowException, OSError) as error:
            raise BuildError(f"data file {file.path} cannot be read as {file.format}: {error}") from error
        _check_rows(opened)
        yield opened


def _open_parquet(stream: object, file: DataFile, name_mapping: NameMapping | None) -> OpenParquetFile:
    # A buffered stream keeps a column chunk from being held as a whole.
    parquet = pq.ParquetFile(stream, pre_buffer=False, buffer_size=_BUFFER_BYTES)
    groups = [parquet.metadata.row_group(i) for i in range(parquet.metadata.num_row_groups)]
    offsets = file.split_offsets or tuple(_row_group_offset(group) for group in groups)
    try:
        schema = pyarrow_to_schema(parquet.schema_arrow, name_mapping=name_mapping)
    except (ValueError, TypeError) as error:
        raise UnsupportedError(f"data file {file.path}: its columns cannot be matched to field ids: {error}") from error
    return OpenParquetFile(file, tuple(group.num_rows for group in groups), offsets, parquet, schema)


def _row_group_offset(group: pq.RowGroupMetaData) -> int:
    first = group.column(0)
    dictionary: int | None = first.dictionary_page_offset
    return min(first.data_page_offset, dictionary) if dictionary else int(first.data_page_offset)


def _open_orc(stream: object, file: DataFile) -> OpenOrcFile:
    orc = ORCFile(stream)
    paths = dict(_field_paths((), orc.schema))
    if not paths:
        # Files from elsewhere may have timestamps in a time zone of their own as well.
        raise UnsupportedError(f"data file {file.path}: the columns of this ORC file have no field ids")
    if not file.split_offsets and orc.nstripes > 1:
        raise UnsupportedError(f"data file {file.path}: its manifest entry lists no split offsets")
    offsets = file.split_offsets or (_FIRST_STRIPE_OFFSET,) * orc.nstripes
    return OpenOrcFile(file, _stripe_rows(orc), offsets, orc, paths)


def _stripe_rows(orc: ORCFile) -> tuple[int, ...]:
    """Arrow tells rows of a stripe by reading it only: the narrowest top-level column does."""
    if orc.nstripes == 1:
        return (orc.nrows,)
    column = min(orc.schema, key=lambda field: (pa.types.is_nested(field.type), _width_bits(field.type)))
    return tuple(orc.read_stripe(stripe, columns=[column.name]).num_rows for stripe in range(orc.nstripes))


def _width_bits(arrow_type: pa.DataType) -> int:
    try:
        return int(arrow_type.bit_width)
    except ValueError:
        return 1 << 16


def _field_paths(
    above: tuple[pa.Field, ...], fields: pa.Schema | pa.StructType
) -> Iterator[tuple[int, tuple[pa.Field, ...]]]:
    """The field ids outside of lists and maps, and where each column is."""
    for field in fields:
        path = (*above, field)
        if pa.types.is_struct(field.type):
            yield from _field_paths(path, field.type)
        field_id = (field.metadata or {}).get(_ORC_FIELD_ID, b"")
        if field_id.isdigit():
            yield int(field_id), path


def _check_rows(opened: OpenDataFile) -> None:
    file, rows = opened.file, sum(opened.row_counts)
    if rows != file.record_count:
        raise BuildError(f"data file {file.path} holds {rows} rows, its manifest entry says {file.record_count}")
    if file.split_offsets and len(file.split_offsets) != len(opened.row_counts):
        raise BuildError(
            f"data file {file.path} has {len(opened.row_counts)} row groups, its manifest entry lists "
            f"{len(file.split_offsets)} split offsets"
        )
