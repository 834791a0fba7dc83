"""Merged bit slices: the answers of every row looked at, a bit a row and significant bit, and no trust in bytes."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from puffin_index.errors import CorruptFileError, UnsupportedError
from puffin_index.keys.arrow_keys import column_of
from puffin_index.keys.columns import Column, SortedColumn, join_columns
from puffin_index.keys.leaf import LeafTest, NullTest, RangeTest, SetTest
from puffin_index.keys.value_types import ValueType, value_type_named
from puffin_index.kinds.base import Payload, StoredPayload
from puffin_index.kinds.bsi.kind import MERGED_ROWS, SlicesBuilder
from puffin_index.kinds.bsi.merged_slices import MergedSlices
from puffin_index.kinds.bsi.own_slices import BSI, build_slices, is_small
from puffin_index.kinds.registry import KINDS
from puffin_index.storage.arrays import Ints
from puffin_index.storage.parts import checksum32
from tests.conftest import amount
from tests.puffin_index.kinds.columns import VALUES, leaf_tests, sample_of
from tests.puffin_index.kinds.counting import blob_of
from tests.puffin_index.kinds.merged_sample import BLOCK_ROWS, Group, expected_rows, placed, row_group_lists
from tests.puffin_index.kinds.test_bad_bytes import flips

LONG = value_type_named("long")
_PARTS_FROM = 14
"""Where the numbers of the parts begin in a layout."""


def built(groups: Sequence[Group]) -> Payload:
    return build_merged_slices([group.sample.column for group in groups])


def build_merged_slices(columns: Sequence[Column]) -> Payload:
    row_counts = [column.row_count for column in columns]
    return build_slices(SortedColumn(join_columns(columns)), row_counts, may_compress=True)


def opened(
    payload: Payload,
    groups: Sequence[Group],
    data: bytes | None = None,
    layout: Ints | None = None,
) -> MergedSlices:
    blob, _ = blob_of(payload.data if data is None else data)
    own = payload.layout if layout is None else layout
    spans = np.array([group.span for group in groups], np.int64)
    return MergedSlices(StoredPayload(blob, payload.blob_type, own, groups[0].sample.value_type, spans))


@settings(max_examples=amount(30, 750), deadline=None)
@given(st.data())
def test_the_answer_is_that_of_every_row_looked_at(data: st.DataObject) -> None:
    of_groups = data.draw(row_group_lists())
    groups = placed(of_groups, BLOCK_ROWS * data.draw(st.integers(0, 3)))
    index = opened(built(groups), groups)
    for _ in range(4):
        test = data.draw(leaf_tests(data.draw(st.sampled_from(of_groups))))
        expected = expected_rows(groups, test)
        assert index.rows(test) == expected
        least, most = index.count_bounds(test)
        assert least <= len(expected) <= most
        chosen = data.draw(st.lists(st.sampled_from(groups), max_size=2))
        candidates = BitMap.union(BitMap(), *(group.every_row for group in chosen))
        # Rows of other payloads are among the candidates, too.
        assert index.rows(test, candidates | BitMap([3, 2**32 - 1])) == expected & (candidates | BitMap([3]))


def same_keys(column: Column, values: list[object], value_type: ValueType) -> bool:
    """Whether a column has the keys of values, by another way: of each row by itself."""
    sample = sample_of(values, value_type.name)
    keys = column.keys.tolist() if isinstance(column.keys, np.ndarray) else column.keys.to_pylist()
    valid = [True] * len(values) if column.valid is None else column.valid.tolist()
    return [key if known else None for key, known in zip(keys, valid, strict=True)] == sample.keys


@settings(max_examples=amount(16, 400), deadline=None)
@given(row_group_lists())
def test_the_columns_come_back(of_groups: list[object]) -> None:
    groups = placed(of_groups)  # type: ignore[arg-type]  # samples
    columns = opened(built(groups), groups).columns()
    for column, group in zip(columns, groups, strict=True):
        assert column.row_count == len(group.sample.values)
        assert same_keys(column, group.sample.values, group.sample.value_type)


def numbers(row_count: int, bits: int, seed: int = 0) -> Column:
    return column_of(pa.array(np.random.default_rng(seed).integers(0, 1 << bits, row_count)), LONG)


@pytest.mark.parametrize("row_count", [1, 100, 1000, 5000, 30_000, 49_151, 70_000])
@pytest.mark.parametrize("groups", [1, 20])
def test_a_row_takes_a_bit_for_each_significant_bit(row_count: int, groups: int) -> None:
    payload = build_merged_slices([numbers(row_count, 13, seed) for seed in range(groups)])
    assert payload.blob_type == BSI
    # A row set has 8 bytes more for each 65,536 rows: those of a large row group stay.
    assert len(payload.data) <= 14 * 1.003 * ((row_count * groups + 7) // 8) or (row_count, groups) == (70_000, 1)


def test_values_that_rows_share_are_compressed() -> None:
    random = np.random.default_rng(3)
    shared = [np.repeat(random.integers(0, 1 << 26, 200), 5) for _ in range(20)]
    payload = build_merged_slices([column_of(pa.array(some), LONG) for some in shared])
    assert 8 * len(payload.data) < 0.7 * 26 * 20_000
    groups = [Group(sample_of(some.tolist(), "long"), number * BLOCK_ROWS) for number, some in enumerate(shared)]
    for test in (SetTest((int(shared[7][12]),)), RangeTest(1 << 24, 1 << 25)):
        assert opened(payload, groups).rows(test) == expected_rows(groups, test)


@pytest.mark.parametrize(("row_count", "small"), [(0, True), (49_151, True), (49_152, False), (65_536, False)])
@pytest.mark.parametrize("blocks", [0, 1])
def test_row_groups_that_leave_a_quarter_of_their_containers_empty_are_small(
    row_count: int, small: bool, blocks: int
) -> None:
    rows = row_count + BLOCK_ROWS * blocks
    assert is_small(rows) == (small if not blocks else 1 <= row_count < 32_768)


def test_row_groups_are_put_together_up_to_a_number_of_rows() -> None:
    small = SlicesBuilder(KINDS["bsi"], {})
    found = [one.row_groups for _ in range(30) for one in small.gather(numbers(10_000, 3))]
    assert [*found, *(one.row_groups for one in small.finish())] == [13, 13, 4]
    assert small.finish() == []
    assert [one.row_groups for rows in (MERGED_ROWS, 1, 140_000) for one in small.gather(numbers(rows, 3))] == [1, 1]


def test_wide_keys_are_put_together_up_to_a_number_of_bytes() -> None:
    small = SlicesBuilder(KINDS["bsi"], {})
    wide = column_of(pa.array([b"x" * (1 << 20)] * 30), value_type_named("binary"))
    assert [one.row_groups for _ in range(5) for one in small.gather(wide)] == [2, 2]


def test_a_promoted_column_answers_tests_of_the_wider_type() -> None:
    for old, new, values in (("int", "long", [1, -2, None, 7]), ("float", "double", [1.5, -2.25, None, 7.0])):
        before, after = placed([sample_of(values, old)] * 2), placed([sample_of(values, new)] * 2)
        payload = built(before)
        for key in after[0].sample.keys:
            if isinstance(key, int):
                assert opened(payload, after).rows(SetTest((key,))) == expected_rows(after, SetTest((key,)))


def test_keys_of_another_domain_are_refused() -> None:
    groups = placed([sample_of(["a", "b"], "string")])
    numbers_of, texts = built(placed([sample_of([1, 2], "long")])), built(groups)
    assert numbers_of.blob_type == texts.blob_type == BSI
    with pytest.raises(
        UnsupportedError, match=r"segment\.puffin: kind bsi reads no blob puffin-index-bsi-v1 of a string"
    ):
        opened(numbers_of, groups)
    with pytest.raises(UnsupportedError, match="form"):
        opened(texts, placed([sample_of([1.5, 2.5], "double")])).rows(SetTest((1,)))


def test_a_test_takes_one_request_and_no_slices_where_no_number_is() -> None:
    payload = build_merged_slices([numbers(1000, 13, seed) for seed in range(50)])
    spans = np.array([(number * BLOCK_ROWS, 1000) for number in range(50)])
    for test, requests in ((SetTest((77,)), 1), (RangeTest(100, 9000), 1), (SetTest((9000,)), 0), (NullTest(True), 0)):
        blob, reader = blob_of(payload.data)
        KINDS["bsi"].open(StoredPayload(blob, BSI, payload.layout, LONG, spans)).rows(test)
        assert reader.requests == requests


SAMPLES = {
    "long": [sample_of([5, -3, None, 5, 1 << 40], "long"), sample_of([7, 7, -3, 0, None] + [9] * 9, "long")],
    "string": [sample_of(["b", "", None, "a" * 20], "string"), sample_of(["ccc", "b"] + ["d"] * 9, "string")],
    "double": [sample_of([1.5, -2.5, None], "double"), sample_of([float("nan"), 0.0] + [8.25] * 9, "double")],
    "one value": [sample_of([7] * 9, "long"), sample_of([], "long")],
}


def _asked(groups: Sequence[Group]) -> list[LeafTest]:
    known = sorted({key for group in groups for key in group.sample.keys if key is not None})  # type: ignore[type-var]
    middle = known[len(known) // 2]
    return [
        NullTest(True),
        SetTest((middle,)),  # type: ignore[arg-type]  # one key, so it is a tuple of one type
        SetTest((known[-1],), negated=True),  # type: ignore[arg-type]  # as above
        RangeTest(known[0], middle, low_inclusive=False),
        RangeTest(middle, None, negated=True),
    ]


def answers(payload: Payload, groups: Sequence[Group], data: bytes, layout: Ints) -> Iterator[tuple[LeafTest, BitMap]]:
    """The tests that are answered, with their answers; the others, and decoding, raise a documented error."""
    for test in _asked(groups):
        try:
            index = opened(payload, groups, data, layout)
            yield test, index.rows(test)
            assert [column.row_count for column in index.columns()] == [group.span[1] for group in groups]
        except (CorruptFileError, UnsupportedError) as error:
            if "s3://bucket/segment.puffin" not in str(error):
                raise AssertionError("an error that does not name the file") from error


@pytest.mark.parametrize("name", SAMPLES)
def test_a_flipped_bit_or_a_cut_end_never_gives_wrong_rows(name: str) -> None:
    groups = placed(SAMPLES[name])
    payload = built(groups)
    whole = bytes(payload.data)
    for data in [*flips(whole), *(whole[:length] for length in range(len(whole)))]:
        for test, rows in answers(payload, groups, data, payload.layout):
            assert rows == expected_rows(groups, test)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_wrong_layout_never_fails_in_another_way(name: str) -> None:
    groups = placed(SAMPLES[name])
    payload = built(groups)
    every = BitMap.union(BitMap(), *(group.every_row for group in groups))
    layouts = [payload.layout[:length] for length in range(len(payload.layout))]
    for position in range(len(payload.layout)):
        for number in (-(2**63), -1, 0, 1, 3, 2**31, 2**40, 2**63 - 1, int(payload.layout[position]) + (1 << 32)):
            layout = payload.layout.copy()
            layout[position] = max(-(2**63), min(number, 2**63 - 1))
            layouts.append(layout)
    for layout in layouts:
        for _, rows in answers(payload, groups, bytes(payload.data), layout):
            assert rows <= every


def test_other_row_groups_are_refused() -> None:
    groups = placed(SAMPLES["long"])
    with pytest.raises(CorruptFileError, match=r"other row groups.*segment\.puffin|segment\.puffin.*other row groups"):
        opened(built(groups), groups[:1])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(b"\xff" * 13, "plain bits beyond the last row", id="bits of rows that are none"),
        pytest.param(bytes(12), "row set", id="bits that are too few"),
        pytest.param(zstandard.ZstdCompressor().compress(bytes(1 << 24)), "frame", id="a frame of 16 MiB of zeros"),
        pytest.param(zstandard.ZstdCompressor().compress(bytes(14)), "row set", id="a frame of too many bits"),
        pytest.param(b"\x28\xb5\x2f\xfd", "frame", id="the magic alone"),
        pytest.param(BitMap([100]).serialize(), "row 100", id="a set of rows that are none"),
    ],
)
def test_a_part_with_a_good_checksum_is_still_not_trusted(content: bytes, reason: str) -> None:
    groups = placed([sample_of(list(range(50)), "long")] * 2)
    payload = built(groups)
    layout = payload.layout.copy()
    last = _PARTS_FROM + int(layout[4])
    # The highest slice becomes the last part of a blob that ends with the content.
    start = int(layout[last]) >> 32
    layout[last] = start << 32 | checksum32(content)
    layout[8] = start + len(content)
    index = opened(payload, groups, bytes(payload.data[:start]) + content, layout)
    for ask in (lambda: index.rows(SetTest((40,))), index.columns):
        with pytest.raises(CorruptFileError, match=reason):
            ask()


def test_slices_of_other_numbers_than_they_are_said_to_have_are_no_columns() -> None:
    groups = placed([sample_of([*range(50), None], "long")] * 2)
    payload = built(groups)
    for position, number in ((5, 99), (7, 40)):
        layout = payload.layout.copy()
        layout[position] = number
        with pytest.raises(CorruptFileError):
            opened(payload, groups, layout=layout).columns()


@pytest.mark.parametrize("type_name", VALUES)
def test_row_groups_of_only_nulls_or_no_rows_are_merged(type_name: str) -> None:
    groups = placed([sample_of(some, type_name) for some in ([None] * 3, [], [None], [])])
    index = opened(built(groups), groups)
    assert index.rows(NullTest(True)) == BitMap([0, 1, 2, BLOCK_ROWS])
    assert index.rows(NullTest(False)) == index.rows(RangeTest(None, None)) == BitMap()
    assert [column.valid_count for column in index.columns()] == [0, 0, 0, 0]
