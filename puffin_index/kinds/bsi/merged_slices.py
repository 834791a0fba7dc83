"""The blob types of merged bit slices: the bit slices of neighbouring small row groups in one blob.

| blob type | its bytes |
| --- | --- |
| `puffin-index-merged-bsi-v1` | packed bit slices (`puffin_index.kinds.bsi.packed_slices`) of the numbers of all rows |
| `puffin-index-merged-dictionary-bsi-v1` | a dictionary of the keys of all rows, and packed bit slices of their codes \
(`puffin_index.kinds.bsi.dictionary_coded`) |

The rows of all row groups are numbered from 0 without gaps, in the order of the row groups. In the segment's row space
even the first rows of two tiny row groups are 65,536 apart.

Layout: `[1, low half of the xxh64 of the row counts]` (8 bytes per row count, little-endian), then the whole layout of
the blob's bytes, including its own version 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from pyroaring import BitMap

from puffin_index.errors import UnsupportedError
from puffin_index.keys.asked_test import AskedTest
from puffin_index.keys.columns import Column, KeyArray
from puffin_index.keys.leaf import LeafTest, NullTest
from puffin_index.keys.value_types import ValueType
from puffin_index.kinds.base import MergedIndex
from puffin_index.kinds.bsi.bit_sliced import BitSlicedIndex, open_packed
from puffin_index.kinds.bsi.dictionary_coded import DictionaryCodedIndex
from puffin_index.kinds.bsi.merged_slices_build import MERGED_BSI, MERGED_DICTIONARY_BSI, row_counts_checksum
from puffin_index.kinds.held_keys import DistinctKeys, HoldsKeys, KeySets, Totals, Want
from puffin_index.roaring.read import row_set_of_ascending
from puffin_index.storage.arrays import Ints
from puffin_index.storage.parts import Part, check_layout, corrupt
from puffin_index.storage.ranged import Blob

_LAYOUT_NUMBERS = 2


class MergedSlices(MergedIndex, HoldsKeys):
    """Answer any test with rows of the segment's row space. Memory keeps nothing that is read.

    Safe to share between threads.

    Args:
        blob: The blob.
        blob_type: The blob type.
        layout: The layout of the blob.
        value_type: The type of the keys.
        spans: Base and row count of each covered row group in the segment's row space, in order.

    Raises:
        UnsupportedError: If the layout is of another version, or the keys are of another domain.
        CorruptFileError: If the layout contradicts the blob or the row groups.
    """

    def __init__(
        self,
        blob: Blob,
        blob_type: str,
        layout: Ints,
        value_type: ValueType,
        spans: Sequence[tuple[int, int]] | Ints,
    ) -> None:
        checksum = check_layout(blob, layout, _LAYOUT_NUMBERS)[1]
        self._bases, self._row_counts = np.array(spans, np.int64).reshape(-1, 2).T
        if checksum != row_counts_checksum(self._row_counts):
            raise corrupt(blob, "bit slices of other row groups")
        self._firsts = np.cumsum(self._row_counts) - self._row_counts
        self._blob = blob
        self._blob_type = blob_type
        self._layout = layout[_LAYOUT_NUMBERS:]
        self._value_type = value_type
        self._value_count = self._open().value_count

    @property
    def nbytes(self) -> int:
        """The approximate memory in bytes."""
        return sum(array.nbytes for array in (self._bases, self._row_counts, self._firsts, self._layout))

    def _open(self) -> BitSlicedIndex | DictionaryCodedIndex:
        """Open the slices of all rows, without reading any."""
        row_count = int(self._row_counts.sum())
        if self._blob_type == MERGED_DICTIONARY_BSI:
            return DictionaryCodedIndex(self._blob, self._layout, self._value_type, row_count, open_packed)
        if self._value_type.domain != "int64" or self._value_type.is_floating:
            raise UnsupportedError(
                f"{self._blob.location}: kind bsi reads no blob {MERGED_BSI} of a {self._value_type.name} column"
            )
        return open_packed(self._blob, self._layout, row_count, self._value_type)

    def keys(self, most: int) -> KeyArray | None:
        """Return the keys of the dictionary; None without a dictionary, or if there are more than `most`."""
        return self._open().keys(most)

    def prepare(self, test: AskedTest) -> PreparedSlices:
        """Prepare a test."""
        return PreparedSlices(self, test.test)

    def keys_of(self, rows: BitMap | None) -> Column:
        """Return the keys of some rows."""
        return self._open().keys_of(self._wanted(rows))

    def totals_of(self, rows: BitMap | None, want: Want = Want.ALL) -> Totals:
        """Return the totals of some rows."""
        return self._open().totals_of(self._wanted(rows), want)

    def distinct_of(self, rows: BitMap | None) -> DistinctKeys:
        """Return the distinct keys of some rows."""
        return self._open().distinct_of(self._wanted(rows))

    def totals_of_each(
        self, groups: Sequence[BitMap], within: BitMap | None = None, want: Want = Want.ALL
    ) -> list[Totals]:
        """Return the totals of each of some disjoint sets of rows, as far as they lie in `within`."""
        numbers = [self._numbers_of(rows) for rows in groups]
        return self._open().totals_of_each(numbers, None if within is None else self._numbers_of(within), want)

    def sets_of(self) -> KeySets | None:
        """Return the rows of each key; None if there are many keys."""
        found = self._open().sets_of()
        if found is None:
            return None
        return replace(found, rows=[self._rows_of(own) for own in found.rows], nulls=self._rows_of(found.nulls))

    def _wanted(self, rows: BitMap | None) -> BitMap | None:
        """Return the numbers of some rows; None for all."""
        return None if rows is None or len(rows) == self._row_counts.sum() else self._numbers_of(rows)

    def columns(self) -> list[Column]:
        """Return the column of each row group, decoded from all slices.

        Raises:
            CorruptFileError: If the blob is damaged.
        """
        column = self._open().column(self._value_type)
        return [
            column.part(first, first + count)
            for first, count in zip(self._firsts.tolist(), self._row_counts.tolist(), strict=True)
        ]

    def _numbers_of(self, rows: BitMap) -> BitMap:
        """Return the numbers of those rows that lie in the row groups of the blob."""
        some = np.frombuffer(rows.to_array(), np.uint32).astype(np.int64)
        owners = np.searchsorted(self._bases, some, "right") - 1
        inside = (owners >= 0) & (some - self._bases[owners] < self._row_counts[owners])
        owners = owners[inside]
        return row_set_of_ascending(some[inside] - self._bases[owners] + self._firsts[owners])

    def _rows_of(self, numbers: BitMap) -> BitMap:
        """Return the rows, in the row space, behind some numbers."""
        some = np.frombuffer(numbers.to_array(), np.uint32)
        counts = np.diff(np.searchsorted(some, self._firsts), append=len(some))
        return row_set_of_ascending(some + np.repeat(self._bases - self._firsts, counts))


class PreparedSlices:
    """A test of merged bit slices: bounds on the number of matching rows, the cost of reading them, and the rows."""

    def __init__(self, index: MergedSlices, test: LeafTest) -> None:
        self._index = index
        self._test = test

    def count_bounds(self) -> tuple[int, int]:
        """Return bounds on the number of rows that satisfy the test, without reading anything."""
        index = self._index
        if isinstance(self._test, NullTest):
            row_count = int(index._row_counts.sum())
            matches = row_count - index._value_count if self._test.is_null else index._value_count
            return matches, matches
        return 0, index._value_count

    def cost(self) -> tuple[int, int]:
        """Return an approximate upper bound of the requests and bytes of `rows`."""
        # A dictionary takes two requests before the slices: for its directory and for some of its blocks.
        requests = 3 if self._index._blob_type == MERGED_DICTIONARY_BSI else 1
        return requests, self._index._blob.length

    def rows(self, candidates: BitMap | None = None) -> BitMap:
        """Return exactly the rows that satisfy the test; with candidates (of the row space), only rows among these.

        Raises:
            CorruptFileError: If the blob is damaged.
        """
        index = self._index
        among = None if candidates is None else index._numbers_of(candidates)
        found = index._open().evaluate(self._test, among).rows
        least, most = self.count_bounds()
        if len(found) > most or (among is None and len(found) < least):
            raise corrupt(index._blob, "bit slices of other rows than they are said to have")
        return index._rows_of(found)

    def parts(self, most_bytes: int) -> Sequence[Part]:
        """Return nothing, as `read` takes nothing."""
        del most_bytes
        return ()

    def read(self, most_bytes: int) -> None:
        """Return None: merged bit slices have no blocks to search along with those of other blobs."""
        del most_bytes
