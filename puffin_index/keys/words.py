"""The words of texts: runs of letters and digits, as bytes.

A word is a longest run of the ASCII letters and digits and of the bytes of all other characters. So every text that
contains another one has its words, but for the first and the last, which may be parts of longer words.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa

from puffin_index.keys.sorted_keys import bytes_of_keys
from puffin_index.storage.arrays import Bytes, Flags, Ints


def _are_of_words(data: Bytes) -> Flags:
    """Say which bytes are of words."""
    # Bytes have no sign: what is below a range wraps to a large number. This takes a quarter of the time of a table.
    is_digit, is_letter = data - np.uint8(ord("0")) < 10, (data | np.uint8(32)) - np.uint8(ord("a")) < 26
    return np.asarray(is_digit | is_letter | (data > 127), np.bool_)


def words_of(texts: pa.Array) -> pa.LargeBinaryArray:
    """Return the words of texts (string or binary), in order; NULL has none."""
    data, offsets = bytes_of_keys(texts.cast(pa.large_binary()).fill_null(b""))
    data, offsets = data[offsets[0] : offsets[-1]], offsets - offsets[0]
    inside = _are_of_words(data)
    begins, ends = inside.copy(), inside.copy()
    begins[1:] &= ~inside[:-1]
    ends[:-1] &= ~inside[1:]
    # Texts lie side by side: the end of one and the begin of the next are no run.
    filled = np.flatnonzero(offsets[1:] > offsets[:-1])
    firsts, lasts = offsets[filled], offsets[filled + 1] - 1
    begins[firsts] = inside[firsts]
    ends[lasts] = inside[lasts]
    places = np.flatnonzero(begins)
    bounds = np.zeros(len(places) + 1, np.int64)
    np.cumsum(np.flatnonzero(ends) + 1 - places, out=bounds[1:])
    # What is left without the bytes between words are the words, side by side.
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data.compress(inside))]
    return pa.Array.from_buffers(pa.large_binary(), len(places), buffers)


def words_of_blocks(texts: pa.Array, first_row: int, block_rows: int) -> tuple[pa.LargeBinaryArray, Ints]:
    """Return the distinct words of each block of rows, and the block of each, ascending.

    The texts begin at `first_row`; blocks are numbered from row 0.
    """
    # The bytes of one block at a time stay in the processor's cache.
    blocks = np.arange(first_row // block_rows, -(-(first_row + len(texts)) // block_rows) + 1)
    cuts = np.maximum(blocks * block_rows - first_row, 0).tolist()
    words = [words_of(texts[begin:end]).unique() for begin, end in pairwise(cuts)]
    counts = np.fromiter(map(len, words), np.int64)
    return pa.concat_arrays([*words, pa.array([], pa.large_binary())]), np.repeat(blocks[:-1], counts)


def runs_of(text: bytes) -> Iterator[tuple[bytes, bool, bool]]:
    """Yield the runs of letters and digits of a text, and whether each begins with the text, and ends with it."""
    start = 0
    inside = [*_are_of_words(np.frombuffer(text, np.uint8)).tolist(), False]
    for place, is_inside in enumerate(inside):
        if not is_inside:
            if place > start:
                yield text[start:place], start == 0, place == len(text)
            start = place + 1
