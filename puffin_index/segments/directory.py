"""Directories: the small columnar blobs that tell a planner what is in a segment.

Both are one Arrow IPC stream with one record batch (buffers zstd-compressed) and key/value metadata in its schema:

| blob type | one row per | columns |
| --- | --- | --- |
| `puffin-index-statistics-v1` | row group | `row_count`, `null_count`, `nan_count`, `distinct_count` int64; \
`minimum`, `maximum` key; `quantiles` list of keys |
| `puffin-index-directory-v1` | row group or merged blob | `first_row_group`, `row_groups` int32; `offset`, `length` \
int64; `blob_type` string; `layout` list of int64 |
| `puffin-index-row-groups-v1` | row group | `data_file`, `ordinal` int32, `offset` int64, `row_count`, `base` int64 |

A key is int64 or binary, by the domain of the column's value type (`puffin_index.keys.values`). `minimum` and `maximum`
are NULL and `quantiles` empty where a row group has only NULLs. Metadata: `version` = 1, `value-type` (statistics,
directory), `kind` (directory).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from xxhash import xxh64_hexdigest

from puffin_index.errors import CorruptFileError, UnsupportedError
from puffin_index.keys.map_key import kind_beside, plain_kind
from puffin_index.keys.values import ValueType
from puffin_index.kinds.base import Payload
from puffin_index.kinds.registry import ColumnStatistics
from puffin_index.storage.ranged import RangedReader

STATISTICS_BLOB = "puffin-index-statistics-v1"
DIRECTORY_BLOB = "puffin-index-directory-v1"
ROW_GROUPS_BLOB = "puffin-index-row-groups-v1"
STATISTICS = "statistics"
_VERSION = b"1"

FieldKind: TypeAlias = tuple[int, str]
"""Field id and stored kind of an index (`puffin_index.keys.map_key`)."""


def is_statistics(kind: str) -> bool:
    """Whether a stored kind is that of statistics, of a column or of one key of a map."""
    return plain_kind(kind) == STATISTICS


def statistics_key(key: FieldKind) -> FieldKind:
    """Return where the statistics are that belong to an index."""
    return key[0], kind_beside(STATISTICS, key[1])


@dataclass(frozen=True, slots=True)
class RowGroupEntry:
    """One row group of a segment.

    Attributes:
        data_file: Location of its data file.
        ordinal: Its place in the data file, from 0.
        offset: Its start in the data file, in bytes.
        row_count: Its rows.
        base: Its first row in the segment's row space, a multiple of 65,536.
    """

    data_file: str
    ordinal: int
    offset: int
    row_count: int
    base: int


@dataclass(frozen=True, slots=True)
class PlacedPayload:
    """A payload and where it lies in the segment's file.

    Attributes:
        row_group: The first row group that it covers.
        row_groups: How many it covers: one, or all where postings are merged.
        offset: In bytes.
        payload: The payload.
    """

    row_group: int
    row_groups: int
    offset: int
    payload: Payload


def key_arrow_type(value_type: ValueType) -> pa.DataType:
    """The Arrow type that holds keys of a value type."""
    return pa.int64() if value_type.domain == "int64" else pa.large_binary()


def serialize_statistics(statistics: Sequence[ColumnStatistics], value_type: ValueType) -> bytes:
    """Serialise the statistics of a column, one entry per row group of the segment in order."""
    key = key_arrow_type(value_type)
    batch = pa.record_batch(
        {
            "row_count": pa.array([s.row_count for s in statistics], pa.int64()),
            "null_count": pa.array([s.null_count for s in statistics], pa.int64()),
            "nan_count": pa.array([s.nan_count for s in statistics], pa.int64()),
            "distinct_count": pa.array([s.distinct_count for s in statistics], pa.int64()),
            "minimum": pa.array([s.minimum for s in statistics], key),
            "maximum": pa.array([s.maximum for s in statistics], key),
            "quantiles": pa.array([list(s.quantiles) for s in statistics], pa.large_list(key)),
        }
    )
    return serialize_batch(batch, {"value-type": value_type.name})


def serialize_directory(payloads: Sequence[PlacedPayload], kind: str, value_type: ValueType) -> bytes:
    """Serialise where the payloads of one kind of one column lie."""
    batch = pa.record_batch(
        {
            "first_row_group": pa.array([p.row_group for p in payloads], pa.int32()),
            "row_groups": pa.array([p.row_groups for p in payloads], pa.int32()),
            "offset": pa.array([p.offset for p in payloads], pa.int64()),
            "length": pa.array([len(p.payload.data) for p in payloads], pa.int64()),
            "blob_type": pa.array([p.payload.blob_type for p in payloads], pa.string()),
            "layout": pa.array([p.payload.layout for p in payloads], pa.large_list(pa.int64())),
        }
    )
    return serialize_batch(batch, {"kind": kind, "value-type": value_type.name})


def serialize_row_groups(row_groups: Sequence[RowGroupEntry]) -> bytes:
    """Serialise the row groups of a segment, so that a segment tells by itself what it covers."""
    batch = pa.record_batch(
        {
            "data_file": pa.array([r.data_file for r in row_groups], pa.string()),
            "ordinal": pa.array([r.ordinal for r in row_groups], pa.int32()),
            "offset": pa.array([r.offset for r in row_groups], pa.int64()),
            "row_count": pa.array([r.row_count for r in row_groups], pa.int64()),
            "base": pa.array([r.base for r in row_groups], pa.int64()),
        }
    )
    return serialize_batch(batch, {})


def serialize_batch(batch: pa.RecordBatch, metadata: dict[str, str]) -> bytes:
    """Serialise the rows of a directory, with the metadata of its schema but for the version."""
    batch = batch.replace_schema_metadata({"version": _VERSION, **metadata})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def read_directory(
    reader: RangedReader, offset: int, length: int, checksum: str, columns: Sequence[str]
) -> pa.RecordBatch:
    """Read a directory from a segment, with one ranged read.

    Args:
        reader: The segment.
        offset: Where the directory lies, in bytes.
        length: Its bytes.
        checksum: Their xxh64 as the index table has it, 16 hex digits.
        columns: The columns that must be there.

    Raises:
        CorruptFileError: If the bytes are not those that were written.
        UnsupportedError: If it is of a later version.
    """
    data = reader.read(offset, length)
    if xxh64_hexdigest(data) != checksum:
        raise CorruptFileError("the directory's checksum does not match", location=reader.location, offset=offset)
    return parse_directory(data, columns, location=reader.location, offset=offset)


def parse_directory(data: memoryview, columns: Sequence[str], *, location: str, offset: int) -> pa.RecordBatch:
    """Read any directory blob back.

    Args:
        data: The whole blob.
        columns: The columns that must be there.
        location: The file, for messages.
        offset: The blob's place in it.

    Raises:
        CorruptFileError: If the bytes are not such a blob.
        UnsupportedError: If it is of a later version.
    """
    try:
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            batch = reader.read_next_batch()
        batch.validate(full=True)
    except (pa.ArrowException, OSError, StopIteration, ValueError) as error:
        raise CorruptFileError(f"not a directory: {error}", location=location, offset=offset) from error
    version = (batch.schema.metadata or {}).get(b"version", b"none")
    if version != _VERSION:
        raise UnsupportedError(f"{location}: directory of version {version!r}, this release reads version 1")
    missing = [name for name in columns if name not in batch.schema.names]
    if missing:
        raise CorruptFileError(f"directory without {', '.join(missing)}", location=location, offset=offset)
    return batch


def int64_column(batch: pa.RecordBatch, name: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """A column of a directory as int64 numbers (NULL as 0)."""
    return np.asarray(batch.column(name).fill_null(0).to_numpy(zero_copy_only=False), dtype=np.int64)
