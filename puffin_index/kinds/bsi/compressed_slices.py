"""The blob type `puffin-index-bsi-v1`: the row sets of a BSI blob, compressed one by one where that pays.

Where neighbouring rows often share a value, in runs too short for run containers, zstd saves a third to a half of the
bytes. On values in random order zstd saves nothing. Saved reading and added decompression break even at about 230 MB/s.

| part | bytes | meaning |
| --- | --- | --- |
| positive half | | existence set, slices: each a row set or, if smaller, a zstd frame with its content size |
| negative half | | the same |

A part that begins with the magic of zstd, 28 B5 2F FD, is a frame: no row set begins with these bytes. The blob has no
header; the layout has the header's numbers. The layout is that of BSI (`puffin_index.kinds.bsi.slices`), except that an
existence set also ends where the next part begins. Checksums are those of the stored bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import zstandard

from puffin_index.kinds.bsi.slices import Content, Half, Halves, halves_of_layout, layout_of_halves
from puffin_index.roaring.write import BLOCK_ROWS, block_count
from puffin_index.storage.arrays import Ints
from puffin_index.storage.binary import Buffer
from puffin_index.storage.parts import Part, checksum32, content_of_frame
from puffin_index.storage.ranged import Blob, BytesReader

COMPRESSED_BSI = "puffin-index-bsi-v1"
LEAST_SAVING = 0.3
"""A smaller saving, as a share of the bytes, justifies neither decompression nor leaving Paimon's format."""

_MAGIC = b"\x28\xb5\x2f\xfd"
_LEVEL = 3
_LEAST_BYTES = 64 * 1024
_SAMPLE_BYTES = 8 * 1024


def compress_slices(data: bytearray, layout: Ints, row_count: int) -> tuple[bytearray, Ints] | None:
    """Compress the row sets of a BSI blob; return blob and layout, or None where compression does not pay.

    Args:
        data: The BSI blob.
        layout: The layout of the BSI blob.
        row_count: The number of rows of the row group.
    """
    if len(data) < _LEAST_BYTES:
        return None
    halves = halves_of_layout(Blob(BytesReader.of(data), 0, len(data)), layout, row_count)
    with memoryview(data) as view:
        contents = [view[part.offset : part.offset + part.length] for part in _parts(halves)]
        stored = compress_parts(contents)
        if stored is None or sum(map(len, stored)) > (1 - LEAST_SAVING) * len(data):
            return None
        return store_parts(halves, stored)


def compress_parts(contents: Sequence[Buffer]) -> list[Buffer] | None:
    """Return the smaller of each content and its zstd frame; None where samples show that compression does not pay."""
    compressor = zstandard.ZstdCompressor(level=_LEVEL)
    # A sample of each part decides, so that values in random order cost next to nothing.
    samples = [_sample(content) for content in contents]
    if _saving(samples, [compressor.compress(sample) for sample in samples]) < LEAST_SAVING:
        return None
    return [min(content, compressor.compress(content), key=len) for content in contents]


def store_parts(halves: Halves, stored: Iterable[Buffer]) -> tuple[bytearray, Ints]:
    """Join parts to a blob, without gaps; return the blob and its layout.

    Args:
        halves: The halves, without the places of their parts.
        stored: The bytes of existence set and slices of each half, in order.
    """
    data = bytearray()
    parts: list[Part] = []
    for content in stored:
        parts.append(Part(len(data), len(content), checksum32(content)))
        data += content
    placed: list[Half | None] = []
    for half in (halves.positive, halves.negative):
        own = parts[: 1 + len(half.slices)] if half else []
        placed.append(half and replace(half, existence=own[0], slices=tuple(own[1:])))
        parts = parts[len(own) :]
    return data, layout_of_halves(Halves(*placed), existence_gap=0)


def _parts(halves: Halves) -> list[Part]:
    return [part for half in (halves.positive, halves.negative) if half for part in (half.existence, *half.slices)]


def _sample(content: Buffer) -> Buffer:
    start = max(0, len(content) - _SAMPLE_BYTES) // 2
    return content[start : start + _SAMPLE_BYTES]


def _saving(plain: Iterable[Buffer], compressed: Iterable[bytes]) -> float:
    pairs = [(len(before), len(after)) for before, after in zip(plain, compressed, strict=True)]
    before = sum(pair[0] for pair in pairs)
    return 1 - sum(map(min, pairs)) / before if before else 0.0


def content_of_frame_part(blob: Blob, part: Part, stored: memoryview, row_count: int) -> Content:
    """Return the content of a part that may be a frame.

    Raises:
        CorruptFileError: If the frame is broken or too long.
    """
    return Content(content_of_part(blob, part, stored, row_count))


def content_of_part(blob: Blob, part: Part, stored: memoryview, row_count: int) -> memoryview:
    """Return the content of a part, decompressed if the part is a frame.

    Raises:
        CorruptFileError: If the frame is broken, or claims a content longer than any set of these rows.
    """
    if bytes(stored[: len(_MAGIC)]) != _MAGIC:
        return stored
    return content_of_frame(blob, stored, part.offset, 0, _longest_row_set(row_count))


def _longest_row_set(row_count: int) -> int:
    """Return the most bytes of any row set: every other row is a run, and no writer chose a smaller container."""
    return 8 + block_count(row_count) * (1 + 4 + 4 + 2 + 4 * (BLOCK_ROWS // 2))
