"""Zone maps: what a column's min, max and NULL count say about a leaf test, for all row groups at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from planner.condition.rows import between
from planner.condition.tree.nodes import Everything
from planner.condition.tree.tree import Constant, JoinedValues, PredicateTree
from planner.condition.value_tests import flags_of
from planner.view.directories import FieldStatistics, selection_of
from puffin_index.keys.columns import KeyArray
from puffin_index.keys.leaf import Key, LeafTest, NullTest, RangeTest, SetTest
from puffin_index.storage.arrays import Flags, Ints, Selection

_MAX_COMPARED_KEYS = 64
"""A longer IN list over bytes is compared as one range: less is dropped, never too much."""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """For each row group, whether a row may match (`possible`), and whether every row does (`certain`)."""

    possible: Flags
    certain: Flags

    def at(self, positions: Selection) -> Verdicts:
        """Return the verdicts at some positions only."""
        return Verdicts(self.possible[positions], self.certain[positions])


class JoinedVerdicts(JoinedValues[Verdicts]):
    """Verdicts on the leaves of a tree, joined up to the root."""

    def __init__(self, tree: PredicateTree, count: int) -> None:
        self._count = count
        super().__init__(tree)

    def _constant(self, constant: Constant) -> Verdicts:
        possible, certain = isinstance(constant, Everything), isinstance(constant, Everything) and constant.exact
        return Verdicts(np.full(self._count, possible), np.full(self._count, certain))

    def _join(self, first: Verdicts, second: Verdicts, at: Selection, *, is_and: bool) -> Verdicts:  # noqa: ARG002 - estimates need it
        if is_and:
            return Verdicts(first.possible & second.possible, first.certain & second.certain)
        return Verdicts(first.possible | second.possible, first.certain | second.certain)


def judge_by_zone_map(
    test: LeafTest, statistics: FieldStatistics, row_groups: Ints, *, is_of_contents: bool = False
) -> Verdicts:
    """Judge a leaf test by the statistics of its column, in the order of `row_groups`; unknown without statistics.

    With `is_of_contents`, a row may have several keys, or none.
    """
    chosen = selection_of(row_groups)
    rows = statistics.row_count[chosen]
    nulls = statistics.null_count[chosen]
    has_values, no_nulls = nulls < rows, nulls == 0
    match test:
        case NullTest(is_null):
            possible, certain = (nulls > 0, nulls == rows) if is_null else (has_values, no_nulls)
        case SetTest(keys, negated):
            touched, all_one = _judge_set(keys, statistics, chosen)
            possible, certain = _with_negation(touched, all_one, negated)
        case RangeTest():
            touched, inside = _judge_range(test, statistics, chosen)
            possible, certain = _with_negation(touched, inside, test.negated)
        case _:
            assert_never(test)
    if not isinstance(test, NullTest):
        possible, certain = possible & has_values, certain & no_nulls & has_values
        if is_of_contents:
            # Of a row group whose keys are all the same, some rows may have none.
            possible, certain = (has_values if test.negated else possible), np.zeros(len(rows), np.bool_)
    known = statistics.known[chosen]
    return Verdicts(possible | ~known, certain & known)


def _with_negation(touched: Flags, all_match: Flags, negated: bool) -> tuple[Flags, Flags]:
    """Turn (some value may match, every value matches) into (possible, certain), of the test or of its negation."""
    return (~all_match, ~touched) if negated else (touched, all_match)


def _judge_set(keys: tuple[Key, ...], statistics: FieldStatistics, chosen: Selection) -> tuple[Flags, Flags]:
    minimum, maximum = _take(statistics.minimum, chosen), _take(statistics.maximum, chosen)
    if isinstance(minimum, np.ndarray) and isinstance(maximum, np.ndarray):
        ordered = np.array(keys, np.int64)
        if len(ordered) == 1:
            touched = (minimum <= ordered[0]) & (maximum >= ordered[0])
            return touched, touched & (minimum == maximum)
        first = np.searchsorted(ordered, minimum, "left")
        touched = first < np.searchsorted(ordered, maximum, "right")
        return touched, touched & (minimum == maximum)
    none = np.zeros(len(minimum), np.bool_)
    if not keys:
        return none, none
    if len(keys) > _MAX_COMPARED_KEYS:
        touched, _ = _judge_range(RangeTest(keys[0], keys[-1]), statistics, chosen)
        return touched, none
    touched = none
    for key in keys:
        touched = touched | (between(minimum, RangeTest(None, key)) & between(maximum, RangeTest(key, None)))
    return touched, touched & flags_of(pc.equal(minimum, maximum))


def _judge_range(test: RangeTest, statistics: FieldStatistics, chosen: Selection) -> tuple[Flags, Flags]:
    """Say whether the range overlaps [min, max], and whether the range contains [min, max]."""
    minimum, maximum = _take(statistics.minimum, chosen), _take(statistics.maximum, chosen)
    above, below = replace(test, high=None), replace(test, low=None)
    touched = between(maximum, above) & between(minimum, below)
    return touched, between(minimum, above) & between(maximum, below)


def _take(keys: KeyArray, chosen: Selection) -> KeyArray:
    if isinstance(keys, np.ndarray) or isinstance(chosen, slice):
        return keys[chosen]
    return keys.take(pa.array(chosen))
