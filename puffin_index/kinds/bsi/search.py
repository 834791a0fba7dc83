"""Search bit slices for the rows whose numbers lie in some intervals, and sum and count in whole slices.

Narrow intervals are searched from the highest slice down. This search generalises the algorithm of O'Neil and Quass to
a set of intervals: each slice splits the rows by one bit, and a side that lies wholly inside or outside all intervals
needs no further slice. Wide intervals are searched from the lowest slice up. The rows at or above a bound take one
operation a slice: where the bound has a one, a row needs the bit and the bits below; where the bound has a zero, the
bit alone suffices.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from pyroaring import BitMap

from puffin_index.errors import CorruptFileError
from puffin_index.keys.asked import Interval, Intervals, clip, shift
from puffin_index.kinds.bsi.slices import Content, Half, content_of_part, row_set_of_content
from puffin_index.kinds.held_keys import Totals, Want
from puffin_index.roaring.union import StoredSets, every_bit, popcount
from puffin_index.roaring.write import BLOCK_BYTES, block_count
from puffin_index.storage.arrays import Bytes, Flags, Ints, Rows
from puffin_index.storage.bit_packing import transpose_bits
from puffin_index.storage.parts import Part, corrupt, parts_of
from puffin_index.storage.ranged import Blob, Reading


@dataclass(frozen=True, slots=True, eq=False)
class FlatHalf:
    """The rows with a number of one sign, as bits, and the bits of magnitude - minimum, lowest first.

    Slices have the shape (slices, bytes). No row without a number of the sign has a bit.
    """

    existence: Bytes
    slices: Bytes

    def of_rows(self, rows: Rows | None) -> tuple[Flags, Ints]:
        """Return which of some rows (None for all) have a number here, and magnitude - minimum of each (else 0)."""
        if rows is None:
            known = np.unpackbits(self.existence, bitorder="little").astype(np.bool_)
            padded = np.zeros((-(-len(self.slices) // 8) * 8, self.slices.shape[1]), np.uint8)
            padded[: len(self.slices)] = self.slices
            return known, _as_numbers(transpose_bits(padded))
        byte, bit = rows >> 3, (rows & 7).astype(np.uint8)
        known = (self.existence[byte] >> bit & 1).astype(np.bool_)
        return known, _as_numbers(np.packbits(self.slices[:, byte] >> bit & 1, axis=0, bitorder="little").T)


def _as_numbers(columns: Bytes) -> Ints:
    """Return little-endian numbers of up to 8 bytes, one a row."""
    wide = np.zeros((len(columns), 8), np.uint8)
    wide[:, : columns.shape[1]] = columns
    return wide.view("<i8").reshape(-1)


def _places(rows: Rows, some: BitMap) -> Ints:
    return np.searchsorted(rows, np.frombuffer(some.to_array(), np.uint32))


@dataclass(frozen=True, slots=True, eq=False)
class HalfSets:
    """The rows with numbers of a sign, and of each bit of magnitude - minimum, lowest first; nobody changes them."""

    sign: int
    minimum: int
    existence: BitMap
    slices: Sequence[BitMap]

    def totals(self, among: BitMap | None, want: Want = Want.ALL) -> Totals:
        """Return the totals of some rows; None for all."""
        count = len(self.existence) if among is None else self.existence.intersection_cardinality(among)
        if not count:
            return Totals(0)
        total = 0
        if Want.SUMS in want:
            # No slice has a row that does not exist.
            counts = (len(ones) if among is None else among.intersection_cardinality(ones) for ones in self.slices)
            total = self.minimum * count + sum(ones << bit for bit, ones in enumerate(counts))
        positive, negative = (total, 0) if self.sign > 0 else (0, -total)
        if Want.ENDS not in want:
            return Totals(count, positive, negative)
        rows = self.existence if among is None else self.existence & among
        ends = sorted(self.sign * self._end(rows, is_least=is_least) for is_least in (True, False))
        return Totals(count, positive, negative, *ends)

    def _end(self, rows: BitMap, *, is_least: bool) -> int:
        """Return the smallest or largest magnitude of some rows: each slice leaves the rows that reach that end."""
        offset = 0
        for bit in reversed(range(len(self.slices))):
            ones = self.slices[bit]
            with_bit = rows.intersection_cardinality(ones)
            if 0 < with_bit < len(rows):
                rows = rows - ones if is_least else rows & ones
                offset |= 0 if is_least else 1 << bit
            elif with_bit:
                offset |= 1 << bit
        return self.minimum + offset

    def of_rows(self, rows: Rows) -> tuple[Flags, Ints]:
        """Return which of some ascending rows have a number here, and magnitude - minimum of each (else 0)."""
        some = BitMap(rows)
        known, offsets = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.int64)
        known[_places(rows, self.existence & some)] = True
        for bit, ones in enumerate(self.slices):
            offsets[_places(rows, ones & some)] |= np.int64(1 << bit)
        return known, offsets

    def split(self) -> dict[int, BitMap]:
        """Return the rows of each number."""
        found = {0: self.existence} if self.existence else {}
        for bit in reversed(range(len(self.slices))):
            ones = self.slices[bit]
            halves = {}
            for offset, rows in found.items():
                for own, some in ((offset, rows - ones), (offset | 1 << bit, rows & ones)):
                    if some:
                        halves[own] = some
            found = halves
        return {self.sign * (self.minimum + offset): rows for offset, rows in found.items()}


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
        wanted = shift(clip(intervals, half.minimum, half.maximum), -half.minimum)
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

    def flat(self) -> Reading[FlatHalf]:
        """Return the numbers as flat bits, from all slices, or raise CorruptFileError if these contradict the half."""
        half, blob = self.half, self._blob
        is_full = half.row_count == self._row_count
        parts = [*([] if is_full else [half.existence]), *half.slices]
        contents = yield from self._contents(parts)
        bits = np.zeros((len(parts), block_count(self._row_count) * BLOCK_BYTES), np.uint8)
        sets = [place for place, content in enumerate(contents) if not content.are_bits]
        for place, content in enumerate(contents):
            if content.are_bits:
                bits[place, : len(content.data)] = np.frombuffer(content.data, np.uint8)
        if sets:
            views = [contents[place].data for place in sets]
            stored = StoredSets.of(views, blob.location, blob.offset + half.existence.offset)
            bits[sets] = stored.bits(self._row_count)
        existence, slices = (every_bit(self._row_count), bits) if is_full else (bits[0], bits[1:])
        if int(popcount(existence)) != half.row_count or bool((slices & ~existence).any()):
            raise self._other_numbers()
        return FlatHalf(existence, slices)

    def sets(self) -> Reading[HalfSets]:
        """Return the numbers as row sets, from all slices, or raise CorruptFileError if these contradict the half."""
        bits = range(len(self.half.slices))
        yield from self._read([_EXISTENCE, *bits])
        rows, slices = self._sets[_EXISTENCE], [self._sets[bit] for bit in bits]
        # Slices of all rows have no others: that was checked as they were read.
        are_inside = len(rows) == self._row_count or all(rows.issuperset(ones) for ones in slices)
        if len(rows) != self.half.row_count or not are_inside:
            raise self._other_numbers()
        return HalfSets(self.half.sign, self.half.minimum, rows, slices)

    def _other_numbers(self) -> CorruptFileError:
        reason = "bit slices of other numbers than they are said to have"
        return corrupt(self._blob, reason, self.half.existence.offset)

    def _are_wide(self, intervals: Intervals, candidates: BitMap | None) -> bool:
        """Return whether the answer is probably so large that a search from below takes less time."""
        if len(intervals) > _MOST_WIDE_INTERVALS:
            return False
        if candidates is not None and _SPARSE * len(candidates) < self._row_count:
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

    def _contents(self, parts: Sequence[Part]) -> Reading[list[Content]]:
        contents = yield from parts_of(self._blob, parts)
        stored = zip(parts, contents, strict=True)
        return [content_of_part(self._blob, part, data, self._row_count, is_own=self._is_own) for part, data in stored]

    def _read(self, places: Iterable[int]) -> Reading[None]:
        """Read existence set and slices that are not read yet, by ascending place."""
        missing = [place for place in places if place not in self._sets]
        parts = [self.half.existence if place == _EXISTENCE else self.half.slices[place] for place in missing]
        contents = yield from self._contents(parts)
        for place, part, content in zip(missing, parts, contents, strict=True):
            self._sets[place] = row_set_of_content(self._blob, part, content, self._row_count)


def _lowest_slice(intervals: Intervals) -> int:
    """Return the lowest bit that can matter: in all lower bits, every interval begins with zeros and ends with ones."""
    bounds = 0
    for low, high in intervals:
        bounds |= low | (high + 1)
    return (bounds & -bounds).bit_length() - 1
