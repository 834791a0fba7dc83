"""Opened bit slices of one row group: comparisons of numbers, from the two halves of a blob."""

from __future__ import annotations

import numpy as np
from pyroaring import BitMap

from puffin_index.errors import UnsupportedError
from puffin_index.keys.columns import Column
from puffin_index.keys.intervals import INT64_MINIMUM, Intervals, clip, intervals_of, mirror
from puffin_index.keys.leaf import LeafTest, NullTest
from puffin_index.keys.value_types import ValueType
from puffin_index.kinds.base import RowSet, StoredPayload
from puffin_index.kinds.bsi.compressed_slices import COMPRESSED_BSI, row_set_of_frame
from puffin_index.kinds.bsi.dictionary_coded import DICTIONARY_BSI, DictionaryCodedIndex
from puffin_index.kinds.bsi.packed_slices import row_set_of_packed
from puffin_index.kinds.bsi.search import HalfReader, RowSetOf
from puffin_index.kinds.bsi.slices import Halves, halves_of_blob, halves_of_layout, row_set_of_part
from puffin_index.kinds.held_keys import HoldsKeys, Totals
from puffin_index.storage.arrays import Flags, Ints
from puffin_index.storage.parts import corrupt, in_memory
from puffin_index.storage.ranged import Blob

PAIMON_BSI = "paimon-bsi-v1"
CODES = ValueType("long")
"""The type of slices that hold codes of a dictionary."""


class BitSlicedIndex(HoldsKeys):
    """Answer tests of integers from the two halves of a blob."""

    def __init__(
        self,
        blob: Blob,
        halves: Halves,
        row_count: int,
        row_set_of: RowSetOf = row_set_of_part,
        value_type: ValueType = CODES,
    ) -> None:
        self._blob = blob
        self._value_type = value_type
        self._row_count = row_count
        self._positive, self._negative = (
            HalfReader(blob, half, row_count, row_set_of) if half else None
            for half in (halves.positive, halves.negative)
        )

    @property
    def value_count(self) -> int:
        """The number of rows that have a number, from the layout."""
        return sum(half.half.row_count for half in (self._positive, self._negative) if half is not None)

    def evaluate(self, test: LeafTest, candidates: BitMap | None = None) -> RowSet:
        """Return the rows that satisfy `test`, among the candidates."""
        if isinstance(test, NullTest):
            return RowSet(self.null_rows(test.is_null, candidates), True)
        return RowSet(self.search(intervals_of(test), candidates), True)

    def null_rows(self, is_null: bool, candidates: BitMap | None) -> BitMap:
        """Return the rows without a number (`is_null`) or the rows with a number, among the candidates."""
        every = BitMap(range(self._row_count)) if candidates is None else candidates
        existing = BitMap()
        for half in (self._positive, self._negative):
            if half is not None:
                existing |= half.existence()
        return every - existing if is_null else every & existing

    def search(self, intervals: Intervals, candidates: BitMap | None) -> BitMap:
        """Return the rows whose number lies in one of the intervals (disjoint, ascending)."""
        found = BitMap()
        if candidates is not None and not candidates:
            return found
        if self._positive is not None:
            found = self._positive.search(intervals, candidates)
        if self._negative is not None:
            found |= self._negative.search(mirror(clip(intervals, INT64_MINIMUM, -1)), candidates)
        return found

    def keys_of(self, rows: BitMap | None) -> Column:
        """Return the numbers of some rows."""
        column = self.column(self._value_type)
        return column if rows is None else column.take(np.frombuffer(rows.to_array(), np.uint32))

    def totals_of(self, rows: BitMap | None) -> Totals:
        """Return the totals of some rows, by counting in each slice."""
        positive, negative = (None if half is None else half.totals(rows) for half in (self._positive, self._negative))
        if positive is None and negative is None:
            return Totals(0)
        ends = [] if negative is None else [-negative.most, -negative.least]
        ends += [] if positive is None else [positive.least, positive.most]
        return Totals(
            sum(half.count for half in (positive, negative) if half),
            positive.total if positive else 0,
            -negative.total if negative else 0,
            ends[0],
            ends[-1],
        )

    def numbers(self) -> tuple[Ints, Flags | None]:
        """Return the number of each row (0 in NULL rows), and which rows are not NULL (None for all).

        Raises:
            CorruptFileError: If the blob is damaged.
        """
        numbers, valid = np.zeros(self._row_count, np.int64), np.zeros(self._row_count, np.bool_)
        for half, sign in ((self._positive, 1), (self._negative, -1)):
            if half is not None:
                rows, magnitudes = half.magnitudes()
                numbers[rows], valid[rows] = sign * magnitudes, True
        if np.count_nonzero(valid) != self.value_count:
            raise corrupt(self._blob, "a row in both halves of bit slices")
        return numbers, None if valid.all() else valid

    def column(self, value_type: ValueType) -> Column:
        """Return the column that the slices were built from.

        Raises:
            CorruptFileError: If the blob is damaged.
        """
        numbers, valid = self.numbers()
        return Column(value_type, self._row_count, numbers, valid)


def open_bit_sliced(blob: Blob, layout: Ints, row_count: int, value_type: ValueType = CODES) -> BitSlicedIndex:
    """Open a blob in the BSI format; a blob without a layout is read whole."""
    if len(layout):
        return BitSlicedIndex(blob, halves_of_layout(blob, layout, row_count), row_count, value_type=value_type)
    whole = in_memory(blob)
    return BitSlicedIndex(whole, halves_of_blob(whole, row_count), row_count, value_type=value_type)


def _open_compressed(blob: Blob, layout: Ints, row_count: int, value_type: ValueType) -> BitSlicedIndex:
    halves = halves_of_layout(blob, layout, row_count, existence_gap=0)
    return BitSlicedIndex(blob, halves, row_count, row_set_of_frame, value_type)


def open_packed(blob: Blob, layout: Ints, row_count: int, value_type: ValueType = CODES) -> BitSlicedIndex:
    """Open packed bit slices (`puffin_index.kinds.bsi.packed_slices`) without reading them."""
    halves = halves_of_layout(blob, layout, row_count, existence_gap=0)
    return BitSlicedIndex(blob, halves, row_count, row_set_of_packed, value_type)


def open_slices(payload: StoredPayload) -> BitSlicedIndex | DictionaryCodedIndex:
    """Open the payload of one row group; a payload without a layout (a blob from Paimon) is read whole.

    Raises:
        UnsupportedError: If the kind does not read the blob type.
    """
    blob, blob_type, layout, value_type = payload.blob, payload.blob_type, payload.layout, payload.value_type
    if value_type.domain == "int64" and not value_type.is_floating:
        if blob_type == PAIMON_BSI:
            return open_bit_sliced(blob, layout, payload.row_count, value_type)
        if blob_type == COMPRESSED_BSI:
            return _open_compressed(blob, layout, payload.row_count, value_type)
    if blob_type == DICTIONARY_BSI:
        return DictionaryCodedIndex(blob, layout, value_type, payload.row_count, open_bit_sliced)
    raise UnsupportedError(f"{blob.location}: kind bsi reads no blob {blob_type} of a {value_type.name} column")


def fits_slices(column: Column) -> bool:
    """Return whether the keys are integers other than -2**63, whose magnitude exceeds 63 bits."""
    if column.value_type.domain != "int64" or column.value_type.is_floating:
        return False
    keys = column.int_keys
    if not len(keys) or int(keys.min()) > INT64_MINIMUM:
        return True
    return column.valid is not None and not bool((keys[column.valid] == INT64_MINIMUM).any())
