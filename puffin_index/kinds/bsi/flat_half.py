"""The numbers of one half as flat bits, which are transposed to the number of each row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from puffin_index.storage.arrays import Bytes, Flags, Ints, Rows
from puffin_index.storage.bit_transpose import transpose_bits


@dataclass(frozen=True, slots=True, eq=False)
class FlatHalf:
    """The numbers of one sign.

    Attributes:
        existence: The rows that have a number of this sign, as bits (`puffin_index.roaring.flat`).
        slices: The bits of magnitude - minimum, lowest first: shape (slices, bytes). No other row has one.
    """

    existence: Bytes
    slices: Bytes

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
