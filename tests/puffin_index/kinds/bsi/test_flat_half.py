"""Five numbers as three flat slices, and as row sets: small enough to check by eye."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from puffin_index.kinds.bsi.search import FlatHalf, HalfSets
from puffin_index.kinds.held_keys import Totals
from puffin_index.roaring.union import StoredSets

# Row 2 has no number of this sign. The others have 10, 13, 17 and 10: above the minimum 0, 3, 7 and 0.
ROWS = 5
EXISTENCE = BitMap([0, 1, 3, 4])
SLICES = [BitMap([1, 3]), BitMap([1, 3]), BitMap([3])]
FLAT = FlatHalf(
    StoredSets.of([EXISTENCE.serialize()]).bits(ROWS)[0], StoredSets.of([own.serialize() for own in SLICES]).bits(ROWS)
)
HALF = HalfSets(1, 10, EXISTENCE, SLICES)


def test_totals_of_all_and_of_some_rows() -> None:
    assert HALF.totals(None) == Totals(4, 50, 0, 10, 17)
    assert HALF.totals(BitMap([1, 2, 3])) == Totals(2, 30, 0, 13, 17)
    assert HALF.totals(BitMap([4])) == Totals(1, 10, 0, 10, 10)
    assert HALF.totals(BitMap([2])) == Totals(0)


def test_rows_are_split_by_their_numbers() -> None:
    assert HALF.split() == {10: BitMap([0, 4]), 13: BitMap([1]), 17: BitMap([3])}
    assert HalfSets(1, 7, BitMap([2]), []).split() == {7: BitMap([2])}
    assert HalfSets(1, 7, BitMap(), []).split() == {}


def test_numbers_of_all_and_of_some_rows() -> None:
    known, numbers = FLAT.of_rows(None)
    assert known[:ROWS].tolist() == [True, True, False, True, True]
    assert numbers[:ROWS].tolist() == [0, 3, 0, 7, 0]
    for half in (FLAT, HALF):
        known, numbers = half.of_rows(np.array([1, 2, 3], np.uint32))
        assert (known.tolist(), numbers.tolist()) == ([True, False, True], [3, 0, 7])


@given(
    st.dictionaries(st.integers(0, 99), st.integers(0, 40), max_size=60),
    st.none() | st.sets(st.integers(0, 99)),
    st.integers(0, 2**62),
    st.sampled_from([1, -1]),
)
def test_totals_and_splits_are_those_of_the_numbers(
    numbers: dict[int, int], among: set[int] | None, least: int, sign: int
) -> None:
    slices = [BitMap([row for row, number in numbers.items() if number >> bit & 1]) for bit in range(6)]
    half = HalfSets(sign, least, BitMap(numbers), slices)
    own = [sign * (least + number) for row, number in numbers.items() if among is None or row in among]

    totals = half.totals(None if among is None else BitMap(among))

    sums = (sum(own), 0) if sign > 0 else (0, sum(own))
    assert totals == (Totals(len(own), *sums, min(own), max(own)) if own else Totals(0))
    split = [(sign * (least + number), row) for row, number in numbers.items()]
    assert sorted((number, row) for number, rows in half.split().items() for row in rows) == sorted(split)
