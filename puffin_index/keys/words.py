"""The words of texts: runs of letters and digits, as bytes.

A word is a longest run of the ASCII letters and digits and of the bytes of all other characters. So every text that
contains another one has its words, but for the first and the last, which may be parts of longer words.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from puffin_index.keys.sorted_keys import bytes_of_keys
from puffin_index.storage.arrays import Flags, Ints

_OF_WORDS: Flags = np.zeros(256, np.bool_)
_OF_WORDS[[*b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", *range(128, 256)]] = True
_MOST_FLAGS = 1 << 26


def words_of(texts: pa.Array) -> tuple[pa.LargeBinaryArray, Ints]:
    """Return the words of texts (string or binary), in order, and how many each text has; NULL has none."""
    data, offsets = bytes_of_keys(texts.cast(pa.large_binary()).fill_null(b""))
    data, offsets = data[offsets[0] : offsets[-1]], offsets - offsets[0]
    inside = _OF_WORDS[data]
    begins = inside.copy()
    begins[1:] &= ~inside[:-1]
    ends = inside.copy()
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
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data[inside])]
    return pa.Array.from_buffers(pa.large_binary(), len(places), buffers), np.diff(np.searchsorted(places, offsets))


def words_of_blocks(texts: pa.Array, first_row: int, block_rows: int) -> tuple[pa.LargeBinaryArray, Ints]:
    """Return the distinct words of each block of rows, and the block of each, ascending.

    The texts begin at `first_row`; blocks are numbered from row 0.
    """
    words, counts = words_of(texts)
    encoded = words.dictionary_encode()
    blocks = np.repeat((np.arange(len(texts)) + first_row) // block_rows, counts)
    codes = encoded.indices.to_numpy().astype(np.int64)
    vocabulary = len(encoded.dictionary)
    if not len(codes):
        return words, blocks
    pairs = _distinct((blocks - blocks[0]) * vocabulary + codes, (int(blocks[-1] - blocks[0]) + 1) * vocabulary)
    return encoded.dictionary.take(pa.array(pairs % vocabulary)), pairs // vocabulary + blocks[0]


def _distinct(numbers: Ints, limit: int) -> Ints:
    """Return the distinct ones of some numbers below a limit, ascending."""
    if limit > _MOST_FLAGS:
        return np.unique(numbers)
    flags: npt.NDArray[np.bool_] = np.zeros(limit, np.bool_)
    flags[numbers] = True
    return np.flatnonzero(flags)


def runs_of(text: bytes) -> Iterator[tuple[bytes, bool, bool]]:
    """Yield the runs of letters and digits of a text, and whether each begins with the text, and ends with it."""
    start = 0
    inside = [*_OF_WORDS[np.frombuffer(text, np.uint8)].tolist(), False]
    for place, is_inside in enumerate(inside):
        if not is_inside:
            if place > start:
                yield text[start:place], start == 0, place == len(text)
            start = place + 1
