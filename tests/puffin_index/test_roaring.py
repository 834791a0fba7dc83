"""Row sets are written byte for byte as CRoaring and Java write them; many are read at once."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from pyroaring import BitMap

from puffin_index.errors import CorruptFileError
from puffin_index.roaring import (
    StoredSets,
    deserialize,
    row_set_of_bits,
    serialize_bits,
    serialize_row_sets,
)
from tests.conftest import amount, some
from tests.puffin_index.row_sets import ROWS, row_sets


def has_tie(rows: BitMap) -> bool:
    """Whether a container is as small with runs as without: CRoaring takes runs then; Java, and so do we, does not."""
    by_block = np.split(np.array(rows.to_array()), np.flatnonzero(np.diff(np.array(rows.to_array()) >> 16)) + 1)
    return any(len(block) == 2 * (1 + np.count_nonzero(np.diff(block) > 1)) + 1 for block in by_block)


def croaring(rows: BitMap) -> bytes:
    optimised = rows.copy()
    optimised.run_optimize()
    data: bytes = optimised.serialize()
    return data


def _serialized(sets: list[BitMap]) -> list[bytes]:
    rows = np.concatenate([np.array(row_set.to_array(), np.uint32) for row_set in sets])
    return serialize_row_sets(rows, np.cumsum([0, *(len(row_set) for row_set in sets)]).tolist())


@settings(max_examples=amount(16, 400), deadline=None)
@given(st.lists(row_sets(), min_size=1, max_size=6))
def test_row_sets_are_written_as_croaring_writes_them(sets: list[BitMap]) -> None:
    for row_set, content in zip(sets, _serialized(sets), strict=True):
        assert content == croaring(row_set) or has_tie(row_set)
        assert deserialize(content, ROWS) == row_set


@pytest.mark.parametrize(
    ("rows", "has_runs"),
    [
        ([7, 8, 9], False),
        ([7, 8, 9, 10], True),
        ([1, 2, 3, 70, 71], False),
        ([1, 2, 3, 70, 71, 72], True),
        (range(65_536, 65_536 + 5000), True),
        (range(0, 65_536, 2), False),
    ],
)
def test_runs_are_written_only_where_they_take_fewer_bytes(rows: Sequence[int], has_runs: bool) -> None:
    (content,) = serialize_row_sets(np.array(rows, np.uint32), (0, len(rows)))
    assert int.from_bytes(content[:2], "little") == (12_347 if has_runs else 12_346)
    assert list(deserialize(content, 100_000)) == list(rows)


@settings(max_examples=amount(12, 300), deadline=None)
@given(row_sets())
def test_bits_are_written_as_rows_are(rows: BitMap) -> None:
    flags = np.zeros(ROWS, np.bool_)
    flags[rows.to_array()] = True
    bits = np.packbits(flags, bitorder="little")
    assert row_set_of_bits(bits.data, ROWS) == rows
    assert serialize_bits(bits.data) == _serialized([rows])[0]
    assert serialize_bits(bytes(8)) == croaring(BitMap())


@settings(max_examples=amount(12, 300), deadline=None)
@given(st.lists(row_sets(), min_size=1, max_size=5), st.integers(0, 60))
def test_the_union_of_many_disjoint_row_sets_is_read_at_once(sets: list[BitMap], singles: int) -> None:
    disjoint = [BitMap([ROWS + row]) for row in range(singles)]
    taken = BitMap()
    for row_set in sets:
        if row_set - taken:
            disjoint.append(row_set - taken)
        taken |= row_set
    found = StoredSets([croaring(row_set) for row_set in disjoint]).union(ROWS + singles)
    assert found == taken | BitMap(range(ROWS, ROWS + singles))


ROW_SETS = [
    BitMap([7]),
    BitMap(range(0, 500, 7)),
    BitMap([1, 70_000, 140_000, 210_000, 280_000]),
    BitMap([*range(20), *range(65_536, 65_600), *range(131_072, 131_090)]),
    BitMap([*range(20), *range(65_536, 65_600), *range(131_072, 131_090), *range(200_000, 200_100)]),
    BitMap(range(0, 20_000, 3)),
]


@pytest.mark.parametrize("rows", ROW_SETS, ids=lambda rows: f"{len(rows)} rows")
def test_a_row_set_with_a_flipped_bit_or_cut_end_is_an_error_or_has_possible_rows(rows: BitMap) -> None:
    rows.run_optimize()
    whole = rows.serialize()
    starts = some(range(len(whole)), 300)
    damaged = [whole[:length] for length in starts]
    damaged += [whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :] for at in starts for bit in (0, 4, 7)]
    for data in damaged:
        try:
            found = deserialize(data, rows.max() + 1)
        except CorruptFileError:
            continue
        assert not found or found.max() <= rows.max()
        assert len(found) == len(list(found))


@pytest.mark.parametrize("rows", ROW_SETS, ids=lambda rows: f"{len(rows)} rows")
def test_the_union_of_many_row_sets_withstands_a_flipped_bit_in_one(rows: BitMap) -> None:
    rows.run_optimize()
    whole = rows.serialize()
    many = [BitMap([300_000 + row]).serialize() for row in range(40)]
    limit = 300_040
    for at in some(range(len(whole)), 300):
        changed = whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :]
        try:
            found = StoredSets([changed, *many]).union(limit)
        except CorruptFileError:
            continue
        assert found.max() < limit


def test_what_is_more_or_less_than_a_row_set_is_corrupt() -> None:
    data = BitMap([1, 9]).serialize()
    assert deserialize(data, 10) == BitMap([1, 9])
    for wrong, row_count, reason in (
        (data, 9, "row 9 in a row group of 9 rows"),
        (data + b"x", 10, f"{len(data)} bytes lies in {len(data) + 1}"),
        (b"", 10, None),
        (BitMap(range(0, 200_000, 2)).serialize()[:-1], 200_000, None),
        (bytes(12), 10, None),
    ):
        with pytest.raises(CorruptFileError, match=reason) as error:
            deserialize(wrong, row_count, location="s3://bucket/file", offset=4711)
        assert (error.value.location, error.value.offset) == ("s3://bucket/file", 4711)


def test_runs_that_unfold_to_more_rows_than_there_are_are_refused_before_they_unfold() -> None:
    """A few bytes may claim 65,536 rows each: 60,000 such sets would be 4 billion rows."""
    run = BitMap(range(65_536))
    run.run_optimize()
    sets = [run.serialize()] * 60_000
    with pytest.raises(CorruptFileError, match="more than 100000 rows"):
        StoredSets(sets).union(100_000)
