"""Merged postings are what a build of all row groups writes, and answer so however small the ranges are."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from puffin_index.keys.leaf import LeafTest
from puffin_index.kinds.base import Payload
from puffin_index.kinds.postings.merge import merge_postings
from tests.conftest import amount
from tests.puffin_index.kinds.merged_sample import Group, Piece, expected_rows, placed
from tests.puffin_index.kinds.postings.postings_sample import TINY, built, cases


def _merged(segments: list[list[Group]], new_bases: list[int], rows_at_once: int) -> Payload:
    bases = iter(new_bases)
    parts = [built(groups).source([next(bases) for _ in groups]) for groups in segments]
    return merge_postings(parts, TINY, rows_at_once)


@settings(max_examples=amount(16, 400), deadline=None)
@given(cases(4), st.sampled_from([1, 5, 30]), st.data())
def test_merged_postings_are_what_a_build_writes(
    case: tuple[list[list[Group]], list[LeafTest]], rows_at_once: int, data: st.DataObject
) -> None:
    segments, tests = case
    every = placed([group.sample for groups in segments for group in groups])
    kept = data.draw(st.lists(st.sampled_from([True, True, False]), min_size=len(every), max_size=len(every)))
    kept[data.draw(st.integers(0, len(every) - 1))] = True
    new_bases = [one.base if is_kept else -1 for one, is_kept in zip(every, kept, strict=True)]
    groups = [one for one in every if one.base in new_bases]

    piece = Piece(_merged(segments, new_bases, rows_at_once), tuple(groups))
    for test in tests:
        assert piece.rows(test) == expected_rows(groups, test)
    whole, at_once = built(groups).payload, _merged(segments, new_bases, 10**9)
    assert bytes(at_once.data) == bytes(whole.data)
    assert np.array_equal(at_once.layout, whole.layout)
