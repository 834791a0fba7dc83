"""Paimon's bit-sliced format, BSI V1: the numbers of one row group as a row set per bit (docs/payloads.md, seed 001).

The magnitude of -2**63 does not fit: a row group that holds it cannot be written in this format.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from puffin_index.errors import BuildError
from puffin_index.roaring import BLOCK_BYTES, BLOCK_ROWS, block_count, deserialize, row_set_of_bits, serialize_bits
from puffin_index.storage.arrays import Bytes, Flags, Ints
from puffin_index.storage.binary import Buffer, write_int32_be, write_int64_be, write_uint8
from puffin_index.storage.parts import LAYOUT_VERSION, Part, checksum32, content_of_frame, corrupt
from puffin_index.storage.ranged import Blob

VERSION = 1
EXISTENCE_GAP = 4
"""The bytes of the number of slices, which stands behind the existence set."""

_MAGIC = b"\x28\xb5\x2f\xfd"
_MAXIMUM_SLICES = 64
_HALF_NUMBERS = 5
LEAST_NUMBERS = 2 * _HALF_NUMBERS
"""The numbers of both halves in a layout, before those of the parts."""

_MAXIMUM_BLOB_BYTES = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Half:
    """The rows with numbers of one sign, 1 or -1, and one row set for each bit of magnitude - minimum, lowest first."""

    sign: int
    row_count: int
    minimum: int
    maximum: int
    existence: Part
    slices: tuple[Part, ...]

    @property
    def span(self) -> int:
        """The largest magnitude - minimum."""
        return self.maximum - self.minimum


@dataclass(frozen=True, slots=True, eq=False)
class HalfBits:
    """The numbers of one sign as bits, and as row sets: the rows, then bits of magnitude - minimum, lowest first.

    Bits have the shape (1 + slices, bytes), padded to whole blocks.
    """

    sign: int
    row_count: int
    minimum: int
    maximum: int
    bits: Bytes
    sets: tuple[bytes, ...]

    def placed(self, parts: Sequence[Part]) -> Half:
        """Return the half, given the places of existence set and slices."""
        return Half(self.sign, self.row_count, self.minimum, self.maximum, parts[0], tuple(parts[1:]))


def serialize_numbers(halves: Sequence[HalfBits | None], row_count: int) -> tuple[bytearray, Ints]:
    """Return the blob of some numbers, and its layout."""
    data = bytearray(write_uint8(VERSION) + write_int32_be(row_count))
    placed = [_append_half(data, half) for half in halves]
    check_size(data, row_count)
    return data, np.array([LAYOUT_VERSION, *numbers_of_halves(placed, EXISTENCE_GAP)], np.int64)


def check_size(data: bytearray, row_count: int) -> None:
    """Raise `BuildError` if a blob is too long for the places of its parts."""
    if len(data) > _MAXIMUM_BLOB_BYTES:
        raise BuildError(f"the bit slices of {row_count} rows take {len(data)} bytes")


def _append_half(data: bytearray, half: HalfBits | None) -> Half | None:
    """Append a half behind a flag that tells whether there is one."""
    data += write_uint8(int(half is not None))
    if half is None:
        return None
    data += write_uint8(VERSION) + write_int64_be(half.minimum) + write_int64_be(half.maximum)
    existence = append_part(data, half.sets[0])
    data += write_int32_be(len(half.sets) - 1)
    return half.placed([existence, *(append_part(data, row_set) for row_set in half.sets[1:])])


def append_part(data: bytearray, content: Buffer) -> Part:
    """Append a part to a blob; return its place."""
    part = Part(len(data), len(content), checksum32(content))
    data += content
    return part


def halves_of_numbers(numbers: npt.NDArray[np.integer], valid: Flags | None) -> list[HalfBits | None]:
    """Return numbers >= 0 and < 0 (never -2**63) of the valid rows as bits; None where no row has one."""
    if not len(numbers) or int(numbers.min()) >= 0:
        return [_bits_of_half(numbers, valid, 1), None]
    negative = numbers < 0
    if valid is not None:
        negative &= valid
    positive = ~negative if valid is None else valid & ~negative
    return [_bits_of_half(numbers, positive, 1), _bits_of_half(numbers, negative, -1)]


def _bits_of_half(numbers: npt.NDArray[np.integer], chosen: Flags | None, sign: int) -> HalfBits | None:
    """Return the bits of the chosen rows' numbers (None for all), all of one sign; None if no row is chosen."""
    count = len(numbers) if chosen is None else int(np.count_nonzero(chosen))
    if not count:
        return None
    where: Flags | Literal[True] = True if chosen is None else chosen
    limits = np.iinfo(numbers.dtype)
    least, most = numbers.min(where=where, initial=limits.max), numbers.max(where=where, initial=limits.min)
    minimum, maximum = sorted((sign * int(least), sign * int(most)))
    slice_count = (maximum - minimum).bit_length()
    bits = np.zeros((1 + slice_count, block_count(len(numbers)) * BLOCK_BYTES), np.uint8)
    flags = np.ones(count, np.bool_) if chosen is None else chosen
    bits[0, : -(-len(numbers) // 8)] = np.packbits(flags, bitorder="little")
    _put_slices(bits[1:], numbers, minimum, sign)
    if chosen is not None:
        bits[1:] &= bits[0]
    return HalfBits(sign, count, minimum, maximum, bits, tuple(serialize_bits(own.data) for own in bits))


def _put_slices(bits: Bytes, numbers: npt.NDArray[np.integer], minimum: int, sign: int) -> None:
    """Transpose magnitude - minimum of all rows to bits: bit `row & 7` of byte `row >> 3` of each slice.

    The bits of NULL rows, and of rows with numbers of the other sign, are arbitrary.
    """
    least = np.int64(sign * minimum)
    # One block at a time keeps the working memory in the processor's cache. Each byte plane is copied together once, so
    # that the bits of eight slices come from contiguous bytes.
    for block in range(block_count(len(numbers))):
        some = numbers[block * BLOCK_ROWS : (block + 1) * BLOCK_ROWS].astype("<i8", copy=False)
        offsets = some - least if sign > 0 else least - some
        planes = offsets.view(np.uint8).reshape(-1, 8)
        first_byte = block * BLOCK_BYTES
        used = slice(first_byte, first_byte - (-len(some) // 8))
        for bit in range(len(bits)):
            if not bit % 8:
                plane = np.ascontiguousarray(planes[:, bit // 8])
            bits[bit, used] = np.packbits(plane & np.uint8(1 << bit % 8), bitorder="little")


def numbers_of_halves(halves: Sequence[Half | None], existence_gap: int) -> list[int]:
    """Return the numbers of halves in a layout; `existence_gap` bytes lie behind each existence set."""
    numbers: list[int] = []
    parts: list[Part] = []
    for half in halves:
        if half is None:
            numbers += [-1, 0, 0, 0, 0]
        else:
            last = half.slices[-1] if half.slices else half.existence
            end = last.offset + last.length + (0 if half.slices else existence_gap)
            numbers += [len(half.slices), half.row_count, half.minimum, half.maximum, end]
            parts += [half.existence, *half.slices]
    return numbers + [part.offset << 32 | (part.checksum or 0) for part in parts]


def halves_of_layout(blob: Blob, numbers: Sequence[int], row_count: int, existence_gap: int) -> list[Half]:
    """Return the halves that at least `LEAST_NUMBERS` of a layout describe, or raise CorruptFileError."""
    position = LEAST_NUMBERS
    halves: list[Half] = []
    for sign, start in ((1, 0), (-1, _HALF_NUMBERS)):
        slice_count, of_half, minimum, maximum, end = numbers[start : start + _HALF_NUMBERS]
        if slice_count == -1:
            continue
        if not (
            0 <= slice_count <= _MAXIMUM_SLICES
            and 0 <= minimum <= maximum
            and (maximum - minimum).bit_length() <= slice_count
            and 0 < of_half <= row_count
            and end <= blob.length
            and position + slice_count < len(numbers)
        ):
            raise corrupt(blob, "a layout that describes no bit slices")
        packed = numbers[position : position + 1 + slice_count]
        ends = [number >> 32 for number in (*packed[1:], end << 32)]
        ends[0] -= existence_gap
        places = zip(packed, ends, strict=True)
        parts = tuple(Part(one >> 32, stop - (one >> 32), one & 0xFFFF_FFFF) for one, stop in places)
        if any(part.length < 0 or part.offset < 0 for part in parts):
            raise corrupt(blob, "a layout whose parts overlap")
        halves.append(Half(sign, of_half, minimum, maximum, parts[0], parts[1:]))
        position += 1 + slice_count
    return halves


def bits_length(row_count: int) -> int:
    """Return the length of the plain bits of a number of rows."""
    return (row_count + 7) // 8


def row_set_of_part(blob: Blob, part: Part, stored: memoryview, row_count: int, *, is_own: bool) -> BitMap:
    """Return the rows of a part: a row set or, only where it is not of Paimon's format, plain bits or a zstd frame.

    Raises CorruptFileError if a frame is broken or claims a content longer than any set of these rows, or if these have
    no such rows.
    """
    length = bits_length(row_count)
    if is_own and len(stored) != length and bytes(stored[: len(_MAGIC)]) == _MAGIC:
        # Every other row is a run, and no writer chose a smaller container.
        longest = 8 + block_count(row_count) * (1 + 4 + 4 + 2 + 4 * (BLOCK_ROWS // 2))
        stored = content_of_frame(blob, stored, part.offset, 0, longest)
    if not is_own or len(stored) != length:
        return deserialize(stored, row_count, location=blob.location, offset=blob.offset + part.offset)
    if row_count % 8 and stored[-1] >> row_count % 8:
        raise corrupt(blob, "plain bits beyond the last row", part.offset)
    return row_set_of_bits(stored, row_count)
