"""The numbers of rows in a postings blob: dense, so that row numbers and gaps take few bits.

Row r of row group i has the number r + sum of (n_j + 1) for all row groups j < i, where n_j is the number of rows of
row group j. One number stays free after each row group, so that no run of numbers reaches from one row group into the
next. The row space of the segment has far wider gaps between row groups; each of those would widen a whole stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from puffin_index.storage.arrays import Ints, Rows
from puffin_index.storage.parts import checksum32


@dataclass(frozen=True, slots=True, eq=False)
class RowNumbers:
    """The row groups of a segment and the numbers of their rows.

    Attributes:
        bases: The first row of each row group in the segment's row space.
        row_counts: The number of rows of each row group.
        firsts: The number of the first row of each row group.
    """

    bases: Ints
    row_counts: Ints
    firsts: Ints

    @classmethod
    def of(cls, spans: Sequence[tuple[int, int]] | Ints) -> RowNumbers:
        """Number the rows of row groups, given as pairs of base and row count in ascending order."""
        pairs = np.array(spans, np.int64).reshape(-1, 2)
        bases, counts = pairs[:, 0], pairs[:, 1]
        return cls(bases, counts, np.cumsum(counts + 1) - (counts + 1))

    @property
    def nbytes(self) -> int:
        """The memory of the arrays, in bytes."""
        return self.bases.nbytes + self.row_counts.nbytes + self.firsts.nbytes

    @property
    def row_count(self) -> int:
        """The number of rows of all row groups."""
        return int(self.row_counts.sum())

    @property
    def row_limit(self) -> int:
        """The end of the last row group in the row space: greater than every row."""
        return int((self.bases + self.row_counts).max(initial=0))

    @property
    def limit(self) -> int:
        """The end of all numbers: greater than the number of every row."""
        return int((self.row_counts + 1).sum())

    @property
    def checksum(self) -> int:
        """The low half of the xxh64 of base and row count of each row group, 8 bytes each."""
        return checksum32(np.stack((self.bases, self.row_counts), axis=1).astype("<i8").tobytes())

    def to_rows(self, starts: Ints, lengths: Ints) -> Ints | None:
        """Return the first row, in the row space, of each run of numbers; None if a run leaves its row group.

        Args:
            starts: The first number of each run, ascending, each below `limit`.
            lengths: The length of each run.
        """
        cuts = np.append(np.searchsorted(starts, self.firsts), len(starts))
        counts = np.diff(cuts)
        if bool((starts + lengths > np.repeat(self.firsts + self.row_counts, counts)).any()):
            return None
        rows: Ints = starts + np.repeat(self.bases - self.firsts, counts)
        return rows

    def to_numbers(self, rows: Rows) -> Ints:
        """Return the numbers of some rows of the row space; each row must lie in a row group."""
        owners = np.searchsorted(self.bases, rows, "right") - 1
        numbers: Ints = rows + (self.firsts - self.bases)[owners]
        return numbers
