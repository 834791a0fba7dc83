"""AND and OR of tests of one column: examples to read, and the law that the rows stay the same."""

from collections.abc import Iterable

import pytest
from hypothesis import given, strategies as st

from planner.condition.tree.nodes import UNKNOWN, Conjunction, Disjunction, Everything, Leaf, Nothing, Predicate
from planner.condition.tree.simplify import conjunction, disjunction
from puffin_index.keys.leaf import Key, LeafTest, NullTest, RangeTest, SetTest
from tests.planner.laws.expression_oracle import joined_truth
from tests.puffin_index.kinds.columns import holds

EQUALS_1506 = SetTest((1506,))
NOT_1506 = SetTest((1506,), negated=True)
UP_TO_59 = RangeTest(None, 59)
NULL, NOT_NULL = NullTest(is_null=True), NullTest(is_null=False)


def _and(*tests: LeafTest) -> Predicate:
    return conjunction([Leaf(7, test, "int") for test in tests])


@pytest.mark.parametrize(
    "tests",
    [
        pytest.param([UP_TO_59, EQUALS_1506], id="x <= 59 AND x = 1506"),
        pytest.param([EQUALS_1506, NOT_1506], id="x = 1506 AND x <> 1506"),
        pytest.param([SetTest((1, 2)), SetTest((3, 4))], id="x IN (1, 2) AND x IN (3, 4)"),
        pytest.param([RangeTest(60, None), UP_TO_59], id="x >= 60 AND x <= 59"),
        pytest.param(
            [RangeTest(5, None, low_inclusive=False), RangeTest(None, 6, high_inclusive=False)], id="x > 5 AND x < 6"
        ),
        pytest.param([RangeTest(5, 5, low_inclusive=False)], id="5 < x <= 5"),
        pytest.param([NULL, NOT_NULL], id="x IS NULL AND x IS NOT NULL"),
        pytest.param([NULL, NOT_1506], id="x IS NULL AND x <> 1506"),
        pytest.param([SetTest((3, 4)), RangeTest(3, 4, negated=True)], id="x IN (3, 4) AND x NOT BETWEEN 3 AND 4"),
        pytest.param([SetTest(())], id="x IN ()"),
    ],
)
def test_a_contradiction_matches_nothing(tests: list[LeafTest]) -> None:
    assert _and(*tests) == Nothing()


@pytest.mark.parametrize(
    ("tests", "left"),
    [
        pytest.param(
            [RangeTest(2, None), SetTest((1, 2, 3)), SetTest((3,), negated=True)], SetTest((2,)), id="one-key"
        ),
        pytest.param([NOT_NULL, UP_TO_59, RangeTest(3, None)], RangeTest(3, 59), id="ranges"),
        pytest.param([UP_TO_59, NOT_1506], UP_TO_59, id="the-excluded-key-is-not-in-the-range"),
        pytest.param([NOT_NULL, NOT_NULL], NOT_NULL, id="not-null-twice"),
        pytest.param([SetTest((), negated=True)], SetTest((), negated=True), id="no-key-excluded"),
        pytest.param([SetTest((b"a", b"b")), RangeTest(b"b", None)], SetTest((b"b",)), id="bytes"),
    ],
)
def test_tests_of_one_column_become_one(tests: list[LeafTest], left: LeafTest) -> None:
    assert _and(*tests) == Leaf(7, left, "int")


def test_sets_become_one_also_where_any_may_hold() -> None:
    sets = [SetTest((5,)), SetTest((7, 9)), SetTest((5, 8))]
    assert disjunction([Leaf(7, one, "int") for one in sets]) == Leaf(7, SetTest((5, 7, 8, 9)), "int")


def test_other_columns_and_types_are_left_alone() -> None:
    leaves: list[Predicate] = [Leaf(1, EQUALS_1506, "int"), Leaf(2, UP_TO_59, "int"), Leaf(1, UP_TO_59, "long")]

    assert conjunction(leaves) == Conjunction(tuple(leaves))
    assert disjunction(leaves) == Disjunction(tuple(leaves))


def test_a_contradiction_counts_beside_what_is_unknown() -> None:
    assert conjunction([UNKNOWN, Leaf(1, UP_TO_59, "int"), Leaf(1, EQUALS_1506, "int")]) == Nothing()
    assert conjunction([UNKNOWN, Leaf(1, UP_TO_59, "int")]) == Conjunction((Leaf(1, UP_TO_59, "int"), UNKNOWN))
    assert conjunction([]) == Everything(exact=True)


@st.composite
def _tests(draw: st.DrawFn, keys: st.SearchStrategy[Key]) -> list[LeafTest]:
    one = st.one_of(
        st.builds(NullTest, st.booleans()),
        st.builds(
            lambda members, negated: SetTest(tuple(sorted(members)), negated), st.sets(keys, max_size=4), st.booleans()
        ),
        st.builds(
            RangeTest, st.none() | keys, st.none() | keys, st.booleans(), st.booleans(), st.sampled_from([False, True])
        ),
    )
    return draw(st.lists(one, min_size=1, max_size=5))


@pytest.mark.parametrize(
    ("members", "asked"),
    [
        (st.integers(0, 6), range(-1, 8)),
        (
            st.sampled_from([b"", b"\0", b"a", b"a\0", b"b", b"\xff"]),
            [b"", b"\0", b"a", b"a\0", b"a\0\0", b"b", b"c", b"\xff", b"\xff\xff"],
        ),
    ],
    ids=["integers", "bytes"],
)
@given(data=st.data())
def test_law_keys_match_as_before(members: st.SearchStrategy[Key], asked: Iterable[Key], data: st.DataObject) -> None:
    tests = data.draw(_tests(members))
    leaves: list[Predicate] = [Leaf(1, test, "int") for test in tests]
    built = conjunction(leaves), disjunction(leaves)

    def said(key: Key | None) -> list[bool | None]:
        return [joined_truth(predicate, lambda leaf: holds(leaf.test, key)) for predicate in built]

    for key in [None, *asked]:
        assert said(key) == [all(holds(test, key) for test in tests), any(holds(test, key) for test in tests)]
