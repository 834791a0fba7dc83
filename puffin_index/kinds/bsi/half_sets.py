"""The numbers of one half as row sets: sums, ends and numbers of rows by counting in whole slices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pyroaring import BitMap

from puffin_index.kinds.held_keys import Want
from puffin_index.storage.arrays import Flags, Ints, Rows


def _places(numbers: Rows, some: BitMap) -> Ints:
    """Return the places of some rows among ascending rows."""
    return np.searchsorted(numbers, np.frombuffer(some.to_array(), np.uint32))


@dataclass(frozen=True, slots=True)
class HalfTotals:
    """The totals of some rows of one half. What nobody wanted is 0.

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


@dataclass(frozen=True, slots=True, eq=False)
class HalfSets:
    """The numbers of one sign. Nobody changes the sets.

    Attributes:
        minimum: The smallest magnitude.
        existence: The rows that have a number of this sign.
        slices: The rows whose magnitude - minimum has each bit, lowest first; subsets of `existence`.
    """

    minimum: int
    existence: BitMap
    slices: Sequence[BitMap]

    def within(self, rows: BitMap) -> HalfSets:
        """Return the numbers of some rows alone."""
        return HalfSets(self.minimum, self.existence & rows, [ones & rows for ones in self.slices])

    def totals(self, among: BitMap | None, want: Want = Want.ALL) -> HalfTotals | None:
        """Return the totals of some rows (None for all); None if no such row has a number here."""
        count = len(self.existence) if among is None else self.existence.intersection_cardinality(among)
        if not count:
            return None
        total = self.minimum * count + self._offsets(among) if Want.SUMS in want else 0
        if Want.ENDS not in want:
            return HalfTotals(count, total, 0, 0)
        rows = self.existence if among is None else self.existence & among
        return HalfTotals(count, total, self._end(rows, is_least=True), self._end(rows, is_least=False))

    def _offsets(self, rows: BitMap | None) -> int:
        """Return the sum of magnitude - minimum of some rows; None for all. No slice has a row that does not exist."""
        if rows is None:
            return sum(len(ones) << bit for bit, ones in enumerate(self.slices))
        return sum(rows.intersection_cardinality(ones) << bit for bit, ones in enumerate(self.slices))

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

    def of_rows(self, rows: BitMap) -> tuple[Flags, Ints]:
        """Return which of some rows have a number here, and magnitude - minimum of each (else 0)."""
        numbers = np.frombuffer(rows.to_array(), np.uint32)
        known, offsets = np.zeros(len(numbers), np.bool_), np.zeros(len(numbers), np.int64)
        known[_places(numbers, self.existence & rows)] = True
        for bit, ones in enumerate(self.slices):
            offsets[_places(numbers, ones & rows)] |= np.int64(1 << bit)
        return known, offsets

    def split(self) -> dict[int, BitMap]:
        """Return the rows of each magnitude, ascending by magnitude."""
        found = {0: self.existence} if self.existence else {}
        for bit in reversed(range(len(self.slices))):
            ones = self.slices[bit]
            halves = {}
            for offset, rows in found.items():
                for own, some in ((offset, rows - ones), (offset | 1 << bit, rows & ones)):
                    if some:
                        halves[own] = some
            found = halves
        return {self.minimum + offset: rows for offset, rows in found.items()}
