"""Directories of a whole view: those of all segments, of each (column, kind), with one element per row group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from planner.view.cache import SharedPayloads
from puffin_index.errors import reason_at
from puffin_index.keys.columns import KeyArray, chosen_keys
from puffin_index.keys.map_key import ColumnId
from puffin_index.keys.value_types import ValueType, value_type_named
from puffin_index.kinds.registry import kind_named
from puffin_index.segments.directory import Directory, int64_column
from puffin_index.storage.arrays import Flags, Ints, Selection
from puffin_index.storage.files import ReadCount

Groups: TypeAlias = list[tuple[int, Ints]]
Number = TypeVar("Number", int, Ints)

STATISTICS_COLUMNS = ("row_count", "null_count", "distinct_count", "minimum", "maximum", "quantiles")
LAST_STEP = 65_535
_MOST_QUANTILES = 255


@dataclass(frozen=True, slots=True)
class IndexTrouble:
    """A part of the index that could not be used, and why; its row groups are kept."""

    segment: str
    reason: str

    @classmethod
    def of(cls, segment: str, error: Exception) -> IndexTrouble:
        """What an error says about a segment."""
        return cls(segment, reason_at(segment, error))

    def __str__(self) -> str:
        return f"{self.segment}: {self.reason}"


@dataclass(slots=True)
class IndexReads:
    """What one plan reads of the index, which parts it could not use, and what it keeps open for later questions."""

    count: ReadCount = field(default_factory=ReadCount)
    troubles: list[IndexTrouble] = field(default_factory=list)
    shared: SharedPayloads | None = None


@dataclass(frozen=True, slots=True, eq=False)
class FieldStatistics:
    """The statistics of one column, of one segment or for every row group of a view.

    Attributes:
        known: Whether there are statistics for the row group; the other arrays are meaningless elsewhere.
        distinct_count: Distinct keys, NULL not counted.
        minimum: Least key; undefined where all rows are NULL.
        maximum: Greatest key (NaN is the greatest).
        quantiles: Keys at evenly spaced ranks as steps from minimum (0) to maximum, see `steps_of`, shape
            (Q, N) uint16, Q at most 255: enough for estimates, in a quarter of the space. None where keys are bytes.
    """

    value_type: ValueType
    known: Flags
    row_count: Ints
    null_count: Ints
    distinct_count: Ints
    minimum: KeyArray
    maximum: KeyArray
    quantiles: npt.NDArray[np.uint16] | None

    @property
    def row_group_count(self) -> int:
        """N."""
        return len(self.row_count)

    @property
    def value_count(self) -> Ints:
        """Rows that are not NULL."""
        return self.row_count - self.null_count

    @property
    def has_values(self) -> Flags:
        """Whether a row of the row group is known not to be NULL."""
        return self.known & (self.value_count > 0)

    @property
    def bounds(self) -> tuple[int, int] | None:
        """The least and the greatest key of all row groups; None where keys are bytes, or without values."""
        at = self.has_values
        if not isinstance(self.minimum, np.ndarray) or not isinstance(self.maximum, np.ndarray) or not at.any():
            return None
        return int(self.minimum[at].min()), int(self.maximum[at].max())

    @property
    def nbytes(self) -> int:
        """The memory in bytes."""
        arrays = [self.known, self.row_count, self.null_count, self.distinct_count, self.minimum, self.maximum]
        return sum(array.nbytes for array in arrays) + (0 if self.quantiles is None else self.quantiles.nbytes)


@dataclass(frozen=True, slots=True, eq=False)
class KindDirectory:
    """Where the payloads of one (column, kind) lie, for every row group of the view.

    Attributes:
        segment: Number of the segment in `IndexView.segments`; -1 where there is no payload.
        first: Number of the row group's first row in the segment's row space.
        base: The same in the answers of its payload: in the segment's row space if the payload is merged, else 0.
        entry: Row of the segment's directory that tells of the payload.
        merged: Whether it covers several row groups (sorted postings and the like), not just this one.
        blob: A number for the payload, the same for row groups that share one; -1 without one.
    """

    column: ColumnId
    kind: str
    value_type: ValueType
    segment: npt.NDArray[np.int32]
    first: Ints
    base: Ints
    entry: npt.NDArray[np.int32]
    offset: Ints
    length: Ints
    merged: Flags
    blob: Ints = field(init=False)

    def __post_init__(self) -> None:
        """Number the payloads: by segment, then by entry."""
        blob = self.segment.astype(np.int64) << 32 | self.entry
        blob[self.segment < 0] = -1
        object.__setattr__(self, "blob", blob)

    @property
    def known(self) -> Flags:
        """Whether there is a payload for the row group."""
        return self.segment >= 0

    @property
    def nbytes(self) -> int:
        """The memory in bytes."""
        numbers = (self.segment, self.base, self.entry, self.offset, self.length, self.merged, self.blob)
        return sum(array.nbytes for array in numbers)


@dataclass(frozen=True, slots=True)
class Placement:
    """Which row group of which segment (-1: none) each row group of the view is, for one (field, kind).

    `base` is its first row in the segment's row space; `locations` has offset, length and xxh64 of each directory.
    """

    segment: npt.NDArray[np.int32]
    row_group: npt.NDArray[np.int32]
    base: Ints
    locations: dict[int, tuple[int, int, str]]
    last_row_groups: npt.NDArray[np.int32]


def positions_by_number(numbers: Ints) -> Groups:
    """For each distinct number that is not negative, ascending, where it stands."""
    if not len(numbers):
        return []
    # Row groups are numbered file by file, so that those of a payload mostly follow one another.
    if bool((numbers[1:] >= numbers[:-1]).all()):
        order, ordered = np.arange(len(numbers)), numbers
    else:
        order = np.argsort(numbers, kind="stable")
        ordered = numbers[order]
    bounds = np.concatenate(([0], np.flatnonzero(ordered[1:] != ordered[:-1]) + 1))
    groups = np.split(order, bounds[1:])
    firsts = ordered[bounds].tolist()
    return [(first, here) for first, here in zip(firsts, groups, strict=True) if first >= 0]


def segment_of(blob: Number) -> Number:
    """The segment of a payload, by the payload's number; see `KindDirectory.blob`."""
    return blob >> 32


def selection_of(row_groups: Ints) -> Selection:
    """Row groups as an index into arrays: where they follow one another, a slice, which copies nothing."""
    count = len(row_groups)
    if count and row_groups[-1] - row_groups[0] == count - 1 and bool((row_groups[1:] > row_groups[:-1]).all()):
        return slice(int(row_groups[0]), int(row_groups[-1]) + 1)
    return row_groups


def selection_among(positions: Ints, count: int) -> Selection:
    """Ascending positions among `count` as an index into arrays: all of them as a slice, which copies nothing."""
    return slice(None) if len(positions) == count else positions


def segment_statistics(batch: pa.RecordBatch) -> FieldStatistics:
    """The statistics of a column in one segment, one element per row group of it."""
    value_type = value_type_named(batch.schema.metadata[b"value-type"].decode())
    is_int = value_type.domain == "int64"
    minimum, maximum = (_keys(batch, name, is_int) for name in ("minimum", "maximum"))
    quantiles = None
    if isinstance(minimum, np.ndarray) and isinstance(maximum, np.ndarray):
        matrix = _quantile_matrix(batch.column("quantiles"))[:, :_MOST_QUANTILES]
        quantiles = np.ascontiguousarray(steps_of(matrix, minimum, maximum).T)
    return FieldStatistics(
        value_type=value_type,
        known=np.ones(len(batch), np.bool_),
        row_count=int64_column(batch, "row_count"),
        null_count=int64_column(batch, "null_count"),
        distinct_count=int64_column(batch, "distinct_count"),
        minimum=minimum,
        maximum=maximum,
        quantiles=quantiles,
    )


def steps_of(keys: Ints, minimum: Ints, maximum: Ints) -> npt.NDArray[np.uint16]:
    """Say where keys lie between minimum and maximum, in steps.

    Where the two are at most 65,535 apart, a step is one; otherwise there are 65,535 steps between them. The order of
    keys is kept, though several may lie on one step. Keys have shape (N, Q) or (N,), the ends (N,).
    """
    column = (slice(None), *[None] * (keys.ndim - 1))
    low = minimum.view(np.uint64)[column]
    # Differences of int64 numbers fit into uint64, and modulo 2 ** 64 they are right.
    width = maximum.view(np.uint64)[column] - low
    distance = keys.view(np.uint64) - low
    scaled = np.rint(distance.astype(np.float64) * (LAST_STEP / np.maximum(width, 1).astype(np.float64)))
    steps = np.where(width <= LAST_STEP, distance, np.minimum(scaled, LAST_STEP).astype(np.uint64))
    return steps.astype(np.uint16)


def comparable(index_type: str, leaf_type: str) -> bool:
    """Whether keys of two types mean the same: a type and what Iceberg promotes it to, as long as the domain stays.

    A column may have had several types: it was promoted, or the table was replaced by one with other types and a tag
    still holds the old snapshot.
    """
    if index_type == leaf_type or {index_type, leaf_type} in ({"int", "long"}, {"float", "double"}):
        return True
    index, leaf = ValueType(index_type), ValueType(leaf_type)
    is_decimal = index.is_decimal and leaf.is_decimal
    return is_decimal and index.decimal_scale == leaf.decimal_scale and index.domain == leaf.domain


def _positions(placement: Placement, rows: Mapping[int, Ints], lengths: Mapping[int, int]) -> tuple[Flags, Ints]:
    """The row groups of the view that directories cover, and places in these; by segment: `rows` of each, lengths."""
    start = np.full(max(rows) + 2, -1, np.int64)
    flat: list[Ints] = []
    row_groups = before = 0
    for segment, own in rows.items():
        start[segment] = row_groups
        flat.append(own + before)
        row_groups += len(own)
        before += lengths[segment]
    # Index -1 (no segment) hits the last element, which stays -1.
    segments = np.where(np.isin(placement.segment, list(rows)), placement.segment, -1)
    known = start[segments] >= 0
    return known, np.concatenate(flat)[np.where(known, start[segments] + placement.row_group, 0)]


def gather_statistics(
    placement: Placement, wanted: str, statistics: Mapping[int, FieldStatistics]
) -> FieldStatistics | None:
    """Lay out statistics by segment; None if no segment has any with keys of a type comparable to the wanted one."""
    chosen = {segment: own for segment, own in statistics.items() if comparable(own.value_type.name, wanted)}
    if not chosen:
        return None
    counts = {segment: own.row_group_count for segment, own in chosen.items()}
    known, at = _positions(placement, {segment: np.arange(count) for segment, count in counts.items()}, counts)
    parts = list(chosen.values())
    return FieldStatistics(
        value_type=chosen[max(chosen)].value_type,
        known=known,
        row_count=np.concatenate([part.row_count for part in parts])[at],
        null_count=np.concatenate([part.null_count for part in parts])[at],
        distinct_count=np.concatenate([part.distinct_count for part in parts])[at],
        minimum=_gather_keys([part.minimum for part in parts], at),
        maximum=_gather_keys([part.maximum for part in parts], at),
        quantiles=_gather_quantiles([part.quantiles for part in parts], at),
    )


def gather_directory(
    column: ColumnId, kind: str, placement: Placement, wanted: str, directories: Mapping[int, Directory]
) -> KindDirectory | None:
    """Lay out where payloads lie; None if no segment has any with keys of a type comparable to the wanted one."""
    chosen = {segment: own for segment, own in directories.items() if comparable(own.type_name, wanted)}
    if not chosen:
        return None
    rows = {segment: own.payload_of_row_groups() for segment, own in chosen.items()}
    known, at = _positions(placement, rows, {segment: len(own) for segment, own in chosen.items()})
    parts = list(chosen.values())
    single_types = pa.array(sorted(kind_named(kind).blob_types))
    # A payload that is not of one row group is merged; an unknown blob type is refused when it is opened.
    merged = [
        (part.numbers("row_groups") != 1)
        | ~np.asarray(pc.is_in(part.blob_types, single_types).to_numpy(False), np.bool_)
        for part in parts
    ]
    is_merged = np.concatenate(merged)[at] & known
    return KindDirectory(
        column=column,
        kind=kind,
        value_type=value_type_named(chosen[max(chosen)].type_name),
        segment=np.where(known, placement.segment, -1).astype(np.int32),
        first=placement.base,
        base=np.where(is_merged, placement.base, 0),
        entry=np.concatenate([np.arange(len(part)) for part in parts])[at].astype(np.int32),
        offset=np.concatenate([part.numbers("offset") for part in parts])[at],
        length=np.concatenate([part.numbers("length") for part in parts])[at],
        merged=is_merged,
    )


def _keys(batch: pa.RecordBatch, name: str, is_int: bool) -> KeyArray:
    return int64_column(batch, name) if is_int else pc.fill_null(batch.column(name), b"")


def _gather_keys(parts: list[KeyArray], at: Ints) -> KeyArray:
    numbers = [part for part in parts if isinstance(part, np.ndarray)]
    return chosen_keys(np.concatenate(numbers) if len(numbers) == len(parts) else pa.concat_arrays(parts), at)


def _gather_quantiles(parts: list[npt.NDArray[np.uint16] | None], at: Ints) -> npt.NDArray[np.uint16] | None:
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    height = max(map(len, known))
    # As in a segment, shorter lists repeat their last key. Without any value, zeros do no harm.
    tall = [np.pad(part, ((0, height - len(part)), (0, 0)), "edge" if len(part) else "constant") for part in known]
    return np.concatenate(tall, axis=1).take(at, axis=1)


def _quantile_matrix(quantiles: pa.LargeListArray) -> Ints:
    """Quantiles as one matrix; row groups without any (all NULL) get zeros, which their value count of 0 disarms."""
    lengths = np.asarray(pc.list_value_length(quantiles).to_numpy(zero_copy_only=False), np.int64)
    width = int(lengths.max(initial=0))
    matrix = np.zeros((len(lengths), width), np.int64)
    values = np.asarray(quantiles.flatten().to_numpy(), np.int64)
    # Shorter lists (few distinct keys) repeat their last key.
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1])).astype(np.int64)[: len(lengths)]
    columns = np.minimum(np.arange(width)[None, :], np.maximum(lengths - 1, 0)[:, None])
    filled = lengths > 0
    matrix[filled] = values[(starts[:, None] + columns)[filled]]
    return matrix
