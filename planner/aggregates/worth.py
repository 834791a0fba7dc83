"""Whether the index is asked for the aggregates of a Spark query: if it answers too little, Spark plans once more."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from planner.aggregates.question import MOST_GROUPS, Question
from planner.aggregates.settled import leaf_of
from planner.condition.tree.nodes import Predicate, is_exact
from planner.prune.estimate import most_distinct
from planner.prune.pruner import expected_matches
from planner.view.directories import FieldStatistics, IndexReads
from planner.view.index_view import IndexView
from puffin_index.keys.forms import floats_of_keys
from puffin_index.storage.arrays import Ints

_FEW_GROUPS: Final = 10_000
"""A column with at most this many values in each row group is tried, whatever the number of matching rows."""

_BITS_OF_DOUBLES: Final = 53


def most_rows(view: IndexView, predicate: Predicate, question: Question, row_groups: Ints) -> float | None:
    """How many matching rows an answer may be of, infinite without a bound; None if the index is not to be asked.

    Args:
        view: The index.
        predicate: What rows satisfy.
        question: The question.
        row_groups: The row groups of the view that the scan has.
    """
    if not is_exact(predicate) or not _may_answer(view, question, row_groups):
        return None
    if not _has_many_groups(view, question, row_groups):
        return math.inf
    # Rows bound the number of groups.
    return None if expected_matches(view, predicate, row_groups) > MOST_GROUPS else MOST_GROUPS


def _may_answer(view: IndexView, question: Question, row_groups: Ints) -> bool:
    """Whether directories allow an answer: an index of each column, and no doubles that lose bits."""
    reads = IndexReads()
    for asked in question.every_column:
        statistics = view.statistics(leaf_of(asked), reads)
        if statistics is None or not statistics.known[row_groups].any():
            return False
    for asked in {question.groups[place].column: question.groups[place] for place in question.added_doubles}.values():
        statistics = view.statistics(leaf_of(asked), reads)
        if statistics is not None and _lose_bits(statistics, row_groups):
            return False
    return True


def _has_many_groups(view: IndexView, question: Question, row_groups: Ints) -> bool:
    """Whether a column to group by may have more values than the answer may have groups."""
    for group in question.groups:
        statistics = view.statistics(leaf_of(group), IndexReads())
        if statistics is not None and most_distinct(statistics) > MOST_GROUPS:
            # Of bytes, the number over all row groups may count a value once for each.
            known = row_groups[statistics.known[row_groups]]
            if int(statistics.distinct_count[known].max()) > _FEW_GROUPS:
                return True
    return False


def _lose_bits(statistics: FieldStatistics, row_groups: Ints) -> bool:
    """Whether a sum of doubles most likely loses bits, to judge by the ends of row groups: reading would be wasted."""
    keys = (statistics.minimum, statistics.maximum)
    known = row_groups[statistics.known[row_groups]]
    values = np.concatenate([floats_of_keys(key[known]) for key in keys if isinstance(key, np.ndarray)])
    values = values[np.isfinite(values) & (values != 0)]
    fractions, exponents = np.frexp(values)
    integers = np.ldexp(np.abs(fractions), _BITS_OF_DOUBLES).astype(np.int64)
    lowest = exponents - _BITS_OF_DOUBLES + np.log2(integers & -integers)
    rows = float(statistics.value_count[known].sum())
    # Most values are smaller than the ends.
    magnitude = float(np.abs(values).mean()) / 4 * rows if len(values) else 0.0
    return bool(magnitude > np.exp2(lowest.min(initial=np.inf) + _BITS_OF_DOUBLES))
