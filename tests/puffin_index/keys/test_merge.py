"""Merging sorted keys, in memory and in ranges that are spilled."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from puffin_index.errors import BuildError, UnsupportedError
from puffin_index.keys import arrow_keys
from puffin_index.keys.arrow_keys import gather_column
from puffin_index.keys.columns import SortedColumn, tuple_of_keys
from puffin_index.keys.merge import merge_keys, spill
from puffin_index.keys.value_types import value_type_named
from tests.puffin_index.kinds.columns import arrow_of, keys_of, sample_of

KEYS = st.lists(st.binary(max_size=6), max_size=40)


def sorted_array(keys: list[bytes]) -> pa.LargeBinaryArray:
    return pa.array(sorted(set(keys)), pa.large_binary())


@given(st.lists(KEYS, min_size=1, max_size=5), st.integers(0, 2), st.sampled_from([1, 50, 1 << 20]))
def test_merged_keys_are_the_sorted_union_with_ranks(lists: list[list[bytes]], start: int, spill_bytes: int) -> None:
    arrays = [sorted_array(keys)[start:] for keys in lists]

    merged, every = merge_keys(arrays, spill_bytes)

    assert merged.to_pylist() == sorted({key for array in arrays for key in array.to_pylist()})
    for array, ranks in zip(arrays, every, strict=True):
        assert merged.take(pa.array(ranks)).to_pylist() == array.to_pylist()


def test_nothing_can_be_spilled() -> None:
    assert spill([]).to_pylist() == []
    assert spill([sorted_array([b""])]).to_pylist() == [b""]


@given(
    st.sampled_from([("string", st.text(max_size=4)), ("long", st.integers(-(2**40), 2**40))]).flatmap(
        lambda one: st.tuples(st.just(one[0]), st.lists(st.none() | one[1], max_size=60))
    ),
    st.integers(min_value=1, max_value=25),
    st.sampled_from([1, 100, 1 << 20]),
    st.sampled_from([0, 100, 1 << 20]),
)
def test_a_gathered_column_is_and_sorts_like_one_read_at_once(
    typed: tuple[str, list[Any]], batch_rows: int, spill_bytes: int, large_bytes: int
) -> None:
    type_name, values = typed
    sample = sample_of(values, type_name)
    array = arrow_of(values, type_name)
    batches = [array[start : start + batch_rows] for start in range(0, len(array), batch_rows)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow_keys, "SPILL_BYTES", spill_bytes)
        patch.setattr(arrow_keys, "LARGE_COLUMN_BYTES", large_bytes)
        gathered = gather_column(batches, sample.value_type, len(array))

    assert keys_of(gathered) == sample.keys
    one, other = SortedColumn(gathered), SortedColumn(sample.column)
    assert tuple_of_keys(one.keys) == tuple_of_keys(other.keys)
    for name in ("starts", "codes", "rows"):
        assert np.array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("type_name", ["long", "string"])
@pytest.mark.parametrize("row_count", [3, 5])
@pytest.mark.parametrize("large_bytes", [0, 1 << 20])
def test_missing_rows_are_an_error(
    type_name: str, row_count: int, large_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_keys, "LARGE_COLUMN_BYTES", large_bytes)
    array = pa.nulls(4, pa.int64() if type_name == "long" else pa.string())

    with pytest.raises(BuildError, match=f"of a row group of {row_count}"):
        gather_column([array], value_type_named(type_name), row_count)


def test_a_batch_of_another_type_is_refused() -> None:
    with pytest.raises(UnsupportedError):
        gather_column([pa.array(["x"])], value_type_named("long"), 1)
