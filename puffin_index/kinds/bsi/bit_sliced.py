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
from puffin_index.storage.arrays import Flags, Ints
from puffin_index.storage.parts import corrupt, in_memory
from puffin_index.storage.ranged import Blob

PAIMON_BSI = "paimon-bsi-v1"


class BitSlicedIndex:
    """Answer tests of integers from the two halves of a blob."""

    def __init__(self, blob: Blob, halves: Halves, row_count: int, row_set_of: RowSetOf = row_set_of_part) -> None:
        self._blob = blob
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

    def keys(self, most: int) -> None:
        """Return None: bit slices have no list of their keys."""
        del most

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


def open_bit_sliced(blob: Blob, layout: Ints, row_count: int) -> BitSlicedIndex:
    """Open a blob in the BSI format; a blob without a layout is read whole."""
    if len(layout):
        return BitSlicedIndex(blob, halves_of_layout(blob, layout, row_count), row_count)
    whole = in_memory(blob)
    return BitSlicedIndex(whole, halves_of_blob(whole, row_count), row_count)


def _open_compressed(blob: Blob, layout: Ints, row_count: int) -> BitSlicedIndex:
    halves = halves_of_layout(blob, layout, row_count, existence_gap=0)
    return BitSlicedIndex(blob, halves, row_count, row_set_of_frame)


def open_packed(blob: Blob, layout: Ints, row_count: int) -> BitSlicedIndex:
    """Open packed bit slices (`puffin_index.kinds.bsi.packed_slices`) without reading them."""
    halves = halves_of_layout(blob, layout, row_count, existence_gap=0)
    return BitSlicedIndex(blob, halves, row_count, row_set_of_packed)


def open_slices(payload: StoredPayload) -> BitSlicedIndex | DictionaryCodedIndex:
    """Open the payload of one row group; a payload without a layout (a blob from Paimon) is read whole.

    Raises:
        UnsupportedError: If the kind does not read the blob type.
    """
    blob, blob_type, layout, value_type = payload.blob, payload.blob_type, payload.layout, payload.value_type
    if value_type.domain == "int64" and not value_type.is_floating:
        if blob_type == PAIMON_BSI:
            return open_bit_sliced(blob, layout, payload.row_count)
        if blob_type == COMPRESSED_BSI:
            return _open_compressed(blob, layout, payload.row_count)
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
