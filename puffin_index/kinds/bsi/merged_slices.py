"""Bit slices of several row groups: answers in rows of the segment's row space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from pyroaring import BitMap

from puffin_index.keys.asked import AskedTest
from puffin_index.keys.columns import Column, KeyArray
from puffin_index.keys.leaf import NullTest
from puffin_index.kinds.base import LookUp, OpenIndex, RowSet, StoredPayload
from puffin_index.kinds.bsi.bit_sliced import BitSlicedIndex
from puffin_index.kinds.bsi.key_dictionary import DictionaryCodedIndex
from puffin_index.kinds.bsi.own_slices import open_slices
from puffin_index.kinds.held_keys import DistinctKeys, HoldsKeys, KeySets, Totals, Want
from puffin_index.roaring.read import row_set_of_ascending
from puffin_index.storage.parts import corrupt
from puffin_index.storage.ranged import Reading, run


class MergedSlices(OpenIndex, HoldsKeys):
    """Answer any test with rows of the segment's row space. Memory keeps nothing that is read. Safe to share.

    Raises UnsupportedError for another version or domain, CorruptFileError if the layout contradicts the rest.
    """

    def __init__(self, payload: StoredPayload) -> None:
        self._payload = payload
        self._bases, self._row_counts = payload.spans.T
        self._firsts = np.cumsum(self._row_counts) - self._row_counts
        opened = self._open()
        self._value_count = opened.value_count

    @property
    def nbytes(self) -> int:
        """The approximate memory in bytes."""
        return sum(array.nbytes for array in (self._payload.spans, self._firsts, self._payload.layout))

    def _open(self) -> BitSlicedIndex | DictionaryCodedIndex:
        """Open the slices of all rows, without reading any."""
        return open_slices(self._payload)

    def keys(self, most: int) -> Reading[KeyArray | None]:
        """Return the keys of the dictionary; None without a dictionary, or if there are more than `most`."""
        return self._open().keys(most)

    def prepare(self, asked: AskedTest) -> Reading[LookUp]:
        """Prepare a test: the layout says how many rows are NULL."""
        test, most = asked.test, self._value_count
        if isinstance(test, NullTest) and test.is_null:
            most = int(self._row_counts.sum()) - most
        bounds = (most if isinstance(test, NullTest) else 0), most
        own = yield from self._open().prepare(asked)

        def rows(candidates: BitMap | None) -> Reading[RowSet]:
            found = yield from own.rows(None if candidates is None else self._numbers_of(candidates))
            if len(found.rows) > most or (candidates is None and len(found.rows) < bounds[0]):
                raise corrupt(self._payload.blob, "bit slices of other rows than they are said to have")
            return RowSet(self._rows_of(found.rows), True)

        return LookUp(bounds, own.cost, rows)

    def keys_of(self, rows: BitMap | None) -> Reading[Column]:
        """Return the keys of some rows."""
        return self._open().keys_of(None if rows is None else self._numbers_of(rows))

    def distinct_of(self, rows: BitMap) -> Reading[DistinctKeys]:
        """Return the distinct keys of some rows."""
        return self._open().distinct_of(self._numbers_of(rows))

    def totals_of_each(self, groups: Sequence[BitMap], want: Want = Want.ALL) -> Reading[list[Totals]]:
        """Return the totals of each of some disjoint sets of rows."""
        return self._open().totals_of_each([self._numbers_of(rows) for rows in groups], want)

    def sets_of(self) -> Reading[KeySets | None]:
        """Return the rows of each key; None if there are many keys."""
        found = yield from self._open().sets_of()
        if found is None:
            return None
        return replace(found, rows=[self._rows_of(own) for own in found.rows], nulls=self._rows_of(found.nulls))

    def columns(self) -> list[Column]:
        """Return the column of each row group, decoded from all slices."""
        column = run(self.keys_of(None))
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
