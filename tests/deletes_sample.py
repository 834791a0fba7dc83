"""Delete files committed to a real table: PyIceberg reads them, but writes none."""

import uuid
import zlib
from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestWriter, ManifestWriterV2
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record
from pyroaring import BitMap64

from puffin_index.formats.puffin import PuffinWriter


class _DeleteManifest(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _AppendDeletes(_FastAppendFiles):
    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter:
        return _DeleteManifest(spec, self.schema(), self.new_manifest_output(), self._snapshot_id, self._compression)


def commit_positional_deletes(
    table: Table, positions: Mapping[str, Iterable[int]], beside: DataFile | None = None
) -> str:
    """Delete rows by a delete file of the partition of the data file `beside`, or of none; return its location."""
    rows = [(path, position) for path, some in sorted(positions.items()) for position in sorted(some)]
    data = pa.table(
        {
            "file_path": pa.array([row[0] for row in rows], pa.string()),
            "pos": pa.array([row[1] for row in rows], pa.int64()),
        }
    )
    location = _new_location(table, "parquet")
    with table.io.new_output(location).create() as stream:
        pq.write_table(data, stream)
    _commit(table, location, FileFormat.PARQUET, DataFileContent.POSITION_DELETES, len(rows), beside)
    return location


def commit_deletion_vectors(table: Table, positions: Mapping[str, Iterable[int]]) -> str:
    """Delete rows by deletion vectors in one Puffin file; return its location."""
    location = _new_location(table, "puffin")
    with table.io.new_output(location).create() as stream:
        writer = PuffinWriter(stream, created_by="a test")
        for path, some in positions.items():
            properties = {"referenced-data-file": path, "cardinality": str(len(set(some)))}
            writer.add("deletion-vector-v1", deletion_vector(some), [2147483545], properties=properties)
        writer.finish()
    count = sum(len(set(some)) for some in positions.values())
    _commit(table, location, FileFormat.PUFFIN, DataFileContent.POSITION_DELETES, count)
    return location


def commit_equality_deletes(table: Table, keys: pa.Table, beside: DataFile | None = None) -> str:
    """Delete the rows that have the values of one of some rows, by the columns of these; return the file's location."""
    fields = [table.schema().find_field(name) for name in keys.column_names]
    schema = pa.schema(
        [
            column.with_metadata({"PARQUET:field_id": str(field.field_id)})
            for column, field in zip(keys.schema, fields, strict=True)
        ]
    )
    location = _new_location(table, "parquet")
    with table.io.new_output(location).create() as stream:
        pq.write_table(keys.cast(schema), stream)
    ids = [field.field_id for field in fields]
    _commit(table, location, FileFormat.PARQUET, DataFileContent.EQUALITY_DELETES, len(keys), beside, ids)
    return location


def deletion_vector(positions: Iterable[int]) -> bytes:
    """The bytes of a deletion vector, with CRoaring's own 64-bit format."""
    body = bytes.fromhex("D1D33964") + BitMap64(positions).serialize()
    return len(body).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")


def _new_location(table: Table, ending: str) -> str:
    return f"{table.location()}/data/{uuid.uuid4().hex}-deletes.{ending}"


def _commit(
    table: Table,
    location: str,
    file_format: FileFormat,
    content: DataFileContent,
    count: int,
    beside: DataFile | None = None,
    equality_ids: list[int] | None = None,
) -> None:
    file = DataFile.from_args(
        content=content,
        file_path=location,
        file_format=file_format,
        partition=beside.partition if beside else Record(),
        record_count=count,
        file_size_in_bytes=len(table.io.new_input(location)),
        equality_ids=equality_ids,
    )
    file.spec_id = beside.spec_id if beside else 0
    with table.transaction() as transaction:
        append = _AppendDeletes(Operation.DELETE, transaction, table.io, branch="main")
        append.append_data_file(file)
        append.commit()
