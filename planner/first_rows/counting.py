"""Counting the rows that certainly satisfy a predicate and come first in an order, for one order bound after another.

A bound that enough rows reach leaves these rows as candidates: the next bound lies before that one, so that only the
order has to be asked again, and not the whole predicate.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from pyroaring import BitMap

from planner.clock import Clock
from planner.condition.rows import satisfying
from planner.condition.tree.nodes import Predicate
from planner.condition.tree.simplify import conjunction
from planner.prune.distributed import Executors, prune_row_groups
from planner.prune.gate import Limits
from planner.prune.row_sets import RowSets
from planner.prune.statistics_search import expected_matches
from planner.prune.verdicts import Pruned, Reason
from planner.view.directories import IndexReads
from planner.view.index_view import IndexView
from planner.view.keys_of_rows import keys_of_rows
from puffin_index.keys.columns import Column
from puffin_index.keys.map_key import ColumnId
from puffin_index.kinds.base import RowSet
from puffin_index.storage.arrays import Flags, Ints

WIDE_SHARE: Final = 0.05
"""Finding the rows of a predicate that more rows satisfy takes long, unless other tests leave few candidates."""


@dataclass(frozen=True, slots=True)
class Counted:
    """The rows that certainly match in each row group, 0 where rows may be deleted."""

    at: Ints
    counts: Ints
    pruned: Pruned

    @property
    def total(self) -> int:
        """The rows in all of the row groups."""
        return int(self.counts.sum())


@dataclass(slots=True)
class Counting:
    """Counts rows that certainly match in row groups without deletes, and the index bytes that this takes.

    `candidates` are all rows that may still be counted, see `narrow`; None if only the predicate says which. `keys` are
    rows whose keys of the order's column are known, candidates among them.
    """

    view: IndexView
    row_groups: Ints
    is_countable: Flags
    clock: Clock
    limits: Limits
    executors: Executors | None
    bytes_read: int = 0
    candidates: dict[int, BitMap] | None = None
    keys: dict[int, tuple[BitMap, Column]] | None = None

    def of(self, predicate: Predicate, at: Ints) -> Counted:
        """Count the rows that satisfy a predicate, at some positions."""
        return self._counted(at, self._prune(predicate, at))

    def first(self, predicate: Predicate, first: Predicate, at: Ints, column: tuple[ColumnId, str]) -> Counted:
        """Count the rows, among the candidates if there are any, that satisfy a predicate and come first."""
        if self.candidates is None:
            return self.of(conjunction([predicate, first]), at)
        is_wide = self.keys is not None or self._is_wide(first, at)
        if is_wide and self.keys is None:
            self._read_keys(column)
        if self.keys is not None:
            rows: dict[int, BitMap] = {}
            for position in set(at.tolist()) & self.candidates.keys():
                known, keys = self.keys[position]
                numbers = np.frombuffer(known.to_array(), np.uint32)[satisfying(first, column[0], keys)]
                if found := BitMap(numbers) & self.candidates[position]:
                    rows[position] = found
            return self._counted(at, self._verdicts(at, rows))
        pruned = None if is_wide else self._prune(first, at)
        among = None if pruned is None else self._rows(at, pruned, self.candidates)
        if pruned is None or among is None:
            return self.of(conjunction([predicate, first]), at)
        verdicts = self._verdicts(at, among)
        # A verdict that needs no index stays.
        reasons = np.where(pruned.kept, verdicts.reasons, pruned.reasons)
        return self._counted(at, replace(verdicts, reasons=reasons, stages=pruned.stages, used=pruned.used))

    def narrow(self, counted: Counted) -> None:
        """Count only among these rows from now on, if they are all known."""
        self.candidates = self._rows(counted.at, counted.pruned)

    def _is_wide(self, first: Predicate, at: Ints) -> bool:
        """Whether finding the candidates anew reads less than finding all rows that come first."""
        assert self.candidates is not None
        row_groups = self.row_groups[at]
        expected = expected_matches(self.view, first, row_groups)
        candidates = sum(map(len, self.candidates.values()))
        return expected > max(WIDE_SHARE * int(self.view.row_counts[row_groups].sum()), candidates)

    def _prune(self, predicate: Predicate, at: Ints) -> Pruned:
        limits = replace(self.limits, seconds=self.clock.seconds_left)
        pruned = prune_row_groups(self.view, predicate, self.row_groups[at], limits, self.executors)
        self.bytes_read += sum(stage.bytes_read for stage in pruned.stages)
        return pruned

    def _read_keys(self, column: tuple[ColumnId, str]) -> None:
        """Read the keys of all candidates at once, if some index has the keys of rows."""
        assert self.candidates is not None
        positions = {int(self.row_groups[position]): position for position in self.candidates}
        rows = {row_group: self.candidates[position] for row_group, position in positions.items()}
        reads = IndexReads()
        # Pruning by the predicate meets the same trouble and reports it.
        found = keys_of_rows(self.view, *column, rows, self.limits.byte_budget, reads)
        self.bytes_read += reads.count.bytes
        if found is not None and all(isinstance(keys.keys, np.ndarray) for keys in found.values()):
            self.keys = {positions[row_group]: (rows[row_group], keys) for row_group, keys in found.items()}

    def _verdicts(self, at: Ints, rows: dict[int, BitMap]) -> Pruned:
        counts = np.array([len(rows.get(position, ())) for position in at.tolist()], np.int64)
        reasons = np.where(counts > 0, Reason.ROWS_MATCH, Reason.ROWS_EMPTY).astype(np.uint8)
        found = {int(self.row_groups[position]): RowSet(own, exact=True) for position, own in rows.items()}
        return Pruned(reasons, counts, (), (), row_sets=RowSets(found))

    def _counted(self, at: Ints, pruned: Pruned) -> Counted:
        return Counted(at, np.where(self.is_countable[at], np.maximum(pruned.matches, 0), 0), pruned)

    def _rows(self, at: Ints, pruned: Pruned, among: dict[int, BitMap] | None = None) -> dict[int, BitMap] | None:
        """The rows behind a verdict, by position, among some rows; None if they are not all known."""
        if (pruned.matches < 0).any():
            return None
        found: dict[int, BitMap] = {}
        for place in np.flatnonzero(pruned.matches > 0).tolist():
            position, number = int(at[place]), int(self.row_groups[at[place]])
            known = pruned.rows_of(place, number, int(self.view.row_counts[number]))
            if known is None or len(known.rows) != pruned.matches[place]:
                return None
            rows = known.rows if among is None else known.rows & among.get(position, BitMap())
            if rows:
                found[position] = rows
        return found
