"""What a look-up over 1,000 row groups reads, before and after they are merged."""

from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

from puffin_index.keys.arrow_keys import column_of
from puffin_index.keys.asked import AskedTest
from puffin_index.keys.leaf import LeafTest, NullTest, RangeTest, SetTest
from puffin_index.keys.value_types import value_type_named
from puffin_index.kinds.bitmap.merged_bitmap import MergedBitmap
from puffin_index.kinds.bloom.matrix import BloomMatrix
from tests.puffin_index.kinds.columns import Sample
from tests.puffin_index.kinds.counting import open_payload
from tests.puffin_index.kinds.merged_sample import BLOCK_ROWS, POSTINGS_OPTIONS, Piece, merged, placed, segment

ROW_GROUPS = 1000
LONG = value_type_named("long")
AT_MOST = 20
"""Requests of an equality over all row groups."""


def _row_groups(distinct: int, rows: int) -> list[Sample]:
    """Row groups of the keys 0, 7, 14, ... at random, their oracle being the arrays themselves."""
    generator = np.random.default_rng(distinct)
    arrays = [generator.integers(0, distinct, rows) * 7 for _ in range(ROW_GROUPS)]
    return [Sample(LONG, array.tolist(), [], column_of(pa.array(array), LONG)) for array in arrays]


@cache
def _pieces(kind: str, distinct: int, rows: int) -> tuple[list[Piece], Piece]:
    before = segment(kind, {}, placed(_row_groups(distinct, rows)))
    (after,) = merged([before])
    return before, after


def _requests_before(kind: str, pieces: list[Piece], test: LeafTest) -> int:
    requests = 0
    for piece in pieces:
        index, reader = open_payload(kind, piece.payload, LONG, len(piece.groups[0].sample.values))
        index.evaluate(test)
        requests += reader.requests
    return requests


def test_equality_in_merged_bitmaps_of_1000_row_groups_takes_3_requests_instead_of_3000() -> None:
    before, after = _pieces("bitmap", 3, 500)
    test = SetTest((7,))
    assert _requests_before("bitmap", before, test) == 3 * ROW_GROUPS
    index, reader = after.opened()
    assert isinstance(index, MergedBitmap)
    found = index.rows(test)
    assert reader.requests <= 3 <= AT_MOST
    for group in after.groups[::97]:
        values = np.array(group.sample.values)
        assert found & group.every_row == BitMap((np.flatnonzero(values == 7) + group.base).tolist())
    assert len(found) == sum(group.sample.values.count(7) for group in after.groups)


def test_equality_in_merged_bitmaps_of_many_keys_takes_3_requests_and_not_many_bytes() -> None:
    _, after = _pieces("bitmap", 20_000, 40)
    index, reader = after.opened()
    assert isinstance(index, MergedBitmap)
    key = int(after.groups[500].sample.values[3])
    found = index.rows(SetTest((key,)))
    assert after.groups[500].base + 3 in found
    assert reader.requests == 3  # the root, a page, the row set
    assert reader.bytes_read <= 48 * 1024
    assert not index.rows(SetTest((key + 1,)))


@pytest.mark.parametrize("distinct", [3, 20_000])
@pytest.mark.parametrize(
    "test", [SetTest((7,)), SetTest((7, 14, 70_000), True), RangeTest(7, 8), RangeTest(8, None), NullTest(True)]
)
def test_what_merged_bitmaps_would_read_is_what_they_read(distinct: int, test: LeafTest) -> None:
    _, after = _pieces("bitmap", distinct, 500 if distinct == 3 else 40)
    index, reader = after.opened()
    assert isinstance(index, MergedBitmap)
    prepared = index.prepare(AskedTest(test))
    requests, length = prepared.cost()
    told = (reader.requests, reader.bytes_read)
    prepared.rows()
    assert (reader.requests - told[0], reader.bytes_read - told[1]) == (requests, length)


def test_how_many_rows_a_key_has_is_told_without_its_row_set() -> None:
    _, after = _pieces("bitmap", 3, 500)
    index, reader = after.opened()
    assert isinstance(index, MergedBitmap)
    counts = [sum(group.sample.values.count(key) for group in after.groups) for key in (7, 14)]
    assert index.prepare(AskedTest(SetTest((7, 14)))).count_bounds() == (sum(counts), sum(counts))
    assert index.prepare(AskedTest(RangeTest(8, 20))).count_bounds() == (counts[1], counts[1])
    assert reader.requests == 1


def test_equality_in_a_bloom_matrix_of_1000_row_groups_takes_4_requests_instead_of_1000() -> None:
    before, after = _pieces("bloom", 20_000, 40)
    key = int(after.groups[77].sample.values[0])
    assert _requests_before("bloom", before, SetTest((key,))) == ROW_GROUPS
    index, reader = after.opened()
    assert isinstance(index, BloomMatrix)
    requests, length = index.cost(AskedTest(SetTest((key,))))
    told = (reader.requests, reader.bytes_read)
    possible = index.possible(AskedTest(SetTest((key,))))
    assert (reader.requests - told[0], reader.bytes_read - told[1]) == (requests, length)
    has_key = np.array([key in group.sample.values for group in after.groups])
    assert possible[has_key].all()
    assert np.count_nonzero(possible & ~has_key) <= 0.05 * ROW_GROUPS
    assert reader.requests <= 4 <= AT_MOST


def test_filters_of_other_sizes_cost_few_requests_more() -> None:
    """Data files end with a smaller row group: every fourth has fewer keys than the others, each as many as it will."""
    generator = np.random.default_rng(8)
    sizes = [400 if place % 4 else int(generator.integers(1, 400)) for place in range(ROW_GROUPS)]
    of_groups = [generator.integers(0, 2**40, size).tolist() for size in sizes]
    samples = [Sample(LONG, values, [], column_of(pa.array(values), LONG)) for values in of_groups]
    before = segment("bloom", {}, placed(samples))
    (after,) = merged([before])
    index, reader = after.opened()
    assert isinstance(index, BloomMatrix)
    possible = index.possible(AskedTest(SetTest((samples[3].values[0],))))
    assert possible[3]
    assert reader.requests <= AT_MOST
    assert len(after.payload.data) <= 1.4 * sum(len(piece.payload.data) for piece in before)


def test_equality_in_merged_postings_takes_3_requests() -> None:
    of_groups = _row_groups(20_000, 40)
    segments = [
        segment("bitmap", POSTINGS_OPTIONS, placed(of_groups[first : first + 100]))
        for first in range(0, ROW_GROUPS, 100)
    ]
    (after,) = merged(segments)
    index, reader = after.opened()
    assert index is not None
    assert not isinstance(index, BloomMatrix)
    key = int(of_groups[500].values[3])
    assert 500 * BLOCK_ROWS + 3 in index.rows(SetTest((key,)))
    assert reader.requests <= 3
