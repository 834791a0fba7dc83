"""Rows by row group: what look-ups of leaves found in payloads, and what searches of single row groups gave.

A look-up in a merged payload answers for all row groups that share the payload. Its rows stay as the payload gave
them: one set of the segment's row space. Row sets of single row groups are cut out when somebody asks.
"""

from dataclasses import dataclass, field

import numpy as np
from pyroaring import BitMap

from planner.view.directories import Groups, KindDirectory, positions_by_number, segment_of
from puffin_index.kinds.base import RowSet
from puffin_index.roaring import BLOCK_BYTES, BLOCK_ROWS
from puffin_index.storage.arrays import Floats, Ints, Rows

_LAST_ROW = 2**32 - 1

_MANY_ROWS = 512
"""With more rows a row group, counting in the set takes less time than listing the rows."""

_MOST_ROWS_MEASURED = 65_536
"""With more rows a payload, finding their gaps takes longer than it saves."""

_MOST_BYTES_KEPT = 128 * 1024 * 1024
"""Memory of all row sets of the row level that one plan keeps, at most."""


@dataclass(frozen=True, slots=True)
class FoundRows:
    """The rows, exact, that satisfy a leaf or several: sets, never changed, of a segment's row space by `blob`."""

    directory: KindDirectory
    row_counts: Ints
    rows: dict[int, BitMap] = field(default_factory=dict)

    def of(self, row_group: int) -> BitMap | None:
        """The matching rows of one row group, numbered from 0 in it; None if nobody asked its payload."""
        rows = self.rows.get(int(self.directory.blob[row_group]))
        if rows is None:
            return None
        base, row_count = int(self.directory.base[row_group]), int(self.row_counts[row_group])
        return (rows & BitMap(range(base, base + row_count))).shift(-base)

    def of_segment(self, segment: int) -> BitMap:
        """The matching rows in one segment's row space, of the payloads that were asked."""
        own = [rows for blob, rows in self.rows.items() if segment_of(blob) == segment]
        return own[0] if len(own) == 1 else BitMap.union(BitMap(), *own)

    def are_known(self, row_groups: Ints, segment: int) -> bool:
        """Whether all of some row groups lie in this segment, and in payloads that were asked."""
        blobs = self.directory.blob[row_groups]
        return bool((segment_of(blobs) == segment).all() and np.isin(blobs, list(self.rows)).all())

    def counts(self, row_groups: Ints, groups: Groups | None = None) -> Ints:
        """How many rows match in each row group, -1 where nobody asked its payload; known places save a search."""
        counts = np.full(len(row_groups), -1, np.int64)
        if not self.rows:
            return counts
        for blob, here in positions_by_number(self.directory.blob[row_groups]) if groups is None else groups:
            rows = self.rows.get(blob)
            if rows is not None:
                bases = self.directory.base[row_groups[here]]
                counts[here] = _counts_between(rows, bases, bases + self.row_counts[row_groups[here]])
        return counts

    def widest_gaps(self, row_groups: Ints) -> Floats:
        """The most rows in a row without a match, for each row group; infinite where that is not known."""
        gaps = np.full(len(row_groups), np.inf)
        for blob, here in positions_by_number(self.directory.blob[row_groups]):
            rows = self.rows.get(blob)
            if rows is not None and len(rows) <= _MOST_ROWS_MEASURED:
                starts = self.directory.base[row_groups[here]]
                gaps[here] = _widest_gaps(rows, starts, starts + self.row_counts[row_groups[here]])
        return gaps


@dataclass(slots=True)
class RowSets:
    """The rows behind the verdicts of one plan: to read rows, count them, or subtract deleted ones.

    Look-ups count if they answered every leaf. `deleted` has rows that equality deletes delete, where the index said.
    """

    evaluated: dict[int, RowSet] = field(default_factory=dict)
    found: FoundRows | None = None
    deleted: dict[int, BitMap] = field(default_factory=dict)
    _bytes: int = 0

    def of(self, row_group: int) -> RowSet | None:
        """The rows of a row group that can match; None if no index said."""
        evaluated = self.evaluated.get(row_group)
        if evaluated is not None or self.found is None:
            return evaluated
        rows = self.found.of(row_group)
        return None if rows is None else RowSet(rows, exact=True)

    def is_kept(self, row_group: int) -> bool:
        """Whether the rows of a row group are kept, and exact."""
        evaluated = self.evaluated.get(row_group)
        if evaluated is not None:
            return evaluated.exact
        return self.found is not None and int(self.found.directory.blob[row_group]) in self.found.rows

    def keep(self, row_group: int, rows: RowSet) -> None:
        """Keep what the row level gave for a row group, as long as there is room."""
        blocks = 1 + (rows.rows.max() // BLOCK_ROWS if rows.rows else 0)
        self._bytes += min(2 * len(rows.rows), blocks * BLOCK_BYTES)
        if self._bytes <= _MOST_BYTES_KEPT:
            self.evaluated[row_group] = rows


def _widest_gaps(rows: BitMap, starts: Ints, ends: Ints) -> Ints:
    """The most rows in a row without a match from each of some ascending starts to its end, which is no later start."""
    listed = np.frombuffer(rows.to_array(), np.uint32).astype(np.int64)
    # Start and end stand in the list as if they matched: one row earlier, and one row behind.
    bounds = np.stack([starts, ends], axis=1).ravel()
    places = np.searchsorted(listed, bounds)
    edges = np.insert(listed, places, bounds - np.tile([1, 0], len(starts)))
    distances = np.append(np.diff(edges), 0)
    return np.asarray(np.maximum.reduceat(distances, places + np.arange(len(bounds)))[::2] - 1, np.int64)


def _counts_between(rows: BitMap, lows: Ints, highs: Ints) -> Ints:
    if len(rows) > _MANY_ROWS * len(lows):
        bounds = zip(lows.tolist(), highs.tolist(), strict=True)
        return np.array([rows.range_cardinality(low, high) for low, high in bounds], np.int64)
    listed = np.frombuffer(rows.to_array(), np.uint32)
    first, end = (_places(listed, bounds) for bounds in (lows, highs))
    return end - first


def _places(rows: Rows, bounds: Ints) -> Ints:
    """Where row numbers stand among ascending rows. Bounds of another type would make numpy convert all rows first."""
    # A row space of 32 bits may end one behind the greatest uint32.
    within = np.minimum(bounds, _LAST_ROW).astype(np.uint32)
    return np.where(bounds > _LAST_ROW, len(rows), np.searchsorted(rows, within))
