import numpy as np
import pytest
from hypothesis import given, strategies as st

from puffin_index.storage.bit_packing import (
    SLACK_BYTES,
    bit_lengths,
    bounds_of_streams,
    pack_streams,
    packed_bytes,
    transpose_bits,
    unpack_streams,
)

STREAMS = st.lists(
    st.integers(0, 64).flatmap(
        lambda width: st.tuples(st.just(width), st.lists(st.integers(0, 2**width - 1), max_size=20))
    ),
    min_size=1,
    max_size=6,
)


def ends_of(lists: list[list[int]]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.cumsum([0, *(len(numbers) for numbers in lists)])


@given(STREAMS)
def test_numbers_are_unpacked_as_they_were_packed(streams: list[tuple[int, list[int]]]) -> None:
    widths = np.array([width for width, _ in streams])
    lists = [numbers for _, numbers in streams]
    counts = np.array([len(numbers) for numbers in lists])
    flat = np.array([number for numbers in lists for number in numbers], np.uint64)
    packed = pack_streams(flat, ends_of(lists), widths)
    assert [len(stream) for stream in packed] == packed_bytes(counts, widths).tolist()
    starts = np.cumsum([0, *(len(stream) for stream in packed)])[:-1]
    # What follows a stream is another's: it must not matter.
    raw = memoryview(b"".join((*packed, b"\xff" * SLACK_BYTES)))
    assert unpack_streams(raw, starts, counts, widths).tolist() == flat.tolist()
    for stream in range(len(streams)):
        one = slice(stream, stream + 1)
        assert unpack_streams(raw, starts[one], counts[one], widths[one]).tolist() == lists[stream]


@given(STREAMS)
def test_number_i_takes_the_bits_from_i_times_width(streams: list[tuple[int, list[int]]]) -> None:
    width, numbers = streams[0]
    packed = pack_streams(np.array(numbers, np.uint64), np.array([0, len(numbers)]), np.array([width]))[0]
    whole = sum(number << place * width for place, number in enumerate(numbers))
    assert bytes(packed) == whole.to_bytes((len(numbers) * width + 7) // 8, "little")


@given(STREAMS)
def test_bounds_are_those_of_each_stream(streams: list[tuple[int, list[int]]]) -> None:
    lists = [numbers for _, numbers in streams]
    flat = np.array([number for numbers in lists for number in numbers], np.uint64)
    least, most = bounds_of_streams(flat, ends_of(lists))
    assert least.tolist() == [min(numbers, default=0) for numbers in lists]
    assert most.tolist() == [max(numbers, default=0) for numbers in lists]


@pytest.mark.parametrize("number", [0, 1, 2, 3, 2**31, 2**53 - 1, 2**53, 2**63 - 1, 2**63, 2**64 - 1])
def test_bit_lengths_are_exact(number: int) -> None:
    assert bit_lengths(np.array([number], np.uint64)).tolist() == [number.bit_length()]


@pytest.mark.parametrize("shape", [(0, 3), (8, 0), (8, 1), (16, 3), (1000, 1234)])
def test_every_bit_lies_where_row_and_column_change_places(shape: tuple[int, int]) -> None:
    bits = np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)
    columns = np.unpackbits(bits, axis=1, bitorder="little").T
    turned = transpose_bits(bits)
    assert turned.shape == (8 * shape[1], shape[0] // 8)
    assert (turned == np.packbits(columns, axis=1, bitorder="little")).all()
    assert (transpose_bits(turned) == bits).all()
