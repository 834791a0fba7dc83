"""Pruning: which row groups can hold a match. Each stage is vectorised and sees only what the one before left open.

Zone maps come first and read directories only. The stages that read indexes follow (`planner.prune.index_stages`). A
row group that is undecided when the time is over is kept.
"""

from __future__ import annotations

from planner.clock import Clock
from planner.condition.tree.nodes import Predicate
from planner.condition.tree.tree import PredicateTree
from planner.prune.estimate import Estimate, estimate_leaf
from planner.prune.funnel import Funnel
from planner.prune.gate import DEFAULT_LIMITS, Limits
from planner.prune.index_stages import IndexStages
from planner.prune.pruned import ZONE_MAPS, Pruned, Reason
from planner.prune.pruning import Pruning
from planner.prune.zone_map import judge_by_zone_map
from planner.view.directories import IndexReads
from planner.view.index_view import IndexView
from puffin_index.storage.arrays import Ints
from puffin_index.storage.files import READ_COUNT


def prune(view: IndexView, predicate: Predicate, row_groups: Ints, limits: Limits = DEFAULT_LIMITS) -> Pruned:
    """Judge row groups of one view for one predicate.

    Args:
        view: The index.
        predicate: What to look for.
        row_groups: Which row groups of the view to judge (int64).
        limits: Bounds; the time begins now.

    Raises:
        PuffinIndexError: On index trouble in strict mode.
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
    funnel = Funnel(pruning.reads, pruning.limits.strict)
    with funnel.stage("zone-map", pruning, Reason.ZONE_MAP):
        _judge_by_zone_maps(pruning)
        rest = pruning.rest()
        _estimate(rest)
    row_sets = IndexStages(rest).run(funnel)
    pruning.take(rest)
    return Pruned(
        pruning.reasons,
        pruning.matches,
        tuple(funnel.stages),
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
