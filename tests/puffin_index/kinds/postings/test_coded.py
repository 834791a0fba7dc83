"""Decoded keys of rows are the keys that postings were built from: of all rows, and of the rows within a test."""

from collections import Counter
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from puffin_index.errors import CorruptFileError
from puffin_index.keys.asked import AskedTest
from puffin_index.keys.leaf import LeafTest, NullTest, RangeTest
from puffin_index.keys.value_types import ValueType
from puffin_index.kinds.held_keys import KeyCounts
from puffin_index.kinds.postings.blocks import Sizes
from tests.conftest import amount
from tests.puffin_index.kinds.postings.test_columns import values_of
from tests.puffin_index.kinds.postings.test_look_up import (
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


def counted(counts: KeyCounts) -> dict[Value, int]:
    keys = counts.keys.tolist() if isinstance(counts.keys, np.ndarray) else counts.keys.to_pylist()
    assert keys == sorted(keys)
    found: dict[Value, int] = {
        key.decode() if isinstance(key, bytes) else key: count
        for key, count in zip(keys, counts.counts.tolist(), strict=True)
    }
    return found | ({None: counts.null_count} if counts.null_count else {})


def check(row_groups: list[RowGroup], value_type: ValueType, sizes: Sizes, tests: list[LeafTest]) -> None:
    payload = built(row_groups, value_type, sizes)
    postings, reader = opened(payload, spans_of(row_groups), value_type)
    of_row = {base + row: value for base, values in row_groups for row, value in enumerate(values)}
    chosen = Random(len(of_row))
    in_memory = postings.in_memory()
    reader.taken()
    for rows in (BitMap(), BitMap(of_row), BitMap(chosen.sample(sorted(of_row), len(of_row) // 3))):
        expected = [of_row[row] for row in rows]
        assert values_of(in_memory.keys_of(rows)) == expected
        assert counted(in_memory.counts_of(rows)) == Counter(expected)
        assert reader.taken() == (0, 0)
        assert values_of(postings.keys_of(rows)) == expected
        assert counted(postings.counts_of(rows)) == Counter(expected)
        reader.taken()
    assert in_memory.nbytes > len(of_row)
    for test in tests:
        within = postings.within(AskedTest(test))
        if isinstance(test, NullTest) or test.negated:
            assert within is None
            continue
        assert within is not None
        reader.taken()
        inside = expected_rows(row_groups, test)
        for rows in (inside, BitMap(chosen.sample(list(inside), len(inside) // 2))):
            expected = [of_row[row] for row in rows]
            assert values_of(within.keys_of(rows)) == expected
            assert reader.taken()[1] <= within.cost_bytes
            assert counted(within.counts_of(rows)) == Counter(expected)
            reader.taken()


@given(segments(INTS), st.sampled_from([TINY, Sizes()]), st.lists(leaf_tests(INTS), max_size=6))
@settings(max_examples=amount(30, 750), deadline=None)
def test_keys_of_rows_of_ints(row_groups: list[RowGroup], sizes: Sizes, tests: list[LeafTest]) -> None:
    check(row_groups, LONG, sizes, tests)


@given(segments(TEXTS), st.sampled_from([TINY, Sizes()]), st.lists(leaf_tests(TEXTS.map(str.encode)), max_size=6))
@settings(max_examples=amount(30, 750), deadline=None)
def test_keys_of_rows_of_strings(row_groups: list[RowGroup], sizes: Sizes, tests: list[LeafTest]) -> None:
    check(row_groups, STRING, sizes, tests)


@pytest.mark.parametrize("rows", [BitMap([0]), BitMap([0, 100]), BitMap([299]), None])
def test_rows_of_other_keys_are_refused(rows: BitMap | None) -> None:
    row_groups: list[RowGroup] = [(0, [*range(298), None, None])]
    postings, _ = opened(built(row_groups, LONG), spans_of(row_groups), LONG)
    within = postings.within(AskedTest(RangeTest(100, 105)))
    assert within is not None
    with pytest.raises(CorruptFileError):
        within.keys_of(rows)


@pytest.mark.parametrize("count", [254, 255, 256, 65_534, 65_536])
def test_codes_take_as_few_bytes_as_the_number_of_keys_allows(count: int) -> None:
    values: list[Value] = [None, *range(count), None]
    postings, _ = opened(built([(0, values)], LONG, Sizes()), spans_of([(0, values)]), LONG)
    in_memory = postings.in_memory()
    assert values_of(in_memory.keys_of(None)) == values
    assert in_memory.nbytes < count * (8 + (1 if count < 256 else 2 if count < 65_536 else 4)) + 200
