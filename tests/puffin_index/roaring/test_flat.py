"""Row sets as flat bits, and damage that is noticed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from puffin_index.errors import CorruptFileError
from puffin_index.roaring.union import StoredSets, every_bit, popcount
from puffin_index.storage.arrays import Bytes
from tests.puffin_index.roaring.row_sets import row_sets


def rows_in(bits: Bytes) -> list[int]:
    return [int(row) for row in np.flatnonzero(np.unpackbits(bits, bitorder="little"))]


@given(st.lists(row_sets(131_072), min_size=1, max_size=4))
def test_bits_are_those_of_the_rows(sets: list[BitMap]) -> None:
    bits = StoredSets.of([rows.serialize() for rows in sets]).bits(131_072)
    assert bits.shape == (len(sets), 16_384)
    for own, rows in zip(bits, sets, strict=True):
        assert rows_in(own) == list(rows)
        assert popcount(own) == len(rows)


@pytest.mark.parametrize("row_count", [0, 1, 8, 13, 65_536, 65_537])
def test_every_bit_is_there_and_none_beyond(row_count: int) -> None:
    assert rows_in(every_bit(row_count)) == list(range(row_count))
    assert len(every_bit(row_count)) == -(-row_count // 65_536) * 8_192


@pytest.mark.parametrize("rows", [[13], [3, 200], [65_536], list(range(5_000))])
def test_a_row_beyond_the_row_group_is_damage(rows: list[int]) -> None:
    with pytest.raises(CorruptFileError, match=r"rows beyond|row [0-9]+ in a row group of 13 rows"):
        StoredSets.of([BitMap(rows).serialize()]).bits(13)


def test_a_set_of_another_number_of_rows_is_damage() -> None:
    data = bytearray(BitMap(range(0, 60_000, 2)).serialize())
    data[40] ^= 2
    with pytest.raises(CorruptFileError, match="rows of another number"):
        StoredSets.of([bytes(data)]).bits(65_536)
