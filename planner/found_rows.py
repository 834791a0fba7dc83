"""Rows that sorted postings gave for a leaf: one look-up a segment answers all its row groups."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from planner.directories import Int64Array, KindDirectory


@dataclass(frozen=True, slots=True)
class FoundRows:
    """The matching rows of one leaf, exact, by segment.

    Attributes:
        directory: Of the postings: says where the row groups lie in the segments' row spaces.
        row_counts: Rows of each row group of the view.
        rows: By segment number, ascending rows of the segment's row space (uint32).
    """

    directory: KindDirectory
    row_counts: Int64Array
    rows: dict[int, npt.NDArray[np.uint32]] = field(default_factory=dict)

    def of(self, row_group: int) -> BitMap | None:
        """The matching rows of one row group, numbered from 0 in it; None if its segment was not asked."""
        rows = self.rows.get(int(self.directory.segment[row_group]))
        if rows is None:
            return None
        base = int(self.directory.base[row_group])
        first, end = np.searchsorted(rows, [base, base + int(self.row_counts[row_group])])
        return BitMap(rows[first:end] - np.uint32(base))

    def counts(self, row_groups: Int64Array) -> Int64Array:
        """How many rows match in each row group; -1 where its segment was not asked."""
        counts = np.full(len(row_groups), -1, np.int64)
        segments = self.directory.segment[row_groups]
        for segment, rows in self.rows.items():
            here = segments == segment
            bases = self.directory.base[row_groups[here]]
            ends = bases + self.row_counts[row_groups[here]]
            counts[here] = np.searchsorted(rows, ends) - np.searchsorted(rows, bases)
        return counts
