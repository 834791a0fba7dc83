"""Compressed bit slices: chosen where they pay, the same answers, and no trust in what a frame says of itself."""

import numpy as np
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from puffin_index.errors import CorruptFileError, DefinitionError, UnsupportedError
from puffin_index.keys.arrow_keys import column_of
from puffin_index.keys.columns import Column, SortedColumn
from puffin_index.keys.leaf import LeafTest, NullTest, RangeTest, SetTest
from puffin_index.keys.value_types import value_type_named
from puffin_index.kinds.base import Payload, RowGroupIndex, StoredPayload
from puffin_index.kinds.registry import KINDS
from puffin_index.storage.arrays import Flags, Ints
from puffin_index.storage.parts import checksum32
from tests.conftest import amount
from tests.puffin_index.kinds.counting import blob_of

LONG = value_type_named("long")
BSI = KINDS["bsi"]
ROWS = 50_000
_FIRST_PART = 14
"""Where the numbers of the parts begin in a layout."""


def clustered(seed: int = 1, rows_each: int = 5, *, nulls: bool = False, low: int = 0) -> Column:
    random = np.random.default_rng(seed)
    values = np.repeat(random.integers(low, 1 << 26, -(-ROWS // rows_each)), rows_each)[:ROWS]
    missing = np.repeat(random.random(ROWS // 100) < 0.2, 100) if nulls else None
    return column_of(pa.array(values, pa.int64(), mask=missing), LONG)


def opened(payload: Payload, layout: Ints | None = None, data: bytes | None = None) -> RowGroupIndex:
    blob, _ = blob_of(bytes(payload.data) if data is None else data)
    return BSI.open(
        StoredPayload.of_row_group(blob, payload.blob_type, payload.layout if layout is None else layout, LONG, ROWS)
    )


def test_clustered_values_are_compressed_and_others_stay_in_paimons_format() -> None:
    plain, chosen = (
        BSI.build(SortedColumn(clustered()), {"compression": "none"}),
        BSI.build(SortedColumn(clustered()), {}),
    )

    assert (plain.blob_type, chosen.blob_type) == ("paimon-bsi-v1", "puffin-index-bsi-v1")
    assert len(chosen.data) < 0.7 * len(plain.data)
    assert len(chosen.layout) == len(plain.layout) + 3
    small = Column(LONG, 900, clustered(rows_each=1).int_keys[:900], None)
    assert BSI.build(SortedColumn(small), {}).blob_type == "puffin-index-bsi-v1"
    assert BSI.build(SortedColumn(small), {"compression": "none"}).blob_type == "paimon-bsi-v1"


def test_values_in_random_order_stay_in_paimons_format() -> None:
    values = np.random.default_rng(3).integers(0, 1 << 26, 65_536)

    assert BSI.build(SortedColumn(column_of(pa.array(values), LONG)), {}).blob_type == "paimon-bsi-v1"


@settings(max_examples=amount(8, 125), deadline=None)
@given(
    seed=st.integers(0, 5),
    rows_each=st.sampled_from([3, 4]),
    nulls=st.booleans(),
    low=st.sampled_from([0, -(1 << 22)]),
    bounds=st.tuples(st.integers(-(1 << 26), 1 << 26), st.integers(0, 1 << 20)),
    negated=st.booleans(),
)
def test_answers_are_those_of_the_values(
    seed: int, rows_each: int, nulls: bool, low: int, bounds: tuple[int, int], negated: bool
) -> None:
    column = clustered(seed, rows_each, nulls=nulls, low=low)
    payload = BSI.build(SortedColumn(column), {})
    assert payload.blob_type == "puffin-index-bsi-v1"
    keys, valid = column.int_keys, np.ones(ROWS, np.bool_) if column.valid is None else column.valid
    known = int(keys[np.flatnonzero(valid)[seed * 97]])
    start, end = bounds[0], bounds[0] + bounds[1]
    inside = (keys >= start) & (keys < end)
    expected: dict[LeafTest, Flags] = {
        NullTest(is_null=True): ~valid,
        NullTest(is_null=False): valid,
        SetTest((known,), negated): valid & ((keys == known) ^ negated),
        RangeTest(start, end, high_inclusive=False, negated=negated): valid & (inside ^ negated),
    }

    index = opened(payload)

    for test, rows in expected.items():
        assert index.evaluate(test).rows == BitMap(np.flatnonzero(rows)), test


@settings(max_examples=amount(12, 300), deadline=None)
@given(position=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_is_found_or_not_read(position: float, bit: int) -> None:
    column = clustered()
    payload = BSI.build(SortedColumn(column), {})
    data = bytearray(payload.data)
    data[int(position * len(data))] ^= 1 << bit
    key = int(column.int_keys[0])

    try:
        rows = opened(payload, data=bytes(data)).evaluate(SetTest((key,))).rows
    except CorruptFileError:
        return
    assert rows == BitMap(np.flatnonzero(column.int_keys == key))


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(zstandard.ZstdCompressor().compress(bytes(1 << 24)), id="a frame of 16 MiB of zeros"),
        pytest.param(zstandard.ZstdCompressor(write_content_size=False).compress(bytes(9)), id="a frame without size"),
        pytest.param(zstandard.ZstdCompressor().compress(bytes(100)), id="a frame without a row set"),
        pytest.param(zstandard.ZstdCompressor().compress(bytes(100))[:-5], id="a frame cut short"),
        pytest.param(b"\x28\xb5\x2f\xfd", id="the magic alone"),
        pytest.param(b"\x28\xb5\x2f\xfd\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", id="a frame of no sense"),
    ],
)
def test_a_frame_with_a_good_checksum_is_still_not_trusted(content: bytes) -> None:
    payload = BSI.build(SortedColumn(clustered()), {})
    layout = payload.layout.copy()
    slices = int(layout[4])
    # The highest slice becomes the last part of a blob that ends with the content.
    start = int(layout[_FIRST_PART + slices]) >> 32
    layout[_FIRST_PART + slices] = start << 32 | checksum32(content)
    layout[8] = start + len(content)

    with pytest.raises(CorruptFileError):
        opened(payload, layout, bytes(payload.data[:start]) + content).evaluate(SetTest((12_345,)))


def test_without_a_layout_nothing_is_read() -> None:
    with pytest.raises(CorruptFileError, match="a layout of 0 numbers"):
        opened(BSI.build(SortedColumn(clustered()), {}), np.empty(0, np.int64))


def test_other_types_are_refused() -> None:
    payload = BSI.build(SortedColumn(clustered()), {})
    blob, _ = blob_of(bytes(payload.data))

    with pytest.raises(UnsupportedError, match="reads no blob puffin-index-bsi-v1 of a string column"):
        BSI.open(StoredPayload.of_row_group(blob, payload.blob_type, payload.layout, value_type_named("string"), ROWS))


def test_an_unknown_compression_is_refused() -> None:
    with pytest.raises(DefinitionError, match="compression=lz4 of a long column is not one of auto, none"):
        BSI.check(LONG, {"compression": "lz4"})
