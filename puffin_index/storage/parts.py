"""Parts of a blob: each has a checksum, and neighbours share a request."""

import threading
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import xxhash
import zstandard

from puffin_index.errors import CorruptFileError, UnsupportedError
from puffin_index.storage.arrays import Ints
from puffin_index.storage.binary import Buffer, write_uint32_be
from puffin_index.storage.ranged import GAP_BYTES, Blob, Reading, near_spans

CHECKSUM_BYTES = 4
LAYOUT_VERSION = 1
_FRAME_HEADER_BYTES = 18
"""The header of a zstd frame is no longer."""

_of_thread = threading.local()


@dataclass(frozen=True, slots=True)
class Part:
    """A range of a blob, and the low 32 bits of its xxh64 if known."""

    offset: int
    length: int
    checksum: int | None = None


def checksum32(data: Buffer) -> int:
    """Return the low 32 bits of the xxh64 (seed 0) of some bytes."""
    return xxhash.xxh64_intdigest(data) & 0xFFFF_FFFF


def parts_of(blob: Blob, parts: Sequence[Part], gap_bytes: int = GAP_BYTES) -> Reading[list[memoryview]]:
    """Read parts, in any order, near ones together, or raise CorruptFileError for a wrong checksum."""
    if not parts:
        return []
    spans = near_spans(((part.offset, part.length) for part in parts), gap_bytes)
    starts, held = [start for start, _ in spans], (yield [(blob, span) for span in spans])
    read: list[memoryview] = []
    for part in parts:
        at = bisect_right(starts, part.offset) - 1
        own = held[at][part.offset - starts[at] :][: part.length]
        read.append(own)
        if part.checksum is not None and checksum32(own) != part.checksum:
            raise corrupt(blob, "the bytes do not have their checksum", part.offset)
    return read


def unsealed(blob: Blob, data: memoryview, offset: int) -> memoryview:
    """Return bytes without their seal, the checksum behind them, or raise CorruptFileError if it is wrong."""
    content = data[:-CHECKSUM_BYTES]
    if write_uint32_be(checksum32(content)) != data[len(content) :]:
        raise corrupt(blob, "the bytes do not have their checksum", offset)
    return content


def cost_of_parts(parts: Iterable[Part]) -> tuple[int, int]:
    """Return the requests and bytes that reading some parts takes."""
    spans = near_spans((part.offset, part.length) for part in parts)
    return len(spans), sum(length for _, length in spans)


def corrupt(blob: Blob, reason: str, offset: int = 0) -> CorruptFileError:
    """Return an error that points at an offset of a blob."""
    return CorruptFileError(reason, location=blob.location, offset=blob.offset + offset)


def content_of_frame(blob: Blob, stored: memoryview, offset: int, least: int, most: int) -> memoryview:
    """Return the content of a zstd frame that states the content size, of `least` to `most` bytes.

    Raises CorruptFileError if the frame is broken, not the only one, or its content has another size.
    """
    # The stated size is checked first: decompress() would allocate any size that the frame claims.
    size = stated_size(blob, stored, offset)
    if not least <= size <= most:
        wanted = f"{least}" if least == most else f"{least} to {most}"
        raise corrupt(blob, f"a zstd frame with {size} bytes of content, not {wanted}", offset)
    try:
        return memoryview(_decompressor().decompress(stored, allow_extra_data=False))
    except zstandard.ZstdError as error:
        raise corrupt(blob, f"not a zstd frame: {error}", offset) from error


def stated_size(blob: Blob, stored: memoryview, offset: int) -> int:
    """Return the content size that a zstd frame states, -1 if it states none. Raises CorruptFileError if it is none."""
    try:
        size: int = zstandard.frame_content_size(bytes(stored[:_FRAME_HEADER_BYTES]))
    except zstandard.ZstdError as error:
        raise corrupt(blob, f"not a zstd frame: {error}", offset) from error
    return size


def _decompressor() -> zstandard.ZstdDecompressor:
    """The decompressor of this thread: threads cannot share one, and a new one takes longer than a small frame."""
    found: zstandard.ZstdDecompressor | None = getattr(_of_thread, "decompressor", None)
    if found is None:
        found = _of_thread.decompressor = zstandard.ZstdDecompressor()
    return found


def check_layout(blob: Blob, layout: Ints, minimum_count: int) -> list[int]:
    """Return a layout as ints, or raise UnsupportedError for another version, CorruptFileError if it is too short."""
    numbers: list[int] = layout.tolist()
    if numbers and numbers[0] != LAYOUT_VERSION:
        raise UnsupportedError(f"{blob.location}: layout version {numbers[0]} is not one that this release knows")
    if len(numbers) < minimum_count:
        raise corrupt(blob, f"a layout of {len(numbers)} numbers, at least {minimum_count} are needed")
    return numbers
