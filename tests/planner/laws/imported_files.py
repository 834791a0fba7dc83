"""Parquet files as other writers leave them, put into a table as they are, by a manifest entry of their own."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record


@dataclass(frozen=True)
class StoredField:
    """A field of a file, which may lack an id; a struct has values by the names of its fields, and numbers of these."""

    name: str
    values: list[Any]
    type: pa.DataType
    field_id: int | None = None
    children: tuple[int | None, ...] = ()

    def arrow(self) -> tuple[pa.Field, pa.Array]:
        arrow_type = self.type
        if pa.types.is_struct(arrow_type) and self.children:
            arrow_type = pa.struct(
                [_numbered(field, number) for field, number in zip(arrow_type, self.children, strict=True)]
            )
        return _numbered(pa.field(self.name, arrow_type), self.field_id), pa.array(self.values, arrow_type)


def _numbered(field: pa.Field, field_id: int | None) -> pa.Field:
    return field if field_id is None else field.with_metadata({"PARQUET:field_id": str(field_id)})


def write_parquet(path: Path, fields: Sequence[StoredField], row_group_rows: int, *, statistics: bool) -> None:
    """Write a file; the order of its fields is theirs."""
    arrow = [field.arrow() for field in fields]
    table = pa.Table.from_arrays([values for _, values in arrow], schema=pa.schema([field for field, _ in arrow]))
    pq.write_table(table, path, row_group_size=row_group_rows, write_statistics=statistics)


def commit_file(table: Table, path: str, partition: Record, spec_id: int, *, with_offsets: bool) -> None:
    """Put a file into a table, whatever it holds; the manifest has no bounds, as they are found by field ids."""
    with pq.ParquetFile(urlparse(path).path) as file:
        groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
        rows = file.metadata.num_rows
    offsets = [group.column(0).dictionary_page_offset or group.column(0).data_page_offset for group in groups]
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=rows,
        file_size_in_bytes=len(table.io.new_input(path)),
        split_offsets=offsets if with_offsets else None,
    )
    file.spec_id = spec_id
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(file)


def remove_file(table: Table, file: DataFile) -> None:
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as overwrite:
        overwrite.delete_data_file(file)
