"""Postings decoded to columns are the columns that they were built from; damaged ones are refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puffin_index.keys.columns import Column, SortedColumn
from puffin_index.keys.value_types import ValueType
from puffin_index.kinds.base import Payload
from puffin_index.kinds.postings.blocks import Sizes
from puffin_index.kinds.postings.build import POSTINGS, PlacedColumn, build_postings
from tests.conftest import amount
from tests.puffin_index.kinds.postings.test_look_up import (
    DOCUMENTED,
    INTS,
    LONG,
    SMALL,
    SMALL_SIZES,
    STRING,
    TEXTS,
    TINY,
    RowGroup,
    Value,
    built,
    opened,
    resealed,
    segments,
    spans_of,
)


def values_of(column: Column) -> list[Value]:
    valid = column.valid if column.valid is not None else [True] * column.row_count
    keys = column.keys.tolist() if isinstance(column.keys, np.ndarray) else column.bytes_keys.to_pylist()
    texts = [key.decode() if isinstance(key, bytes) else key for key in keys]
    return [text if is_valid else None for text, is_valid in zip(texts, valid, strict=True)]


def _columns(payload: Payload, row_groups: list[RowGroup], value_type: ValueType) -> list[Column]:
    every = opened(payload, spans_of(row_groups), value_type)[0].keys_of(None)
    ends = np.cumsum([len(values) for _, values in row_groups]).tolist()
    return [every.part(end - len(values), end) for end, (_, values) in zip(ends, row_groups, strict=True)]


def check(row_groups: list[RowGroup], value_type: ValueType, sizes: Sizes) -> None:
    payload = built(row_groups, value_type, sizes)
    columns = _columns(payload, row_groups, value_type)
    assert [values_of(column) for column in columns] == [list(values) for _, values in row_groups]
    placed = [PlacedColumn(base, SortedColumn(column)) for (base, _), column in zip(row_groups, columns, strict=True)]
    assert build_postings(placed, sizes).data == payload.data


@given(segments(INTS), st.sampled_from([TINY, Sizes()]))
@settings(max_examples=amount(12, 300), deadline=None)
def test_columns_of_ints_come_back(row_groups: list[RowGroup], sizes: Sizes) -> None:
    check(row_groups, LONG, sizes)


@given(segments(TEXTS), st.sampled_from([TINY, Sizes()]))
@settings(max_examples=amount(12, 300), deadline=None)
def test_columns_of_strings_come_back(row_groups: list[RowGroup], sizes: Sizes) -> None:
    check(row_groups, STRING, sizes)


def test_columns_of_more_blocks_than_are_read_at_once_come_back() -> None:
    check([(0, [row * 7919 % 1009 for row in range(3000)])], LONG, Sizes(block_runs=2, root_bytes=64, page_bytes=64))


@pytest.mark.parametrize(("value_type", "row_groups"), SMALL, ids=["long", "string"])
def test_wrong_bytes_under_good_checksums_are_refused_or_give_columns_of_that_length(
    value_type: ValueType, row_groups: list[RowGroup]
) -> None:
    payload = built(row_groups, value_type, SMALL_SIZES)
    refused = 0
    for position in range(len(payload.data)):
        data = bytearray(payload.data)
        data[position] ^= 1 << position % 8
        for damaged in (Payload(POSTINGS, data, payload.layout), resealed(data, payload.layout)):
            try:
                columns = _columns(damaged, row_groups, value_type)
            except DOCUMENTED:
                refused += 1
            else:
                assert [column.row_count for column in columns] == [len(values) for _, values in row_groups]
    assert refused > len(payload.data)
