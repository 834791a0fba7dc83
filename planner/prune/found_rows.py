"""Rows that merged payloads gave for a leaf: one look-up answers all row groups that share a payload."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from pyroaring import BitMap

from planner.view.directories import Groups, KindDirectory, positions_by_number
from puffin_index.roaring.read import row_set_of
from puffin_index.storage.arrays import Ints, Rows

_LAST_ROW = 2**32 - 1


@dataclass(frozen=True, slots=True)
class FoundRows:
    """The matching rows of one leaf, exact, by payload.

    Attributes:
        directory: Of the payloads: says where the row groups lie in the segments' row spaces.
        row_counts: Rows of each row group of the view.
        rows: By payload (`KindDirectory.blob`), ascending rows of the segment's row space (uint32).
    """

    directory: KindDirectory
    row_counts: Ints
    rows: dict[int, Rows] = field(default_factory=dict)

    def of(self, row_group: int) -> BitMap | None:
        """The matching rows of one row group, numbered from 0 in it; None if its payload was not asked."""
        rows = self.rows.get(int(self.directory.blob[row_group]))
        if rows is None:
            return None
        base, row_count = self.directory.base[row_group], int(self.row_counts[row_group])
        first, end = _places(rows, np.array([base, base + row_count]))
        return row_set_of(rows[first:end] - np.uint32(base), row_count)

    def of_segment(self, segment: int) -> Rows:
        """The matching rows in one segment's row space, ascending, of the payloads that were asked."""
        own = [rows for blob, rows in self.rows.items() if blob >> 32 == segment]
        if len(own) == 1:
            return own[0]
        return np.sort(np.concatenate((np.empty(0, np.uint32), *own)))

    def are_known(self, row_groups: Ints, segment: int) -> bool:
        """Whether some row groups lie in this segment, too, and in payloads that were asked."""
        blobs = self.directory.blob[row_groups]
        return bool((blobs >> 32 == segment).all() and np.isin(blobs, list(self.rows)).all())

    def counts(self, row_groups: Ints, groups: Groups | None = None) -> Ints:
        """How many rows match in each row group; -1 where its payload was not asked.

        Args:
            row_groups: The row groups.
            groups: Where those of each payload stand among them, if that is known.
        """
        counts = np.full(len(row_groups), -1, np.int64)
        if not self.rows:
            return counts
        for blob, here in positions_by_number(self.directory.blob[row_groups]) if groups is None else groups:
            rows = self.rows.get(blob)
            if rows is not None and not len(rows):
                counts[here] = 0
            elif rows is not None:
                bases = self.directory.base[row_groups[here]]
                ends = bases + self.row_counts[row_groups[here]]
                counts[here] = _places(rows, ends) - _places(rows, bases)
        return counts


def _places(rows: Rows, bounds: Ints) -> Ints:
    """Where row numbers stand among ascending rows. Bounds of another type would have numpy convert all rows first."""
    # A row space of 32 bits may end one behind the greatest of them.
    within = np.minimum(bounds, _LAST_ROW).astype(np.uint32)
    return np.where(bounds > _LAST_ROW, len(rows), np.searchsorted(rows, within))
