"""What statistics tell of a predicate before an index is read: verdicts, and estimates of what is left."""

from planner.clock import Clock
from planner.condition.tree.nodes import Predicate
from planner.condition.tree.tree import PredicateTree
from planner.prune.estimate import Estimate, estimate_leaf
from planner.prune.gate import Limits
from planner.prune.state import SearchState
from planner.prune.verdicts import ZONE_MAPS, Reason
from planner.prune.zone_map import judge_by_zone_map
from planner.view.directories import IndexReads
from planner.view.index_view import IndexView
from puffin_index.keys.map_key import Contents
from puffin_index.storage.arrays import Ints


def expected_matches(view: IndexView, predicate: Predicate, row_groups: Ints) -> float:
    """Estimate from directories how many rows of some row groups satisfy a predicate."""
    limits = Limits(rows_wanted=True)
    search = SearchState(view, PredicateTree(predicate), row_groups, limits, Clock(limits.seconds), IndexReads())
    for state in search.leaves:
        state.statistics = view.statistics(state.leaf.field_id, state.leaf.value_type, search.reads)
    estimate_leaves(search)
    return float((search.gate.estimates.root.selectivity * view.row_counts[row_groups]).sum())


def judge_by_zone_maps(search: SearchState) -> None:
    """Judge each leaf by the statistics of its column, as long as there is time."""
    search.view.opened.prefetch({state.leaf.field_id for state in search.leaves}, search.reads.count)
    for state in search.leaves:
        if search.is_finished:
            break
        state.statistics = search.view.statistics(state.leaf.field_id, state.leaf.value_type, search.reads)
        if state.statistics is not None:
            state.verdicts = judge_by_zone_map(
                state.leaf.test,
                state.statistics,
                search.row_groups,
                is_of_contents=isinstance(state.leaf.field_id, Contents),
            )
    search.settle(Reason.ZONE_MAP)
    if not search.verdicts.root.possible.all():
        search.used.update(
            (state.leaf.field_id, ZONE_MAPS) for state in search.leaves if not state.verdicts.possible.all()
        )


def estimate_leaves(search: SearchState) -> None:
    """Estimate each leaf that has statistics, as long as there is time."""
    is_alone = len(search.tree.nodes) == 1 and not search.limits.rows_wanted and not search.limits.pages
    for state in search.leaves:
        if search.is_finished:
            break
        if state.statistics is not None:
            estimate = estimate_leaf(state.leaf.test, state.statistics, search.row_groups, is_alone=is_alone)
            presence = search.view.experience.corrected(state.leaf, estimate.presence)
            possible = state.verdicts.possible
            if possible.all():
                state.estimate = Estimate(estimate.selectivity, presence)
            else:
                # A test under OR may be ruled out by bounds where others are not.
                state.estimate = Estimate(estimate.selectivity * possible, presence * possible)
