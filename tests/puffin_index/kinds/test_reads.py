"""What a look-up reads, in a row group and in 1,000 merged ones: how many requests and bytes, and nothing twice."""

from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from pyroaring import BitMap

from puffin_index.keys.arrow_keys import column_of
from puffin_index.keys.asked import AskedTest
from puffin_index.keys.columns import SortedColumn
from puffin_index.keys.leaf import LeafTest, NullTest, RangeTest, SetTest
from puffin_index.keys.value_types import value_type_named
from puffin_index.kinds.base import OpenIndex, RowSet
from puffin_index.kinds.bloom.matrix import BloomMatrix
from puffin_index.kinds.postings.look_up import Postings
from puffin_index.kinds.registry import KINDS
from puffin_index.storage.arrays import Flags, Ints
from puffin_index.storage.ranged import run
from tests.counting_reader import CountingReader
from tests.puffin_index.kinds.columns import Sample
from tests.puffin_index.kinds.counting import open_payload
from tests.puffin_index.kinds.merged_sample import Piece, merged, placed, segment

KIB = 1024
MILLION = 1_000_000
LONG = value_type_named("long")
ROW_GROUPS = 1000
SLICE_KIB = 17
"""A bit slice of 100,000 rows: two containers of 8 KiB, and their heads."""
AT_MOST = 20
"""Requests of an equality over all row groups, once they are merged."""


def _open(kind: str, values: npt.NDArray[np.generic] | pa.Array, type_name: str) -> tuple[OpenIndex, CountingReader]:
    value_type = value_type_named(type_name)
    array = values if isinstance(values, pa.Array) else pa.array(values)
    return open_payload(kind, KINDS[kind].build(SortedColumn(column_of(array, value_type)), {}), value_type, len(array))


def _read(index: OpenIndex, reader: CountingReader, test: LeafTest) -> tuple[BitMap, int, int]:
    """The rows that satisfy a test, and the requests and bytes that they took."""
    before = (reader.requests, reader.bytes_read)
    return index.evaluate(test).rows, reader.requests - before[0], reader.bytes_read - before[1]


def _possible(piece: Piece, found: RowSet) -> Flags:
    """Which row groups an upper bound has rows of."""
    return np.array([bool(found.rows & group.every_row) for group in piece.groups])


@pytest.fixture(scope="module")
def permutation() -> Ints:
    return np.random.default_rng(1).permutation(MILLION)


def test_equality_in_a_bitmap_takes_3_requests_and_64_kib(permutation: Ints) -> None:
    twice = np.random.default_rng(2).permutation(np.repeat(np.arange(MILLION // 2), 2))
    strings = pa.array([f"https://example.org/customers/{number:012d}" for number in range(200_000)])
    # Only row sets are read again; a single row is told by the entry of its key.
    for values, type_name, key, expected, reads_again in (
        (permutation, "long", 4711, np.flatnonzero(permutation == 4711), 0),
        (twice, "long", 4711, np.flatnonzero(twice == 4711), 1),
        (strings, "string", b"https://example.org/customers/000000004711", [4711], 0),
    ):
        index, reader = _open("bitmap", values, type_name)
        test = SetTest((key,))
        rows, requests, bytes_read = _read(index, reader, test)
        assert rows == BitMap(expected)
        assert requests <= 3
        assert bytes_read <= 64 * KIB
        assert _read(index, reader, test)[1] == reads_again


def test_a_null_test_of_a_bitmap_reads_the_nulls_alone() -> None:
    values = pa.array(np.arange(100_000), mask=np.arange(100_000) % 1000 == 7)
    index, reader = _open("bitmap", values, "long")
    rows, requests, bytes_read = _read(index, reader, NullTest(True))
    assert rows == BitMap(range(7, 100_000, 1000))
    assert requests == 1
    assert bytes_read < KIB


def test_a_range_of_a_bitmap_reads_its_blocks_or_the_few_outside_of_it(permutation: Ints) -> None:
    for test, count, most_kib in (
        (RangeTest(500_000, 502_000), 2001, 96),
        (RangeTest(1000, None), MILLION - 1000, 64),
        (RangeTest(None, 999, negated=True), MILLION - 1000, 64),
    ):
        rows, requests, bytes_read = _read(*_open("bitmap", permutation, "long"), test)
        assert len(rows) == count
        assert requests <= 3
        assert bytes_read <= most_kib * KIB


def test_bit_slices_are_read_once_and_neighbours_together(permutation: Ints) -> None:
    index, reader = _open("bsi", permutation, "long")
    rows, requests, bytes_read = _read(index, reader, RangeTest(123_457, None))
    assert rows == BitMap(np.flatnonzero(permutation >= 123_457).tolist())
    assert requests == 1
    # The numbers have 20 bits; a slice of a million rows has 16 containers of 8 KiB.
    assert bytes_read <= 20 * (16 * 8 + 1) * KIB
    again, requests, bytes_read = _read(index, reader, RangeTest(None, 654_321))
    assert again == BitMap(np.flatnonzero(permutation <= 654_321).tolist())
    assert (requests, bytes_read) == (0, 0)


def test_slices_below_the_last_bit_that_matters_are_not_read() -> None:
    values = np.random.default_rng(4).integers(0, 1 << 20, 200_000)
    values[:2] = (0, (1 << 20) - 1)
    index, reader = _open("bsi", values, "long")
    rows, requests, bytes_read = _read(index, reader, RangeTest(1 << 18, 1 << 19, high_inclusive=False))
    assert rows == BitMap(np.flatnonzero((values >= 1 << 18) & (values < 1 << 19)).tolist())
    assert requests == 1
    # Two bits matter; a slice of 200,000 rows has four containers of 8 KiB.
    assert bytes_read < 2 * (4 * 8 + 1) * KIB


@pytest.mark.parametrize("test", [RangeTest(-5, 1 << 30), RangeTest(1 << 30, None), SetTest((-1,)), NullTest(False)])
def test_what_the_bounds_of_the_numbers_tell_takes_no_read(test: LeafTest) -> None:
    index, reader = _open("bsi", np.arange(70_000), "long")
    index.evaluate(test)
    assert reader.requests == 0


def test_lower_slices_are_left_when_no_row_is() -> None:
    """100,000 numbers of 60 bits are told apart by the upper 19: the other 41 are read for a hit only."""
    values = np.random.default_rng(5).integers(0, 1 << 60, 100_000)
    index, reader = _open("bsi", values, "long")
    rows, requests, bytes_read = _read(index, reader, SetTest((1 << 59,)))
    assert not rows
    assert requests == 1
    assert bytes_read <= 19 * SLICE_KIB * KIB
    rows, requests, bytes_read = _read(index, reader, SetTest((int(values[4711]),)))
    assert rows == BitMap([4711])
    assert requests == 1
    assert bytes_read <= (41 + 1) * SLICE_KIB * KIB


def test_candidates_that_have_no_such_number_stop_the_reading() -> None:
    values = np.repeat([0, 1 << 40], 50_000)
    values[1:50_000] += np.random.default_rng(6).integers(0, 1 << 39, 49_999)
    index, reader = _open("bsi", values, "long")
    candidates = BitMap(range(50_000, 100_000))
    assert not index.evaluate(RangeTest(1, (1 << 40) - 1), candidates).rows
    assert reader.requests == 1


def test_equality_of_strings_reads_a_directory_a_block_and_the_slices_of_codes() -> None:
    strings = pa.array([f"Customer#{number:09d}" for number in np.random.default_rng(7).integers(0, 50_000, 200_000)])
    index, reader = _open("bsi", strings, "string")
    rows, requests, bytes_read = _read(index, reader, SetTest((b"Customer#000004711",)))
    assert [strings[row].as_py() for row in rows] == ["Customer#000004711"] * len(rows)
    assert requests <= 3
    # A bit a row for each of the 16 bits of a code; the dictionary is read by blocks.
    assert bytes_read <= 16 * 200_000 // 8 + 64 * KIB
    assert not index.evaluate(SetTest((b"Customer#000004711?",))).rows


def test_a_small_bloom_filter_is_read_whole_and_once() -> None:
    index, reader = _open("bloom", np.arange(10_000), "long")
    for key in range(-5, 5):
        index.evaluate(SetTest((key,)))
    assert reader.requests == 1


def test_a_large_bloom_filter_is_read_by_pages(permutation: Ints) -> None:
    index, reader = _open("bloom", permutation, "long")
    assert reader.size > 1024 * KIB
    assert index.evaluate(SetTest((4711,))).rows == BitMap(range(MILLION))
    assert reader.requests <= 3
    # Directory, and pages of 16 KiB.
    assert reader.bytes_read <= 3 * 16 * KIB


def test_a_bloom_filter_is_wrong_for_about_one_absent_key_in_a_hundred() -> None:
    index, _ = _open("bloom", np.arange(0, 200_000, 2), "long")
    assert 20 <= sum(not index.evaluate(SetTest((key,))).exact for key in range(1, 10_001, 2)) <= 90


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
    assert isinstance(index, Postings)
    found = index.evaluate(test).rows
    assert reader.requests <= 3 <= AT_MOST
    for group in after.groups:
        values = np.array(group.sample.values)
        assert found & group.every_row == BitMap((np.flatnonzero(values == 7) + group.base).tolist())
    assert len(found) == sum(group.sample.values.count(7) for group in after.groups)


def test_equality_in_a_bloom_matrix_of_1000_row_groups_takes_4_requests_instead_of_1000() -> None:
    before, after = _pieces("bloom", 20_000, 40)
    key = int(after.groups[77].sample.values[0])
    assert _requests_before("bloom", before, SetTest((key,))) == ROW_GROUPS
    index, reader = after.opened()
    assert isinstance(index, BloomMatrix)
    look_up = run(index.prepare(AskedTest(SetTest((key,)))))
    requests, length = look_up.cost
    told = (reader.requests, reader.bytes_read)
    possible = _possible(after, run(look_up.rows(None)))
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
    assert _possible(after, index.evaluate(SetTest((samples[3].values[0],))))[3]
    assert reader.requests <= AT_MOST
    assert len(after.payload.data) <= sum(len(piece.payload.data) for piece in before)
