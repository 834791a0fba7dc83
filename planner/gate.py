"""The cost gate: whether reading an index is expected to save more than it costs, and within what bounds.

Data bytes, index bytes and requests are compared as bytes. Estimates come from directories alone; a wrong one costs
time, never an answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, assert_never

import numpy as np
import numpy.typing as npt

from planner.directories import Int64Array, selection_among
from planner.estimate import Estimate, FloatArray, both, either
from planner.predicate import Conjunction, Disjunction, Everything, Leaf, Nothing, Predicate
from planner.view import IndexView

DEFAULT_BYTE_BUDGET: Final = 256 * 1024 * 1024
"""How many index bytes a query may read, unless it is told otherwise."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one plan.

    Attributes:
        strict: Raise on index trouble instead of keeping the row groups.
        byte_budget: How many index bytes may be read, directories not counted; what they do not suffice for is kept.
        rows_wanted: The rows themselves are of use (they will be counted), so that an index is worth its bytes also
            where it drops no row group.
    """

    strict: bool = False
    byte_budget: int = DEFAULT_BYTE_BUDGET
    rows_wanted: bool = False


DEFAULT_LIMITS: Final = Limits()

SURE: Final = 0.98
"""Probability of a match from which on looking for its absence is not worth a read."""

_READ_SHARE = 0.25
"""Share of a row group's bytes that a typical query reads: a few of its columns."""

_COST_WEIGHT = 0.25
"""An index byte is cheaper than a data byte: it is neither decompressed, decoded nor shipped through tasks."""

_ROW_GROUP_OVERHEAD_BYTES = 128 * 1024
"""What a row group costs besides its bytes, in bytes: a request for each column, its share of a task."""

_REQUEST_BYTES = 16 * 1024
"""What a request costs besides its bytes, in bytes."""


class CostGate:
    """Weighs what reading an index saves against what it costs, for some row groups of a view.

    Args:
        view: The index.
        predicate: What is looked for.
        row_groups: The row groups of the view that are judged; positions below are places in this array.
        limits: Bounds.
    """

    def __init__(self, view: IndexView, predicate: Predicate, row_groups: Int64Array, limits: Limits) -> None:
        self._view = view
        self._predicate = predicate
        self._row_groups = row_groups
        self._left = limits.byte_budget
        self._rows_wanted = limits.rows_wanted
        self.estimates: dict[Leaf, Estimate] = {}

    def presence(self, leaf: Leaf, at: Int64Array) -> FloatArray:
        """Probability that a row group holds a match of a leaf."""
        return self._estimate(leaf, at, MappingProxyType({})).presence

    def saved(self, at: Int64Array, known: Mapping[Leaf, Estimate] = MappingProxyType({})) -> FloatArray:
        """The bytes that dropping row groups is expected to save, for each of some positions.

        Args:
            at: The positions, ascending.
            known: Better estimates of some leaves, at these positions.
        """
        if self._rows_wanted:
            return self._bytes_without(at)
        presence = self._estimate(self._predicate, at, known).presence
        unsure = presence < SURE
        if not unsure.any():
            return np.zeros(len(at))
        return np.where(unsure, (1 - presence) * self._bytes_without(at), 0.0)

    def worth(self, saved: FloatArray | float, cost: Int64Array | int, reads: int) -> npt.NDArray[np.bool_]:
        """Whether bytes that are saved outweigh index bytes and requests."""
        return np.asarray(np.asarray(saved) > np.asarray(cost) * _COST_WEIGHT + reads * _REQUEST_BYTES, np.bool_)

    def afford(self, costs: Sequence[int] | Int64Array) -> npt.NDArray[np.bool_]:
        """Take costs from the budget, one after the other; say which it pays for."""
        spent = np.cumsum(np.asarray(costs, np.int64))
        affordable = spent <= self._left
        if len(spent) and affordable.any():
            self._left -= int(spent[affordable][-1])
        return np.asarray(affordable, np.bool_)

    def _bytes_without(self, at: Int64Array) -> FloatArray:
        """About how many bytes a query reads of each row group, requests counted as bytes."""
        read = (
            self._view.row_group_bytes[self._row_groups[selection_among(at, len(self._row_groups))]] * _READ_SHARE
            + _ROW_GROUP_OVERHEAD_BYTES
        )
        return np.asarray(read, np.float64)

    def _estimate(self, predicate: Predicate, at: Int64Array, known: Mapping[Leaf, Estimate]) -> Estimate:
        match predicate:
            case Leaf():
                if predicate in known:
                    return known[predicate]
                estimate = self.estimates.get(predicate)
                if estimate is None:
                    return Estimate(np.ones(len(at)), np.ones(len(at)))
                here = selection_among(at, len(self._row_groups))
                return Estimate(estimate.selectivity[here], estimate.presence[here])
            case Everything():
                return Estimate(np.ones(len(at)), np.ones(len(at)))
            case Nothing():
                return Estimate(np.zeros(len(at)), np.zeros(len(at)))
            case Conjunction(children):
                rows = self._view.row_counts[self._row_groups[selection_among(at, len(self._row_groups))]].astype(
                    np.float64
                )
                return both([self._estimate(child, at, known) for child in children], rows)
            case Disjunction(children):
                return either([self._estimate(child, at, known) for child in children])
            case _:
                assert_never(predicate)
