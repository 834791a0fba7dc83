"""An opened bitmap payload of one row group, which answers any test from the entries of the tested values."""

from __future__ import annotations

import numpy as np
from pyroaring import BitMap

from puffin_index.keys.columns import Column, KeyArray
from puffin_index.keys.leaf import LeafTest, NullTest, RangeTest, SetTest
from puffin_index.keys.sorted_keys import IntKeys
from puffin_index.keys.value_types import ValueType
from puffin_index.kinds.base import RowSet
from puffin_index.kinds.bitmap.lookup import Entries
from puffin_index.kinds.bitmap.rows import BitmapBody, RowSetPlaces
from puffin_index.kinds.held_keys import DistinctKeys, HoldsKeys, KeySets, are_few_keys
from puffin_index.kinds.postings.columns import CodedNumbers, no_codes
from puffin_index.storage.parts import corrupt


class BitmapIndex(HoldsKeys):
    """Answers any test from the entries of the tested values."""

    def __init__(self, entries: Entries, body: BitmapBody, row_count: int, value_type: ValueType) -> None:
        self._value_type = value_type
        self._entries = entries
        self._body = body
        self._row_count = row_count

    def evaluate(self, test: LeafTest, candidates: BitMap | None = None) -> RowSet:
        """Return the rows that satisfy `test`, among the candidates."""
        if candidates is not None and not candidates:
            return RowSet(BitMap(), True)
        if isinstance(test, NullTest):
            rows = self._body.null_rows() if test.is_null else self._valid_rows()
        else:
            rows = self._set_rows(test) if isinstance(test, SetTest) else self._range_rows(test)
        return RowSet(rows if candidates is None else rows & candidates, True)

    def keys(self, most: int) -> KeyArray | None:
        """Return the keys of the entries; None if there are more than `most`."""
        keys = self._entries.every().keys
        if len(keys) > most:
            return None
        return keys.keys if isinstance(keys, IntKeys) else keys.gathered()

    def keys_of(self, rows: BitMap | None) -> Column:
        """Return the keys of some rows, decoded from the row sets of all values."""
        table = self._entries.every()
        found, entries = self._body.rows_by_entry(RowSetPlaces(table.offsets, table.lengths))
        codes = no_codes(self._row_count, len(table.offsets))
        codes[found] = entries + 1
        is_null = codes == 0
        nulls = self._body.null_rows()
        is_whole = len(found) + len(nulls) == self._row_count and np.count_nonzero(is_null) == len(nulls)
        if not is_whole or not is_null[np.frombuffer(nulls.to_array(), np.uint32)].all():
            raise corrupt(self._body.blob, "rows of two values, or of none")
        keys = table.keys.keys if isinstance(table.keys, IntKeys) else table.keys.gathered()
        coded = CodedNumbers(self._value_type, keys, codes)
        return coded.every() if rows is None else coded.of(np.frombuffer(rows.to_array(), np.uint32))

    def sets_of(self) -> KeySets | None:
        """Return the row set of each value; None if there are many values."""
        table = self._entries.every()
        if not are_few_keys(len(table.offsets), self._row_count):
            return None
        rows, nulls = self._body.set_of_each(RowSetPlaces(table.offsets, table.lengths)), self._body.null_rows()
        counts = [len(own) for own in (*rows, nulls)]
        # The sets add up to all rows only if they are disjoint and leave no row out.
        if sum(counts) != self._row_count or len(BitMap.union(nulls, *rows)) != self._row_count or 0 in counts[:-1]:
            raise corrupt(self._body.blob, "rows of two values, or of none")
        keys = table.keys.keys if isinstance(table.keys, IntKeys) else table.keys.gathered()
        return KeySets(self._value_type, keys, rows, nulls)

    def distinct_of(self, rows: BitMap | None) -> DistinctKeys:
        """Return the distinct keys of some rows; of all rows without reading a row set of a key."""
        if rows is not None and len(rows) < self._row_count:
            return super().distinct_of(rows)
        keys = self._entries.every().keys
        listed = keys.keys if isinstance(keys, IntKeys) else keys.gathered()
        return DistinctKeys(listed, self._row_count - len(self._body.null_rows()))

    def _valid_rows(self) -> BitMap:
        return BitMap(range(self._row_count)) - self._body.null_rows()

    def _set_rows(self, test: SetTest) -> BitMap:
        found = self._body.rows_of(self._entries.with_keys(test.keys))
        return self._valid_rows() - found if test.negated else found

    def _range_rows(self, test: RangeTest) -> BitMap:
        low = None if test.low is None else (test.low, not test.low_inclusive)
        high = None if test.high is None else (test.high, test.high_inclusive)
        inside, outside = self._entries.between(low, high)
        # The cheaper entries are read: those inside the range, or those outside, whose rows are then subtracted.
        if inside.cost <= outside.cost:
            found = self._body.rows_of(inside.entries())
            return self._valid_rows() - found if test.negated else found
        found = self._body.rows_of(outside.entries())
        return found if test.negated else self._valid_rows() - found
