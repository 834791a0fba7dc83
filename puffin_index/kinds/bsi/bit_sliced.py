"""Opened bit slices: comparisons of numbers, from the two halves of a blob."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from pyroaring import BitMap

from puffin_index.errors import CorruptFileError
from puffin_index.keys.asked import INT64_MINIMUM, AskedTest, Intervals, clip, intervals_of
from puffin_index.keys.columns import Column
from puffin_index.keys.leaf import LeafTest, NullTest
from puffin_index.keys.value_types import ValueType
from puffin_index.kinds.base import LookUp, OpenIndex, RowSet
from puffin_index.kinds.bsi.search import HalfReader, HalfSets
from puffin_index.kinds.bsi.slices import Half
from puffin_index.kinds.held_keys import HoldsKeys, KeySets, Totals, Want, are_few_keys, join_totals
from puffin_index.storage.arrays import Flags, Ints
from puffin_index.storage.parts import corrupt
from puffin_index.storage.ranged import Blob, Reading, at_once

CODES = ValueType("long")
"""The type of slices that hold codes of a dictionary."""


class BitSlicedIndex(OpenIndex, HoldsKeys):
    """Answer tests of integers from the two halves of a blob."""

    def __init__(
        self, blob: Blob, halves: Sequence[Half], row_count: int, value_type: ValueType, *, is_own: bool
    ) -> None:
        self.row_count = row_count
        self._blob = blob
        self._value_type = value_type
        self._readers = [HalfReader(blob, half, row_count, is_own=is_own) for half in halves]

    @property
    def value_count(self) -> int:
        """The number of rows that have a number, from the layout."""
        return sum(reader.half.row_count for reader in self._readers)

    def prepare(self, asked: AskedTest) -> Reading[LookUp]:
        """Prepare a test; nothing is read for that."""
        return at_once(LookUp((0, self.row_count), (1, self._blob.length), partial(self._rows, asked.test)))

    def _rows(self, test: LeafTest, candidates: BitMap | None) -> Reading[RowSet]:
        if isinstance(test, NullTest):
            return RowSet((yield from self.null_rows(test.is_null, candidates)), True)
        return RowSet((yield from self.search(intervals_of(test), candidates)), True)

    def null_rows(self, is_null: bool, candidates: BitMap | None) -> Reading[BitMap]:
        """Return the rows without a number (`is_null`) or the rows with a number, among the candidates."""
        every = BitMap(range(self.row_count)) if candidates is None else candidates
        existing = BitMap()
        for reader in self._readers:
            existing |= yield from reader.existence()
        return every - existing if is_null else every & existing

    def search(self, intervals: Intervals, candidates: BitMap | None) -> Reading[BitMap]:
        """Return the rows whose number lies in one of the intervals (disjoint, ascending)."""
        found = BitMap()
        if candidates is not None and not candidates:
            return found
        for reader in self._readers:
            own = intervals
            if reader.half.sign < 0:
                own = tuple((-high, -low) for low, high in reversed(clip(intervals, INT64_MINIMUM, -1)))
            found |= yield from reader.search(own, candidates)
        return found

    def keys_of(self, rows: BitMap | None) -> Reading[Column]:
        """Return the numbers of some rows."""
        numbers, valid = yield from self.numbers(rows)
        return Column(self._value_type, len(numbers), numbers, valid)

    def totals_of_each(self, groups: Sequence[BitMap], want: Want = Want.ALL) -> Reading[list[Totals]]:
        """Return the totals of each of some sets of rows, by counting in each slice."""
        among = [None if len(rows) == self.row_count else rows for rows in groups]
        if not want:
            counted: list[Totals] = []
            for rows in among:
                count = self.value_count if rows is None else len((yield from self.null_rows(False, rows)))
                counted.append(Totals(count))
            return counted
        halves = yield from self._half_sets()
        return [join_totals([half.totals(rows, want) for half in halves]) for rows in among]

    def numbers(self, rows: BitMap | None) -> Reading[tuple[Ints, Flags | None]]:
        """Return numbers of rows (0: NULL), and which are not NULL (None: all), or raise CorruptFileError."""
        count = self.row_count if rows is None else len(rows)
        place_of = np.empty(0 if rows is None else self.row_count, np.int64)
        if rows is not None:
            place_of[rows.to_array()] = np.arange(count)

        def places(of_half: BitMap) -> Ints:
            found = np.array((of_half if rows is None else of_half & rows).to_array(), np.int64)
            return found if rows is None else place_of[found]

        numbers, valid = np.zeros(count, np.int64), np.zeros(count, np.bool_)
        for sets in (yield from self._half_sets()):
            half, offsets = sets.half, np.zeros(count, np.uint64)
            for bit, ones in enumerate(sets.slices):
                np.add.at(offsets, places(ones), np.uint64(1 << bit))
            if int(offsets.max(initial=0)) > half.span:
                raise self._other_numbers()
            known = places(sets.existence)
            numbers[known], valid[known] = half.sign * (offsets[known].view(np.int64) + half.minimum), True
        return numbers, None if valid.all() else valid

    def _half_sets(self) -> Reading[list[HalfSets]]:
        found: list[HalfSets] = []
        for reader in self._readers:
            found.append((yield from reader.sets()))
        if len(found) == 2 and found[0].existence.intersect(found[1].existence):
            raise self._other_numbers()
        return found

    def sets_of(self) -> Reading[KeySets | None]:
        """Return the rows of each number, split by slice after slice; None if there may be many numbers."""
        halves = [reader.half for reader in self._readers]
        if not are_few_keys(sum(min(half.span + 1, half.row_count) for half in halves), self.row_count):
            return None
        found: dict[int, BitMap] = {}
        for sets in (yield from self._half_sets()):
            found |= sets.split()
        numbers = sorted(found)
        keys = np.array(numbers, np.int64)
        nulls = yield from self.null_rows(True, None)
        return KeySets(self._value_type, keys, [found[number] for number in numbers], nulls)

    def _other_numbers(self) -> CorruptFileError:
        return corrupt(self._blob, "bit slices of other numbers than they are said to have")
