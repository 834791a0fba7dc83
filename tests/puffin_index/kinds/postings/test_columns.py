"""Decoded keys of rows are the keys that postings were built from: of all rows, and of the rows within a test."""

from collections import Counter
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from pyroaring import BitMap

from puffin_index.errors import CorruptFileError
from puffin_index.keys.asked import AskedTest
from puffin_index.keys.columns import SortedColumn
from puffin_index.keys.leaf import Key, LeafTest, NullTest, RangeTest, SetTest
from puffin_index.kinds.held_keys import KeyCounts
from puffin_index.kinds.postings.blocks import Sizes
from puffin_index.kinds.postings.build import build_postings
from puffin_index.storage.ranged import run
from tests.conftest import amount
from tests.puffin_index.kinds.columns import keys_of
from tests.puffin_index.kinds.merged_sample import Group, expected_rows
from tests.puffin_index.kinds.postings.postings_sample import TINY, built, cases, group, keys_in, opened


def counted(counts: KeyCounts) -> dict[Key | None, int]:
    keys = counts.keys.tolist() if isinstance(counts.keys, np.ndarray) else counts.keys.to_pylist()
    assert keys == sorted(keys)
    found = dict(zip(keys, counts.counts.tolist(), strict=True))
    return found | ({None: counts.null_count} if counts.null_count else {})


def check(groups: list[Group], sizes: Sizes, tests: list[LeafTest]) -> None:
    piece = built(groups, sizes)
    postings, reader = opened(piece)
    rows_of_groups = [row for one in groups for row in one.every_row]
    of_row = dict(zip(rows_of_groups, keys_in(groups), strict=True))
    chosen = Random(len(of_row))
    in_memory = run(postings.in_memory())
    reader.taken()
    for rows in (BitMap(), BitMap(of_row), BitMap(chosen.sample(sorted(of_row), len(of_row) // 3))):
        expected = [of_row[row] for row in rows]
        assert keys_of(run(in_memory.keys_of(rows))) == expected
        assert counted(run(in_memory.counts_of(rows))) == Counter(expected)
        assert reader.taken() == (0, 0)
        assert keys_of(run(postings.keys_of(rows))) == expected
        assert counted(run(postings.counts_of(rows))) == Counter(expected)
        reader.taken()
    assert in_memory.nbytes > len(of_row)
    check_bytes(groups, sizes)
    for test in tests:
        within = run(postings.within(AskedTest(test)))
        if isinstance(test, NullTest) or test.negated:
            assert within is None
            continue
        assert within is not None
        reader.taken()
        inside = expected_rows(groups, test)
        for rows in (inside, BitMap(chosen.sample(list(inside), len(inside) // 2))):
            expected = [of_row[row] for row in rows]
            assert keys_of(run(within.keys_of(rows))) == expected
            assert reader.taken()[1] <= within.cost_bytes
            assert counted(run(within.counts_of(rows))) == Counter(expected)
            reader.taken()


def check_bytes(groups: list[Group], sizes: Sizes) -> None:
    """The columns that come back are built to the same bytes again."""
    piece = built(groups, sizes)
    every = run(opened(piece)[0].keys_of(None))
    ends = np.cumsum([len(one.sample.values) for one in groups]).tolist()
    columns = [every.part(end - len(one.sample.values), end) for end, one in zip(ends, groups, strict=True)]
    placed = [(one.base, SortedColumn(own)) for one, own in zip(groups, columns, strict=True)]
    assert build_postings(placed, sizes).data == piece.payload.data


@given(cases(), st.sampled_from([TINY, Sizes()]))
@settings(max_examples=amount(20, 1500), deadline=None)
def test_keys_of_rows_come_back(case: tuple[list[list[Group]], list[LeafTest]], sizes: Sizes) -> None:
    (groups,), tests = case
    check(groups, sizes, tests)


def test_columns_of_more_blocks_than_are_read_at_once_come_back() -> None:
    sizes = Sizes(block_runs=2, section_runs=2, root_bytes=64, page_bytes=64)
    tests: list[LeafTest] = [RangeTest(100, 900), SetTest((*range(3, 1009, 4), 2000, 2001))]
    check([group(0, [row * 7919 % 1009 for row in range(3000)])], sizes, tests)


@pytest.mark.parametrize("rows", [BitMap([0]), BitMap([0, 100]), BitMap([299]), None])
def test_rows_of_other_keys_are_refused(rows: BitMap | None) -> None:
    postings, _ = opened(built([group(0, [*range(298), None, None])]))
    within = run(postings.within(AskedTest(RangeTest(100, 105))))
    assert within is not None
    with pytest.raises(CorruptFileError):
        run(within.keys_of(rows))


@pytest.mark.parametrize("count", [254, 255, 256, 65_534, 65_536])
def test_codes_take_as_few_bytes_as_the_number_of_keys_allows(count: int) -> None:
    values = [None, *range(count), None]
    in_memory = run(opened(built([group(0, values)], Sizes()))[0].in_memory())
    assert keys_of(run(in_memory.keys_of(None))) == values
    assert in_memory.nbytes < count * (8 + (1 if count < 256 else 2 if count < 65_536 else 4)) + 200
