"""The row sets that pruning came by: for those who read the rows, count them, or subtract deleted ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from planner.prune.found_rows import FoundRows
from puffin_index.kinds.base import RowSet

_MOST_ROWS_KEPT = 64_000_000
"""Rows of all sets of a plan together, two bytes each at most."""


@dataclass(frozen=True, slots=True)
class RowSets:
    """Row sets by row group of the view; rows are numbered from 0 in each row group.

    Attributes:
        evaluated: What the row level gave.
        found: What sorted postings gave where the predicate is one leaf, exact.
    """

    evaluated: Mapping[int, RowSet] = field(default_factory=dict)
    found: FoundRows | None = None

    def of(self, row_group: int) -> RowSet | None:
        """The rows of a row group that can match; None if no index was asked."""
        evaluated = self.evaluated.get(row_group)
        if evaluated is not None or self.found is None:
            return evaluated
        rows = self.found.of(row_group)
        return None if rows is None else RowSet(rows, exact=True)


@dataclass(slots=True)
class RowSetKeeper:
    """Keeps row sets as long as there is room.

    Attributes:
        kept: Row sets by row group of the view.
    """

    kept: dict[int, RowSet] = field(default_factory=dict)
    _rows: int = 0

    def keep(self, row_group: int, rows: RowSet) -> None:
        """Keep the row set of a row group."""
        self._rows += len(rows.rows)
        if self._rows <= _MOST_ROWS_KEPT:
            self.kept[row_group] = rows
