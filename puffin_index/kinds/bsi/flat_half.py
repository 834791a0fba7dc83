"""The numbers of one half as flat bits: sums, ends and numbers of rows by operations on whole slices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from puffin_index.roaring.flat import popcount
from puffin_index.storage.arrays import Bytes, Flags, Ints, Rows
from puffin_index.storage.bit_transpose import transpose_bits


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


@dataclass(frozen=True, slots=True, eq=False)
class FlatHalf:
    """The numbers of one sign.

    Attributes:
        minimum: The smallest magnitude.
        existence: The rows that have a number of this sign, as bits (`puffin_index.roaring.flat`).
        slices: The bits of magnitude - minimum, lowest first: shape (slices, bytes). No other row has one.
    """

    minimum: int
    existence: Bytes
    slices: Bytes

    def totals(self, among: Bytes | None) -> HalfTotals | None:
        """Return the totals of some rows, given as bits (None for all); None if no such row has a number here."""
        rows = self.existence if among is None else self.existence & among
        count = int(popcount(rows))
        if not count:
            return None
        ones = popcount(self.slices if among is None else self.slices & rows).tolist()
        offset, ends = sum(one << bit for bit, one in enumerate(ones)), [self.minimum, self.minimum]
        least, most = rows, rows
        for bit in reversed(range(len(ones))):
            # A bit that no row or every row has splits nothing.
            if 0 < ones[bit] < count:
                with_bit, without = most & self.slices[bit], least & ~self.slices[bit]
                has_one, has_zero = with_bit.any(), without.any()
                most, least = (with_bit if has_one else most), (without if has_zero else least)
            else:
                has_one, has_zero = ones[bit] > 0, not ones[bit]
            ends[0] += 0 if has_zero else 1 << bit
            ends[1] += 1 << bit if has_one else 0
        return HalfTotals(count, self.minimum * count + offset, ends[0], ends[1])

    def of_rows(self, rows: Rows | None) -> tuple[Flags, Ints]:
        """Return which of some rows (None for all) have a number here, and magnitude - minimum of each (else 0)."""
        if rows is None:
            known = np.unpackbits(self.existence, bitorder="little").astype(np.bool_)
            return known, _as_numbers(transpose_bits(self._padded(self.slices)))
        byte, bit = rows >> 3, (rows & 7).astype(np.uint8)
        known = (self.existence[byte] >> bit & 1).astype(np.bool_)
        return known, _as_numbers(np.packbits(self.slices[:, byte] >> bit & 1, axis=0, bitorder="little").T)

    @staticmethod
    def _padded(slices: Bytes) -> Bytes:
        missing = -len(slices) % 8
        return np.concatenate((slices, np.zeros((missing, slices.shape[1]), np.uint8))) if missing else slices


def _as_numbers(columns: Bytes) -> Ints:
    """Return little-endian numbers of up to 8 bytes, one a row."""
    wide = np.zeros((len(columns), 8), np.uint8)
    wide[:, : columns.shape[1]] = columns
    return wide.view("<i8").reshape(-1)
