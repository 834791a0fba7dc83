"""What Iceberg reads from a table's data files, row by row: a model that is written apart from the planner.

Files are read as they are, by pyarrow, and each column is looked for by the rule of Iceberg's readers (`ReadConf`,
`ParquetSchemaUtil`, `PartitionUtil.constantsMap`):

1. A column that an identity partition of the file fixes is that constant.
2. Else, if any field of the file has a field id, the column is the field of its id.
3. Else, if the table has a name mapping, it is the field that has one of the mapped names.
4. Else the fields of the file are columns 1, 2, 3 … in their order.
5. What the file lacks is the column's initial default, or NULL.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IcebergType, IntegerType, LongType, NestedField, StringType, StructType, TimestamptzType

from tests.oracle import Row

NAME_MAPPING = "schema.name-mapping.default"
_STORED: dict[type[IcebergType], tuple[pa.DataType, ...]] = {
    IntegerType: (pa.int32(), pa.int16()),
    LongType: (pa.int32(), pa.int64(), pa.int16()),
    StringType: (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())),
    TimestamptzType: (pa.timestamp("us", "UTC"),),
}


class OddFileError(Exception):
    """Iceberg's readers fail on the file, or what they do is no rule."""


@dataclass(frozen=True)
class LeafColumn:
    """A column of one value a row, at the top or in a struct; `name` and `ids` are those of all that leads to it."""

    name: str
    ids: tuple[int, ...]
    field: NestedField


def leaf_columns(fields: Iterable[NestedField], name: str = "", ids: tuple[int, ...] = ()) -> Iterator[LeafColumn]:
    for field in fields:
        path = (*ids, field.field_id)
        if isinstance(field.field_type, StructType):
            yield from leaf_columns(field.field_type.fields, f"{name}{field.name}.", path)
        else:
            yield LeafColumn(name + field.name, path, field)


@dataclass(frozen=True)
class LiveFile:
    """A data file of a snapshot, what its identity partitions fix by field id, and positions of deleted rows."""

    file: DataFile
    constants: dict[int, Any]
    deleted: frozenset[int]

    @cached_property
    def stored(self) -> pa.Table:
        return _read(self.file.file_path)[0]

    @property
    def row_groups(self) -> list[range]:
        return _read(self.file.file_path)[1]

    def rows(self, columns: Iterable[LeafColumn], mapping: str | None) -> list[Row]:
        """The rows as a scan reads some columns of them, deleted ones included.

        Args:
            columns: The columns; names of the rows are theirs.
            mapping: The table's name mapping as it has it, None if it has none.

        Raises:
            OddFileError: If one of them has no value that is certain.
        """
        ids = _FieldIds(self.stored.schema, mapping)
        found = {column.name: self._values(column, ids) for column in columns}
        return [dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True)]

    def _values(self, column: LeafColumn, ids: _FieldIds) -> list[Any]:
        count, field_id = self.stored.num_rows, column.field.field_id
        if field_id in self.constants:
            if len(column.ids) > 1:
                raise OddFileError("a constant inside of a struct")
            return [self.constants[field_id]] * count
        place = ids.find(column.ids)
        if place is None:
            if len(column.ids) > 1 and column.field.initial_default is not None:
                raise OddFileError("a default inside of a struct")
            return [column.field.initial_default] * count
        field = self.stored.schema.field(place[0])
        values = self.stored.column(place[0]).to_pylist()
        for ordinal in place[1:]:
            field = field.type.field(ordinal)
            values = [None if value is None else value[field.name] for value in values]
        if field.type not in _STORED[type(column.field.field_type)]:
            raise OddFileError(f"{column.name} is stored as {field.type}")
        return values


@cache
def _read(path: str) -> tuple[pa.Table, list[range]]:
    with pq.ParquetFile(urlparse(path).path) as file:
        groups, start = [], 0
        for number in range(file.num_row_groups):
            stop = start + file.metadata.row_group(number).num_rows
            groups.append(range(start, stop))
            start = stop
        return file.read(), groups


class _FieldIds:
    def __init__(self, schema: pa.Schema, mapping: str | None) -> None:
        self.schema = schema
        self.has_ids = any(_own_id(field) is not None for field in _all(schema))
        self.by_name = None if mapping is None else dict(_mapped(json.loads(mapping), ""))

    def of(self, field: pa.Field, ordinal: int, above: str) -> int | None:
        if self.has_ids:
            return _own_id(field)
        if self.by_name is not None:
            return self.by_name.get(above + field.name)
        return None if above else ordinal + 1

    def find(self, path: tuple[int, ...]) -> tuple[int, ...] | None:
        """The ordinals that lead to a column; None if the file lacks it."""
        everywhere = list(self._walk(self.schema, "", (), ()))
        if not self.has_ids and self.by_name is None and len(path) > 1:
            raise OddFileError("a field of a struct by its position")
        found = [place for ids, place in everywhere if ids == path]
        elsewhere = [ids for ids, _ in everywhere if ids[-1] == path[-1] and ids != path]
        prefixes = [ids for ids, _ in everywhere if ids == path[: len(ids)]]
        if elsewhere or len(set(prefixes)) < len(prefixes):
            raise OddFileError("an id twice, or in another place")
        return found[0] if found else None

    def _walk(
        self, fields: Iterable[pa.Field], above: str, ids: tuple[int | None, ...], place: tuple[int, ...]
    ) -> Iterator[tuple[tuple[int | None, ...], tuple[int, ...]]]:
        for ordinal, field in enumerate(fields):
            path, here = (*ids, self.of(field, ordinal, above)), (*place, ordinal)
            yield path, here
            if pa.types.is_struct(field.type):
                yield from self._walk(field.type, f"{above}{field.name}.", path, here)


def _all(fields: Iterable[pa.Field]) -> Iterator[pa.Field]:
    for field in fields:
        yield field
        if pa.types.is_struct(field.type):
            yield from _all(field.type)


def _own_id(field: pa.Field) -> int | None:
    text = (field.metadata or {}).get(b"PARQUET:field_id")
    return None if text is None else int(text)


def _mapped(level: list[dict[str, Any]], above: str) -> Iterator[tuple[str, int]]:
    for entry in level:
        for name in entry["names"]:
            if "field-id" in entry:
                yield above + name, entry["field-id"]
            yield from _mapped(entry.get("fields", []), f"{above}{name}.")


def schema_at(table: Table, snapshot_id: int | None) -> Schema:
    """The schema of a scan: the table's, or that of a snapshot that is named."""
    if snapshot_id is None:
        return table.schema()
    snapshot = table.snapshot_by_id(snapshot_id)
    assert snapshot is not None
    return table.schemas()[snapshot.schema_id] if snapshot.schema_id is not None else table.schema()


def live_files(table: Table, snapshot_id: int | None) -> list[LiveFile]:
    """The data files of a snapshot, None for the current one, with what is deleted from them."""
    snapshot = table.current_snapshot() if snapshot_id is None else table.snapshot_by_id(snapshot_id)
    data: list[tuple[int, DataFile]] = []
    deletes: list[tuple[int, str, int]] = []
    for manifest in snapshot.manifests(table.io) if snapshot else ():
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            number, file = entry.sequence_number or 0, entry.data_file
            if file.content == DataFileContent.DATA:
                data.append((number, file))
            else:
                found = pq.read_table(urlparse(file.file_path).path).to_pylist()
                deletes += [(number, row["file_path"], row["pos"]) for row in found]
    live: list[LiveFile] = []
    for number, file in data:
        fields = table.specs()[file.spec_id].fields
        identities = [(at, one) for at, one in enumerate(fields) if isinstance(one.transform, IdentityTransform)]
        deleted = {position for since, path, position in deletes if path == file.file_path and since >= number}
        constants = {one.source_id: file.partition[at] for at, one in identities}
        live.append(LiveFile(file, constants, frozenset(deleted)))
    return live
