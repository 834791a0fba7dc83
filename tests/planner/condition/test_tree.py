"""Values of leaves joined up a tree are what plain recursion gives, whatever changes, and changes cost little."""

import numpy as np
from hypothesis import given, settings, strategies as st

from planner.condition.tree.nodes import UNKNOWN, Conjunction, Disjunction, Everything, Leaf, Nothing, Predicate
from planner.condition.tree.tree import PredicateTree
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
        case _:
            raise AssertionError(f"no test here makes {predicate}")


@settings(max_examples=amount(40, 1_000))
@given(TREES, st.lists(st.tuples(st.integers(0, 30), FLAGS, FLAGS), max_size=12))
def test_verdicts_are_those_of_recursion(
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
