"""Parts of a blob: checked by a checksum each, neighbours read with one request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import xxhash
import zstandard

from puffin_index.errors import CorruptFileError, UnsupportedError
from puffin_index.storage.arrays import Ints
from puffin_index.storage.binary import Buffer
from puffin_index.storage.ranged import Blob, BytesReader

CHECKSUM_BYTES = 4
LAYOUT_VERSION = 1
# A request costs more than so many bytes that are read for nothing.
COALESCE_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class Part:
    """A range of a blob.

    Attributes:
        offset: Where it begins, from the blob's start.
        length: Its length in bytes.
        checksum: The low 32 bits of its xxh64; None if unknown.
    """

    offset: int
    length: int
    checksum: int | None = None


def checksum32(data: Buffer) -> int:
    """Return the low 32 bits of the xxh64 (seed 0) of some bytes."""
    return xxhash.xxh64_intdigest(data) & 0xFFFF_FFFF


def read_parts(blob: Blob, parts: Sequence[Part], gap_bytes: int = COALESCE_BYTES) -> list[memoryview]:
    """Read parts, those at most `gap_bytes` apart with one request, and check their checksums.

    Args:
        blob: The blob.
        parts: In ascending order of their offsets.
        gap_bytes: How many bytes between two parts may be read for nothing.

    Raises:
        CorruptFileError: If a part does not lie in the blob or does not have its checksum.
    """
    read: list[memoryview] = []
    first = 0
    for last, part in enumerate(parts):
        ended = last + 1 == len(parts) or parts[last + 1].offset > part.offset + part.length + gap_bytes
        if ended:
            start = parts[first].offset
            data = blob.read(start, part.offset + part.length - start)
            read += [data[p.offset - start : p.offset - start + p.length] for p in parts[first : last + 1]]
            first = last + 1
    for part, data in zip(parts, read, strict=True):
        if part.checksum is not None and checksum32(data) != part.checksum:
            raise corrupt(blob, "the bytes do not have their checksum", part.offset)
    return read


def corrupt(blob: Blob, reason: str, offset: int = 0) -> CorruptFileError:
    """Return an error that points at an offset of a blob."""
    return CorruptFileError(reason, location=blob.location, offset=blob.offset + offset)


def content_of_frame(blob: Blob, stored: memoryview, offset: int, least: int, most: int) -> memoryview:
    """Return the content of a zstd frame that tells the content's size.

    Args:
        blob: The blob, for messages.
        stored: The frame.
        offset: Where the frame begins in the blob, for messages.
        least: The least size that the content may have, in bytes.
        most: The greatest.

    Raises:
        CorruptFileError: If the bytes are no such frame, or the content has another size.
    """
    try:
        # The frame's own size is looked at first: decompress() would allocate it, however large it claims to be.
        size = zstandard.frame_content_size(bytes(stored))
        if not least <= size <= most:
            wanted = f"{least}" if least == most else f"{least} to {most}"
            raise corrupt(blob, f"a zstd frame with {size} bytes of content, not {wanted}", offset)
        return memoryview(zstandard.ZstdDecompressor().decompress(stored))
    except zstandard.ZstdError as error:
        raise corrupt(blob, f"not a zstd frame: {error}", offset) from error


def in_memory(blob: Blob) -> Blob:
    """Read a blob whole; return it as a blob in memory, with the same offsets in messages."""
    data = blob.read_all()
    if not blob.offset:
        return Blob(BytesReader.of(data, blob.location), 0, blob.length)
    return Blob(_ShiftedReader(data, blob.location, blob.offset), blob.offset, blob.length)


@dataclass(frozen=True, slots=True)
class _ShiftedReader:
    """A part of a file in memory, addressed by the offsets of the file."""

    data: memoryview
    location: str
    start: int

    @property
    def size(self) -> int:
        return self.start + len(self.data)

    def read(self, offset: int, length: int) -> memoryview:
        return self.data[offset - self.start : offset - self.start + length]


def sub_blob(blob: Blob, offset: int, length: int) -> Blob:
    """Return a range of a blob as a blob.

    Raises:
        CorruptFileError: If it does not lie in the blob.
    """
    if offset < 0 or length < 0 or offset + length > blob.length:
        raise corrupt(blob, f"bytes {offset}..{offset + length} do not lie in a blob of {blob.length} bytes")
    return Blob(blob.reader, blob.offset + offset, length)


def check_layout(blob: Blob, layout: Ints, minimum_count: int) -> list[int]:
    """Return a layout as ints, once its version and length are known to be good.

    Raises:
        UnsupportedError: If the layout has another version.
        CorruptFileError: If it is too short.
    """
    numbers: list[int] = layout.tolist()
    if numbers and numbers[0] != LAYOUT_VERSION:
        raise UnsupportedError(f"{blob.location}: layout version {numbers[0]} is not one that this release knows")
    if len(numbers) < minimum_count:
        raise corrupt(blob, f"a layout of {len(numbers)} numbers, at least {minimum_count} are needed")
    return numbers
