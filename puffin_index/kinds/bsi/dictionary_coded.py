"""Opened bit slices of dictionary codes: keys of any type, compared by the slices of their codes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from puffin_index.keys.columns import Column, KeyArray
from puffin_index.keys.intervals import Intervals, complement, union
from puffin_index.keys.leaf import Key, LeafTest, NullTest, RangeTest, SetTest
from puffin_index.keys.value_types import ValueType
from puffin_index.kinds.base import RowSet
from puffin_index.kinds.bsi.bit_sliced import BitSlicedIndex
from puffin_index.kinds.bsi.key_dictionary import DictionaryReader
from puffin_index.kinds.held_keys import DistinctKeys, HoldsKeys, KeySets, Totals, Want
from puffin_index.storage.arrays import Rows
from puffin_index.storage.parts import Part, corrupt
from puffin_index.storage.ranged import Blob


class DictionaryCodedIndex(HoldsKeys):
    """Answer tests of keys from a dictionary and the slices of codes."""

    def __init__(self, blob: Blob, directory: Part, codes: BitSlicedIndex, value_type: ValueType) -> None:
        self._blob = blob
        self._value_type = value_type
        self._dictionary = DictionaryReader(blob, directory, value_type.domain)
        self._codes = codes

    def evaluate(self, test: LeafTest, candidates: BitMap | None = None) -> RowSet:
        """Return the rows that satisfy `test`, among the candidates."""
        if isinstance(test, NullTest):
            return RowSet(self._codes.null_rows(test.is_null, candidates), True)
        if candidates is not None and not candidates:
            return RowSet(BitMap(), True)
        return RowSet(self._codes.search(self._code_intervals(test), candidates), True)

    def keys(self, most: int) -> KeyArray | None:
        """Return the keys of the dictionary; None if there are more than `most`."""
        return None if self._dictionary.key_count > most else self._dictionary.keys()

    @property
    def value_count(self) -> int:
        """The number of non-NULL rows, from the layout."""
        return self._codes.value_count

    def keys_of(self, rows: BitMap | None) -> Column:
        """Return the keys of some rows."""
        return self._column(self._value_type, None if rows is None else np.frombuffer(rows.to_array(), np.uint32))

    def sets_of(self) -> KeySets | None:
        """Return the rows of each key; None if there are many keys."""
        found = self._codes.sets_of()
        if found is None:
            return None
        keys = self._dictionary.keys()
        if not isinstance(found.keys, np.ndarray) or not np.array_equal(found.keys, np.arange(len(keys))):
            raise corrupt(self._blob, "codes that the dictionary does not have")
        return KeySets(self._value_type, keys, found.rows, found.nulls)

    def totals_of(self, rows: BitMap | None, want: Want = Want.ALL) -> Totals:
        """Return the totals of some rows; without sums, by counting in each slice of the codes."""
        if self._needs_keys(want):
            return super().totals_of(rows, want)
        return self._of_codes(self._codes.totals_of(rows, want & Want.ENDS))

    def _of_codes(self, codes: Totals) -> Totals:
        """Return the totals of rows whose codes have some totals."""
        if codes.minimum is None:
            return codes
        return Totals(codes.value_count, minimum=self._key(codes.minimum), maximum=self._key(codes.maximum))

    def distinct_of(self, rows: BitMap | None) -> DistinctKeys:
        """Return the distinct keys of some rows; of all rows from the dictionary alone."""
        return (
            super().distinct_of(rows) if rows is not None else DistinctKeys(self._dictionary.keys(), self.value_count)
        )

    def totals_of_each(
        self, groups: Sequence[BitMap], within: BitMap | None = None, want: Want = Want.ALL
    ) -> list[Totals]:
        """Return the totals of each of some sets of rows; without sums, by counting in each slice of the codes."""
        if self._needs_keys(want):
            return super().totals_of_each(groups, within, want)
        return [self._of_codes(codes) for codes in self._codes.totals_of_each(groups, within, want & Want.ENDS)]

    def _needs_keys(self, want: Want) -> bool:
        """Return whether totals need the keys themselves: sums of codes are no sums of keys."""
        return Want.SUMS in want and (self._value_type.is_decimal or self._value_type.name in ("int", "long"))

    def _key(self, code: Key | None) -> Key:
        """Return the key of a code."""
        if not isinstance(code, int) or not 0 <= code < self._dictionary.key_count:
            raise corrupt(self._blob, "codes that the dictionary does not have")
        return self._dictionary.key(code)

    def column(self, value_type: ValueType) -> Column:
        """Return the column that the dictionary and the slices were built from.

        Raises:
            CorruptFileError: If the blob is damaged.
        """
        return self._column(value_type, None)

    def _column(self, value_type: ValueType, rows: Rows | None) -> Column:
        codes, valid = self._codes.numbers(rows)
        keys = self._dictionary.keys()
        known = codes if valid is None else codes[valid]
        if len(known) and not 0 <= int(known.min()) <= int(known.max()) < len(keys):
            raise corrupt(self._blob, "codes that the dictionary does not have")
        if isinstance(keys, np.ndarray):
            own = keys[codes] if len(keys) else codes
            return Column(value_type, len(codes), own, valid)
        return Column(value_type, len(codes), keys.take(pa.array(codes, mask=None if valid is None else ~valid)), valid)

    def _code_intervals(self, test: SetTest | RangeTest) -> Intervals:
        found = self._codes_in(test) if isinstance(test, SetTest) else self._codes_between(test)
        return complement(found, 0, self._dictionary.key_count - 1) if test.negated else found

    def _codes_in(self, test: SetTest) -> Intervals:
        ranks = self._dictionary.ranks([(key, right) for key in test.keys for right in (False, True)])
        pairs = zip(ranks[0::2], ranks[1::2], strict=True)
        return union((low, high - 1) for low, high in pairs if low < high)

    def _codes_between(self, test: RangeTest) -> Intervals:
        queries = [] if test.low is None else [(test.low, not test.low_inclusive)]
        queries += [] if test.high is None else [(test.high, test.high_inclusive)]
        ranks = self._dictionary.ranks(queries)
        low = 0 if test.low is None else ranks[0]
        high = (self._dictionary.key_count if test.high is None else ranks[-1]) - 1
        return ((low, high),) if low <= high else ()
