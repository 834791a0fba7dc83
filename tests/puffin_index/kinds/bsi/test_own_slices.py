"""Our own bit slices: compressed where it pays, a bit a row and significant bit, and no trust in bytes."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import zstandard
from pyroaring import BitMap

from puffin_index.errors import CorruptFileError, UnsupportedError
from puffin_index.keys.arrow_keys import column_of
from puffin_index.keys.columns import Column, SortedColumn, join_columns
from puffin_index.keys.leaf import SetTest
from puffin_index.keys.value_types import value_type_named
from puffin_index.kinds.base import Payload
from puffin_index.kinds.bsi.kind import MERGED_ROWS, SlicesBuilder
from puffin_index.kinds.bsi.own_slices import BSI, MergedSlices, build_slices, is_small
from puffin_index.kinds.registry import KINDS
from puffin_index.storage.parts import checksum32
from tests.puffin_index.kinds.columns import Sample, sample_of
from tests.puffin_index.kinds.merged_sample import BLOCK_ROWS, Piece, placed

LONG = value_type_named("long")
BSI_KIND = KINDS["bsi"]
ROWS = 50_000
_PARTS_FROM = 14
"""Where the numbers of the parts begin in a layout."""


def built(samples: Sequence[Sample]) -> Piece:
    return Piece(build_merged_slices([sample.column for sample in samples]), placed(samples))


def build_merged_slices(columns: Sequence[Column]) -> Payload:
    row_counts = [column.row_count for column in columns]
    return build_slices(SortedColumn(join_columns(columns)), row_counts, may_compress=True)


def clustered(rows_each: int) -> Column:
    random = np.random.default_rng(1)
    return column_of(pa.array(np.repeat(random.integers(0, 1 << 26, ROWS // rows_each), rows_each)), LONG)


def test_clustered_values_are_compressed_and_only_what_must_not_be_stays_in_paimons_format() -> None:
    plain, chosen = (BSI_KIND.build(SortedColumn(clustered(5)), one) for one in ({"compression": "none"}, {}))

    assert (plain.blob_type, chosen.blob_type) == ("paimon-bsi-v1", "puffin-index-bsi-v1")
    assert len(chosen.data) < 0.7 * len(plain.data)
    assert len(chosen.layout) == len(plain.layout) + 3
    small = Column(LONG, 900, clustered(1).int_keys[:900], None)
    assert BSI_KIND.build(SortedColumn(small), {}).blob_type == "puffin-index-bsi-v1"
    assert BSI_KIND.build(SortedColumn(small), {"compression": "none"}).blob_type == "paimon-bsi-v1"


def test_values_in_random_order_stay_plain_and_take_no_more_bytes_than_in_paimons_format() -> None:
    column = column_of(pa.array(np.random.default_rng(3).integers(0, 1 << 26, 65_536)), LONG)
    own, other = (BSI_KIND.build(SortedColumn(column), options) for options in ({}, {"compression": "none"}))

    assert other.blob_type == "paimon-bsi-v1"
    assert len(other.data) - 100 < len(own.data) <= len(other.data)


def numbers(row_count: int, bits: int, seed: int = 0) -> Column:
    return column_of(pa.array(np.random.default_rng(seed).integers(0, 1 << bits, row_count)), LONG)


@pytest.mark.parametrize("row_count", [1, 100, 1000, 5000, 30_000, 49_151, 70_000])
@pytest.mark.parametrize("groups", [1, 20])
def test_a_row_takes_a_bit_for_each_significant_bit(row_count: int, groups: int) -> None:
    payload = build_merged_slices([numbers(row_count, 13, seed) for seed in range(groups)])
    assert payload.blob_type == BSI
    # Numbers of 13 bits, and which rows have one. A row set has 8 bytes more for each 65,536 rows, less than 0.3 %:
    # those of a large row group stay.
    assert len(payload.data) <= 14 * 1.003 * ((row_count * groups + 7) // 8) or (row_count, groups) == (70_000, 1)


@pytest.mark.parametrize(("row_count", "small"), [(0, True), (49_151, True), (49_152, False), (65_536, False)])
@pytest.mark.parametrize("blocks", [0, 1])
def test_row_groups_with_a_quarter_of_containers_empty_are_small(row_count: int, small: bool, blocks: int) -> None:
    rows = row_count + BLOCK_ROWS * blocks
    assert is_small(rows) == (small if not blocks else 1 <= row_count < 32_768)


def test_row_groups_are_put_together_up_to_a_number_of_rows() -> None:
    small = SlicesBuilder(BSI_KIND, {})
    found = [one.row_groups for _ in range(30) for one in small.gather(numbers(10_000, 3))]
    assert [*found, *(one.row_groups for one in small.finish())] == [13, 13, 4]
    assert small.finish() == []
    assert [one.row_groups for rows in (MERGED_ROWS, 1, 140_000) for one in small.gather(numbers(rows, 3))] == [1, 1]


def test_wide_keys_are_put_together_up_to_a_number_of_bytes() -> None:
    small = SlicesBuilder(BSI_KIND, {})
    wide = column_of(pa.array([b"x" * (1 << 20)] * 30), value_type_named("binary"))
    assert [one.row_groups for _ in range(5) for one in small.gather(wide)] == [2, 2]


def test_keys_of_another_domain_are_refused() -> None:
    numbers_of, texts, doubles = (
        built([sample_of(values, name)] * 2)
        for values, name in (([1, 2], "long"), (["a", "b"], "string"), ([1.5, 2.5], "double"))
    )
    assert numbers_of.payload.blob_type == texts.payload.blob_type == BSI
    with pytest.raises(
        UnsupportedError, match=r"segment\.puffin: kind bsi reads no blob puffin-index-bsi-v1 of a string"
    ):
        replace(texts, payload=numbers_of.payload).opened()
    with pytest.raises(UnsupportedError, match="form"):
        replace(doubles, payload=texts.payload).rows(SetTest((1,)))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(b"\xff" * 13, "plain bits beyond the last row", id="bits of rows that are none"),
        pytest.param(bytes(12), "row set", id="bits that are too few"),
        pytest.param(zstandard.ZstdCompressor().compress(bytes(1 << 24)), "frame", id="a frame of 16 MiB of zeros"),
        pytest.param(zstandard.ZstdCompressor().compress(bytes(14)), "row set", id="a frame of too many bits"),
        pytest.param(zstandard.ZstdCompressor().compress(bytes(100))[:-5], "frame", id="a frame cut short"),
        pytest.param(
            zstandard.ZstdCompressor(write_content_size=False).compress(bytes(9)), "frame", id="a frame without size"
        ),
        pytest.param(b"\x28\xb5\x2f\xfd" + b"\xff" * 12, "frame", id="a frame of no sense"),
        pytest.param(b"\x28\xb5\x2f\xfd", "frame", id="the magic alone"),
        pytest.param(BitMap([100]).serialize(), "row 100", id="a set of rows that are none"),
    ],
)
def test_a_part_with_a_good_checksum_is_still_not_trusted(content: bytes, reason: str) -> None:
    piece = built([sample_of(list(range(50)), "long")] * 2)
    data, layout = piece.payload.data, piece.payload.layout.copy()
    last = _PARTS_FROM + int(layout[4])
    # The highest slice becomes the last part of a blob that ends with the content.
    start = int(layout[last]) >> 32
    layout[last] = start << 32 | checksum32(content)
    layout[8] = start + len(content)
    damaged = replace(piece, payload=Payload(BSI, bytes(data[:start]) + content, layout))
    index, _ = damaged.opened()
    assert isinstance(index, MergedSlices)
    for ask in (lambda: index.evaluate(SetTest((40,))), index.columns):
        with pytest.raises(CorruptFileError, match=reason):
            ask()


def test_slices_of_other_numbers_than_they_are_said_to_have_are_no_columns() -> None:
    piece = built([sample_of([*range(50), None], "long")] * 2)
    for position, number in ((5, 99), (7, 40)):
        layout = piece.payload.layout.copy()
        layout[position] = number
        index, _ = replace(piece, payload=replace(piece.payload, layout=layout)).opened()
        assert isinstance(index, MergedSlices)
        with pytest.raises(CorruptFileError):
            index.columns()
