"""Pruning: which row groups can hold a match. Each stage is vectorised and sees only what the one before left alive.

Zone maps (directories only) come first; the stages that read indexes follow (`planner.prune.index_stages`). A row group
that is undecided when the time is over is kept.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from planner.clock import Clock
from planner.predicate.nodes import Predicate
from planner.predicate.tree import PredicateTree
from planner.prune.estimate import estimate_leaf
from planner.prune.funnel import Funnel
from planner.prune.gate import DEFAULT_LIMITS, CostGate, Limits
from planner.prune.index_stages import IndexStages
from planner.prune.leaf_state import LeafState
from planner.prune.pruned import Pruned, Reason
from planner.prune.zone_map import JoinedVerdicts, judge_by_zone_map
from planner.view.directories import FieldStatistics, IndexReads, selection_among, selection_of
from planner.view.index_view import IndexView
from puffin_index.storage.arrays import Ints
from puffin_index.storage.files import READ_COUNT


class Pruner:
    """Prunes row groups of one view for one predicate; the time that it may take begins when it is made.

    Args:
        view: The index.
        predicate: What to look for.
        row_groups: Which row groups of the view to judge (int64).
        limits: Bounds.
    """

    def __init__(
        self, view: IndexView, predicate: Predicate, row_groups: Ints, limits: Limits = DEFAULT_LIMITS
    ) -> None:
        self._clock = Clock(limits.seconds)
        self._view = view
        self._predicate = predicate
        self._tree = PredicateTree(predicate)
        self._row_groups = row_groups
        self._limits = limits
        self._reads = IndexReads()
        self._funnel = Funnel(self._reads, limits.strict)
        self._states = [LeafState(leaf, number) for number, leaf in enumerate(self._tree.leaves)]
        self._verdicts = JoinedVerdicts(self._tree, len(row_groups))
        self._alive = np.arange(0)
        self._reasons = np.full(len(row_groups), Reason.MAY_MATCH, np.uint8)
        self._matches = np.full(len(row_groups), -1, np.int64)

    def prune(self) -> Pruned:
        """Run the stages."""
        token = READ_COUNT.set(self._reads.count)
        try:
            return self._prune()
        finally:
            READ_COUNT.reset(token)

    def _prune(self) -> Pruned:
        gate = CostGate(self._view, self._tree, self._row_groups[:0], self._limits)

        def by_zone_map() -> int:
            nonlocal gate
            known = self._judge_leaves()
            dropped = self._settle()
            gate = self._estimated(known)
            return dropped

        self._funnel.run("zone-map", len(self._row_groups), by_zone_map)
        stages = IndexStages(
            self._view,
            self._predicate,
            self._tree,
            self._states,
            self._row_groups[self._alive],
            self._verdicts.among(self._alive),
            gate,
            self._clock,
            self._reads,
        )
        row_sets = stages.run(self._funnel)
        self._reasons[self._alive], self._matches[self._alive] = stages.reasons, stages.matches
        troubles = tuple(self._reads.troubles)
        return Pruned(self._reasons, self._matches, tuple(self._funnel.stages), troubles, row_sets)

    def _judge_leaves(self) -> dict[int, FieldStatistics]:
        """Judge each leaf, as long as there is time; return the statistics that there are, by the leaf's number."""
        known: dict[int, FieldStatistics] = {}
        for state in self._states:
            if self._clock.is_over:
                break
            leaf, statistics = state.leaf, self._view.statistics(state.leaf, self._reads)
            if statistics is not None:
                known[state.number] = statistics
                self._verdicts.put(state.number, judge_by_zone_map(leaf.test, statistics, self._row_groups))
        return known

    def _settle(self) -> int:
        """Write down what the verdicts settle; return how many row groups they drop."""
        verdicts = self._verdicts.root
        impossible, certain = ~verdicts.possible, verdicts.certain & verdicts.possible
        self._reasons[impossible], self._matches[impossible] = Reason.ZONE_MAP, 0
        self._reasons[certain] = Reason.ALL_ROWS_MATCH
        self._matches[certain] = self._view.row_counts[self._row_groups[certain]]
        self._alive = np.flatnonzero(~impossible & ~certain)
        return int(np.count_nonzero(impossible))

    def _estimated(self, known: Mapping[int, FieldStatistics]) -> CostGate:
        """The cost gate for the row groups that are left, with estimates of the leaves as long as there is time."""
        row_groups = self._row_groups[selection_among(self._alive, len(self._row_groups))]
        gate = CostGate(self._view, self._tree, row_groups, self._limits)
        is_alone = len(self._tree.nodes) == 1 and not self._limits.rows_wanted
        for number, statistics in known.items():
            if self._clock.is_over:
                break
            estimate = estimate_leaf(self._states[number].leaf.test, statistics, row_groups, is_alone=is_alone)
            # Without statistics a row group may well hold a match.
            there = statistics.known[selection_of(row_groups)]
            np.copyto(estimate.selectivity, 1.0, where=~there)
            np.copyto(estimate.presence, 1.0, where=~there)
            gate.estimates.put(number, estimate)
        return gate
