"""Search bit slices, from the highest slice down, for the rows whose numbers lie in some intervals.

The search generalises the algorithm of O'Neil and Quass to a set of intervals: each slice splits the rows by one bit,
and a side that lies wholly inside or outside all intervals needs no further slice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from pyroaring import BitMap

from puffin_index.errors import CorruptFileError
from puffin_index.keys.intervals import Interval, Intervals, clip, shift
from puffin_index.kinds.bsi.slices import Half
from puffin_index.storage.arrays import Ints, Rows
from puffin_index.storage.parts import Part, corrupt, read_parts
from puffin_index.storage.ranged import Blob

_READ_AT_ONCE_BYTES = 64 * 1024

RowSetOf: TypeAlias = Callable[[Blob, Part, memoryview, int], BitMap]
"""Returns the row set of a part of a blob, from the part's stored bytes and the number of rows."""


@dataclass(frozen=True, slots=True)
class HalfTotals:
    """The totals of some rows of one half.

    Attributes:
        count: The number of rows; at least one.
        total: The sum of their magnitudes.
        least: The smallest magnitude.
        most: The largest magnitude.
    """

    count: int
    total: int
    least: int
    most: int


class HalfReader:
    """Reads the row sets of one half, each at most once; `row_set_of` decodes the stored parts."""

    def __init__(self, blob: Blob, half: Half, row_count: int, row_set_of: RowSetOf) -> None:
        self.half = half
        self._row_set_of = row_set_of
        self._blob = blob
        self._row_count = row_count
        self._slices: dict[int, BitMap] = {}
        self._existence: BitMap | None = BitMap(range(row_count)) if half.row_count == row_count else None

    def existence(self) -> BitMap:
        """Return the rows that have a number in this half. Callers must not change the set."""
        if self._existence is None:
            self._read([self.half.existence], [])
        assert self._existence is not None
        return self._existence

    def search(self, intervals: Intervals, candidates: BitMap | None) -> BitMap:
        """Return the rows whose magnitude lies in one of the intervals.

        Args:
            intervals: Disjoint, ascending intervals, none touching another.
            candidates: The rows of interest; None for all.
        """
        half = self.half
        wanted = shift(clip(intervals, half.minimum, half.maximum), -half.minimum)
        if not wanted:
            return BitMap()
        if wanted == ((0, half.maximum - half.minimum),):
            rows = self.existence()
            return rows.copy() if candidates is None else rows & candidates
        # No number exceeds the maximum, so an interval up to the maximum may end at all ones: that needs fewer slices.
        top = (1 << len(half.slices)) - 1
        if wanted[-1][1] == half.maximum - half.minimum:
            wanted = (*wanted[:-1], (wanted[-1][0], top))
        lowest = _lowest_slice(wanted)
        self._read_first(lowest)
        rows = self.existence()
        rows = rows if candidates is None else rows & candidates
        return self._descend(rows, len(half.slices) - 1, wanted, lowest)

    def totals(self, among: BitMap | None) -> HalfTotals | None:
        """Return the totals of the numbers of some rows (None for all); None if no such row has a number here.

        Raises:
            CorruptFileError: If the numbers contradict those of the half.
        """
        half = self.half
        self._read_all()
        rows = self.existence() if among is None else self.existence() & among
        if not rows:
            return None
        ones = [rows.intersection_cardinality(self._slices[bit]) for bit in range(len(half.slices))]
        offsets = sum(count << bit for bit, count in enumerate(ones))
        least, most = rows, rows
        ends = [half.minimum, half.minimum]
        for bit in reversed(range(len(half.slices))):
            if ones[bit]:
                zeros, set_bits = least - self._slices[bit], most & self._slices[bit]
                least = zeros or least
                ends[0] += 0 if zeros else 1 << bit
                most = set_bits or most
                ends[1] += 1 << bit if set_bits else 0
        agree = len(rows) <= half.row_count if among is not None else len(rows) == half.row_count
        if not agree or ends[1] > half.maximum:
            raise self._other_numbers()
        return HalfTotals(len(rows), half.minimum * len(rows) + offsets, ends[0], ends[1])

    def magnitudes(self) -> tuple[Rows, Ints]:
        """Return the rows that have a number in this half, ascending, and the magnitude of each.

        Raises:
            CorruptFileError: If rows or magnitudes contradict the numbers of the half.
        """
        half = self.half
        self._read_all()
        rows = np.frombuffer(self.existence().to_array(), np.uint32)
        offsets = np.zeros(self._row_count, np.uint64)
        for bit, ones in self._slices.items():
            offsets[np.frombuffer(ones.to_array(), np.uint32)] |= np.uint64(1 << bit)
        own = offsets[rows]
        agree = len(rows) == half.row_count and np.count_nonzero(offsets) == np.count_nonzero(own)
        if not agree or int(own.max()) > half.maximum - half.minimum:
            raise self._other_numbers()
        return rows, (own + np.uint64(half.minimum)).astype(np.int64)

    def _other_numbers(self) -> CorruptFileError:
        reason = "bit slices of other numbers than they are said to have"
        return corrupt(self._blob, reason, self.half.existence.offset)

    def _read_all(self) -> None:
        self._read([self.half.existence] if self._existence is None else [], range(len(self.half.slices)))

    def _descend(self, rows: BitMap, bit: int, intervals: Sequence[Interval], lowest: int) -> BitMap:
        """Return the rows whose numbers lie in one of the intervals.

        Args:
            rows: Rows that agree in all bits above `bit`.
            bit: The highest bit that is still unknown.
            intervals: The intervals of the numbers' bits from `bit` down.
            lowest: The lowest slice that the search may need.
        """
        if not rows or not intervals:
            return BitMap()
        middle = 1 << bit if bit >= 0 else 0
        if intervals[0] == (0, max(2 * middle - 1, 0)):
            return rows
        if bit not in self._slices:
            self._read([], range(lowest, bit + 1))
        ones = self._slices[bit]
        below = [(low, min(high, middle - 1)) for low, high in intervals if low < middle]
        above = [(max(low - middle, 0), high - middle) for low, high in intervals if high >= middle]
        if not above:
            return self._descend(rows - ones, bit - 1, below, lowest)
        found = self._descend(rows & ones, bit - 1, above, lowest)
        return found | self._descend(rows - ones, bit - 1, below, lowest) if below else found

    def _read_first(self, lowest: int) -> None:
        """Read the existence set and the needed slices, or only the upper slices if the lower ones are large."""
        slices = self.half.slices
        # About log2(rows) upper bits already tell most numbers apart: a search seldom descends below those bits.
        first = max(lowest, len(slices) - self.half.row_count.bit_length() - 1)
        if sum(part.length for part in slices[lowest:first]) <= _READ_AT_ONCE_BYTES:
            first = lowest
        missing = [bit for bit in range(first, len(slices)) if bit not in self._slices]
        self._read([self.half.existence] if self._existence is None else [], missing)

    def _read(self, existence: Sequence[Part], bits: Sequence[int]) -> None:
        missing = [bit for bit in bits if bit not in self._slices]
        parts = [*existence, *(self.half.slices[bit] for bit in missing)]
        stored = zip(parts, read_parts(self._blob, parts), strict=True)
        sets = [self._row_set_of(self._blob, part, content, self._row_count) for part, content in stored]
        if existence:
            self._existence = sets[0]
        self._slices.update(zip(missing, sets[len(existence) :], strict=True))


def _lowest_slice(intervals: Intervals) -> int:
    """Return the lowest bit that can matter: in all lower bits, every interval begins with zeros and ends with ones."""
    bounds = 0
    for low, high in intervals:
        bounds |= low | (high + 1)
    return (bounds & -bounds).bit_length() - 1
