"""Pruning: which row groups can hold a match. Each stage is vectorised and sees only what the one before left alive.

Stages: zone maps (directories only), sorted postings (one look-up a segment), bloom filters, row level. A cost gate
stands before all but the first: where statistics say that nothing will be dropped, or that reading the index costs more
bytes than it can save, no index byte is read.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import assert_never

import numpy as np
import numpy.typing as npt

from planner.directories import IndexReads, IndexTrouble, Int64Array, selection_among, selection_of
from planner.estimate import Estimate, estimate_leaf
from planner.evaluate import RowEvaluator, exact_directories, has_exact_index, index_cost_bytes, keys_agree
from planner.found_rows import FoundRows
from planner.gate import DEFAULT_LIMITS, CostGate, Limits
from planner.joint_rows import joint_rows
from planner.key_types import comparable
from planner.lookups import WIDE_SHARE, LookUp
from planner.predicate import Conjunction, Disjunction, Everything, Leaf, Nothing, Predicate, leaves
from planner.probes import Probe
from planner.pruned import Pruned, Reason, Stage
from planner.row_sets import RowSetKeeper, RowSets
from planner.view import IndexView
from planner.zone_map import Verdicts, judge_by_zone_map, nothing_known
from puffin_index.errors import PuffinIndexError
from puffin_index.kinds.base import RowSet
from puffin_index.leaf import SetTest
from puffin_index.storage import READ_COUNT

_log = logging.getLogger(__name__)


_Judge = Callable[[Int64Array], Int64Array]


class Pruner:
    """Prunes row groups of one view for one predicate.

    Args:
        view: The index.
        predicate: What to look for.
        row_groups: Which row groups of the view to judge (int64).
        limits: Bounds.
    """

    def __init__(
        self, view: IndexView, predicate: Predicate, row_groups: Int64Array, limits: Limits = DEFAULT_LIMITS
    ) -> None:
        self._view = view
        self._predicate = predicate
        self._row_groups = row_groups
        self._strict = limits.strict
        self._rows_wanted = limits.rows_wanted
        self._reads = IndexReads()
        self._stages: list[Stage] = []
        self._leaves = tuple(dict.fromkeys(leaves(predicate)))
        self._verdicts: dict[Leaf, Verdicts] = {}
        self._gate = CostGate(view, predicate, row_groups, limits)
        self._found: dict[Leaf, FoundRows] = {}
        # Which positions were looked up, by leaf: what statistics had settled before was not.
        self._answered: dict[Leaf, npt.NDArray[np.bool_]] = {}
        self._joint: FoundRows | None = None
        self._kept_sets = RowSetKeeper()
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
        alive = self._stage("zone-map", Reason.ZONE_MAP, np.arange(len(self._row_groups)), self._by_zone_map)
        alive = self._stage("postings", Reason.ROWS_EMPTY, alive, self._by_postings)
        alive = self._stage("bloom", Reason.BLOOM, alive, self._by_bloom)
        self._stage("rows", Reason.ROWS_EMPTY, alive, self._by_rows)
        found = self._found.get(self._predicate) if isinstance(self._predicate, Leaf) else self._joint
        row_sets = RowSets(self._kept_sets.kept, found)
        return Pruned(self._reasons, self._matches, tuple(self._stages), tuple(self._reads.troubles), row_sets)

    def _stage(self, name: str, reason: Reason, alive: Int64Array, judge: _Judge) -> Int64Array:
        """Run one stage on the positions that are alive; return those that remain to be judged."""
        started, reads, bytes_read = time.perf_counter(), self._reads.count.requests, self._reads.count.bytes
        troubles = len(self._reads.troubles)
        remaining = judge(alive) if len(alive) else alive
        dropped = int(np.count_nonzero(self._reasons[selection_among(alive, len(self._row_groups))] == reason))
        self._stages.append(
            Stage(
                name,
                len(alive),
                dropped,
                self._reads.count.requests - reads,
                self._reads.count.bytes - bytes_read,
                time.perf_counter() - started,
            )
        )
        self._tell_troubles(self._reads.troubles[troubles:])
        return remaining

    def _tell_troubles(self, troubles: list[IndexTrouble]) -> None:
        for trouble in troubles:
            if self._strict:
                raise PuffinIndexError(f"{trouble.segment}: {trouble.reason}")
            _log.warning("index not used, its row groups are kept: %s: %s", trouble.segment, trouble.reason)

    def _by_zone_map(self, alive: Int64Array) -> Int64Array:
        known = {}
        for leaf in self._leaves:
            statistics = self._view.statistics(leaf.field_id, self._reads)
            if statistics is None or not comparable(statistics.value_type.name, leaf.value_type):
                self._verdicts[leaf] = nothing_known(len(self._row_groups))
            else:
                known[leaf] = statistics
                self._verdicts[leaf] = judge_by_zone_map(leaf.test, statistics, self._row_groups)
        alive = self._settle(alive, Reason.ZONE_MAP)
        here = selection_among(alive, len(self._row_groups))
        row_groups = self._row_groups[here]
        for leaf, statistics in known.items():
            is_alone = leaf == self._predicate and not self._rows_wanted
            estimate = estimate_leaf(leaf.test, statistics, row_groups, is_alone=is_alone)
            whole = Estimate(np.ones(len(self._row_groups)), np.ones(len(self._row_groups)))
            # Without statistics a row group may well hold a match.
            there = statistics.known[selection_of(row_groups)]
            np.copyto(estimate.selectivity, 1.0, where=~there)
            np.copyto(estimate.presence, 1.0, where=~there)
            whole.selectivity[here], whole.presence[here] = estimate.selectivity, estimate.presence
            self._gate.estimates[leaf] = whole
        return alive

    def _settle(self, alive: Int64Array, reason: Reason) -> Int64Array:
        """Write down what the leaves' verdicts settle; return the positions that stay open."""
        verdicts = self._combine(self._predicate)
        here = selection_among(alive, len(self._row_groups))
        impossible, certain = ~verdicts.possible[here], verdicts.certain[here]
        if not impossible.any() and not certain.any():
            return alive
        self._reasons[alive[impossible]] = reason
        self._matches[alive[impossible]] = 0
        self._reasons[alive[certain]] = Reason.ALL_ROWS_MATCH
        self._matches[alive[certain]] = self._view.row_counts[self._row_groups[alive[certain]]]
        return alive[~impossible & ~certain]

    def _combine(self, predicate: Predicate) -> Verdicts:
        count = len(self._row_groups)
        match predicate:
            case Leaf():
                return self._verdicts[predicate]
            case Everything(exact):
                return Verdicts(np.ones(count, np.bool_), np.full(count, exact))
            case Nothing():
                return Verdicts(np.zeros(count, np.bool_), np.zeros(count, np.bool_))
            case Conjunction(children):
                parts = [self._combine(child) for child in children]
                return Verdicts(
                    np.logical_and.reduce([part.possible for part in parts]),
                    np.logical_and.reduce([part.certain for part in parts]),
                )
            case Disjunction(children):
                parts = [self._combine(child) for child in children]
                return Verdicts(
                    np.logical_or.reduce([part.possible for part in parts]),
                    np.logical_or.reduce([part.certain for part in parts]),
                )
            case _:
                assert_never(predicate)

    def _undecided(self, leaf: Leaf, alive: Int64Array) -> Int64Array:
        """Where a leaf is neither certain nor impossible."""
        verdicts, here = self._verdicts[leaf], selection_among(alive, len(self._row_groups))
        return alive[verdicts.possible[here] & ~verdicts.certain[here]]

    def _by_postings(self, alive: Int64Array) -> Int64Array:
        """Look leaves up in sorted postings, the most selective first: one search answers a whole segment.

        Wide leaves come last: listing their rows pays only if the narrow ones leave few row groups.
        """
        for widest_share in (WIDE_SHARE, 1.0):
            for leaf in sorted(self._leaves, key=lambda leaf: self._mean_selectivity(leaf, alive)):
                directory = self._view.directory(leaf.field_id, "bitmap", self._reads)
                if leaf in self._found or directory is None or not keys_agree(directory, leaf) or not len(alive):
                    continue
                undecided = self._undecided(leaf, alive)
                undecided = undecided[directory.merged[self._row_groups[undecided]]]
                # Narrow leaves are read whole in any case.
                candidates = None if widest_share == WIDE_SHARE else self._candidates(undecided)
                look_up = LookUp(self._view, self._gate, leaf, directory, self._row_groups, widest_share, candidates)
                self._look_up(look_up, undecided)
                alive = self._settle(alive, Reason.ROWS_EMPTY)
        return alive

    def _candidates(self, positions: Int64Array) -> FoundRows | None:
        """The rows that satisfy those leaves of a conjunction that were looked up, for some positions at most."""
        if not isinstance(self._predicate, Conjunction):
            return None
        children = tuple(child for child in self._predicate.children if child in self._found)
        return joint_rows(Conjunction(children), self._found, self._row_groups[self._looked_up(children, positions)])

    def _looked_up(self, parts: Iterable[Predicate], positions: Int64Array) -> Int64Array:
        """Those of some positions for which all leaves of some predicates were looked up."""
        for leaf in {leaf for part in parts for leaf in leaves(part)}:
            if leaf not in self._answered:
                return positions[:0]
            positions = positions[self._answered[leaf][positions]]
        return positions

    def _mean_selectivity(self, leaf: Leaf, alive: Int64Array) -> float:
        estimate = self._gate.estimates.get(leaf)
        if estimate is None or not len(alive):
            return 1.0
        return float(estimate.selectivity[selection_among(alive, len(self._row_groups))].mean())

    def _look_up(self, look_up: LookUp, undecided: Int64Array) -> None:
        found, found_counts, troubles = look_up.find(undecided)
        self._reads.troubles += troubles
        if not found.rows:
            return
        leaf, row_counts = look_up.leaf, self._view.row_counts[self._row_groups]
        self._found[leaf] = found
        counts = np.full(len(self._row_groups), -1, np.int64)
        counts[selection_among(undecided, len(counts))] = found_counts
        verdicts, asked = self._verdicts[leaf], counts >= 0
        self._answered[leaf] = asked
        self._verdicts[leaf] = Verdicts(
            np.where(asked, counts > 0, verdicts.possible), np.where(asked, counts == row_counts, verdicts.certain)
        )
        estimate = self._gate.estimates.get(leaf)
        if estimate is not None:
            shares = counts / np.maximum(row_counts, 1)
            np.copyto(shares, estimate.selectivity, where=~asked)
            presence = (counts > 0).astype(np.float64)
            np.copyto(presence, estimate.presence, where=~asked)
            self._gate.estimates[leaf] = Estimate(shares, presence)
        if self._predicate == leaf:
            matching = undecided[counts[undecided] > 0]
            self._reasons[matching], self._matches[matching] = Reason.ROWS_MATCH, counts[matching]

    def _by_bloom(self, alive: Int64Array) -> Int64Array:
        # What the look-ups answered has its verdict.
        if self._found:
            alive = alive[self._reasons[alive] != Reason.ROWS_MATCH]
        for leaf in self._leaves:
            if isinstance(leaf.test, SetTest) and not leaf.test.negated and len(alive):
                self._probe_bloom(leaf, leaf.test, alive)
                alive = self._settle(alive, Reason.BLOOM)
        return alive

    def _probe_bloom(self, leaf: Leaf, test: SetTest, alive: Int64Array) -> None:
        directory = self._view.directory(leaf.field_id, "bloom", self._reads)
        if directory is None or not keys_agree(directory, leaf):
            return
        undecided = self._undecided(leaf, alive)
        undecided = undecided[directory.known[self._row_groups[undecided]]]
        bitmap = self._view.directory(leaf.field_id, "bitmap", self._reads)
        if bitmap is not None:
            # A bitmap answers exactly for about the same bytes; postings were asked already.
            undecided = undecided[~bitmap.known[self._row_groups[undecided]]]
        probe = Probe(self._view, self._gate, leaf, test, directory, self._row_groups)
        answers, troubles = probe.possible(undecided)
        self._reads.troubles += troubles
        possible = self._verdicts[leaf].possible.copy()
        possible[undecided] = answers
        self._verdicts[leaf] = Verdicts(possible, self._verdicts[leaf].certain)

    def _by_rows(self, alive: Int64Array) -> Int64Array:
        alive = self._by_joint_rows(alive)
        worth = self._worth_reading(alive)
        evaluator = RowEvaluator(
            self._view,
            {int(self._row_groups[at]): int(at) for at in worth},
            self._verdicts,
            self._gate.estimates,
            self._reads,
            self._found,
        )

        def evaluate(at: int) -> RowSet:
            return evaluator.evaluate(self._predicate, int(self._row_groups[at]))

        for at, result in zip(worth.tolist(), self._view.each(evaluate, worth.tolist()), strict=True):
            self._kept_sets.keep(int(self._row_groups[at]), result)
            if not result.rows:
                self._reasons[at], self._matches[at] = Reason.ROWS_EMPTY, 0
            elif result.exact:
                self._reasons[at], self._matches[at] = Reason.ROWS_MATCH, len(result.rows)
            elif int(self._row_groups[at]) in evaluator.troubled:
                self._reasons[at] = Reason.INDEX_UNREADABLE
        return worth

    def _by_joint_rows(self, alive: Int64Array) -> Int64Array:
        """Settle the positions whose leaves were all looked up; return the others."""
        if isinstance(self._predicate, Leaf) or not self._found:
            return alive
        self._joint = joint_rows(
            self._predicate, self._found, self._row_groups[self._looked_up((self._predicate,), alive)]
        )
        if self._joint is None:
            return alive
        counts = self._joint.counts(self._row_groups[alive])
        settled = alive[counts >= 0]
        self._matches[settled] = counts[counts >= 0]
        self._reasons[settled] = np.where(self._matches[settled] > 0, Reason.ROWS_MATCH, Reason.ROWS_EMPTY)
        return alive[counts < 0]

    def _worth_reading(self, alive: Int64Array) -> Int64Array:
        """Which row groups to evaluate row by row: what an index read saves is compared with what it costs."""
        here = selection_among(alive, len(self._row_groups))
        row_groups = self._row_groups[here]
        saved = self._gate.saved(alive)
        is_hopeless = not (saved > 0).any()
        cost = np.zeros(len(alive), np.int64)
        found = np.zeros(len(alive), np.bool_)
        for leaf in self._leaves:
            needed = self._verdicts[leaf].possible[here] & ~self._verdicts[leaf].certain[here]
            if leaf in self._answered:
                answered = self._answered[leaf][here]
                found |= answered
                needed &= ~answered
            if is_hopeless:  # not even a directory is worth its bytes
                self._reasons[alive[needed & has_exact_index(self._view, leaf, row_groups)]] = Reason.NOT_WORTH_READING
                continue
            for directory in exact_directories(self._view, leaf, self._reads)[:1]:
                cost += np.where(needed, index_cost_bytes(leaf.test, directory, row_groups), 0)
        worth = self._gate.worth(saved, cost, 0)
        self._reasons[alive[~worth & (cost > 0)]] = Reason.NOT_WORTH_READING
        read = np.flatnonzero(worth & (cost > 0))
        affordable = self._gate.afford(cost[read])
        self._reasons[alive[read[~affordable]]] = Reason.OVER_BUDGET
        free = np.flatnonzero(found & (cost == 0))
        return alive[np.sort(np.concatenate((read[affordable], free)))]
