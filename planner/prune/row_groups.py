"""Judging row groups of a view for a predicate, here or on executors."""

from __future__ import annotations

import numpy as np

from planner.condition.tree.nodes import Everything, Predicate
from planner.prune.distributed import Executors, prune_on_executors
from planner.prune.gate import DEFAULT_LIMITS, Limits
from planner.prune.pruned import Pruned, Reason
from planner.prune.pruner import prune
from planner.view.index_view import IndexView
from puffin_index.storage.arrays import Ints


def prune_row_groups(
    view: IndexView,
    predicate: Predicate,
    row_groups: Ints,
    limits: Limits = DEFAULT_LIMITS,
    executors: Executors | None = None,
) -> Pruned:
    """Judge row groups of a view, here or on executors. Without a predicate all are kept, and nothing is read."""
    if isinstance(predicate, Everything):
        count = len(row_groups)
        reason = Reason.NO_PREDICATE
        matches = view.row_counts[row_groups] if predicate.exact else np.full(count, -1, np.int64)
        return Pruned(np.full(count, reason, np.uint8), matches, (), ())
    if executors is not None and executors.are_worth_it(len(row_groups), int(view.row_counts[row_groups].sum())):
        return prune_on_executors(executors, view, predicate, row_groups, limits)
    return prune(view, predicate, row_groups, limits)
