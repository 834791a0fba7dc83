"""The stages of pruning that read indexes: sorted postings (one look-up a segment), bloom filters, row level.

A cost gate stands before all of them: where statistics say that nothing will be dropped, or that reading the index
costs more bytes than it can save, no index byte is read. A leaf's new verdicts change only what stands above it in the
tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

from planner.clock import Clock
from planner.predicate.nodes import Conjunction, Leaf, Predicate
from planner.predicate.tree import PredicateTree
from planner.prune.estimate import Estimate
from planner.prune.evaluate import RowEvaluator, exact_directories, has_exact_index, index_cost_bytes
from planner.prune.found_rows import FoundRows
from planner.prune.funnel import Funnel
from planner.prune.gate import CostGate
from planner.prune.joint_rows import joint_rows
from planner.prune.leaf_state import LeafState
from planner.prune.lookups import WIDE_SHARE, LookUp
from planner.prune.probes import Probe
from planner.prune.pruned import Reason
from planner.prune.row_sets import RowSetKeeper, RowSets
from planner.prune.zone_map import JoinedVerdicts, Verdicts
from planner.view.directories import IndexReads, selection_among
from planner.view.index_view import IndexView
from puffin_index.keys.leaf import SetTest
from puffin_index.kinds.base import RowSet
from puffin_index.storage.arrays import Ints, Selection

_MOST_CANDIDATES = 8
"""Leaves, the narrowest, whose rows are intersected before a wide one is looked up; more leave hardly fewer rows."""


class IndexStages:
    """Judges row groups that zone maps have left open; positions are places among these.

    Args:
        view: The index.
        predicate: What to look for.
        tree: The same as nodes.
        states: What is known of each leaf, by number.
        row_groups: The row groups of the view.
        verdicts: On the leaves, for these row groups.
        gate: For these row groups, with estimates of the leaves.
        clock: Says when no more work is begun.
        reads: Counts what is read and takes down troubles.

    Attributes:
        reasons: A `Reason` for each row group (uint8).
        matches: Matching rows where they are known exactly, else -1.
    """

    def __init__(
        self,
        view: IndexView,
        predicate: Predicate,
        tree: PredicateTree,
        states: list[LeafState],
        row_groups: Ints,
        verdicts: JoinedVerdicts,
        gate: CostGate,
        clock: Clock,
        reads: IndexReads,
    ) -> None:
        self._view = view
        self._predicate = predicate
        self._tree = tree
        self._states = states
        self._row_groups = row_groups
        self._verdicts = verdicts
        self._gate = gate
        self._clock = clock
        self._reads = reads
        self._alive = np.arange(len(row_groups))
        self._joint: FoundRows | None = None
        self._kept_sets = RowSetKeeper()
        root = tree.nodes[tree.root]
        # Leaves that hold wherever the predicate does, in the order in which they were looked up.
        self._conjuncts = {tree.nodes[part].content for part in root.parts} if root.is_and else set()
        self._narrowing: list[LeafState] = []
        self.reasons = np.full(len(row_groups), Reason.MAY_MATCH, np.uint8)
        self.matches = np.full(len(row_groups), -1, np.int64)

    def run(self, funnel: Funnel) -> RowSets:
        """Run the stages; return the rows behind the verdicts, where an index gave them."""
        for name, reason, judge in (
            ("postings", Reason.ROWS_EMPTY, self._by_postings),
            ("bloom", Reason.BLOOM, self._by_bloom),
            ("rows", Reason.ROWS_EMPTY, self._by_rows),
        ):
            funnel.run(name, len(self._alive), partial(self._dropped, judge, reason))
        found = self._states[0].found if isinstance(self._predicate, Leaf) else self._joint
        return RowSets(self._kept_sets.kept, found)

    def _dropped(self, judge: Callable[[], None], reason: Reason) -> int:
        """Run a stage; return how many row groups it dropped."""
        entered = self._alive
        judge()
        return int(np.count_nonzero(self.reasons[self._selection(entered)] == reason))

    def _selection(self, positions: Ints) -> Selection:
        return selection_among(positions, len(self._row_groups))

    def _settle(self, reason: Reason) -> None:
        """Write down what the leaves' verdicts settle."""
        verdicts, alive = self._verdicts.root, self._alive
        here = self._selection(alive)
        impossible, certain = ~verdicts.possible[here], verdicts.certain[here]
        if not impossible.any() and not certain.any():
            return
        self.reasons[alive[impossible]], self.matches[alive[impossible]] = reason, 0
        self.reasons[alive[certain]] = Reason.ALL_ROWS_MATCH
        self.matches[alive[certain]] = self._view.row_counts[self._row_groups[alive[certain]]]
        self._alive = alive[~impossible & ~certain]

    @property
    def _is_finished(self) -> bool:
        """Whether a stage ends here: nothing is left to judge, or no time."""
        return not len(self._alive) or self._clock.is_over

    def _undecided(self, state: LeafState) -> Ints:
        """Where a leaf is neither certain nor impossible."""
        verdicts, here = self._verdicts.of_leaf(state.number), self._selection(self._alive)
        return self._alive[verdicts.possible[here] & ~verdicts.certain[here]]

    def _by_postings(self) -> None:
        self._look_leaves_up("bitmap")

    def _look_leaves_up(self, kind: str) -> None:
        """Look leaves up in merged payloads, the most selective first: one search answers all of its row groups.

        Wide leaves come last: listing their rows pays only if the narrow ones leave few row groups.
        """
        for widest_share in (WIDE_SHARE, 1.0):
            for state in sorted(self._states, key=self._mean_selectivity):
                if self._is_finished:
                    return
                directory = None if state.found is not None else self._view.directory(state.leaf, kind, self._reads)
                if directory is None:
                    continue
                undecided = self._undecided(state)
                undecided = undecided[directory.merged[self._row_groups[undecided]]]
                if not len(undecided):
                    continue
                # Narrow leaves are read whole in any case.
                candidates = None if widest_share == WIDE_SHARE else self._candidates(undecided)
                self._look_up(
                    LookUp(
                        self._view,
                        self._gate,
                        state,
                        self._clock,
                        directory,
                        self._row_groups,
                        widest_share,
                        candidates,
                    ),
                    undecided,
                )

    def _mean_selectivity(self, state: LeafState) -> float:
        if not len(self._alive):
            return 1.0
        return float(self._gate.estimates.of_leaf(state.number).selectivity[self._selection(self._alive)].mean())

    def _candidates(self, positions: Ints) -> FoundRows | None:
        """The rows that satisfy the narrowest leaves of a conjunction that were looked up, for some positions."""
        children = Conjunction(tuple(state.leaf for state in self._narrowing))
        return self._rows_of(children, self._narrowing, positions)

    def _rows_of(self, predicate: Predicate, states: Iterable[LeafState], positions: Ints) -> FoundRows | None:
        """The rows that satisfy a predicate of some leaves, for those positions where all of them were looked up."""
        found: dict[Leaf, FoundRows] = {}
        for state in states:
            if state.found is None or state.answered is None:
                return None
            positions = positions[state.answered[positions]]
            found[state.leaf] = state.found
        return joint_rows(predicate, found, self._row_groups[positions])

    def _look_up(self, look_up: LookUp, undecided: Ints) -> None:
        found, found_counts, troubles = look_up.find(undecided)
        self._reads.troubles += troubles
        if not found.rows:
            return
        state, row_counts = look_up.state, self._view.row_counts[self._row_groups]
        counts = np.full(len(self._row_groups), -1, np.int64)
        counts[self._selection(undecided)] = found_counts
        asked = counts >= 0
        state.found, state.answered = found, asked
        if state.number in self._conjuncts and len(self._narrowing) < _MOST_CANDIDATES:
            self._narrowing.append(state)
        verdicts, estimate = self._verdicts.of_leaf(state.number), self._gate.estimates.of_leaf(state.number)
        self._verdicts.put(
            state.number,
            Verdicts(
                np.where(asked, counts > 0, verdicts.possible), np.where(asked, counts == row_counts, verdicts.certain)
            ),
        )
        shares = counts / np.maximum(row_counts, 1)
        np.copyto(shares, estimate.selectivity, where=~asked)
        presence = (counts > 0).astype(np.float64)
        np.copyto(presence, estimate.presence, where=~asked)
        self._gate.estimates.put(state.number, Estimate(shares, presence))
        if isinstance(self._predicate, Leaf):
            matching = undecided[counts[undecided] > 0]
            self.reasons[matching], self.matches[matching] = Reason.ROWS_MATCH, counts[matching]
        self._settle(Reason.ROWS_EMPTY)

    def _by_bloom(self) -> None:
        self._leave_out_answered()
        for state in self._states:
            if self._is_finished:
                return
            test = state.leaf.test
            if isinstance(test, SetTest) and not test.negated:
                self._probe_bloom(state, test)

    def _probe_bloom(self, state: LeafState, test: SetTest) -> None:
        leaf = state.leaf
        directory = self._view.directory(leaf, "bloom", self._reads)
        if directory is None:
            return
        undecided = self._undecided(state)
        undecided = undecided[directory.known[self._row_groups[undecided]]]
        bitmap = self._view.directory(leaf, "bitmap", self._reads)
        if bitmap is not None:
            # A bitmap answers exactly for about the same bytes; postings were asked already.
            undecided = undecided[~bitmap.known[self._row_groups[undecided]]]
        probe = Probe(self._view, self._gate, state, test, self._clock, directory, self._row_groups)
        answers, troubles = probe.possible(undecided)
        self._reads.troubles += troubles
        if answers.all():
            return
        verdicts = self._verdicts.of_leaf(state.number)
        possible = verdicts.possible.copy()
        possible[undecided] = answers
        self._verdicts.put(state.number, Verdicts(possible, verdicts.certain))
        self._settle(Reason.BLOOM)

    def _leave_out_answered(self) -> None:
        """What the look-ups answered has its verdict."""
        self._alive = self._alive[self.reasons[self._alive] != Reason.ROWS_MATCH]

    def _by_rows(self) -> None:
        # After the bloom filters, as bit slices take all slices of a column.
        self._look_leaves_up("bsi")
        self._leave_out_answered()
        if not self._clock.is_over:
            self._settle_by_joint_rows()
        if self._clock.is_over:
            self.reasons[self._alive] = Reason.TIME_BUDGET
            return
        worth = self._worth_reading()
        evaluator = RowEvaluator(
            self._view,
            self._tree,
            self._states,
            self._row_groups,
            self._verdicts,
            self._gate.estimates,
            self._clock,
            self._reads,
        )

        def evaluate(at: int) -> RowSet | None:
            return None if self._clock.is_over else evaluator.evaluate(at)

        for at, result in zip(worth.tolist(), self._view.each(evaluate, worth.tolist()), strict=True):
            if result is None:
                self.reasons[at] = Reason.TIME_BUDGET
                continue
            self._kept_sets.keep(int(self._row_groups[at]), result)
            if not result.rows:
                self.reasons[at], self.matches[at] = Reason.ROWS_EMPTY, 0
            elif result.exact:
                self.reasons[at], self.matches[at] = Reason.ROWS_MATCH, len(result.rows)
            elif at in evaluator.troubled:
                self.reasons[at] = Reason.INDEX_UNREADABLE
            elif at in evaluator.late:
                self.reasons[at] = Reason.TIME_BUDGET

    def _settle_by_joint_rows(self) -> None:
        """Settle the positions whose leaves were all looked up."""
        if isinstance(self._predicate, Leaf):
            return
        self._joint = self._rows_of(self._predicate, self._states, self._alive)
        if self._joint is None:
            return
        counts = self._joint.counts(self._row_groups[self._alive])
        settled = self._alive[counts >= 0]
        self.matches[settled] = counts[counts >= 0]
        self.reasons[settled] = np.where(self.matches[settled] > 0, Reason.ROWS_MATCH, Reason.ROWS_EMPTY)
        self._alive = self._alive[counts < 0]

    def _worth_reading(self) -> Ints:
        """Which row groups to evaluate row by row: what an index read saves is compared with what it costs."""
        alive, here = self._alive, self._selection(self._alive)
        row_groups = self._row_groups[here]
        saved = self._gate.saved(alive)
        is_hopeless = not (saved > 0).any()
        cost = np.zeros(len(alive), np.int64)
        found = np.zeros(len(alive), np.bool_)
        for state in self._states:
            leaf, verdicts = state.leaf, self._verdicts.of_leaf(state.number)
            needed = verdicts.possible[here] & ~verdicts.certain[here]
            if state.answered is not None:
                answered = state.answered[here]
                found |= answered
                needed &= ~answered
            if is_hopeless:  # not even a directory is worth its bytes
                self.reasons[alive[needed & has_exact_index(self._view, leaf, row_groups)]] = Reason.NOT_WORTH_READING
                continue
            if self._clock.is_over:
                self.reasons[alive] = Reason.TIME_BUDGET
                return alive[:0]
            for directory in exact_directories(self._view, leaf, self._reads)[:1]:
                cost += np.where(needed, index_cost_bytes(leaf.test, directory, row_groups), 0)
        worth = self._gate.worth(saved, cost, 0)
        self.reasons[alive[~worth & (cost > 0)]] = Reason.NOT_WORTH_READING
        read = np.flatnonzero(worth & (cost > 0))
        affordable = self._gate.afford(cost[read])
        self.reasons[alive[read[~affordable]]] = Reason.OVER_BUDGET
        free = np.flatnonzero(found & (cost == 0))
        return alive[np.sort(np.concatenate((read[affordable], free)))]
