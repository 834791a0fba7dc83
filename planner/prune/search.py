"""The search for row groups with matches: zone maps, then look-ups by key, filters, and look-ups of whole columns.

Each stage is vectorised and sees only what the one before left open. A cost gate stands before all that read indexes:
no index byte is read where statistics say that nothing will be dropped, or that reading costs more than it can save. A
row group that is undecided when the time is over is kept.
"""

from collections.abc import Iterable, Mapping

import numpy as np
from pyroaring import BitMap

from planner.clock import Clock
from planner.condition.tree.nodes import Conjunction, Leaf, Predicate
from planner.condition.tree.tree import PredicateTree
from planner.prune.estimate import Estimate, places_of
from planner.prune.gate import DEFAULT_LIMITS, Limits
from planner.prune.leaf_search import WIDE_SHARE, LeafSearch, read_directories
from planner.prune.row_sets import FoundRows, RowSets
from planner.prune.segment_search import join_rows
from planner.prune.state import LeafState, SearchState
from planner.prune.statistics_search import estimate_leaves, judge_by_zone_maps
from planner.prune.verdicts import Pruned, Reason
from planner.prune.zone_map import Verdicts
from planner.view.cache import SharedPayloads
from planner.view.directories import IndexReads, KindDirectory
from planner.view.index_view import IndexView
from puffin_index.kinds.kind import Answer, IndexKind
from puffin_index.kinds.registry import kinds_answering
from puffin_index.storage.arrays import Ints

_MOST_CANDIDATES = 8
"""At most this many narrow leaves narrow the candidates of a wide leaf. More would barely shrink them."""


class IndexStages:
    """Judges row groups that zone maps have left open."""

    def __init__(self, search: SearchState) -> None:
        self._search = search
        tree = search.tree
        root = tree.nodes[tree.root]
        self._is_alone = isinstance(tree.predicate, Leaf)
        # Leaves that hold wherever the predicate does.
        self._conjuncts = {tree.nodes[part].content for part in root.parts} if root.is_and else set()
        self._narrowing: list[LeafState] = []
        # By leaf and kind: what was known when nothing was worth reading. It is not asked again for the same.
        self._refused: dict[tuple[int, str], tuple[int, int, int]] = {}

    def run(self) -> RowSets:
        """Run the stages; return the rows behind the verdicts, where an index gave them."""
        search = self._search
        with search.stage("postings", Reason.ROWS_EMPTY):
            self._read_directories()
            self._look_leaves_up(by_key=True)
        with search.stage("bloom", Reason.BLOOM):
            self._by_filters()
        with search.stage("rows", Reason.ROWS_EMPTY):
            # After the filters, as kinds that are not found by key read a whole column: bit slices take all slices.
            self._look_leaves_up(by_key=False)
            row_sets = RowSets(found=search.leaves[0].found) if self._is_alone else self._settle_by_joint_rows()
            if search.clock.is_over:
                search.reasons[search.alive] = Reason.TIME_BUDGET
        return row_sets

    def _look_leaves_up(self, *, by_key: bool) -> None:
        """Look leaves up, the most selective first: one search of a payload answers all of its row groups.

        Asks the kinds that are found by key, or the others. Wide leaves come last: listing their rows pays only if the
        narrow ones leave few row groups.
        """
        # Alone, a leaf has no narrower one to wait for, and need not be looked at twice.
        for widest_share in (WIDE_SHARE, 1.0) if len(self._search.leaves) > 1 else (1.0,):
            for state in sorted(self._search.leaves, key=self._mean_selectivity):
                for kind in kinds_answering(state.leaf.test, Answer.EXACT):
                    if self._search.is_finished:
                        return
                    if kind.is_found_by_key == by_key:
                        self._look_leaf_up(state, kind, widest_share)

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
            if directory is not None:
                undecided = undecided[directory.merged[search.row_groups[undecided]]]
                searches.append((LeafSearch(search, state, directory), undecided))
        if len(searches) > 1:
            read_directories(searches)

    def _look_leaf_up(self, state: LeafState, kind: IndexKind, widest_share: float) -> None:
        search = self._search
        if widest_share == WIDE_SHARE and self._mean_selectivity(state) > WIDE_SHARE:
            return
        directory, undecided = self._unanswered(state, kind.name)
        known = (len(undecided), len(search.alive), sum(one.found is not None for one in search.leaves))
        if directory is None or not len(undecided) or self._refused.get((state.number, kind.name)) == known:
            return
        candidates: Mapping[int, BitMap] | None = None
        # Narrow leaves that are found by key are read whole in any case.
        is_among = bool(self._narrowing) and (widest_share > WIDE_SHARE or not kind.is_found_by_key)
        if is_among or len(self._narrowing) > 1:
            tree = PredicateTree(Conjunction(tuple(one.leaf for one in self._narrowing)))
            _, rows = join_rows(search, tree, self._narrowing, undecided, directory.segment, directory.first)
            if len(self._narrowing) > 1:
                self._drop_without(rows, undecided)
                undecided = self._unanswered(state, kind.name)[1]
            candidates = rows.rows if is_among else None
        leaf_search = LeafSearch(search, state, directory, widest_share, candidates)
        was_asked = False
        for positions, counts in leaf_search.find(undecided):
            self._take(leaf_search, positions, counts)
            was_asked = was_asked or len(positions) > 0
        # A payload in which the leaf is wide was left for later.
        if not was_asked and (state.estimate.selectivity[undecided] <= WIDE_SHARE).all():
            self._refused[state.number, kind.name] = known

    def _drop_without(self, rows: FoundRows, positions: Ints) -> None:
        """Drop the positions where no row satisfies several leaves at once, before the next leaf is looked up."""
        search = self._search
        empty = positions[rows.counts(search.row_groups[positions]) == 0]
        search.reasons[empty], search.matches[empty] = Reason.ROWS_EMPTY, 0
        search.alive = np.setdiff1d(search.alive, empty, assume_unique=True)
        if len(empty):
            self._note_use(self._narrowing)

    def _note_use(self, leaves: Iterable[LeafState]) -> None:
        self._search.used.update((state.leaf.field_id, kind) for state in leaves for kind in state.kinds)

    def _unanswered(self, state: LeafState, kind: str) -> tuple[KindDirectory | None, Ints]:
        """The directory of a leaf's payloads of a kind, and the undecided positions that nobody looked up yet."""
        search = self._search
        directory, undecided = search.directory(state.leaf, kind), search.undecided(state)
        if directory is None:
            return None, undecided[:0]
        row_groups = search.row_groups[undecided]
        is_open = directory.segment[row_groups] >= 0
        return directory, undecided[is_open if state.found is None else is_open & ~state.found.are_known(row_groups)]

    def _mean_selectivity(self, state: LeafState) -> float:
        search = self._search
        if not len(search.alive):
            return 1.0
        return float(state.estimate.selectivity[search.selection(search.alive)].mean())

    def _take(self, leaf_search: LeafSearch, asked: Ints, counts: Ints) -> None:
        """Write down how many rows match at positions that were asked."""
        if not len(asked):
            return
        search, state = self._search, leaf_search.leaf
        assert state.found is not None
        row_counts = search.view.row_counts[search.row_groups]
        self._remember(state, asked, counts)
        state.kinds.add(leaf_search.directory.kind)
        if (counts == 0).any():
            search.used.add((state.leaf.field_id, leaf_search.directory.kind))
        if self._is_alone or state.number in self._conjuncts:
            search.gate.note(asked, counts)
        if state.number in self._conjuncts and state not in self._narrowing and len(self._narrowing) < _MOST_CANDIDATES:
            self._narrowing.append(state)
        possible, certain = state.verdicts.possible.copy(), state.verdicts.certain.copy()
        possible[asked], certain[asked] = counts > 0, counts == row_counts[asked]
        state.verdicts = Verdicts(possible, certain)
        shares, presence = state.estimate.selectivity.copy(), state.estimate.presence.copy()
        found_shares = counts / np.maximum(row_counts[asked], 1)
        if leaf_search.candidates is not None:  # of a wide leaf only the candidates were counted
            found_shares = np.maximum(found_shares, shares[asked])
        shares[asked], presence[asked] = found_shares, counts > 0
        places = None
        if not self._is_alone:  # several leaves meet where their rows lie
            places = places_of(shares * row_counts, state.found.widest_gaps(search.row_groups), row_counts)
        state.estimate = Estimate(shares, presence, places)
        if self._is_alone:
            has_rows = counts > 0
            matching = asked[has_rows]
            search.reasons[matching], search.matches[matching] = Reason.ROWS_MATCH, counts[has_rows]
        search.settle(Reason.ROWS_EMPTY)
        if self._is_alone:
            search.alive = np.setdiff1d(search.alive, asked, assume_unique=True)

    def _remember(self, state: LeafState, asked: Ints, counts: Ints) -> None:
        """Remember in how many row groups a leaf was found where it was not sure to be, for later plans."""
        presence = state.estimate.presence[asked]
        proved = int(np.count_nonzero(presence == 1))
        if proved < len(asked):
            found = max(int(np.count_nonzero(counts)) - proved, 0)
            self._search.view.experience.note(state.leaf, float(presence.sum()) - proved, found)

    def _by_filters(self) -> None:
        for state in self._search.leaves:
            for kind in kinds_answering(state.leaf.test, Answer.UPPER_BOUND):
                if self._search.is_finished:
                    return
                self._probe(state, kind.name)

    def _probe(self, state: LeafState, kind: str) -> None:
        search, leaf = self._search, state.leaf
        directory, undecided = self._unanswered(state, kind)
        if directory is None:
            return
        for exact in kinds_answering(leaf.test, Answer.EXACT):
            other = search.directory(leaf, exact.name) if exact.rank(leaf.test) == 0 else None
            if other is not None:
                # For about the same bytes that kind tells which rows match, and was asked already.
                undecided = undecided[~other.known[search.row_groups[undecided]]]
        undecided = undecided[state.estimate.presence[search.selection(undecided)] < 1]
        for asked, counts in LeafSearch(search, state, directory).find(undecided):
            self._remember(state, asked, counts)
            empty = asked[counts == 0]
            if len(empty):
                possible = state.verdicts.possible.copy()
                possible[empty] = False
                search.used.add((leaf.field_id, kind))
                state.verdicts = Verdicts(possible, state.verdicts.certain)
                search.settle(Reason.BLOOM)

    def _settle_by_joint_rows(self) -> RowSets:
        """Settle the positions where the leaves' rows decide, and return the rows that can match at the others."""
        search, view = self._search, self._search.view
        row_groups = search.row_groups[search.alive]
        segment, first = np.full(view.row_group_count, -1, np.int64), np.zeros(view.row_group_count, np.int64)
        for found in [state.found for state in search.leaves if state.found is not None]:
            new = row_groups[(segment[row_groups] < 0) & found.are_known(row_groups)]
            segment[new], first[new] = found.segment[new], found.first[new]
        if search.is_finished or not (segment[row_groups] >= 0).any():
            return RowSets()
        least, most = join_rows(search, search.tree, search.leaves, search.alive, segment, first)
        counts = most.counts(row_groups)
        # No row at most is exact, whatever else is not known.
        exact = (counts == least.counts(row_groups)) & (counts >= 0)
        settled, matches = search.alive[exact], counts[exact]
        search.matches[settled] = matches
        search.reasons[settled] = np.where(matches > 0, Reason.ROWS_MATCH, Reason.ROWS_EMPTY)
        if (matches == 0).any():
            self._note_use(search.leaves)
        search.alive = search.alive[~exact]
        # An upper bound of all rows tells nothing.
        most.segment[row_groups[~exact & (counts == view.row_counts[row_groups])]] = -1
        return RowSets(found=most, unsure=frozenset(row_groups[~exact].tolist()))


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
