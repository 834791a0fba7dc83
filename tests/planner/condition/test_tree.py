"""Values of leaves joined up a tree are what plain recursion gives, whatever changes, and changes cost little."""

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from planner.condition.tree.nodes import UNKNOWN, Conjunction, Disjunction, Everything, Leaf, Nothing, Predicate
from planner.condition.tree.tree import PredicateTree
from planner.prune.estimate import _BURST_ROWS, _LEAST_DOUBT, Estimate, JoinedEstimates
from planner.prune.zone_map import JoinedVerdicts, Verdicts
from puffin_index.keys.leaf import SetTest
from tests.conftest import amount

COUNT = 3
LEAVES = [Leaf(number, SetTest((0,)), "long") for number in range(5)]
TREES = st.recursive(
    st.sampled_from([*LEAVES, Everything(exact=True), UNKNOWN, Nothing()]),
    lambda children: st.builds(
        lambda kind, parts: kind(tuple(parts)),
        st.sampled_from([Conjunction, Disjunction]),
        st.lists(children, min_size=0, max_size=5),
    ),
    max_leaves=30,
)
FLAGS = st.lists(st.booleans(), min_size=COUNT, max_size=COUNT).map(np.array)
SHARES = st.lists(st.floats(0, 1), min_size=COUNT, max_size=COUNT).map(np.array)
ROWS = np.array([1, 50, 1_000])


def plain_verdicts(predicate: Predicate, leaves: dict[Leaf, Verdicts]) -> Verdicts:
    match predicate:
        case Leaf():
            return leaves[predicate]
        case Everything(exact):
            return Verdicts(np.full(COUNT, True), np.full(COUNT, exact))
        case Nothing():
            return Verdicts(np.full(COUNT, False), np.full(COUNT, False))
        case Conjunction(children):
            parts = [plain_verdicts(child, leaves) for child in children]
            every = np.full((1, COUNT), True)
            return Verdicts(
                np.vstack([every, *(part.possible for part in parts)]).all(axis=0),
                np.vstack([every, *(part.certain for part in parts)]).all(axis=0),
            )
        case Disjunction(children):
            parts = [plain_verdicts(child, leaves) for child in children]
            none = np.full((1, COUNT), False)
            return Verdicts(
                np.vstack([none, *(part.possible for part in parts)]).any(axis=0),
                np.vstack([none, *(part.certain for part in parts)]).any(axis=0),
            )


def plain_estimate(predicate: Predicate, leaves: dict[Leaf, Estimate]) -> Estimate:
    one = np.ones(COUNT)
    match predicate:
        case Leaf():
            return leaves[predicate]
        case Everything():
            return Estimate(one, one)
        case Nothing():
            return Estimate(0 * one, 0 * one)
        case Conjunction(children):
            parts = [plain_estimate(child, leaves) for child in children]
            selectivity = np.prod([one, *(part.selectivity for part in parts)], axis=0)
            presence = np.min([one, *(part.presence for part in parts)], axis=0)
            # Where all rows satisfy all tests but one, that one alone decides.
            is_open = np.sum([0 * one, *(part.selectivity < 1 for part in parts)], axis=0) > 1
            sure = np.minimum(1 - np.exp(-selectivity * ROWS / _BURST_ROWS), 1 - _LEAST_DOUBT * (1 - selectivity))
            return Estimate(selectivity, np.where(is_open, np.minimum(presence, sure), presence))
        case Disjunction(children):
            parts = [plain_estimate(child, leaves) for child in children]
            return Estimate(
                1 - np.prod([one, *(1 - part.selectivity for part in parts)], axis=0),
                1 - np.prod([one, *(1 - part.presence for part in parts)], axis=0),
            )


@settings(max_examples=amount(40, 1_000))
@given(TREES, st.lists(st.tuples(st.integers(0, 30), FLAGS, FLAGS), max_size=12))
def test_verdicts_are_those_of_plain_recursion_after_every_change(
    predicate: Predicate, changes: list[tuple[int, np.ndarray, np.ndarray]]
) -> None:
    tree = PredicateTree(predicate)
    joined = JoinedVerdicts(tree, COUNT)
    known = {leaf: Verdicts(np.full(COUNT, True), np.full(COUNT, False)) for leaf in LEAVES}
    for number, possible, certain in changes:
        if tree.leaves:
            leaf = number % len(tree.leaves)
            known[tree.leaves[leaf]] = Verdicts(possible, certain)
            joined.put(leaf, known[tree.leaves[leaf]])
        due = plain_verdicts(predicate, known)
        assert np.array_equal(joined.root.possible, due.possible)
        assert np.array_equal(joined.root.certain, due.certain)
    some = np.array([0, 2])
    assert np.array_equal(joined.root.at(some).possible, plain_verdicts(predicate, known).possible[some])


@settings(max_examples=amount(40, 1_000))
@given(TREES, st.lists(st.tuples(st.integers(0, 30), SHARES, SHARES), min_size=1, max_size=8))
def test_estimates_are_those_of_plain_recursion_also_where_a_leaf_is_only_supposed(
    predicate: Predicate, changes: list[tuple[int, np.ndarray, np.ndarray]]
) -> None:
    tree = PredicateTree(predicate)
    joined = JoinedEstimates(tree, ROWS)
    known = {leaf: Estimate(np.ones(COUNT), np.ones(COUNT)) for leaf in LEAVES}
    some = np.array([0, 2])
    for number, selectivity, presence in changes:
        if not tree.leaves:
            return
        leaf = number % len(tree.leaves)
        known[tree.leaves[leaf]] = Estimate(selectivity, presence)
        due = plain_estimate(predicate, known)
        supposed = joined.root_if(leaf, Estimate(selectivity[some], presence[some]), some)
        assert np.allclose(supposed.presence, due.presence[some])
        joined.put(leaf, known[tree.leaves[leaf]])
        assert np.allclose(joined.root.selectivity, due.selectivity)
        assert np.allclose(joined.root.presence, due.presence)


@pytest.mark.parametrize("outer", [Conjunction, Disjunction])
def test_a_change_of_one_leaf_among_20_000_joins_a_few_nodes(outer: type[Conjunction | Disjunction]) -> None:
    inner = Disjunction if outer is Conjunction else Conjunction
    pairs = [
        inner((Leaf(1, SetTest((number,)), "long"), Leaf(2, SetTest((number,)), "long"))) for number in range(10_000)
    ]
    tree = PredicateTree(outer(tuple(pairs)))
    verdicts = JoinedVerdicts(tree, COUNT)
    with patch.object(JoinedVerdicts, "_join", autospec=True, side_effect=JoinedVerdicts._join) as join:
        _ = verdicts.root
        assert join.call_count == 2 * 10_000 - 1
        join.reset_mock()
        for leaf in range(100):
            verdicts.put(leaf, Verdicts(np.full(COUNT, False), np.full(COUNT, False)))
            _ = verdicts.root
        assert join.call_count <= 100 * 16
