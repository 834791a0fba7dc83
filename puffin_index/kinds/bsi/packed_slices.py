"""Packed bit slices, as merged bit slices have them: each row set is stored in its smallest form.

In a slice of few rows a roaring set takes 8 bits a row, in a slice of 65,536 rows 1 bit. Plain bits always take 1:

| content of a part | when |
| --- | --- |
| plain bits of all rows, bit `row & 7` of byte `row >> 3`, then zeros | its length is (rows + 7) / 8 |
| a row set in the portable roaring format | otherwise |

A part is stored as its content or, where frames save enough, as a zstd frame with its content size. A stored part of
(rows + 7) / 8 bytes is always plain bits: every other form is stored only if it is shorter. Halves, layout and the
order of parts are those of `puffin-index-bsi-v1` (`puffin_index.kinds.bsi.compressed_slices`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from puffin_index.kinds.bsi.compressed_slices import compress_parts, content_of_part, store_parts
from puffin_index.kinds.bsi.slices import Content, Half, HalfBits, Halves, bits_of_half, signs_of
from puffin_index.roaring.write import serialize_bit_slices
from puffin_index.storage.arrays import Flags, Ints
from puffin_index.storage.binary import Buffer
from puffin_index.storage.parts import Part, corrupt
from puffin_index.storage.ranged import Blob

_UNPLACED = Part(0, 0)


def serialize_packed(numbers: npt.NDArray[np.integer], valid: Flags | None) -> tuple[bytearray, Ints]:
    """Return the blob of some numbers, and its layout.

    Args:
        numbers: One number per row, none of them -2**63; arbitrary in NULL rows.
        valid: Which rows are not NULL, None for all.
    """
    positive, negative = signs_of(numbers, valid)
    halves = (
        bits_of_half(numbers, positive, 1),
        None if negative is None else bits_of_half(numbers, negative, -1),
    )
    contents = [content for half in halves if half for content in _contents(half, len(numbers))]
    return store_parts(Halves(*map(_unplaced, halves)), compress_parts(contents) or contents)


def _unplaced(half: HalfBits | None) -> Half | None:
    if half is None:
        return None
    return Half(half.row_count, half.minimum, half.maximum, _UNPLACED, (_UNPLACED,) * len(half.slices))


def _contents(half: HalfBits, row_count: int) -> Iterator[Buffer]:
    existence = half.existence
    if half.chosen is None:
        existence = np.zeros_like(existence)
        existence[0, : bits_length(row_count)] = np.packbits(np.ones(row_count, np.bool_), bitorder="little")
    for rows in (existence, half.slices):
        sets = serialize_bit_slices(rows)
        for bits, (start, end) in zip(rows, pairwise(sets.offsets.tolist()), strict=True):
            plain = bits[: bits_length(row_count)]
            yield plain.data if len(plain) <= end - start else sets.data[start:end].data


def bits_length(row_count: int) -> int:
    """Return the length of the plain bits of a number of rows."""
    return (row_count + 7) // 8


def content_of_packed(blob: Blob, part: Part, stored: memoryview, row_count: int) -> Content:
    """Return the content of a part, plain bits or a row set.

    Raises:
        CorruptFileError: If the frame is broken or too long, or plain bits lie beyond the last row.
    """
    length = bits_length(row_count)
    content = stored if len(stored) == length else content_of_part(blob, part, stored, row_count)
    if len(content) != length:
        return Content(content)
    if row_count % 8 and content[-1] >> row_count % 8:
        raise corrupt(blob, "plain bits beyond the last row", part.offset)
    return Content(content, are_bits=True)
