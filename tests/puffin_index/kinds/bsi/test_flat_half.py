"""Five numbers as three flat slices, small enough to check by eye."""

from __future__ import annotations

import numpy as np
from pyroaring import BitMap

from puffin_index.kinds.bsi.flat_half import FlatHalf, HalfTotals
from puffin_index.roaring.flat import bits_of_row_set

# Row 2 has no number of this sign. The others have 10, 13, 17 and 10: above the minimum 0, 3, 7 and 0.
ROWS = 5
HALF = FlatHalf(
    10,
    bits_of_row_set(BitMap([0, 1, 3, 4]), ROWS),
    np.stack([bits_of_row_set(BitMap(rows), ROWS) for rows in ([1, 3], [1, 3], [3])]),
)


def test_totals_of_all_and_of_some_rows() -> None:
    assert HALF.totals(None) == HalfTotals(4, 50, 10, 17)
    assert HALF.totals(bits_of_row_set(BitMap([1, 2, 3]), ROWS)) == HalfTotals(2, 30, 13, 17)
    assert HALF.totals(bits_of_row_set(BitMap([4]), ROWS)) == HalfTotals(1, 10, 10, 10)
    assert HALF.totals(bits_of_row_set(BitMap([2]), ROWS)) is None


def test_numbers_of_all_and_of_some_rows() -> None:
    known, numbers = HALF.of_rows(None)
    assert known[:ROWS].tolist() == [True, True, False, True, True]
    assert numbers[:ROWS].tolist() == [0, 3, 0, 7, 0]
    known, numbers = HALF.of_rows(np.array([1, 2, 3], np.uint32))
    assert (known.tolist(), numbers.tolist()) == ([True, False, True], [3, 0, 7])
