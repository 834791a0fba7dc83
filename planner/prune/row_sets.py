"""Rows of a segment, found by look-ups of leaves and joined to those of a predicate; and rows by row group of these.

A look-up in a payload answers for all row groups that share the payload. Its rows go into one set of the segment's row
space. Row sets of single row groups are cut out when somebody asks.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from planner.view.directories import positions_by_number
from puffin_index.kinds.base import RowSet
from puffin_index.storage.arrays import Flags, Floats, Ints, Rows

_LAST_ROW = 2**32 - 1

_MANY_ROWS = 512
"""With more rows a row group, counting in the set takes less time than listing the rows."""

_MOST_ROWS_MEASURED = 65_536
"""With more rows a segment, finding their gaps takes longer than it saves."""


@dataclass(frozen=True, slots=True, eq=False)
class FoundRows:
    """Rows that satisfy a leaf or a predicate: for each segment a set, never changed, of its row space.

    The set of a segment may have rows of other row groups as well.

    Attributes:
        row_counts: Rows of each row group of the view.
        segment: The segment in whose row space the rows of a row group stand; -1 where they are not known.
        first: The first row of each row group in that row space.
        rows: The rows by segment.
    """

    row_counts: Ints
    segment: Ints
    first: Ints
    rows: dict[int, BitMap] = field(default_factory=dict)

    @classmethod
    def nothing(cls, row_counts: Ints) -> "FoundRows":
        """Make a set without rows, where those of no row group are known."""
        return cls(row_counts, np.full(len(row_counts), -1, np.int64), np.zeros(len(row_counts), np.int64))

    def add(
        self, row_groups: Ints, segments: npt.NDArray[np.integer] | int, firsts: Ints, rows: dict[int, list[BitMap]]
    ) -> None:
        """Add rows, complete for some row groups, by segment; say where each of these row groups stands."""
        self.segment[row_groups], self.first[row_groups] = segments, firsts
        for segment, own in rows.items():
            every = [*own, self.rows[segment]] if segment in self.rows else own
            self.rows[segment] = every[0] if len(every) == 1 else BitMap.union(*every)

    def are_known(self, row_groups: Ints) -> Flags:
        """Say for each of some row groups whether its rows are known."""
        return np.asarray(self.segment[row_groups] >= 0, np.bool_)

    def of(self, row_group: int) -> BitMap | None:
        """The rows of one row group, numbered from 0 in it; None if they are not known."""
        segment = int(self.segment[row_group])
        if segment < 0:
            return None
        first, row_count = int(self.first[row_group]), int(self.row_counts[row_group])
        return (self.rows[segment] & BitMap(range(first, first + row_count))).shift(-first)

    def counts(self, row_groups: Ints) -> Ints:
        """How many rows each row group has, -1 where they are not known."""
        counts = np.full(len(row_groups), -1, np.int64)
        for segment, here in positions_by_number(self.segment[row_groups]):
            counts[here] = count_between(self.rows[segment], *self._spans(row_groups[here]))
        return counts

    def widest_gaps(self, row_groups: Ints) -> Floats:
        """The most rows in a row without a match, for each row group; infinite where that is not known."""
        gaps = np.full(len(row_groups), np.inf)
        for segment, places in positions_by_number(self.segment[row_groups]):
            rows = self.rows[segment]
            if len(rows) <= _MOST_ROWS_MEASURED:
                here = places[np.argsort(self.first[row_groups[places]])]
                gaps[here] = _widest_gaps(rows, *self._spans(row_groups[here]))
        return gaps

    def moved(self, row_groups: Ints, firsts: Ints) -> BitMap:
        """The rows of some row groups, if these are known, as if the row groups began at other first rows."""
        here = np.flatnonzero(self.counts(row_groups) > 0)
        places = zip(row_groups[here].tolist(), firsts[here].tolist(), strict=True)
        return BitMap.union(BitMap(), *[rows.shift(first) for own, first in places if (rows := self.of(own))])

    def _spans(self, row_groups: Ints) -> tuple[Ints, Ints]:
        first = self.first[row_groups]
        return first, first + self.row_counts[row_groups]


@dataclass(slots=True)
class RowSets:
    """The rows behind the verdicts of one plan: to read rows, count them, or subtract deleted ones.

    `given` has rows by row group, `found` those of segments, which are an upper bound for row groups that are `unsure`.
    `deleted` has rows that equality deletes delete, where the index said.
    """

    given: dict[int, RowSet] = field(default_factory=dict)
    found: FoundRows | None = None
    unsure: frozenset[int] = frozenset()
    deleted: dict[int, BitMap] = field(default_factory=dict)

    def of(self, row_group: int) -> RowSet | None:
        """The rows of a row group that can match; None if no index said."""
        given = self.given.get(row_group)
        if given is not None or self.found is None:
            return given
        rows = self.found.of(row_group)
        return None if rows is None else RowSet(rows, exact=row_group not in self.unsure)

    def is_kept(self, row_group: int) -> bool:
        """Whether the rows of a row group are kept, and exact."""
        given = self.given.get(row_group)
        if given is not None:
            return given.exact
        return self.found is not None and int(self.found.segment[row_group]) >= 0 and row_group not in self.unsure


def rows_between(firsts: Ints, ends: Ints) -> BitMap:
    """All rows from each of some first rows to an end."""
    rows = BitMap()
    for first, end in zip(firsts.tolist(), ends.tolist(), strict=True):
        rows.add_range(first, end)
    return rows


def _widest_gaps(rows: BitMap, starts: Ints, ends: Ints) -> Ints:
    """The most rows in a row without a match from each of some ascending starts to its end, which is no later start."""
    listed = np.frombuffer(rows.to_array(), np.uint32).astype(np.int64)
    # Start and end stand in the list as if they matched: one row earlier, and one row behind.
    bounds = np.stack([starts, ends], axis=1).ravel()
    places = np.searchsorted(listed, bounds)
    edges = np.insert(listed, places, bounds - np.tile([1, 0], len(starts)))
    distances = np.append(np.diff(edges), 0)
    return np.asarray(np.maximum.reduceat(distances, places + np.arange(len(bounds)))[::2] - 1, np.int64)


def count_between(rows: BitMap, lows: Ints, highs: Ints) -> Ints:
    """How many rows lie from each of some low bounds to before a high one."""
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
