"""The range of an estimated number: it holds as often as it says, whatever the number is."""

from math import comb

import pytest
from hypothesis import given, strategies as st

from planner.advice.verdict import Range, range_of


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


@given(st.integers(1, 50_000), st.data())
def test_the_estimate_lies_in_the_range(total: int, data: st.DataObject) -> None:
    sampled = data.draw(st.integers(1, min(total, 200)))
    found = data.draw(st.integers(0, sampled))
    own = range_of(found, sampled, total)
    assert found <= own.low <= own.estimate <= own.high <= total - (sampled - found)


def test_nothing_sampled_tells_nothing() -> None:
    assert range_of(0, 0, 9) == Range(9, 0, 9)
