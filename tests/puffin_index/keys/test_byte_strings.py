"""Byte strings in order, as Python compares them: whatever they share, wherever they end, however many are alike."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from puffin_index.keys.arrow_keys import column_of
from puffin_index.keys.byte_strings import order_bytes
from puffin_index.keys.columns import SortedColumn
from puffin_index.keys.merge import rank_keys
from puffin_index.keys.value_types import value_type_named

ROWS = 20_000

pieces = st.sampled_from([b"", b"\0", b"\0\0", b"a", b"b", b"\xff", b"https://", b"12345678", b"\0" * 8, b"ab" * 9])
strings = st.lists(pieces, max_size=4).map(b"".join)


@given(st.binary(max_size=12), st.lists(strings, max_size=60), st.integers(0, 3), st.integers(0, 5))
def test_the_order_is_of_the_bytes_and_then_of_places(prefix: bytes, ends: list[bytes], few: int, start: int) -> None:
    keys = [prefix + end for end in ends]
    order = order_bytes(pa.array(keys, pa.large_binary())[start:], few)
    assert order.dtype == np.uint32
    own = keys[start:]
    assert order.tolist() == sorted(range(len(own)), key=lambda place: (own[place], place))


def _numbered(template: str) -> list[bytes]:
    numbers = np.random.default_rng(1).permutation(ROWS).tolist()
    return [template.format(number, "xyz"[number % 3] * (number % 40)).encode() for number in numbers]


def _drawn(letters: bytes) -> list[bytes]:
    """Strings of which about half are told apart by as many bytes as fit beside a place."""
    generator = np.random.default_rng(3)
    lengths = generator.integers(0, 24, ROWS)
    drawn = generator.choice(np.frombuffer(letters, np.uint8), (ROWS, 24))
    return [row[:length].tobytes() for row, length in zip(drawn, lengths.tolist(), strict=True)]


def _random_rows(count: int, width: int) -> list[bytes]:
    return [row.tobytes() for row in np.random.default_rng(2).integers(0, 256, (count, width), np.uint8)]


def _neighbours() -> list[bytes]:
    """Strings that one apart in their last bit would make the same, among twice as many that are told apart at once."""
    pairs = [number.to_bytes(5, "big") for number in range(1000, 1000 + ROWS // 6)]
    return [*(pair + end for pair in pairs for end in (b"\x7f\xff\xff", b"\x80\x00\x00")), *_random_rows(ROWS, 8)]


def _staged() -> list[bytes]:
    """Two bytes tell most apart, one bit half of the others, four bytes the rest."""
    rows = _random_rows(ROWS, 7)
    return [row[:2] + bytes(6) + bytes([row[2] & 1]) + b"\0" + row[3:] for row in rows]


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param(_drawn(b"abcdef"), id="few letters"),
        pytest.param(_neighbours(), id="neighbours"),
        pytest.param(_staged(), id="told apart one after the other"),
        pytest.param(_numbered("{0:018d}"), id="digits"),
        pytest.param(_numbered("{1}{0}"), id="some first, then a number"),
        pytest.param(_numbered("https://example.com/{1}/{0}"), id="addresses"),
        pytest.param([key[: 1 + len(key) % 5] for key in _numbered("{0}{1}")], id="many alike"),
        pytest.param([b"\0" * (number % 300) for number in range(ROWS)], id="zeros of any number"),
        pytest.param([b""] * ROWS, id="nothing"),
        pytest.param(_random_rows(ROWS, 16), id="uuid"),
    ],
)
def test_many_strings_are_in_order(keys: list[bytes]) -> None:
    array = pa.array(keys, pa.large_binary())
    expected = sorted(range(len(keys)), key=lambda place: (keys[place], place))
    assert order_bytes(array).tolist() == expected
    assert order_bytes(array, 10).tolist() == expected


@pytest.mark.parametrize("twice", [0, 1, 3, ROWS // 2])
@pytest.mark.parametrize("null_share", [0.0, 0.1])
def test_a_column_whose_keys_hardly_ever_occur_twice_is_sorted_as_any_other(twice: int, null_share: float) -> None:
    texts = [key.decode() for key in _numbered("{1}{0}")]
    texts[ROWS - twice :] = texts[:twice]
    generator = np.random.default_rng(twice)
    known = generator.random(ROWS) >= null_share
    column = column_of(pa.array(texts, mask=~known), value_type_named("string"))
    ordered = SortedColumn(column)
    rows = sorted(np.flatnonzero(known).tolist(), key=lambda row: (texts[row].encode(), row))
    assert ordered.keys.to_pylist() == sorted({texts[row].encode() for row in rows})
    assert ordered.rows.tolist() == rows
    assert np.repeat(np.arange(ordered.distinct_count), ordered.counts).tolist() == ordered.codes[rows].tolist()
    assert not ordered.codes[~known].any()


@pytest.mark.parametrize("shared", [0, 2, ROWS])
def test_sorted_arrays_are_ranked_together_whether_they_share_keys_or_not(shared: int) -> None:
    keys = sorted(_numbered("{1}{0}"))
    arrays = [pa.array(part, pa.large_binary()) for part in (keys[0::2], sorted(keys[1::2] + keys[0::2][:shared]))]
    merged, ranks = rank_keys(arrays)
    assert merged.to_pylist() == keys
    assert merged.take(pa.array(ranks)).equals(pa.concat_arrays(arrays))
