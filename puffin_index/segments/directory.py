"""Directories: the small columnar blobs that describe a segment. All code reads them through this module.

Each is one Arrow IPC stream with one record batch: statistics, places of payloads, and the list of row groups
(docs/formats.md, Directories).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from xxhash import xxh64_hexdigest

from puffin_index.errors import UnsupportedError
from puffin_index.keys.map_key import FieldKind, index_of, plain_kind, split_kind
from puffin_index.keys.value_types import ValueType, value_type_named
from puffin_index.kinds.base import OpenIndex, StoredPayload
from puffin_index.kinds.kind import IndexKind
from puffin_index.kinds.registry import KINDS
from puffin_index.kinds.statistics import ColumnStatistics
from puffin_index.storage.arrays import Ints
from puffin_index.storage.parts import corrupt
from puffin_index.storage.ranged import Blob, RangedReader

STATISTICS_BLOB = "puffin-index-statistics-v1"
DIRECTORY_BLOB = "puffin-index-directory-v1"
ROW_GROUPS_BLOB = "puffin-index-row-groups-v1"
STATISTICS = "statistics"
VERSION = b"1"

_LARGE_BYTES = 1 << 20

NUMBERS = ("first_row_group", "row_groups", "offset", "length")

DIRECTORY = pa.schema(
    [
        ("first_row_group", pa.int32()),
        ("row_groups", pa.int32()),
        ("offset", pa.int64()),
        ("length", pa.int64()),
        ("blob_type", pa.string()),
        ("layout", pa.large_list(pa.int64())),
    ]
)
"""The columns of the directory of an index, one row for each payload."""

ROW_GROUPS = pa.schema(
    [
        ("data_file", pa.string()),
        ("ordinal", pa.int32()),
        ("offset", pa.int64()),
        ("row_count", pa.int64()),
        ("base", pa.int64()),
    ]
)
"""The columns of the list of row groups, by which a segment alone tells what it covers."""


def is_statistics(kind: str) -> bool:
    """Return whether a stored kind is `statistics`, of a column or of one key of a map."""
    return plain_kind(kind) == STATISTICS


def statistics_key(key: FieldKind) -> FieldKind:
    """Return field id and stored kind of the statistics that belong to an index."""
    return index_of(split_kind(*key)[0], STATISTICS)


def index_kind(stored: str) -> IndexKind:
    """Return the kind of a stored index, or raise UnsupportedError if this release does not know the kind."""
    name = plain_kind(stored)
    if name not in KINDS:
        raise UnsupportedError(f"an index of kind {name}, which this release does not know; known: {', '.join(KINDS)}")
    return KINDS[name]


@dataclass(frozen=True, slots=True, eq=False)
class Directory:
    """The payloads of one index in a segment, one row each. Payloads cover every row group exactly once, in order.

    `type_name` is Iceberg's name of the type that the index of the stored kind was built for.
    """

    kind: str
    type_name: str
    batch: pa.RecordBatch
    location: str

    def __len__(self) -> int:
        return len(self.batch)

    @property
    def nbytes(self) -> int:
        """The memory of the columns, in bytes."""
        return int(self.batch.nbytes)

    @property
    def value_type(self) -> ValueType:
        """The type that the index was built for, or raise UnsupportedError if this release does not know the type."""
        return value_type_named(self.type_name)

    def numbers(self, name: str) -> Ints:
        """Return `first_row_group`, `row_groups`, `offset` or `length` of every payload."""
        return int64_column(self.batch, name)

    @property
    def blob_types(self) -> pa.StringArray:
        """The blob type of every payload."""
        return self.batch.column("blob_type")

    @property
    def row_group_count(self) -> int:
        """The number of row groups of the segment."""
        return int(self.numbers("row_groups").sum())

    def payload_of_row_groups(self) -> Ints:
        """Return the row of each row group's payload."""
        return np.repeat(np.arange(len(self)), self.numbers("row_groups"))

    def covered(self, row: int) -> slice:
        """Return the row groups of the segment that a payload covers."""
        first, count = self._at("first_row_group", row), self._at("row_groups", row)
        return slice(first, first + count)

    def payload(self, row: int, reader: RangedReader, spans: Ints) -> StoredPayload:
        """Return a payload without opening it; `spans` has base and row count of covered row groups: shape (n, 2)."""
        blob = Blob(reader, self._at("offset", row), self._at("length", row))
        layout = np.asarray(self.batch.column("layout")[row].values.to_numpy(), np.int64)
        return StoredPayload(blob, self.blob_types[row].as_py(), layout, self.value_type, spans)

    def open(self, row: int, reader: RangedReader, spans: Ints) -> OpenIndex:
        """Open a payload without reading it, or raise CorruptFileError, or UnsupportedError if it is not known."""
        return index_kind(self.kind).open(self.payload(row, reader, spans))

    def _at(self, name: str, row: int) -> int:
        return int(self.batch.column(name)[row].as_py())


def read_directory(reader: RangedReader, offset: int, length: int, checksum: str) -> Directory:
    """Read the directory of an index and check its xxh64, or raise CorruptFileError or UnsupportedError."""
    blob = Blob(reader, offset, length)
    return parse_directory(blob, _read(blob, checksum))


def read_statistics(
    reader: RangedReader, offset: int, length: int, checksum: str, columns: Sequence[str]
) -> pa.RecordBatch:
    """Read a column's statistics, one row per row group, and check the xxh64; errors are as for directories."""
    blob = Blob(reader, offset, length)
    return parse_batch(blob, _read(blob, checksum), columns)


def _read(blob: Blob, checksum: str) -> memoryview:
    data = blob.read_all()
    if xxh64_hexdigest(data) != checksum:
        raise corrupt(blob, "the directory's checksum does not match")
    return data


def parse_directory(blob: Blob, data: memoryview) -> Directory:
    """Parse the directory of an index, or raise CorruptFileError, or UnsupportedError for a later version."""
    batch = parse_batch(blob, data, DIRECTORY.names)
    kind, value_type = (metadata_of(blob, batch, name) for name in ("kind", "value-type"))
    if (reason := _flaw_of(batch)) is not None:
        raise corrupt(blob, f"a directory {reason}")
    return Directory(kind, value_type, batch, blob.location)


def _flaw_of(batch: pa.RecordBatch) -> str | None:
    """Return the flaw in the columns of a directory as text; None without a flaw."""
    for name in NUMBERS:
        if not pa.types.is_signed_integer(batch.schema.field(name).type):
            return f"whose {name} are no integers"
        if bool((int64_column(batch, name) < 0).any()):
            return f"with negative {name}"
    if not pa.types.is_string(batch.schema.field("blob_type").type) or batch.column("blob_type").null_count:
        return "whose blob_type are no texts"
    firsts, counts = int64_column(batch, "first_row_group"), int64_column(batch, "row_groups")
    if bool((counts < 1).any()) or not np.array_equal(firsts, np.cumsum(counts) - counts):
        return "that does not have every row group once"
    return None


def metadata_of(blob: Blob, batch: pa.RecordBatch, name: str) -> str:
    """Return `kind` or `value-type` of a directory or of statistics, or raise CorruptFileError if it is missing."""
    value = (batch.schema.metadata or {}).get(name.encode())
    if value is None:
        raise corrupt(blob, f"a directory without {name}")
    return str(value, "utf-8", "replace")


def parse_batch(blob: Blob, data: memoryview, columns: Sequence[str]) -> pa.RecordBatch:
    """Parse a directory blob with required columns: CorruptFileError, or UnsupportedError for a later version."""
    try:
        # A small batch is decompressed before threads could take it over.
        options = pa.ipc.IpcReadOptions(use_threads=len(data) > _LARGE_BYTES)
        with pa.ipc.open_stream(pa.py_buffer(data), options=options) as reader:
            batch = reader.read_next_batch()
        batch.validate(full=True)
    except (pa.ArrowException, OSError, StopIteration, ValueError) as error:
        raise corrupt(blob, f"not a directory: {error}") from error
    version = (batch.schema.metadata or {}).get(b"version", b"none")
    if version != VERSION:
        raise UnsupportedError(f"{blob.location}: directory of version {version!r}, this release reads version 1")
    missing = [name for name in columns if name not in batch.schema.names]
    if missing:
        raise corrupt(blob, f"directory without {', '.join(missing)}")
    return batch


def int64_column(batch: pa.RecordBatch, name: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return a column of a directory as int64 numbers (NULL as 0)."""
    column = batch.column(name)
    if column.null_count:
        column = column.fill_null(0)
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)


def serialize_statistics(statistics: Sequence[ColumnStatistics], value_type: ValueType) -> bytes:
    """Serialise the statistics of a column, one entry per row group of the segment in order."""
    key = pa.int64() if value_type.domain == "int64" else pa.large_binary()
    counts = [(name, pa.int64()) for name in ("row_count", "null_count", "nan_count", "distinct_count")]
    schema = pa.schema([*counts, ("minimum", key), ("maximum", key), ("quantiles", pa.large_list(key))])
    columns = [pa.array([getattr(own, column.name) for own in statistics], column.type) for column in schema]
    return serialize_batch(pa.record_batch(columns, schema=schema), {"value-type": value_type.name})


def serialize_batch(batch: pa.RecordBatch, metadata: dict[str, str]) -> bytes:
    """Serialise the rows of a directory with the metadata of the schema; the version is added to the metadata."""
    batch = batch.replace_schema_metadata({"version": VERSION, **metadata})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())
