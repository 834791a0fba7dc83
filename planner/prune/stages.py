"""The stages of pruning: zone maps by directories alone, then look-ups by key, filters and the row level.

Each stage is vectorised and sees only what the one before left open. A cost gate stands before all that read indexes:
no index byte is read where statistics say that nothing will be dropped, or that reading costs more than it can save. A
row group that is undecided when the time is over is kept.
"""

from collections.abc import Iterable

import numpy as np

from planner.clock import Clock
from planner.condition.tree.nodes import Conjunction, Leaf, Predicate
from planner.condition.tree.tree import PredicateTree
from planner.prune.estimate import Estimate, estimate_leaf
from planner.prune.evaluate import RowEvaluator, exact_directories, has_exact_index, index_cost_bytes
from planner.prune.found_rows import FoundRows, RowSets, joint_rows
from planner.prune.gate import DEFAULT_LIMITS, Limits
from planner.prune.lookups import WIDE_SHARE, LookUp, read_directories
from planner.prune.probes import Probe
from planner.prune.pruning import LeafState, Pruning
from planner.prune.verdicts import ZONE_MAPS, Pruned, Reason
from planner.prune.zone_map import Verdicts, judge_by_zone_map
from planner.view.directories import IndexReads, KindDirectory
from planner.view.index_view import IndexView
from puffin_index.kinds.base import RowSet
from puffin_index.kinds.kind import Answer
from puffin_index.kinds.registry import kinds_answering
from puffin_index.storage.arrays import Ints
from puffin_index.storage.files import READ_COUNT

_MOST_CANDIDATES = 8
"""At most this many narrow leaves narrow the candidates of a wide leaf. More would barely shrink them."""


class IndexStages:
    """Judges row groups that zone maps have left open."""

    def __init__(self, pruning: Pruning) -> None:
        self._pruning = pruning
        tree = pruning.tree
        root = tree.nodes[tree.root]
        # Leaves that hold wherever the predicate does.
        self._conjuncts = {tree.nodes[part].content for part in root.parts} if root.is_and else set()
        self._narrowing: list[LeafState] = []
        self._row_sets = RowSets()

    def run(self) -> RowSets:
        """Run the stages; return the rows behind the verdicts, where an index gave them."""
        pruning = self._pruning
        with pruning.stage("postings", Reason.ROWS_EMPTY):
            self._read_directories()
            self._look_leaves_up(by_key=True)
        with pruning.stage("bloom", Reason.BLOOM):
            self._by_filters()
        with pruning.stage("rows", Reason.ROWS_EMPTY):
            self._by_rows()
        if isinstance(pruning.tree.predicate, Leaf):
            self._row_sets.found = pruning.leaves[0].found
        return self._row_sets

    def _look_leaves_up(self, *, by_key: bool) -> None:
        """Look leaves up in merged payloads, the most selective first: one search answers all of its row groups.

        Asks the kinds that are found by key, or the others. Wide leaves come last: listing their rows pays only if the
        narrow ones leave few row groups.
        """
        # Alone, a leaf has no narrower one to wait for, and need not be looked at twice.
        for widest_share in (WIDE_SHARE, 1.0) if len(self._pruning.leaves) > 1 else (1.0,):
            for state in sorted(self._pruning.leaves, key=self._mean_selectivity):
                for kind in kinds_answering(state.leaf.test, Answer.EXACT):
                    if self._pruning.is_finished:
                        return
                    if kind.is_found_by_key == by_key and (state.found is None or state.kind == kind.name):
                        self._look_leaf_up(state, kind.name, widest_share)

    def _read_directories(self) -> None:
        """Read the directories of narrow leaves side by side from a store: a first plan waits for these only once."""
        pruning = self._pruning
        if pruning.view.is_local or len(pruning.leaves) < 2:
            return
        look_ups: list[tuple[LookUp, Ints]] = []
        for state in pruning.leaves[:_MOST_CANDIDATES]:
            kinds = [kind for kind in kinds_answering(state.leaf.test, Answer.EXACT) if kind.is_found_by_key]
            if pruning.is_finished or not kinds or self._mean_selectivity(state) > WIDE_SHARE:
                continue
            directory, undecided = self._merged(state, kinds[0].name)
            if directory is not None and len(undecided):
                look_ups.append((LookUp(pruning, state, directory), undecided))
        if len(look_ups) > 1:
            read_directories(look_ups)

    def _look_leaf_up(self, state: LeafState, kind: str, widest_share: float) -> None:
        directory, undecided = self._unanswered(state, kind)
        if directory is None or not len(undecided):
            return
        candidates = self._candidates(undecided)
        if candidates is not None and len(self._narrowing) > 1:
            self._drop_without(candidates, undecided)
            undecided = self._unanswered(state, kind)[1]
        # Narrow leaves are read whole in any case.
        among = None if widest_share == WIDE_SHARE else candidates
        look_up = LookUp(self._pruning, state, directory, widest_share, among)
        for found, counts in look_up.find(undecided):
            self._take(look_up, undecided, found, counts)

    def _drop_without(self, rows: FoundRows, positions: Ints) -> None:
        """Drop the positions where no row satisfies several leaves at once, before the next leaf is looked up."""
        pruning = self._pruning
        empty = positions[rows.counts(pruning.row_groups[positions]) == 0]
        pruning.reasons[empty], pruning.matches[empty] = Reason.ROWS_EMPTY, 0
        pruning.alive = np.setdiff1d(pruning.alive, empty, assume_unique=True)
        if len(empty):
            pruning.used.update((state.leaf.field_id, state.kind) for state in self._narrowing)

    def _merged(self, state: LeafState, kind: str) -> tuple[KindDirectory | None, Ints]:
        """The directory of a leaf's payloads, and the undecided positions whose payload covers several row groups."""
        pruning = self._pruning
        directory, undecided = pruning.view.directory(state.leaf, kind, pruning.reads), pruning.undecided(state)
        if directory is None:
            return None, undecided[:0]
        return directory, undecided[directory.merged[pruning.row_groups[undecided]]]

    def _unanswered(self, state: LeafState, kind: str) -> tuple[KindDirectory | None, Ints]:
        """The same without the positions that the leaf was looked up for: what was dear may be cheap among few rows."""
        directory, undecided = self._merged(state, kind)
        return directory, undecided if state.answered is None else undecided[~state.answered[undecided]]

    def _mean_selectivity(self, state: LeafState) -> float:
        pruning = self._pruning
        if not len(pruning.alive):
            return 1.0
        return float(state.estimate.selectivity[pruning.selection(pruning.alive)].mean())

    def _candidates(self, positions: Ints) -> FoundRows | None:
        """The rows that satisfy the narrow leaves that were looked up, for positions where all of these were."""
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
        return joint_rows(predicate, found, self._pruning.row_groups[positions])

    def _take(self, look_up: LookUp, undecided: Ints, found: FoundRows, found_counts: Ints) -> None:
        """Write down what a look-up has found so far."""
        if not found.rows:
            return
        pruning, state = self._pruning, look_up.state
        row_counts = pruning.view.row_counts[pruning.row_groups]
        counts = np.full(len(pruning.row_groups), -1, np.int64)
        counts[pruning.selection(undecided)] = found_counts
        asked = counts >= 0
        new = np.flatnonzero(asked if state.answered is None else asked & ~state.answered)
        self._remember(state, new, int(np.count_nonzero(counts[new])))
        if state.found is not None and state.answered is not None:
            found.rows.update(state.found.rows)
            state.answered = state.answered | asked
        else:
            state.answered = asked
        state.found, state.kind = found, look_up.directory.kind
        if (found_counts == 0).any():
            pruning.used.add((state.leaf.field_id, state.kind))
        if state.number in self._conjuncts and state not in self._narrowing and len(self._narrowing) < _MOST_CANDIDATES:
            self._narrowing.append(state)
        verdicts, estimate = state.verdicts, state.estimate
        state.verdicts = Verdicts(
            np.where(asked, counts > 0, verdicts.possible), np.where(asked, counts == row_counts, verdicts.certain)
        )
        shares = counts / np.maximum(row_counts, 1)
        np.copyto(shares, estimate.selectivity, where=~asked)
        presence = (counts > 0).astype(np.float64)
        np.copyto(presence, estimate.presence, where=~asked)
        state.estimate = Estimate(shares, presence)
        if isinstance(pruning.tree.predicate, Leaf):
            matching = undecided[counts[undecided] > 0]
            pruning.reasons[matching], pruning.matches[matching] = Reason.ROWS_MATCH, counts[matching]
        pruning.settle(Reason.ROWS_EMPTY)

    def _remember(self, state: LeafState, asked: Ints, found: int) -> None:
        """Remember in how many row groups a leaf was found where it was not sure to be, for later plans."""
        presence = state.estimate.presence[asked]
        proved = int(np.count_nonzero(presence == 1))
        if proved < len(asked):
            self._pruning.view.experience.note(state.leaf, float(presence.sum()) - proved, max(found - proved, 0))

    def _by_filters(self) -> None:
        self._leave_out_answered()
        for state in self._pruning.leaves:
            for kind in kinds_answering(state.leaf.test, Answer.UPPER_BOUND):
                if self._pruning.is_finished:
                    return
                self._probe(state, kind.name)

    def _probe(self, state: LeafState, kind: str) -> None:
        pruning, leaf = self._pruning, state.leaf
        directory = pruning.view.directory(leaf, kind, pruning.reads)
        if directory is None:
            return
        undecided = pruning.undecided(state)
        undecided = undecided[directory.known[pruning.row_groups[undecided]]]
        for exact in kinds_answering(leaf.test, Answer.EXACT):
            other = pruning.view.directory(leaf, exact.name, pruning.reads) if exact.rank(leaf.test) == 0 else None
            if other is not None:
                # For about the same bytes that kind tells which rows match. What it has merged was asked already.
                undecided = undecided[~other.known[pruning.row_groups[undecided]]]
        for asked, answers in Probe(pruning, state, directory).ask(undecided):
            self._remember(state, asked, int(np.count_nonzero(answers)))
            if answers.all():
                continue
            possible = state.verdicts.possible.copy()
            possible[asked] = answers
            pruning.used.add((leaf.field_id, kind))
            state.verdicts = Verdicts(possible, state.verdicts.certain)
            pruning.settle(Reason.BLOOM)

    def _leave_out_answered(self) -> None:
        """Leave row groups out that look-ups have answered: these have their verdict."""
        pruning = self._pruning
        pruning.alive = pruning.alive[pruning.reasons[pruning.alive] != Reason.ROWS_MATCH]

    def _by_rows(self) -> None:
        pruning = self._pruning
        if not len(pruning.alive):
            return
        # After the filters, as kinds that are not found by key read a whole column: bit slices take all slices.
        self._look_leaves_up(by_key=False)
        self._leave_out_answered()
        if not pruning.is_finished:
            self._settle_by_joint_rows()
        if pruning.clock.is_over:
            pruning.reasons[pruning.alive] = Reason.TIME_BUDGET
            return
        at, costs = self._worth_reading()
        evaluator, left = RowEvaluator(pruning), np.ones(len(at), np.bool_)
        for some in pruning.gate.in_turn(costs):
            left[some] = False
            self._evaluate(evaluator, at[some])
        pruning.reasons[at[left]] = pruning.gate.refusals(costs[left])

    def _evaluate(self, evaluator: RowEvaluator, at: Ints) -> None:
        """Evaluate the predicate in some row groups, one by one."""
        pruning = self._pruning

        def evaluate(position: int) -> RowSet | None:
            return None if pruning.clock.is_over else evaluator.evaluate(position)

        results = pruning.view.each_ahead(evaluate, at.tolist())
        if isinstance(pruning.tree.predicate, Leaf):
            present = sum(result is None or bool(result.rows) for result in results)
            self._remember(pruning.leaves[0], at, present)
        for position, result in zip(at.tolist(), results, strict=True):
            if result is None:
                pruning.reasons[position] = Reason.TIME_BUDGET
                continue
            pruning.reads.troubles += evaluator.troubled.get(position, ())
            self._row_sets.keep(int(pruning.row_groups[position]), result)
            if not result.rows:
                pruning.reasons[position], pruning.matches[position] = Reason.ROWS_EMPTY, 0
                pruning.used.update(evaluator.used.get(position, ()))
            elif result.exact:
                pruning.reasons[position], pruning.matches[position] = Reason.ROWS_MATCH, len(result.rows)
            elif position in evaluator.troubled:
                pruning.reasons[position] = Reason.INDEX_UNREADABLE
            elif position in evaluator.late:
                pruning.reasons[position] = Reason.TIME_BUDGET

    def _settle_by_joint_rows(self) -> None:
        """Settle the positions whose leaves were all looked up."""
        pruning = self._pruning
        if isinstance(pruning.tree.predicate, Leaf):
            return
        joint = self._rows_of(pruning.tree.predicate, pruning.leaves, pruning.alive)
        self._row_sets.found = joint
        if joint is None:
            return
        counts = joint.counts(pruning.row_groups[pruning.alive])
        settled = pruning.alive[counts >= 0]
        matches = counts[counts >= 0]
        pruning.matches[settled] = matches
        pruning.reasons[settled] = np.where(matches > 0, Reason.ROWS_MATCH, Reason.ROWS_EMPTY)
        if (matches == 0).any():
            pruning.used.update((state.leaf.field_id, state.kind) for state in pruning.leaves if state.kind)
        pruning.alive = pruning.alive[counts < 0]

    def _worth_reading(self) -> tuple[Ints, Ints]:
        """The row groups to evaluate one by one, where reading an index saves more than it costs; and what it costs."""
        pruning, alive = self._pruning, self._pruning.alive
        view, here = pruning.view, pruning.selection(alive)
        row_groups = pruning.row_groups[here]
        saved = pruning.gate.saved(alive)
        is_hopeless = not (saved > 0).any()
        cost = np.zeros(len(alive), np.int64)
        found = np.zeros(len(alive), np.bool_)
        for state in pruning.leaves:
            verdicts = state.verdicts.at(here)
            needed = verdicts.possible & ~verdicts.certain
            if state.answered is not None:
                answered = state.answered[here]
                found |= answered
                needed &= ~answered
            if is_hopeless:  # not even a directory is worth its bytes
                unread = alive[needed & has_exact_index(view, state.leaf, row_groups)]
                pruning.reasons[unread] = Reason.NOT_WORTH_READING
                continue
            if pruning.clock.is_over:
                pruning.reasons[alive] = Reason.TIME_BUDGET
                return alive[:0], cost[:0]
            for directory in exact_directories(view, state.leaf, pruning.reads)[:1]:
                cost += np.where(needed, index_cost_bytes(state.leaf.test, directory, row_groups), 0)
        worth = pruning.gate.worth(saved, cost, 0)
        pruning.reasons[alive[~worth & (cost > 0)]] = Reason.NOT_WORTH_READING
        read = np.flatnonzero((worth & (cost > 0)) | (found & (cost == 0)))
        return alive[read], cost[read]


def prune(view: IndexView, predicate: Predicate, row_groups: Ints, limits: Limits = DEFAULT_LIMITS) -> Pruned:
    """Judge row groups of one view (int64) for one predicate, within limits whose time begins now.

    Raises PuffinIndexError on index trouble in strict mode.
    """
    clock, reads = Clock(limits.seconds), IndexReads()
    token = READ_COUNT.set(reads.count)
    try:
        return _prune(Pruning(view, PredicateTree(predicate), row_groups, limits, clock, reads))
    finally:
        READ_COUNT.reset(token)


def expected_matches(view: IndexView, predicate: Predicate, row_groups: Ints) -> float:
    """Estimate from directories how many rows of some row groups satisfy a predicate."""
    limits = Limits(rows_wanted=True)
    pruning = Pruning(view, PredicateTree(predicate), row_groups, limits, Clock(limits.seconds), IndexReads())
    for state in pruning.leaves:
        state.statistics = view.statistics(state.leaf, pruning.reads)
    _estimate(pruning)
    return float((pruning.gate.estimates.root.selectivity * view.row_counts[row_groups]).sum())


def _prune(pruning: Pruning) -> Pruned:
    with pruning.stage("zone-map", Reason.ZONE_MAP):
        _judge_by_zone_maps(pruning)
        rest = pruning.rest()
        _estimate(rest)
    row_sets = IndexStages(rest).run()
    pruning.take(rest)
    return Pruned(
        pruning.reasons,
        pruning.matches,
        tuple(pruning.stages),
        tuple(pruning.reads.troubles),
        row_sets,
        frozenset(pruning.used),
    )


def _judge_by_zone_maps(pruning: Pruning) -> None:
    """Judge each leaf by the statistics of its column, as long as there is time."""
    pruning.view.prefetch({state.leaf.field_id for state in pruning.leaves})
    for state in pruning.leaves:
        if pruning.is_finished:
            break
        state.statistics = pruning.view.statistics(state.leaf, pruning.reads)
        if state.statistics is not None:
            state.verdicts = judge_by_zone_map(state.leaf.test, state.statistics, pruning.row_groups)
    pruning.settle(Reason.ZONE_MAP)
    if not pruning.verdicts.root.possible.all():
        pruning.used.update(
            (state.leaf.field_id, ZONE_MAPS) for state in pruning.leaves if not state.verdicts.possible.all()
        )


def _estimate(pruning: Pruning) -> None:
    """Estimate each leaf that has statistics, as long as there is time."""
    is_alone = len(pruning.tree.nodes) == 1 and not pruning.limits.rows_wanted
    for state in pruning.leaves:
        if pruning.is_finished:
            break
        if state.statistics is not None:
            estimate = estimate_leaf(state.leaf.test, state.statistics, pruning.row_groups, is_alone=is_alone)
            presence = pruning.view.experience.corrected(state.leaf, estimate.presence)
            possible = state.verdicts.possible
            if possible.all():
                state.estimate = Estimate(estimate.selectivity, presence)
            else:
                # A test under OR may be ruled out by bounds where others are not.
                state.estimate = Estimate(estimate.selectivity * possible, presence * possible)
