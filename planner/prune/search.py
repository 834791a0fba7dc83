"""The search for row groups with matches: zone maps, then look-ups by key, filters and single row groups.

Each stage is vectorised and sees only what the one before left open. A cost gate stands before all that read indexes:
no index byte is read where statistics say that nothing will be dropped, or that reading costs more than it can save. A
row group that is undecided when the time is over is kept.
"""

from collections.abc import Sequence

import numpy as np

from planner.clock import Clock
from planner.condition.tree.nodes import Conjunction, Leaf, Predicate
from planner.condition.tree.tree import PredicateTree
from planner.prune.estimate import Estimate, places_of
from planner.prune.gate import DEFAULT_LIMITS, Limits
from planner.prune.leaf_search import WIDE_SHARE, LeafSearch, read_directories
from planner.prune.row_sets import FoundRows, RowSets
from planner.prune.segment_search import RowGroups, exact_directories, joint_rows
from planner.prune.state import LeafState, SearchState
from planner.prune.statistics_search import estimate_leaves, judge_by_zone_maps
from planner.prune.verdicts import Pruned, Reason
from planner.prune.zone_map import Verdicts
from planner.view.cache import SharedPayloads
from planner.view.directories import IndexReads, KindDirectory
from planner.view.index_view import IndexView
from puffin_index.kinds.kind import Answer
from puffin_index.kinds.registry import kind_named, kinds_answering
from puffin_index.storage.arrays import Flags, Ints

_MOST_CANDIDATES = 8
"""At most this many narrow leaves narrow the candidates of a wide leaf. More would barely shrink them."""


class IndexStages:
    """Judges row groups that zone maps have left open."""

    def __init__(self, search: SearchState) -> None:
        self._search = search
        tree = search.tree
        root = tree.nodes[tree.root]
        # Leaves that hold wherever the predicate does.
        self._conjuncts = {tree.nodes[part].content for part in root.parts} if root.is_and else set()
        self._narrowing: list[LeafState] = []
        self._row_sets = RowSets()
        # By leaf and kind: what was known when nothing was worth reading. It is not asked again for the same.
        self._refused: dict[tuple[int, str], tuple[int, int, int]] = {}
        # By leaf, the positions where filters were asked.
        self._told: dict[int, Flags] = {}

    def run(self) -> RowSets:
        """Run the stages; return the rows behind the verdicts, where an index gave them."""
        search = self._search
        with search.stage("postings", Reason.ROWS_EMPTY):
            self._read_directories()
            self._look_leaves_up(by_key=True)
        with search.stage("bloom", Reason.BLOOM):
            self._by_filters()
        with search.stage("rows", Reason.ROWS_EMPTY):
            self._by_rows()
        if isinstance(search.tree.predicate, Leaf):
            self._row_sets.found = search.leaves[0].found
        return self._row_sets

    def _look_leaves_up(self, *, by_key: bool) -> None:
        """Look leaves up in merged payloads, the most selective first: one search answers all of its row groups.

        Asks the kinds that are found by key, or the others. Wide leaves come last: listing their rows pays only if the
        narrow ones leave few row groups.
        """
        # Alone, a leaf has no narrower one to wait for, and need not be looked at twice.
        for widest_share in (WIDE_SHARE, 1.0) if len(self._search.leaves) > 1 else (1.0,):
            for state in sorted(self._search.leaves, key=self._mean_selectivity):
                for kind in kinds_answering(state.leaf.test, Answer.EXACT):
                    if self._search.is_finished:
                        return
                    if kind.is_found_by_key == by_key and (state.found is None or state.kind == kind.name):
                        self._look_leaf_up(state, kind.name, widest_share)

    def _read_directories(self) -> None:
        """Read the directories of narrow leaves side by side from a store: a first plan waits for these only once."""
        search = self._search
        if search.view.opened.is_local or len(search.leaves) < 2:
            return
        searches: list[tuple[LeafSearch, Ints]] = []
        for state in search.leaves[:_MOST_CANDIDATES]:
            kinds = [kind for kind in kinds_answering(state.leaf.test, Answer.EXACT) if kind.is_found_by_key]
            if search.is_finished or not kinds or self._mean_selectivity(state) > WIDE_SHARE:
                continue
            directory, undecided = self._unanswered(state, kinds[0].name)
            if directory is not None and len(undecided):
                searches.append((LeafSearch(search, state, directory), undecided))
        if len(searches) > 1:
            read_directories(searches)

    def _look_leaf_up(self, state: LeafState, kind: str, widest_share: float) -> None:
        if widest_share == WIDE_SHARE and self._mean_selectivity(state) > WIDE_SHARE:
            return
        directory, undecided = self._unanswered(state, kind)
        known = (len(undecided), len(self._search.alive), sum(one.answered is not None for one in self._search.leaves))
        if directory is None or not len(undecided) or self._refused.get((state.number, kind)) == known:
            return
        tree = PredicateTree(Conjunction(tuple(state.leaf for state in self._narrowing)))
        candidates = self._rows_of(tree, self._narrowing, undecided)
        if candidates is not None and len(self._narrowing) > 1:
            self._drop_without(candidates, undecided)
            undecided = self._unanswered(state, kind)[1]
        # Narrow leaves are read whole in any case.
        among = None if widest_share == WIDE_SHARE else candidates
        leaf_search = LeafSearch(self._search, state, directory, widest_share, among)
        for found, counts in leaf_search.find(undecided):
            self._take(leaf_search, undecided, found, counts)
        # A payload in which the leaf is wide was left for later.
        if state.answered is None and (state.estimate.selectivity[undecided] <= WIDE_SHARE).all():
            self._refused[state.number, kind] = known

    def _drop_without(self, rows: FoundRows, positions: Ints) -> None:
        """Drop the positions where no row satisfies several leaves at once, before the next leaf is looked up."""
        search = self._search
        empty = positions[rows.counts(search.row_groups[positions]) == 0]
        search.reasons[empty], search.matches[empty] = Reason.ROWS_EMPTY, 0
        search.alive = np.setdiff1d(search.alive, empty, assume_unique=True)
        if len(empty):
            search.used.update((state.leaf.field_id, state.kind) for state in self._narrowing)

    def _unanswered(self, state: LeafState, kind: str) -> tuple[KindDirectory | None, Ints]:
        """The directory of a leaf's payloads, and undecided positions with merged ones that nobody looked up yet."""
        search = self._search
        directory, undecided = search.directory(state.leaf, kind), search.undecided(state)
        if directory is None:
            return None, undecided[:0]
        undecided = undecided[directory.merged[search.row_groups[undecided]]]
        return directory, undecided if state.answered is None else undecided[~state.answered[undecided]]

    def _mean_selectivity(self, state: LeafState) -> float:
        search = self._search
        if not len(search.alive):
            return 1.0
        return float(state.estimate.selectivity[search.selection(search.alive)].mean())

    def _rows_of(self, tree: PredicateTree, states: Sequence[LeafState], positions: Ints) -> FoundRows | None:
        """The rows that satisfy a tree of some leaves, for those positions where all of them were looked up."""
        for state in states:
            if state.answered is None:
                return None
            positions = positions[state.answered[positions]]
        return joint_rows(tree, [state.found for state in states], self._search.row_groups[positions])

    def _take(self, leaf_search: LeafSearch, undecided: Ints, found: FoundRows, found_counts: Ints) -> None:
        if not found.rows:
            return
        search, state = self._search, leaf_search.leaf
        row_counts = search.view.row_counts[search.row_groups]
        counts = np.full(len(search.row_groups), -1, np.int64)
        counts[search.selection(undecided)] = found_counts
        asked = counts >= 0
        new = np.flatnonzero(asked if state.answered is None else asked & ~state.answered)
        self._remember(state, new, int(np.count_nonzero(counts[new])))
        if state.found is not None and state.answered is not None:
            found.rows.update(state.found.rows)
            state.answered = state.answered | asked
        else:
            state.answered = asked
        state.found, state.kind = found, leaf_search.directory.kind
        if (found_counts == 0).any():
            search.used.add((state.leaf.field_id, state.kind))
        if state.number in self._conjuncts and state not in self._narrowing and len(self._narrowing) < _MOST_CANDIDATES:
            self._narrowing.append(state)
        verdicts, estimate = state.verdicts, state.estimate
        state.verdicts = Verdicts(
            np.where(asked, counts > 0, verdicts.possible), np.where(asked, counts == row_counts, verdicts.certain)
        )
        shares = counts / np.maximum(row_counts, 1)
        np.copyto(shares, estimate.selectivity, where=~asked)
        # Several leaves meet where their rows lie.
        several = len(search.leaves) > 1
        places = places_of(shares * row_counts, found.widest_gaps(search.row_groups), row_counts) if several else None
        if leaf_search.candidates is not None:  # of a wide leaf only the candidates were counted
            shares = np.maximum(shares, estimate.selectivity)
        presence = (counts > 0).astype(np.float64)
        np.copyto(presence, estimate.presence, where=~asked)
        state.estimate = Estimate(shares, presence, places)
        if isinstance(search.tree.predicate, Leaf):
            matching = undecided[counts[undecided] > 0]
            search.reasons[matching], search.matches[matching] = Reason.ROWS_MATCH, counts[matching]
        search.settle(Reason.ROWS_EMPTY)

    def _remember(self, state: LeafState, asked: Ints, found: int) -> None:
        """Remember in how many row groups a leaf was found where it was not sure to be, for later plans."""
        presence = state.estimate.presence[asked]
        proved = int(np.count_nonzero(presence == 1))
        if proved < len(asked):
            self._search.view.experience.note(state.leaf, float(presence.sum()) - proved, max(found - proved, 0))

    def _by_filters(self) -> None:
        self._leave_out_answered()
        for state in self._search.leaves:
            for kind in kinds_answering(state.leaf.test, Answer.UPPER_BOUND):
                if self._search.is_finished:
                    return
                self._probe(state, kind.name)

    def _probe(self, state: LeafState, kind: str) -> None:
        search, leaf = self._search, state.leaf
        directory = search.directory(leaf, kind)
        if directory is None:
            return
        undecided = search.undecided(state)
        undecided = undecided[directory.known[search.row_groups[undecided]]]
        for exact in kinds_answering(leaf.test, Answer.EXACT):
            other = search.directory(leaf, exact.name) if exact.rank(leaf.test) == 0 else None
            if other is not None:
                # For about the same bytes that kind tells which rows match. What it has merged was asked already.
                undecided = undecided[~other.known[search.row_groups[undecided]]]
        undecided = undecided[state.estimate.presence[search.selection(undecided)] < 1]
        merged = directory.merged[search.row_groups[undecided]]
        filters = LeafSearch(search, state, directory)
        for _, counts in filters.find(undecided[merged]):
            self._take_bounds(filters, undecided[merged], counts)
        for counts in filters.find_alone(undecided[~merged]):
            self._take_bounds(filters, undecided[~merged], counts)

    def _take_bounds(self, filters: LeafSearch, undecided: Ints, counts: Ints) -> None:
        """Write down how many rows may match at each position, as filters have said so far."""
        search, state = self._search, filters.leaf
        told = self._told.setdefault(state.number, np.zeros(len(search.row_groups), np.bool_))
        asked = undecided[(counts >= 0) & ~told[undecided]]
        told[asked] = True
        self._remember(state, asked, int(np.count_nonzero(counts[np.isin(undecided, asked)])))
        empty = undecided[counts == 0]
        if len(empty):
            possible = state.verdicts.possible.copy()
            possible[empty] = False
            search.used.add((state.leaf.field_id, filters.directory.kind))
            state.verdicts = Verdicts(possible, state.verdicts.certain)
            search.settle(Reason.BLOOM)

    def _leave_out_answered(self) -> None:
        """Leave row groups out that look-ups have answered: these have their verdict."""
        search = self._search
        search.alive = search.alive[search.reasons[search.alive] != Reason.ROWS_MATCH]

    def _by_rows(self) -> None:
        search = self._search
        if not len(search.alive):
            return
        # After the filters, as kinds that are not found by key read a whole column: bit slices take all slices.
        self._look_leaves_up(by_key=False)
        self._leave_out_answered()
        if not search.is_finished:
            self._settle_by_joint_rows()
        if search.clock.is_over:
            search.reasons[search.alive] = Reason.TIME_BUDGET
            return
        at, costs = self._worth_reading()
        searched, left = RowGroups(search), np.ones(len(at), np.bool_)
        for some in search.gate.in_turn(costs):
            left[some] = False
            self._evaluate(searched, at[some])
        search.reasons[at[left]] = search.gate.refusals(costs[left])

    def _evaluate(self, searched: RowGroups, at: Ints) -> None:
        search = self._search
        results = search.read_each(searched.search, at.tolist(), lambda _: 0)
        if isinstance(search.tree.predicate, Leaf):
            present = sum(result is None or bool(result.rows) for result in results)
            self._remember(search.leaves[0], at, present)
        for position, result in zip(at.tolist(), results, strict=True):
            if result is None:
                search.reasons[position] = Reason.TIME_BUDGET
                continue
            search.reads.troubles += searched.troubled.get(position, ())
            self._row_sets.keep(int(search.row_groups[position]), result)
            if not result.rows:
                search.reasons[position], search.matches[position] = Reason.ROWS_EMPTY, 0
                search.used.update(searched.used.get(position, ()))
            elif result.exact:
                search.reasons[position], search.matches[position] = Reason.ROWS_MATCH, len(result.rows)
            elif position in searched.troubled:
                search.reasons[position] = Reason.INDEX_UNREADABLE
            elif position in searched.late:
                search.reasons[position] = Reason.TIME_BUDGET

    def _settle_by_joint_rows(self) -> None:
        """Settle the positions whose leaves were all looked up."""
        search = self._search
        if isinstance(search.tree.predicate, Leaf):
            return
        joint = self._rows_of(search.tree, search.leaves, search.alive)
        self._row_sets.found = joint
        if joint is None:
            return
        counts = joint.counts(search.row_groups[search.alive])
        settled = search.alive[counts >= 0]
        matches = counts[counts >= 0]
        search.matches[settled] = matches
        search.reasons[settled] = np.where(matches > 0, Reason.ROWS_MATCH, Reason.ROWS_EMPTY)
        if (matches == 0).any():
            search.used.update((state.leaf.field_id, state.kind) for state in search.leaves if state.kind)
        search.alive = search.alive[counts < 0]

    def _worth_reading(self) -> tuple[Ints, Ints]:
        """The row groups to evaluate one by one, where reading an index saves more than it costs; and what it costs."""
        search, alive = self._search, self._search.alive
        view, here = search.view, search.selection(alive)
        row_groups = search.row_groups[here]
        saved = search.gate.saved(alive)
        is_hopeless = not (saved > 0).any()
        cost = np.zeros(len(alive), np.int64)
        found = np.zeros(len(alive), np.bool_)
        for state in search.leaves:
            verdicts = state.verdicts.at(here)
            needed = verdicts.possible & ~verdicts.certain
            if state.answered is not None:
                answered = state.answered[here]
                found |= answered
                needed &= ~answered
            if is_hopeless:  # not even a directory is worth its bytes
                for kind in kinds_answering(state.leaf.test, Answer.EXACT):
                    unread = alive[needed & view.has(state.leaf.field_id, kind.name, row_groups)]
                    search.reasons[unread] = Reason.NOT_WORTH_READING
                continue
            if search.clock.is_over:
                search.reasons[alive] = Reason.TIME_BUDGET
                return alive[:0], cost[:0]
            for directory in exact_directories(view, state.leaf, search.reads)[:1]:
                alone = needed & directory.known[row_groups] & ~directory.merged[row_groups]
                lengths = np.where(alone, directory.length[row_groups], 0)
                cost += kind_named(directory.kind).cost(state.leaf.test, lengths)
        worth = search.gate.worth(saved, cost, 0)
        search.reasons[alive[~worth & (cost > 0)]] = Reason.NOT_WORTH_READING
        read = np.flatnonzero((worth & (cost > 0)) | (found & (cost == 0)))
        return alive[read], cost[read]


def prune(
    view: IndexView,
    predicate: Predicate,
    row_groups: Ints,
    limits: Limits = DEFAULT_LIMITS,
    shared: SharedPayloads | None = None,
) -> Pruned:
    """Judge row groups of one view (int64) for one predicate, within limits whose time begins now."""
    clock, reads = Clock(limits.seconds), IndexReads(shared=shared)
    search = SearchState(view, PredicateTree(predicate), row_groups, limits, clock, reads)
    with search.stage("zone-map", Reason.ZONE_MAP):
        judge_by_zone_maps(search)
        rest = search.rest()
        estimate_leaves(rest)
    row_sets = IndexStages(rest).run()
    search.take(rest)
    return Pruned(
        search.reasons, search.matches, tuple(search.stages), tuple(reads.troubles), row_sets, frozenset(search.used)
    )
