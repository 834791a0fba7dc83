"""The data table, read only: its data files, their row groups, and the columns of a row group by field id."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.manifest import DataFile as IcebergDataFile
from pyiceberg.manifest import ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import MapType

from puffin_index.errors import BuildError, NotFoundError, UnsupportedError
from puffin_index.map_key import values_of_key


@dataclass(frozen=True, slots=True)
class DataFile:
    """One data file of the table; an index entry is used only if path, size and record count agree.

    Attributes:
        path: Its location.
        file_size: In bytes.
        record_count: Rows.
        split_offsets: Start of each row group in bytes, ascending; empty if the manifest does not say.
        format: `PARQUET`, `ORC` or `AVRO`; only Parquet files are indexed.
        has_deletes: Whether delete files apply to it in the snapshot that it was listed from.
    """

    path: str
    file_size: int
    record_count: int
    split_offsets: tuple[int, ...]
    format: str = "PARQUET"
    has_deletes: bool = False


def open_table(catalog: Catalog, identifier: tuple[str, ...]) -> Table:
    """Load a data table.

    Raises:
        NotFoundError: If it is not there.
    """
    try:
        return catalog.load_table(identifier)
    except (NoSuchTableError, NoSuchNamespaceError) as error:
        raise NotFoundError(f"there is no table {'.'.join(identifier)} in catalog {catalog.name!r}") from error


def refresh_table(table: Table) -> None:
    """Load the newest state of a table.

    Raises:
        NotFoundError: If it is gone, or another one has its name.
    """
    name = ".".join(table.name())
    try:
        table.refresh()
    except NoSuchTableError as error:
        raise NotFoundError(f"table {name} is gone") from error
    except ValueError as error:
        # This is how PyIceberg says that the UUID has changed.
        raise NotFoundError(f"table {name} was dropped and created anew: {error}") from error


def constant_fields(table: Table) -> frozenset[int]:
    """Columns whose value may be a constant where a data file lacks them: identity partitions, and initial defaults."""
    partitions = {
        field.source_id
        for spec in table.specs().values()
        for field in spec.fields
        if isinstance(field.transform, IdentityTransform)
    }
    schema = table.schema()
    fields = (schema.find_field(field_id) for field_id in schema.field_ids)
    return frozenset(partitions | {field.field_id for field in fields if field.initial_default is not None})


def list_data_files(
    table: Table, snapshot_id: int | None = None, row_filter: BooleanExpression | None = None
) -> tuple[DataFile, ...]:
    """List the data files of a snapshot that Iceberg's own pruning leaves.

    Args:
        table: The data table.
        snapshot_id: The snapshot, None for the current one.
        row_filter: Prunes partitions and files by Iceberg's metadata.

    Raises:
        NotFoundError: If the table has no such snapshot.
    """
    if snapshot_id is None and table.current_snapshot() is None:
        return ()
    if snapshot_id is not None and table.snapshot_by_id(snapshot_id) is None:
        raise NotFoundError(f"table {'.'.join(table.name())} has no snapshot {snapshot_id}")
    scan = table.scan(row_filter=row_filter or AlwaysTrue(), case_sensitive=False, snapshot_id=snapshot_id)
    return tuple(_data_file(task.file, bool(task.delete_files)) for task in scan.plan_files())


def retained_files(table: Table) -> dict[str, tuple[int, int]]:
    """Size in bytes and rows of the data files that any snapshot of the table holds, of whatever branch or tag."""
    manifests = {
        manifest.manifest_path: manifest
        for snapshot in table.snapshots()
        for manifest in snapshot.manifests(table.io)
        if manifest.content == ManifestContent.DATA
    }
    return {
        entry.data_file.file_path: (entry.data_file.file_size_in_bytes, entry.data_file.record_count)
        for manifest in manifests.values()
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    }


def _data_file(file: IcebergDataFile, has_deletes: bool) -> DataFile:
    return DataFile(
        path=file.file_path,
        file_size=file.file_size_in_bytes,
        record_count=file.record_count,
        split_offsets=tuple(file.split_offsets or ()),
        format=file.file_format.value,
        has_deletes=has_deletes,
    )


@dataclass(frozen=True, slots=True)
class OpenDataFile:
    """A data file whose footer has been read.

    Attributes:
        file: The data file.
        row_counts: Rows of each row group.
        row_group_offsets: Start of each row group in the file, in bytes.
    """

    file: DataFile
    row_counts: tuple[int, ...]
    row_group_offsets: tuple[int, ...]
    _parquet: pq.ParquetFile
    _schema: Schema

    def has_column(self, field_id: int) -> bool:
        """Whether the file itself holds a column."""
        return self._schema.find_column_name(field_id) is not None

    def check_map(self, field_id: int) -> None:
        """Check that a column is a map here, where the file has it.

        Raises:
            UnsupportedError: If it is something else.
        """
        if self.has_column(field_id) and not isinstance(self._schema.find_type(field_id), MapType):
            raise UnsupportedError(f"data file {self.file.path}: column {field_id} is no map there")

    def read_column(self, row_group: int, field_id: int, map_key: str | None = None) -> pa.Array | None:
        """Read one column of one row group.

        Args:
            row_group: Its ordinal in the file.
            field_id: The column; may be a leaf of structs.
            map_key: Read the values of this key of a map (`puffin_index.map_key`).

        Returns:
            An Arrow array with a row per row, or None if the file does not have the column (added to the table later).
        """
        name = self._schema.find_column_name(field_id)
        if name is None:
            return None
        path = name.split(".")
        column = self._parquet.read_row_group(row_group, columns=[name], use_threads=False).column(path[0])
        for part in path[1:]:
            # struct_field takes the parent's NULLs along.
            column = pc.struct_field(column, part)
        rows = column.combine_chunks()
        return rows if map_key is None else values_of_key(rows, map_key)


@contextmanager
def open_data_file(io: FileIO, file: DataFile, name_mapping: NameMapping | None = None) -> Iterator[OpenDataFile]:
    """Read a data file's footer and check it against what the manifest says.

    Raises:
        BuildError: If the file is not there or is not what the manifest describes.
    """
    try:
        stream = io.new_input(file.path).open(seekable=True)
    except FileNotFoundError as error:
        raise BuildError(f"data file not found: {file.path}") from error
    with stream:
        try:
            parquet = pq.ParquetFile(stream, pre_buffer=False)
        except (pa.ArrowInvalid, OSError) as error:
            raise BuildError(f"data file {file.path} cannot be read as Parquet: {error}") from error
        groups = [parquet.metadata.row_group(i) for i in range(parquet.metadata.num_row_groups)]
        row_counts = tuple(group.num_rows for group in groups)
        if sum(row_counts) != file.record_count:
            raise BuildError(
                f"data file {file.path} holds {sum(row_counts)} rows, its manifest entry says {file.record_count}"
            )
        if file.split_offsets and len(file.split_offsets) != len(row_counts):
            raise BuildError(
                f"data file {file.path} has {len(row_counts)} row groups, its manifest entry lists "
                f"{len(file.split_offsets)} split offsets"
            )
        offsets = file.split_offsets or tuple(_row_group_offset(group) for group in groups)
        try:
            schema = pyarrow_to_schema(parquet.schema_arrow, name_mapping=name_mapping)
        except (ValueError, TypeError) as error:
            raise UnsupportedError(
                f"data file {file.path}: its columns cannot be matched to field ids: {error}"
            ) from error
        yield OpenDataFile(file, row_counts, offsets, parquet, schema)


def _row_group_offset(group: pq.RowGroupMetaData) -> int:
    first = group.column(0)
    dictionary: int | None = first.dictionary_page_offset
    return min(first.data_page_offset, dictionary) if dictionary else int(first.data_page_offset)
