"""Searches of bit slices from above and from below find the rows that a look at each number finds."""

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from pyroaring import BitMap

from puffin_index.keys.asked import Intervals, union
from puffin_index.keys.columns import Column, SortedColumn
from puffin_index.keys.value_types import value_type_named
from puffin_index.kinds.bsi.bit_sliced import BitSlicedIndex
from puffin_index.kinds.bsi.own_slices import build_slices
from puffin_index.storage.ranged import run
from tests.conftest import amount
from tests.puffin_index.kinds.counting import open_payload

NUMBERS = st.integers(-20, 20) | st.integers(-(2**63) + 1, 2**63 - 1)
INTERVALS = st.lists(st.tuples(NUMBERS, NUMBERS).map(lambda ends: (min(ends), max(ends))), min_size=1, max_size=6)


def opened(numbers: list[int | None], *, packed: bool = False) -> BitSlicedIndex:
    valid = np.array([number is not None for number in numbers], np.bool_)
    keys = np.array([number or 0 for number in numbers], np.int64)
    column = Column(value_type_named("long"), len(keys), keys, None if valid.all() else valid)
    payload = build_slices(SortedColumn(column), [len(keys)], may_compress=packed)
    index, _ = open_payload("bsi", payload, column.value_type, len(keys))
    assert isinstance(index, BitSlicedIndex)
    return index


@pytest.mark.parametrize("most_wide", [-1, 100], ids=["from above", "from below"])
@settings(max_examples=amount(30, 750), deadline=None)
@given(
    numbers=st.lists(st.none() | NUMBERS, min_size=1, max_size=40),
    intervals=INTERVALS,
    candidates=st.none() | st.sets(st.integers(0, 39)),
    packed=st.booleans(),
)
def test_rows_are_those_whose_number_lies_in_an_interval(
    most_wide: int,
    numbers: list[int | None],
    intervals: list[tuple[int, int]],
    candidates: set[int] | None,
    packed: bool,
) -> None:
    joined: Intervals = union(intervals)
    due = {
        row
        for row, number in enumerate(numbers)
        if number is not None
        and any(low <= number <= high for low, high in joined)
        and (candidates is None or row in candidates)
    }
    with (
        patch("puffin_index.kinds.bsi.bit_sliced._MOST_WIDE_INTERVALS", most_wide),
        patch("puffin_index.kinds.bsi.bit_sliced._WIDE_SHARE", 0),
        patch("puffin_index.kinds.bsi.bit_sliced._SPARSE", 10**6),
    ):
        index = opened(numbers, packed=packed)
        among = None if candidates is None else BitMap(row for row in candidates if row < len(numbers))
        assert set(run(index.search(joined, among))) == due
        # What was read for one search serves the next.
        assert set(run(index.search(joined, among))) == due
