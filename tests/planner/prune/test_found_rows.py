"""Rows of a segment belong to their row groups; rows of leaves join to those of a predicate, as sets of rows do."""

from collections.abc import Mapping
from random import Random
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from pyroaring import BitMap

from planner.condition.tree.nodes import UNKNOWN, Conjunction, Disjunction, Leaf, Nothing, Predicate
from planner.condition.tree.tree import PredicateTree
from planner.prune.row_sets import FoundRows
from planner.prune.segment_search import joint_rows
from planner.view.directories import KindDirectory
from puffin_index.keys.leaf import SetTest
from puffin_index.keys.value_types import value_type_named
from puffin_index.storage.arrays import Ints
from tests.conftest import amount

ROWS = 6
LEAVES = [Leaf(number, SetTest((0,)), "long") for number in range(4)]
TREES = st.recursive(
    st.sampled_from(LEAVES),
    lambda children: st.builds(
        lambda kind, parts: kind(tuple(parts)),
        st.sampled_from([Conjunction, Disjunction]),
        st.lists(children, min_size=1, max_size=3),
    ),
    max_leaves=6,
)
# For each row group the segment of each leaf's payload, and whether it was asked.
PLACE = st.tuples(st.sampled_from([0, 0, 0, 1]), st.sampled_from([True, True, True, False]))
PLACES = st.lists(st.lists(PLACE, min_size=4, max_size=4), min_size=1, max_size=5)


def directory_of(segments: list[int]) -> KindDirectory:
    """One payload for each segment, in which row group i has the rows from 10 i."""
    count = len(segments)
    none, base = np.zeros(count, np.int64), np.arange(count, dtype=np.int64) * 10
    segment, entry = np.array(segments, np.int32), np.zeros(count, np.int32)
    return KindDirectory(
        1, "bitmap", value_type_named("long"), segment, base, entry, none, none, np.ones(count, np.bool_)
    )


def rows_of(predicate: Predicate, rows: Mapping[Leaf, set[int]]) -> set[int]:
    match predicate:
        case Leaf():
            return rows[predicate]
        case Conjunction(children):
            return set.intersection(*(rows_of(child, rows) for child in children))
        case Disjunction(children):
            return set.union(*(rows_of(child, rows) for child in children))
        case _:
            raise AssertionError(predicate)


def leaves_of(predicate: Predicate) -> set[Leaf]:
    match predicate:
        case Conjunction(children) | Disjunction(children):
            return set().union(*map(leaves_of, children))
        case Leaf():
            return {predicate}
        case _:
            return set()


def joined(predicate: Predicate, found: Mapping[Leaf, FoundRows], row_groups: Ints) -> FoundRows | None:
    tree = PredicateTree(predicate)
    return joint_rows(tree, [found.get(leaf) for leaf in tree.leaves], row_groups)


@settings(max_examples=amount(60, 1_000))
@given(TREES, PLACES, st.integers(0, 2**32), st.sampled_from([0, 512]))
def test_joint_rows_are_those_that_sets_give(
    predicate: Predicate, places: list[list[tuple[int, bool]]], seed: int, many: int
) -> None:
    every = [10 * group + row for group in range(len(places)) for row in range(ROWS)]
    chance = Random(seed)
    matching = {leaf: set(chance.sample(every, chance.randint(0, len(every)))) for leaf in LEAVES}
    counts = np.full(len(places), ROWS, np.int64)
    found: dict[Leaf, FoundRows] = {}
    for number, leaf in enumerate(LEAVES):
        segments = [group[number][0] for group in places]
        asked = {segment for segment, is_asked in (group[number] for group in places) if is_asked}
        rows: dict[int, list[int]] = {segment << 32: [] for segment in sorted(asked)}
        for row in sorted(matching[leaf]):
            if segments[row // 10] in asked:
                rows[segments[row // 10] << 32].append(row)
        sets = {blob: BitMap(some) for blob, some in rows.items()}
        found[leaf] = FoundRows(directory_of(segments), counts, sets)
    wanted = leaves_of(predicate)
    answered = [
        group
        for group, of_leaves in enumerate(places)
        if all(found[leaf].are_known(np.array([group]), of_leaves[LEAVES.index(leaf)][0]) for leaf in wanted)
    ]

    joint = joined(predicate, found, np.array(answered, np.int64))

    due = rows_of(predicate, matching)
    with patch("planner.prune.row_sets._MANY_ROWS", many):
        told = [-1] * len(places) if joint is None else joint.counts(np.arange(len(places))).tolist()
    for group in range(len(places)):
        own = None if joint is None else joint.of(group)
        one_segment = len({places[group][LEAVES.index(leaf)][0] for leaf in wanted}) == 1
        if group in answered and one_segment:
            assert own is not None
            own_due = {row for row in due if row // 10 == group}
            assert ({10 * group + row for row in own}, told[group]) == (own_due, len(own_due))
        else:
            assert own is None


def test_what_was_not_looked_up_gives_no_rows() -> None:
    found = {LEAVES[0]: FoundRows(directory_of([0]), np.array([ROWS]), {0: BitMap([1, 2])})}
    row_groups = np.array([0])

    assert joined(LEAVES[0], found, row_groups) is not None
    assert joined(LEAVES[0], found, row_groups[:0]) is None
    assert joined(Conjunction((LEAVES[0], LEAVES[1])), found, row_groups) is None
    assert joined(Conjunction((LEAVES[0], UNKNOWN)), found, row_groups) is None
    assert joined(Disjunction((LEAVES[0], Nothing())), found, row_groups) is None
    assert joined(Conjunction(()), found, row_groups) is None


@pytest.mark.parametrize("many", [0, 512])
def test_row_groups_get_their_rows_up_to_the_end_of_the_row_space(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.prune.row_sets._MANY_ROWS", many)
    bases, row_counts = np.array([0, 65_536, 2**32 - 65_536]), np.array([0, 10, 65_536])
    here = np.zeros(3, np.int32)
    directory = KindDirectory(
        1, "bitmap", value_type_named("long"), here, bases, here, bases, bases, np.ones(3, np.bool_)
    )
    rows = BitMap([65_536, 65_545, 2**32 - 65_536, 2**32 - 2, 2**32 - 1])
    found = FoundRows(directory, row_counts, {int(directory.blob[0]): rows})

    assert found.counts(np.arange(3)).tolist() == [0, 2, 3]
    assert [list(found.of(row_group) or ()) for row_group in range(3)] == [[], [0, 9], [0, 65_534, 65_535]]
