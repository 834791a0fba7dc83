"""The sorted form of a column: the same whatever is asked first, for narrow and wide ranges, and freed with it."""

import gc
import weakref
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from puffin_index.keys.arrow_keys import column_of
from puffin_index.keys.columns import Column, SortedColumn
from puffin_index.keys.value_types import value_type_named

LONG, INT = value_type_named("long"), value_type_named("int")


@st.composite
def columns(draw: st.DrawFn) -> Column:
    """Ranges on both sides of where keys are searched, counted and sorted, at both ends of either domain."""
    value_type, first, last = draw(st.sampled_from([(LONG, -(2**63), 2**63 - 1), (INT, -(2**31), 2**31 - 1)]))
    widths = [1, 2, 100, 255, 256, 4095, 4096, 4097, 65_535, 65_536, 65_537, 2**31, 2**32 - 1, 2**32, 2**40, 2**64 - 1]
    width = draw(st.sampled_from([width for width in widths if width <= last - first]))
    least = draw(st.sampled_from([first, max(first, -width // 2), min(0, last - width), last - width]))
    key = st.integers(least, least + width) | st.sampled_from([least, least + width])
    arrow_type = pa.int64() if value_type is LONG else pa.int32()
    return column_of(pa.array(draw(st.lists(st.none() | key, max_size=40)), arrow_type), value_type)


@given(columns())
def test_keys_first_or_rows_first_give_what_a_plain_sort_gives(column: Column) -> None:
    keys_first = SortedColumn(column)
    keys, starts = np.asarray(keys_first.keys), keys_first.starts
    rows_first = SortedColumn(Column(column.value_type, column.row_count, column.keys, column.valid))
    rows = rows_first.rows
    valid = np.ones(column.row_count, np.bool_) if column.valid is None else column.valid
    expected = sorted((key, row) for row, key in enumerate(column.int_keys.tolist()) if valid[row])

    assert rows.tolist() == [row for _, row in expected] == keys_first.rows.tolist()
    ranks = {key: rank for rank, key in enumerate(keys.tolist())}
    for codes in (keys_first.codes, rows_first.codes, SortedColumn(replace(column)).codes):
        assert codes[valid].tolist() == [ranks[key] for key in column.int_keys[valid].tolist()]
        assert not codes[~valid].any()
    for found_keys, found_starts in ((keys, starts), (np.asarray(rows_first.keys), rows_first.starts)):
        assert found_keys.tolist() == sorted({key for key, _ in expected})
        assert np.repeat(found_keys, np.diff(found_starts)).tolist() == [key for key, _ in expected]
        assert found_keys.dtype == np.int64
        assert found_starts.dtype == np.uint32


@pytest.mark.parametrize("width", [1, 2, 3, 255, 256, 257, 900, 4096, 65_536, 2**33, 2**40])
@pytest.mark.parametrize("null_share", [0.0, 0.2])
@pytest.mark.parametrize("are_far_apart", [False, True])
def test_rows_are_in_the_order_of_keys_and_then_their_own(width: int, null_share: float, are_far_apart: bool) -> None:
    """Long columns are sorted by other means than short ones, the narrower the range the more so.

    Keys far apart do not fit into a word with their rows: the lowest bits alone tell neighbours apart, with many ties.
    """
    generator = np.random.default_rng(width)
    keys = generator.integers(-(width // 2), width - width // 2, 20_000)
    if are_far_apart:
        keys += generator.choice([-(2**62), 0, 2**62], len(keys))
    valid = generator.random(len(keys)) >= null_share
    ordered = SortedColumn(column_of(pa.array(keys, mask=~valid), LONG))
    rows = np.flatnonzero(valid)
    expected = rows[np.lexsort((rows, keys[rows]))]
    assert np.array_equal(ordered.rows, expected)
    assert np.array_equal(np.repeat(np.asarray(ordered.keys), ordered.counts), keys[expected])


@pytest.mark.parametrize("values", [pa.array([3, 1, 2]), pa.array(["b", "a"])])
def test_a_sorted_column_is_freed_without_the_garbage_collector(values: pa.Array) -> None:
    """A row group takes tens of MB, and a build task must not collect those of former ones."""
    gc.disable()
    try:
        column = column_of(values, LONG if values.type == pa.int64() else value_type_named("string"))
        ordered = SortedColumn(column)
        assert len(ordered.rows) == len(ordered.codes)
        alive = weakref.ref(ordered)
        del column, ordered
        assert alive() is None
    finally:
        gc.enable()
