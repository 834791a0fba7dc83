"""Merged postings are what a build of all row groups writes, and answer so however small the ranges are."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puffin_index.keys.leaf import LeafTest
from puffin_index.keys.value_types import ValueType
from puffin_index.kinds.base import MergePart, Payload, StoredPayload
from puffin_index.kinds.postings.blocks import Sizes
from puffin_index.kinds.postings.build import POSTINGS
from puffin_index.kinds.postings.merge import merge_postings
from puffin_index.storage.ranged import Blob
from tests.conftest import amount
from tests.counting_reader import CountingReader
from tests.puffin_index.kinds.postings.test_look_up import (
    BLOCK_ROWS,
    INTS,
    LONG,
    STRING,
    TEXTS,
    TINY,
    RowGroup,
    Value,
    built,
    expected_rows,
    leaf_tests,
    opened,
    segments,
    spans_of,
)

Segment = list[RowGroup]


def _placed(some: Sequence[Segment]) -> list[RowGroup]:
    """The row groups of all segments, one after the other."""
    groups: list[RowGroup] = []
    base = 0
    for _, values in (group for one in some for group in one):
        groups.append((base, values))
        base += max(-(-len(values) // BLOCK_ROWS), 1) * BLOCK_ROWS
    return groups


def _merged(
    some: Sequence[Segment], kept: Sequence[bool], value_type: ValueType, sizes: Sizes, rows_at_once: int
) -> tuple[Payload, list[RowGroup]]:
    groups = _placed(some)
    parts: list[MergePart] = []
    first = 0
    for one in some:
        payload = built(one, value_type, sizes)
        bases = [groups[place][0] if kept[place] else -1 for place in range(first, first + len(one))]
        first += len(one)
        reader = CountingReader(payload.data)
        spans = np.array(spans_of(one), np.int64)
        stored = StoredPayload(Blob(reader, 0, reader.size), POSTINGS, payload.layout, value_type, spans)
        parts.append(MergePart(stored, np.array(bases, np.int64)))
    return merge_postings(parts, sizes, rows_at_once), [
        group for group, is_kept in zip(groups, kept, strict=True) if is_kept
    ]


def _check(
    some: Sequence[Segment], kept: Sequence[bool], value_type: ValueType, rows_at_once: int, tests: list[LeafTest]
) -> None:
    payload, groups = _merged(some, kept, value_type, TINY, rows_at_once)
    postings, _ = opened(payload, spans_of(groups), value_type)
    for test in tests:
        assert postings.rows(test) == expected_rows(groups, test)
        least, most = postings.count_bounds(test)
        assert least <= len(expected_rows(groups, test)) <= most
    whole = built(groups, value_type, TINY)
    at_once, _ = _merged(some, kept, value_type, TINY, 10**9)
    assert bytes(at_once.data) == bytes(whole.data)
    assert at_once.layout.tolist() == whole.layout.tolist()


@pytest.mark.parametrize(("value_type", "values"), [(LONG, INTS), (STRING, TEXTS)], ids=["long", "string"])
@settings(max_examples=amount(8, 200), deadline=None)
@given(st.data())
def test_merged_postings_are_what_a_build_writes(
    value_type: ValueType, values: st.SearchStrategy[Value], data: st.DataObject
) -> None:
    some = data.draw(st.lists(segments(values), min_size=1, max_size=4))
    count = sum(len(one) for one in some)
    kept = data.draw(st.lists(st.sampled_from([True, True, False]), min_size=count, max_size=count))
    kept[data.draw(st.integers(0, count - 1))] = True
    keys = INTS if value_type is LONG else TEXTS.map(str.encode)
    tests = data.draw(st.lists(leaf_tests(keys), max_size=6))
    _check(some, kept, value_type, data.draw(st.sampled_from([1, 5, 30])), tests)
