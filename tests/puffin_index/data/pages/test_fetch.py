"""Ranges of one round: near ones share a request, and each gets its bytes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puffin_index.data.page_reader import read_ranges
from puffin_index.errors import CorruptFileError
from puffin_index.storage.ranged import GAP_BYTES, BytesReader
from tests.counting_reader import CountingReader

SIZE = 20 * GAP_BYTES
DATA = np.random.default_rng(1).integers(0, 256, SIZE, np.uint8).tobytes()


@given(st.lists(st.tuples(st.integers(0, SIZE), st.integers(0, 40_000)), max_size=20))
def test_each_range_gets_its_bytes(ranges: list[tuple[int, int]]) -> None:
    inside = [(start, min(length, SIZE - start)) for start, length in ranges]
    places = np.array(inside, np.int64).reshape(-1, 2)
    found = read_ranges(BytesReader.of(DATA), places[:, 0], places[:, 1])
    assert [bytes(one) for one in found] == [DATA[start : start + length] for start, length in inside]


def test_near_ranges_share_a_request() -> None:
    reader = CountingReader(DATA)
    starts = np.array([5 * GAP_BYTES, 0, 100, 100 + GAP_BYTES])
    read_ranges(reader, starts, np.array([10, 50, 7, 9]))
    assert (reader.requests, reader.bytes_read) == (2, 10 + 100 + GAP_BYTES + 9)


@pytest.mark.parametrize(("start", "size"), [(-1, 5), (SIZE, 1), (1 << 62, 1 << 62), ((1 << 63) - 1, 100), (5, -2)])
def test_ranges_outside_of_the_file_are_refused(start: int, size: int) -> None:
    with pytest.raises(CorruptFileError):
        read_ranges(BytesReader.of(DATA), np.array([start]), np.array([size]))
