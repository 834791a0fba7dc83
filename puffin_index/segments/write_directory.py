"""Serialise directories: statistics, places of payloads, and the list of row groups of a segment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from puffin_index.keys.value_types import ValueType
from puffin_index.kinds.base import Payload
from puffin_index.kinds.statistics import ColumnStatistics
from puffin_index.segments.directory import VERSION


@dataclass(frozen=True, slots=True)
class RowGroupEntry:
    """One row group of a segment.

    Attributes:
        data_file: The location of the data file.
        ordinal: The place of the row group in the data file, from 0.
        offset: The start of the row group in the data file, in bytes.
        row_count: The number of rows.
        base: The first row in the segment's row space, a multiple of 65,536.
    """

    data_file: str
    ordinal: int
    offset: int
    row_count: int
    base: int


@dataclass(frozen=True, slots=True)
class PlacedPayload:
    """A payload and its place in the segment's file.

    Attributes:
        row_group: The first covered row group.
        row_groups: The number of covered row groups: one, or more for merged payloads.
        offset: The start of the payload in the file, in bytes.
        payload: The payload.
    """

    row_group: int
    row_groups: int
    offset: int
    payload: Payload


def key_arrow_type(value_type: ValueType) -> pa.DataType:
    """Return the Arrow type for keys of a value type."""
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
    """Serialise the places of the payloads of one kind of one column."""
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
    """Serialise the list of row groups, so that a segment alone tells what it covers."""
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
    """Serialise the rows of a directory with the metadata of the schema; the version is added to the metadata."""
    batch = batch.replace_schema_metadata({"version": VERSION, **metadata})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())
