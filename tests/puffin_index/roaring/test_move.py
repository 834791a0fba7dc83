"""Containers under new keys are those of pyroaring's own sets, whatever they hold."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from pyroaring import BitMap

from puffin_index.errors import CorruptFileError
from puffin_index.roaring.read import deserialize
from puffin_index.roaring.union import BrokenSetError, StoredSets, assemble_sets, containers_of_rows, joined
from puffin_index.roaring.write import BLOCK_ROWS
from puffin_index.storage.arrays import put_bytes
from tests.conftest import amount
from tests.puffin_index.roaring.row_sets import ROWS, row_sets

LAST_BLOCK = (ROWS - 1) // BLOCK_ROWS
shifts = st.integers(0, 2**32 // BLOCK_ROWS - 1 - LAST_BLOCK)
"""How many blocks rows move: up to the last one that there is."""


@settings(max_examples=amount(8, 200), deadline=None)
@given(st.lists(row_sets(), min_size=1, max_size=40), st.sets(st.integers(0, LAST_BLOCK)), shifts)
def test_sets_whose_containers_moved_have_the_rows_that_moved(sets: list[BitMap], left: set[int], by: int) -> None:
    found = StoredSets.of([rows.serialize() for rows in sets]).containers()
    blocks = np.where(np.isin(found.blocks, list(left)), -1, found.blocks + by)
    moved = found.moved(found.sets, blocks)
    kept, sets_of = np.unique(moved.sets, return_inverse=True)
    assembled = assemble_sets(moved.moved(sets_of, moved.blocks), len(kept))
    for place, number in enumerate(kept.tolist()):
        one = assembled.data[assembled.offsets[place] : assembled.offsets[place + 1]].tobytes()
        expected = [row + by * BLOCK_ROWS for row in sets[number] if row // BLOCK_ROWS not in left]
        assert deserialize(one, 2**32) == BitMap(expected)
        assert BitMap.deserialize(one) == BitMap(expected)


def test_single_rows_join_other_containers() -> None:
    other = StoredSets.of([BitMap([BLOCK_ROWS]).serialize()]).containers()
    every = joined([containers_of_rows(np.zeros(2, np.int64), np.array([7, 2**32 - 1])), other])
    assert BitMap.deserialize(assemble_sets(every, 1).data.tobytes()) == BitMap([7, BLOCK_ROWS, 2**32 - 1])


def test_two_containers_of_one_key_are_refused() -> None:
    with pytest.raises(BrokenSetError, match="two containers"):
        assemble_sets(containers_of_rows(np.zeros(2, np.int64), np.array([7, 8])), 1)


@settings(max_examples=amount(8, 200), deadline=None)
@given(row_sets(), st.data())
def test_cut_sets_are_refused(rows: BitMap, data: st.DataObject) -> None:
    whole = rows.serialize()
    length = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(CorruptFileError):
        StoredSets.of([whole[:length]]).containers()


@given(st.lists(st.tuples(st.sampled_from((0, 1, 2, 7)), st.sampled_from((1, 2, 510, 512, 2_000))), max_size=6))
def test_bytes_are_put_where_they_belong_whether_ranges_are_short_or_long(pieces: list[tuple[int, int]]) -> None:
    """Gaps before the ranges and their lengths: adjoining ones, few long ones and many short ones go other ways."""
    gaps = np.array([gap for gap, _ in pieces], np.int64)
    sizes = np.array([size for _, size in pieces], np.int64)
    starts = np.cumsum(gaps + sizes) - sizes
    content = np.random.default_rng(5).integers(1, 256, int(sizes.sum()), dtype=np.uint8)
    target = np.zeros(int((gaps + sizes).sum()) + 3, np.uint8)
    put_bytes(target, starts, sizes, content)
    places = [
        place
        for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)
        for place in range(start, start + size)
    ]
    assert target[places].tolist() == content.tolist()
    assert np.count_nonzero(target) == len(content)
