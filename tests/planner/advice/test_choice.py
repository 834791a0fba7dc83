"""The choice under a budget is near the best of all, and a range holds an estimated number as often as it says."""

from itertools import combinations
from math import comb

import pytest
from hypothesis import given, strategies as st

from planner.advice.gains import Gain, choose
from planner.advice.verdict import Range, range_of

ITEMS = st.integers(0, 8)
# A query saves its bytes if it has an index of each of these groups, as a conjunction of columns has several kinds.
QUERY = st.tuples(st.integers(1, 1000), st.lists(st.frozensets(ITEMS, min_size=1, max_size=3), min_size=1, max_size=3))


def gain_of(queries: list[tuple[int, list[frozenset[int]]]]) -> Gain[int]:
    return lambda chosen: float(sum(size for size, groups in queries if all(group & chosen for group in groups)))


@given(
    st.lists(QUERY, min_size=1, max_size=6), st.lists(st.integers(1, 100), min_size=9, max_size=9), st.integers(1, 500)
)
def test_near_the_best_of_all(queries: list[tuple[int, list[frozenset[int]]]], weights: list[int], budget: int) -> None:
    sizes = dict(enumerate(weights))
    gain = gain_of(queries)
    every = (frozenset(some) for count in range(10) for some in combinations(sizes, count))
    best = max(gain(some) for some in every if sum(sizes[item] for item in some) <= budget)
    chosen = choose(sizes, budget, gain)
    assert gain(chosen) >= 0.9 * best
    # Of more items than are tried together, some go by a rule of thumb, which promises no share of the best.
    for some in (chosen, choose(sizes, budget, gain, most_tried=6)):
        assert sum(sizes[item] for item in some) <= budget


def test_of_too_many_items_those_go_that_lose_least() -> None:
    queries = [(10 * item + 1, [frozenset({item})]) for item in range(9)]
    assert choose(dict.fromkeys(range(9), 1), 3, gain_of(queries), most_tried=4) == {6, 7, 8}
    # Two that do each other's work lose nothing alone: one of them stays.
    both = [*queries, (1000, [frozenset({0, 1})])]
    assert choose(dict.fromkeys(range(9), 1), 3, gain_of(both), most_tried=4) & {0, 1}


def test_what_adds_nothing_is_left_out() -> None:
    assert choose({0: 5, 1: 1}, 10, gain_of([(100, [frozenset({0, 1})])])) == {1}
    assert choose({0: 5}, 10, lambda _: 0.0) == frozenset()
    assert choose({}, 10, lambda _: 0.0) == frozenset()
    assert choose({0: 11}, 10, gain_of([(100, [frozenset({0})])])) == frozenset()
    # Indexes that exist may take more than the budget.
    assert choose({0: 5}, -3, gain_of([(100, [frozenset({0})])])) == frozenset()


@pytest.mark.parametrize(("total", "sampled"), [(30, 10), (30, 29), (7, 1), (200, 16)])
def test_the_range_holds_with_its_confidence(total: int, sampled: int) -> None:
    ranges = [range_of(found, sampled, total) for found in range(sampled + 1)]
    for number in range(total + 1):
        ways = (comb(number, found) * comb(total - number, sampled - found) for found in range(sampled + 1))
        held = sum(way for way, own in zip(ways, ranges, strict=True) if own.low <= number <= own.high)
        assert held / comb(total, sampled) >= 0.99 - 1e-9


@given(st.integers(1, 100_000), st.data())
def test_what_is_sampled_as_a_whole_is_exact(total: int, data: st.DataObject) -> None:
    found = data.draw(st.integers(0, total))
    assert range_of(found, total, total) == Range.exactly(found)
    assert range_of(0, 0, total) == Range(total, 0, total)


@given(st.integers(1, 50_000), st.data())
def test_the_estimate_lies_in_the_range(total: int, data: st.DataObject) -> None:
    sampled = data.draw(st.integers(1, min(total, 200)))
    found = data.draw(st.integers(0, sampled))
    own = range_of(found, sampled, total)
    assert found <= own.low <= own.estimate <= own.high <= total - (sampled - found)
