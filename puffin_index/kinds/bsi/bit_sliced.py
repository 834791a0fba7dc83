"""Opened bit slices: comparisons of numbers from the two halves of a blob, and sums and counts in whole slices.

Narrow intervals are searched from the highest slice down. This search generalises the algorithm of O'Neil and Quass to
a set of intervals: each slice splits the rows by one bit, and a side that lies wholly inside or outside all intervals
needs no further slice. Wide intervals are searched from the lowest slice up. The rows at or above a bound take one
operation a slice: where the bound has a one, a row needs the bit and the bits below; where the bound has a zero, the
bit alone suffices.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np
from pyroaring import BitMap

from puffin_index.errors import CorruptFileError
from puffin_index.keys.asked import INT64_MINIMUM, AskedTest, Interval, Intervals, clip, intervals_of
from puffin_index.keys.columns import Column
from puffin_index.keys.leaf import LeafTest, NullTest
from puffin_index.keys.value_types import ValueType
from puffin_index.kinds.base import LookUp, OpenIndex, RowSet
from puffin_index.kinds.bsi.slices import Half, row_set_of_part
from puffin_index.kinds.held_keys import HoldsKeys, KeySets, Totals, Want, are_few_keys, join_totals
from puffin_index.storage.arrays import Flags, Ints
from puffin_index.storage.parts import corrupt, parts_of
from puffin_index.storage.ranged import Blob, Reading, at_once

_EXISTENCE = -1
"""The place of the existence set, before those of the slices."""

_READ_AT_ONCE_BYTES = 64 * 1024
_MORE_BITS = 4
"""Few candidates take few slices: this many more tell nearly all of them from the bounds."""

_WIDE_SHARE = 1 / 64
"""Intervals of a greater share of all numbers are wide."""

_MOST_WIDE_INTERVALS = 4
_SPARSE = 16
"""Where fewer than one row in this many is a candidate, the first slices leave next to nothing."""


class HalfReader:
    """Reads the row sets of one half, each at most once."""

    def __init__(self, blob: Blob, half: Half, row_count: int, *, is_own: bool) -> None:
        self.half = half
        self._is_own = is_own
        self._blob = blob
        self._row_count = row_count
        self._sets: dict[int, BitMap] = {}
        if half.row_count == row_count:
            self._sets[_EXISTENCE] = BitMap(range(row_count))

    def existence(self) -> Reading[BitMap]:
        """Return the rows that have a number in this half. Callers must not change the set."""
        yield from self._read([_EXISTENCE])
        return self._sets[_EXISTENCE]

    def search(self, intervals: Intervals, candidates: BitMap | None) -> Reading[BitMap]:
        """Return the rows whose magnitude lies in one of the intervals, which ascend and do not touch."""
        half = self.half
        clipped = clip(intervals, half.minimum, half.maximum)
        wanted = tuple((low - half.minimum, high - half.minimum) for low, high in clipped)
        if not wanted:
            return BitMap()
        if wanted == ((0, half.maximum - half.minimum),):
            rows = yield from self.existence()
            return rows.copy() if candidates is None else rows & candidates
        # No number exceeds the maximum, so an interval up to the maximum may end at all ones: that needs fewer slices.
        top = (1 << len(half.slices)) - 1
        if wanted[-1][1] == half.maximum - half.minimum:
            wanted = (*wanted[:-1], (wanted[-1][0], top))
        lowest = _lowest_slice(wanted)
        if self._are_wide(wanted, candidates):
            yield from self._read([*([_EXISTENCE] if not wanted[0][0] else []), *range(lowest, len(half.slices))])
            found = self._between(wanted)
            return found if candidates is None else found & candidates
        # About log2(rows) upper bits already tell most numbers apart: a search seldom descends below those bits.
        bits = half.row_count.bit_length() + 1 if candidates is None else len(candidates).bit_length() + _MORE_BITS
        first = max(lowest, len(half.slices) - bits)
        # All slices that matter are read at once if the others are small.
        if sum(part.length for part in half.slices[lowest:first]) <= _READ_AT_ONCE_BYTES:
            first = lowest
        yield from self._read([_EXISTENCE, *range(first, len(half.slices))])
        rows = self._sets[_EXISTENCE]
        rows = rows if candidates is None else rows & candidates
        return (yield from self._descend(rows, len(half.slices) - 1, wanted, lowest))

    @property
    def slices(self) -> list[BitMap]:
        """The row sets of all bits that were read, lowest first; nobody changes them."""
        return [self._sets[bit] for bit in range(len(self.half.slices))]

    def read_all(self) -> Reading[BitMap]:
        """Read all sets, and return the existence set, or raise CorruptFileError if they contradict the half."""
        yield from self._read([_EXISTENCE, *range(len(self.half.slices))])
        rows = self._sets[_EXISTENCE]
        # Slices of all rows have no others: that was checked as they were read.
        are_inside = len(rows) == self._row_count or all(rows.issuperset(ones) for ones in self.slices)
        if len(rows) != self.half.row_count or not are_inside:
            reason = "bit slices of other numbers than they are said to have"
            raise corrupt(self._blob, reason, self.half.existence.offset)
        return rows

    def totals(self, among: BitMap | None, want: Want = Want.ALL) -> Totals:
        """Return the totals of some rows, from all sets (`read_all`); None for all rows."""
        existence = self._sets[_EXISTENCE]
        count = len(existence) if among is None else existence.intersection_cardinality(among)
        if not count:
            return Totals(0)
        total, sign = 0, self.half.sign
        if Want.SUMS in want:
            # No slice has a row that does not exist.
            counts = (len(ones) if among is None else among.intersection_cardinality(ones) for ones in self.slices)
            total = self.half.minimum * count + sum(ones << bit for bit, ones in enumerate(counts))
        positive, negative = (total, 0) if sign > 0 else (0, -total)
        if Want.ENDS not in want:
            return Totals(count, positive, negative)
        rows = existence if among is None else existence & among
        ends = sorted(sign * self._end(rows, is_least=is_least) for is_least in (True, False))
        return Totals(count, positive, negative, *ends)

    def _end(self, rows: BitMap, *, is_least: bool) -> int:
        """Return the smallest or largest magnitude of some rows: each slice leaves the rows that reach that end."""
        offset = 0
        for bit, ones in reversed(list(enumerate(self.slices))):
            with_bit = rows.intersection_cardinality(ones)
            if 0 < with_bit < len(rows):
                rows = rows - ones if is_least else rows & ones
                offset |= 0 if is_least else 1 << bit
            elif with_bit:
                offset |= 1 << bit
        return self.half.minimum + offset

    def split(self) -> dict[int, BitMap]:
        """Return the rows of each number, from all sets (`read_all`)."""
        existence = self._sets[_EXISTENCE]
        found = {0: existence} if existence else {}
        for bit, ones in reversed(list(enumerate(self.slices))):
            halves = {}
            for offset, rows in found.items():
                for own, some in ((offset, rows - ones), (offset | 1 << bit, rows & ones)):
                    if some:
                        halves[own] = some
            found = halves
        return {self.half.sign * (self.half.minimum + offset): rows for offset, rows in found.items()}

    def _are_wide(self, intervals: Intervals, candidates: BitMap | None) -> bool:
        """Return whether the answer is probably so large that a search from below takes less time."""
        is_among_few = candidates is not None and _SPARSE * len(candidates) < self._row_count
        if is_among_few or len(intervals) > _MOST_WIDE_INTERVALS:
            return False
        return sum(high - low + 1 for low, high in intervals) > _WIDE_SHARE * (self.half.span + 1)

    def _between(self, intervals: Intervals) -> BitMap:
        """Return the rows whose numbers lie in one of the intervals; the slices that matter are read."""
        found = BitMap()
        for low, high in intervals:
            rows = self._from(low)
            rows -= self._from(high + 1)
            found |= rows
        return found

    def _from(self, bound: int) -> BitMap:
        if not bound:
            return self._sets[_EXISTENCE].copy()
        if bound >> len(self.half.slices):
            return BitMap()
        # Every row has all bits below the lowest one of the bound that the bound asks for.
        lowest = (bound & -bound).bit_length() - 1
        rows = self._sets[lowest].copy()
        for bit in range(lowest + 1, len(self.half.slices)):
            if bound >> bit & 1:
                rows &= self._sets[bit]
            else:
                rows |= self._sets[bit]
        return rows

    def _descend(self, rows: BitMap, bit: int, intervals: Sequence[Interval], lowest: int) -> Reading[BitMap]:
        """Return those rows whose numbers lie in one of the intervals.

        The rows agree in all bits above `bit`, the highest bit that is still unknown. The intervals are those of the
        bits from `bit` down; `lowest` is the lowest slice that the search may need.
        """
        if not rows or not intervals:
            return BitMap()
        middle = 1 << bit if bit >= 0 else 0
        if intervals[0] == (0, max(2 * middle - 1, 0)):
            return rows
        if bit not in self._sets:
            yield from self._read(range(lowest, bit + 1))
        ones = self._sets[bit]
        below = [(low, min(high, middle - 1)) for low, high in intervals if low < middle]
        above = [(max(low - middle, 0), high - middle) for low, high in intervals if high >= middle]
        if not above:
            return (yield from self._descend(rows - ones, bit - 1, below, lowest))
        found = yield from self._descend(rows & ones, bit - 1, above, lowest)
        return found | (yield from self._descend(rows - ones, bit - 1, below, lowest)) if below else found

    def _read(self, places: Iterable[int]) -> Reading[None]:
        """Read existence set and slices that are not read yet, by ascending place."""
        missing = [place for place in places if place not in self._sets]
        parts = [self.half.existence if place == _EXISTENCE else self.half.slices[place] for place in missing]
        contents = yield from parts_of(self._blob, parts)
        for place, part, stored in zip(missing, parts, contents, strict=True):
            self._sets[place] = row_set_of_part(self._blob, part, stored, self._row_count, is_own=self._is_own)


def _lowest_slice(intervals: Intervals) -> int:
    """Return the lowest bit that can matter: in all lower bits, every interval begins with zeros and ends with ones."""
    bounds = 0
    for low, high in intervals:
        bounds |= low | (high + 1)
    return (bounds & -bounds).bit_length() - 1


CODES = ValueType("long")
"""The type of slices that hold codes of a dictionary."""


class BitSlicedIndex(OpenIndex, HoldsKeys):
    """Answer tests of integers from the two halves of a blob; `value_count` rows have a number."""

    def __init__(
        self, blob: Blob, halves: Sequence[Half], row_count: int, value_type: ValueType, *, is_own: bool
    ) -> None:
        self.row_count = row_count
        self._blob = blob
        self._value_type = value_type
        self._readers = [HalfReader(blob, half, row_count, is_own=is_own) for half in halves]
        self.value_count = sum(half.row_count for half in halves)

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
        yield from self._read_all()
        return [join_totals([reader.totals(rows, want) for reader in self._readers]) for rows in among]

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
        for reader, existence in zip(self._readers, (yield from self._read_all()), strict=True):
            half, offsets = reader.half, np.zeros(count, np.uint64)
            for bit, ones in enumerate(reader.slices):
                np.add.at(offsets, places(ones), np.uint64(1 << bit))
            if int(offsets.max(initial=0)) > half.span:
                raise self._other_numbers()
            known = places(existence)
            numbers[known], valid[known] = half.sign * (offsets[known].view(np.int64) + half.minimum), True
        return numbers, None if valid.all() else valid

    def _read_all(self) -> Reading[list[BitMap]]:
        """Read all sets of both halves; return the existence set of each."""
        found: list[BitMap] = []
        for reader in self._readers:
            found.append((yield from reader.read_all()))
        if len(found) == 2 and found[0].intersect(found[1]):
            raise self._other_numbers()
        return found

    def sets_of(self) -> Reading[KeySets | None]:
        """Return the rows of each number, split by slice after slice; None if there may be many numbers."""
        halves = [reader.half for reader in self._readers]
        if not are_few_keys(sum(min(half.span + 1, half.row_count) for half in halves), self.row_count):
            return None
        yield from self._read_all()
        found: dict[int, BitMap] = {}
        for reader in self._readers:
            found |= reader.split()
        numbers = sorted(found)
        keys = np.array(numbers, np.int64)
        nulls = yield from self.null_rows(True, None)
        return KeySets(self._value_type, keys, [found[number] for number in numbers], nulls)

    def _other_numbers(self) -> CorruptFileError:
        return corrupt(self._blob, "bit slices of other numbers than they are said to have")
