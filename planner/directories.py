"""Directories of a whole index view: of each (column, kind) as arrays with one element per row group.

A directory in a segment has one row per row group or merged blob of that segment. Here the directories of all segments
are put together and laid out by the row groups of the view.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from puffin_index.directory import int64_column
from puffin_index.kinds.postings import POSTINGS
from puffin_index.storage import ReadCount
from puffin_index.values import ValueType, value_type_named

Int64Array: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
KeyArray: TypeAlias = Int64Array | pa.LargeBinaryArray

STATISTICS_COLUMNS = ("row_count", "null_count", "distinct_count", "minimum", "maximum", "quantiles")
DIRECTORY_COLUMNS = ("row_groups", "offset", "length", "blob_type", "layout")


@dataclass(frozen=True, slots=True)
class IndexTrouble:
    """A part of the index that could not be used, and why; its row groups are kept."""

    segment: str
    reason: str


@dataclass(slots=True)
class IndexReads:
    """What one plan reads of the index, and what it could not read.

    Attributes:
        count: Requests and bytes.
        troubles: Parts that could not be used.
    """

    count: ReadCount = field(default_factory=ReadCount)
    troubles: list[IndexTrouble] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class FieldStatistics:
    """The statistics of one column for every row group of the view.

    Attributes:
        value_type: The type that the keys belong to.
        known: Whether there are statistics for the row group; all else is meaningless where there are none.
        row_count: Rows.
        null_count: NULL rows.
        distinct_count: Distinct keys, NULL not counted.
        minimum: Least key; undefined where all rows are NULL.
        maximum: Greatest key (NaN counts as one).
        quantiles: Keys at evenly spaced ranks, shape (N, Q) int64; None where keys are bytes.
    """

    value_type: ValueType
    known: BoolArray
    row_count: Int64Array
    null_count: Int64Array
    distinct_count: Int64Array
    minimum: KeyArray
    maximum: KeyArray
    quantiles: npt.NDArray[np.int64] | None

    @property
    def value_count(self) -> Int64Array:
        """Rows that are not NULL."""
        return self.row_count - self.null_count


@dataclass(frozen=True, slots=True)
class KindDirectory:
    """Where the payloads of one (column, kind) lie, for every row group of the view.

    Attributes:
        kind: The kind's name.
        value_type: The type that it was built for.
        segment: Number of the segment in `IndexView.segments`; -1 where there is no payload.
        base: First row of the row group in the segment's row space.
        offset: Start of the payload in the segment, in bytes.
        length: Its bytes.
        blob_type: Its Puffin blob type.
        layout: The kind's own numbers, one list per row group.
        merged: Whether the payload covers all row groups of its segment (sorted postings).
    """

    kind: str
    value_type: ValueType
    segment: npt.NDArray[np.int32]
    base: Int64Array
    offset: Int64Array
    length: Int64Array
    blob_type: pa.StringArray
    layout: pa.LargeListArray
    merged: BoolArray

    @property
    def known(self) -> BoolArray:
        """Whether there is a payload for the row group."""
        return self.segment >= 0


@dataclass(frozen=True, slots=True)
class Placement:
    """Which row group of which segment each row group of the view is, for one (field, kind)."""

    segment: npt.NDArray[np.int32]
    row_group: npt.NDArray[np.int32]
    base: Int64Array
    locations: dict[int, tuple[int, int, str]]


@dataclass(frozen=True, slots=True)
class _Gathered:
    """Directory rows by row group of the view; meaningless where `known` is false."""

    table: pa.Table
    known: BoolArray
    value_type: ValueType


def _gather(placement: Placement, batches: Mapping[int, pa.RecordBatch]) -> _Gathered | None:
    """Concatenate directories of one value type and lay their rows out by row group."""
    value_types = [batch.schema.metadata[b"value-type"] for batch in batches.values()]
    if not value_types:
        return None
    # A column promoted between builds has directories of two types; those of the newest are used.
    chosen = {s: b for s, b in batches.items() if b.schema.metadata[b"value-type"] == value_types[-1]}
    start = np.full(max(batches) + 2, -1, np.int64)
    row_of: list[Int64Array] = []
    row_groups = rows = 0
    for segment, batch in chosen.items():
        start[segment] = row_groups
        row_of.append(rows_of_row_groups(batch) + rows)
        row_groups += len(row_of[-1])
        rows += len(batch)
    # Index -1 (no segment) hits the last element, which stays -1.
    segments = np.where(np.isin(placement.segment, list(chosen)), placement.segment, -1)
    known = start[segments] >= 0
    at = np.where(known, start[segments] + placement.row_group, 0)
    table = pa.Table.from_batches(list(chosen.values())).take(pa.array(np.concatenate(row_of)[at]))
    return _Gathered(table.combine_chunks(), known, value_type_named(value_types[-1].decode()))


def gather_statistics(placement: Placement, batches: Mapping[int, pa.RecordBatch]) -> FieldStatistics | None:
    """Lay out the statistics of a column; None if no segment has any."""
    gathered = _gather(placement, batches)
    if gathered is None:
        return None
    table, is_int = gathered.table, gathered.value_type.domain == "int64"
    return FieldStatistics(
        value_type=gathered.value_type,
        known=gathered.known,
        row_count=int64_chunks(table, "row_count"),
        null_count=int64_chunks(table, "null_count"),
        distinct_count=int64_chunks(table, "distinct_count"),
        minimum=int64_chunks(table, "minimum") if is_int else _binary(table, "minimum"),
        maximum=int64_chunks(table, "maximum") if is_int else _binary(table, "maximum"),
        quantiles=_quantile_matrix(table["quantiles"].combine_chunks()) if is_int else None,
    )


def gather_directory(kind: str, placement: Placement, batches: Mapping[int, pa.RecordBatch]) -> KindDirectory | None:
    """Lay out where the payloads of a kind lie; None if no segment has any."""
    gathered = _gather(placement, batches)
    if gathered is None:
        return None
    blob_type = _one_chunk(gathered.table["blob_type"])
    return KindDirectory(
        kind=kind,
        value_type=gathered.value_type,
        segment=np.where(gathered.known, placement.segment, -1).astype(np.int32),
        base=placement.base,
        offset=int64_chunks(gathered.table, "offset"),
        length=int64_chunks(gathered.table, "length"),
        blob_type=blob_type,
        layout=_one_chunk(gathered.table["layout"]),
        merged=np.asarray(pc.equal(blob_type, POSTINGS).to_numpy(False), np.bool_),
    )


def rows_of_row_groups(batch: pa.RecordBatch) -> Int64Array:
    """For each row group of a segment the row of a directory that covers it: rows of merged blobs cover several."""
    if "row_groups" not in batch.schema.names:
        return np.arange(len(batch), dtype=np.int64)
    return np.repeat(np.arange(len(batch), dtype=np.int64), int64_column(batch, "row_groups"))


def int64_chunks(table: pa.Table, name: str) -> Int64Array:
    """A column of a table as int64 numbers (NULL as 0)."""
    batch = table.select([name]).combine_chunks()
    if batch.num_rows == 0:
        return np.zeros(0, np.int64)
    return int64_column(batch.to_batches()[0], name)


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined


def _binary(table: pa.Table, name: str) -> pa.LargeBinaryArray:
    return _one_chunk(pc.fill_null(table[name], b""))


def _quantile_matrix(quantiles: pa.LargeListArray) -> npt.NDArray[np.int64]:
    """Quantiles as one matrix; row groups without any (all NULL) get zeros, which their value count of 0 disarms."""
    array = _one_chunk(quantiles) if isinstance(quantiles, pa.ChunkedArray) else quantiles
    lengths = np.asarray(pc.list_value_length(array).to_numpy(zero_copy_only=False), np.int64)
    width = int(lengths.max(initial=0))
    matrix = np.zeros((len(lengths), width), np.int64)
    values = np.asarray(array.flatten().to_numpy(), np.int64)
    # Shorter lists (few distinct keys) repeat their last key.
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1])).astype(np.int64)[: len(lengths)]
    columns = np.minimum(np.arange(width)[None, :], np.maximum(lengths - 1, 0)[:, None])
    filled = lengths > 0
    matrix[filled] = values[(starts[:, None] + columns)[filled]]
    return matrix
