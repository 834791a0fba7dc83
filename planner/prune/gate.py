"""The cost gate: whether reading an index is expected to save more than it costs, and within what bounds.

Data bytes, index bytes and requests are all counted in bytes. Estimates come from directories alone; a wrong estimate
costs time, never an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from planner.clock import DEFAULT_MILLISECONDS
from planner.predicate.tree import PredicateTree
from planner.prune.estimate import Estimate, JoinedEstimates
from planner.view.directories import selection_among, selection_of
from planner.view.index_view import IndexView
from puffin_index.storage.arrays import Flags, Floats, Ints, Selection

DEFAULT_BYTE_BUDGET: Final = 256 * 1024 * 1024
"""How many index bytes a query may read, unless it is told otherwise."""

ROWS_BYTE_BUDGET: Final = 4 * 1024 * 1024 * 1024
"""How many index bytes a count or aggregate may read: what the index does not answer is read from the data."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one plan.

    Attributes:
        strict: Raise on index trouble instead of keeping the row groups.
        byte_budget: How many index bytes may be read, directories not counted. Row groups beyond the budget are kept.
        rows_wanted: Somebody will count the rows. An index is then worth its bytes even where no row group is dropped.
        seconds: How long judging may take; a row group that is undecided by then is kept. The clock is asked between
            pieces of work (a leaf, a payload, a row group), so the last piece may end later.
    """

    strict: bool = False
    byte_budget: int = DEFAULT_BYTE_BUDGET
    rows_wanted: bool = False
    seconds: float = DEFAULT_MILLISECONDS / 1000


DEFAULT_LIMITS: Final = Limits()

SURE: Final = 0.98
"""At this probability of a match and above, an index is not worth a read."""

_READ_SHARE = 0.25
"""Share of a row group's bytes that a typical query reads: a few of its columns."""

_COST_WEIGHT = 0.25
"""An index byte is cheaper than a data byte: it is neither decompressed, decoded nor shipped through tasks."""

_ROW_GROUP_OVERHEAD_BYTES = 128 * 1024
"""What a row group costs besides its bytes, in bytes: requests for its columns, and a share of a task."""

_REQUEST_BYTES = 16 * 1024
"""What a request costs besides its bytes, in bytes."""


class CostGate:
    """Weighs what reading an index saves against what it costs, for some row groups of a view.

    Args:
        view: The index.
        tree: The predicate.
        row_groups: The row groups of the view that are judged; positions are places in this array.
        limits: Bounds.
    """

    def __init__(self, view: IndexView, tree: PredicateTree, row_groups: Ints, limits: Limits) -> None:
        self._view = view
        self._tree = tree
        self._row_groups = row_groups
        self._left = limits.byte_budget
        self._rows_wanted = limits.rows_wanted

    @cached_property
    def estimates(self) -> JoinedEstimates:
        """Estimates of the leaves, joined. A leaf is unknown until an estimate is put. Zone maps need none."""
        return JoinedEstimates(self._tree, self._view.row_counts[selection_of(self._row_groups)])

    def saved(self, at: Ints, known: tuple[int, Estimate] | None = None) -> Floats:
        """The bytes that dropping row groups is expected to save, for each of some positions.

        Args:
            at: The positions, ascending.
            known: The number of a leaf, and a better estimate of this leaf at these positions.
        """
        if self._rows_wanted:
            return self._bytes_without(at)
        if known is None:
            presence = self.estimates.root.presence[self._selection(at)]
        else:
            presence = self.estimates.root_if(*known, self._selection(at)).presence
        unsure = presence < SURE
        if not unsure.any():
            return np.zeros(len(at))
        return np.where(unsure, (1 - presence) * self._bytes_without(at), 0.0)

    def worth(self, saved: Floats | float, cost: Ints | int, reads: int) -> Flags:
        """Whether bytes that are saved outweigh index bytes and requests."""
        return np.asarray(np.asarray(saved) > np.asarray(cost) * _COST_WEIGHT + reads * _REQUEST_BYTES, np.bool_)

    def afford(self, costs: Sequence[int] | Ints) -> Flags:
        """Take costs from the budget, one after the other; say which ones the budget pays for."""
        spent = np.cumsum(np.asarray(costs, np.int64))
        affordable = spent <= self._left
        if len(spent) and affordable.any():
            self._left -= int(spent[affordable][-1])
        return np.asarray(affordable, np.bool_)

    def _selection(self, at: Ints) -> Selection:
        return selection_among(at, len(self._row_groups))

    def _bytes_without(self, at: Ints) -> Floats:
        """About how many bytes a query reads of each row group, requests counted as bytes."""
        read = (
            self._view.row_group_bytes[self._row_groups[self._selection(at)]] * _READ_SHARE + _ROW_GROUP_OVERHEAD_BYTES
        )
        return np.asarray(read, np.float64)
