"""The bit-sliced format, Paimon BSI V1: the numbers of one row group as one row set per bit.

All numbers are big-endian, row sets are in the portable roaring format (`puffin_index.roaring.write`).

| part | bytes | meaning |
| --- | --- | --- |
| version | 1 | 1 |
| rows | 4 | the number of rows, NULLs included |
| has positive | 1 | 1 if a half for the numbers >= 0 follows |
| positive half | | see below |
| has negative | 1 | 1 if a half for the numbers < 0 follows |
| negative half | | see below; holds magnitudes |

| part of a half | bytes | meaning |
| --- | --- | --- |
| version | 1 | 1 |
| minimum, maximum | 8, 8 | the least and greatest magnitude of the half; Paimon's own writer stores 0 as the minimum |
| existence | | the rows that have a number in this half |
| slices | 4 | the number of slices: the bits of maximum - minimum |
| slice i | | the rows whose magnitude - minimum has bit i set; lowest bit first |

The magnitude of -2**63 does not fit: a row group that holds it cannot be written in this format.

Layout: `[1, positive, negative, parts...]`. A half is five numbers: slices (-1: no such half), rows in the half,
minimum, maximum, end of the half. The parts are the existence set and the slices of each present half, in order, one
number each: `offset << 32 | low half of the part's xxh64`. Each slice ends where the next begins, the existence set 4
bytes before the next part.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from puffin_index.errors import BuildError, UnsupportedError
from puffin_index.roaring.read import deserialize, row_set_of_bits, serialized_length
from puffin_index.roaring.write import BLOCK_BYTES, BLOCK_ROWS, block_count, pad_bits, serialize_bit_slices
from puffin_index.storage.arrays import Bytes, Flags, Ints
from puffin_index.storage.binary import ByteCursor, write_int32_be, write_int64_be, write_uint8
from puffin_index.storage.parts import LAYOUT_VERSION, Part, check_layout, checksum32, corrupt
from puffin_index.storage.ranged import Blob

VERSION = 1
EXISTENCE_GAP = 4
"""The bytes of the number of slices, which stands behind the existence set."""

_MAXIMUM_SLICES = 64
_HALF_NUMBERS = 5
_PARTS_FROM = 1 + 2 * _HALF_NUMBERS
_MAXIMUM_BLOB_BYTES = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Half:
    """The places of the numbers of one sign.

    Attributes:
        row_count: The number of rows with a number of this sign.
        minimum: The smallest magnitude.
        maximum: The largest magnitude.
        existence: The row set of these rows.
        slices: One row set for each bit of magnitude - minimum, lowest first.
    """

    row_count: int
    minimum: int
    maximum: int
    existence: Part
    slices: tuple[Part, ...]

    @property
    def span(self) -> int:
        """The largest magnitude - minimum."""
        return self.maximum - self.minimum


@dataclass(frozen=True, slots=True)
class Halves:
    """The halves of a blob; None where no number has the sign."""

    positive: Half | None
    negative: Half | None


@dataclass(frozen=True, slots=True, eq=False)
class HalfBits:
    """The numbers of one sign as bits.

    Attributes:
        row_count: The number of rows with a number of this sign.
        minimum: The smallest magnitude.
        maximum: The largest magnitude.
        chosen: Which rows have a number of this sign; None if all rows have one.
        existence: `chosen` as bits, shape (1, bytes); no bits set if `chosen` is None.
        slices: The bits of magnitude - minimum, shape (slices, bytes), lowest first, padded to whole blocks.
    """

    row_count: int
    minimum: int
    maximum: int
    chosen: Flags | None
    existence: Bytes
    slices: Bytes


def serialize_numbers(numbers: npt.NDArray[np.integer], valid: Flags | None) -> tuple[bytearray, Ints]:
    """Return the blob of some numbers, and its layout.

    Args:
        numbers: One number per row, none of them -2**63; arbitrary in NULL rows.
        valid: Which rows are not NULL, None for all.
    """
    positive, negative = signs_of(numbers, valid)
    data = bytearray(write_uint8(VERSION) + write_int32_be(len(numbers)))
    first = _append_half(data, numbers, positive, 1)
    second = None
    if negative is None:
        data += write_uint8(0)
    else:
        second = _append_half(data, numbers, negative, -1)
    if len(data) > _MAXIMUM_BLOB_BYTES:
        raise BuildError(f"the bit slices of a row group of {len(numbers)} rows take {len(data)} bytes")
    return data, layout_of_halves(Halves(first, second))


def signs_of(numbers: npt.NDArray[np.integer], valid: Flags | None) -> tuple[Flags | None, Flags | None]:
    """Return which rows have a number >= 0 (None for all rows), and which have a number < 0 (None for no row)."""
    if not len(numbers) or int(numbers.min()) >= 0:
        return valid, None
    negative = numbers < 0
    if valid is None:
        return ~negative, negative
    negative &= valid
    return valid & ~negative, negative if bool(negative.any()) else None


def _append_half(
    data: bytearray,
    numbers: npt.NDArray[np.integer],
    chosen: Flags | None,
    sign: int,
) -> Half | None:
    """Append the half of the chosen rows (None for all), behind a flag that tells whether any row is chosen."""
    half = bits_of_half(numbers, chosen, sign)
    data += write_uint8(int(half is not None))
    if half is None:
        return None
    slices = serialize_bit_slices(half.slices)
    data += write_uint8(VERSION) + write_int64_be(half.minimum) + write_int64_be(half.maximum)
    start = len(data)
    data += _serialize_existence(half, len(numbers))
    existence_end = len(data)
    data += write_int32_be(len(half.slices))
    offsets = (slices.offsets + len(data)).tolist()
    data += slices.data.data
    parts = tuple(_part(data, low, high) for low, high in pairwise(offsets))
    return Half(half.row_count, half.minimum, half.maximum, _part(data, start, existence_end), parts)


def bits_of_half(numbers: npt.NDArray[np.integer], chosen: Flags | None, sign: int) -> HalfBits | None:
    """Return the bits of the chosen rows' numbers, all of one sign; None if no row is chosen.

    Args:
        numbers: One number per row.
        chosen: The rows, None for all.
        sign: 1 or -1.
    """
    count = len(numbers) if chosen is None else int(np.count_nonzero(chosen))
    if not count:
        return None
    where: Flags | Literal[True] = True if chosen is None else chosen
    limits = np.iinfo(numbers.dtype)
    bounds = (
        sign * int(numbers.min(where=where, initial=limits.max)),
        sign * int(numbers.max(where=where, initial=limits.min)),
    )
    minimum, maximum = min(bounds), max(bounds)
    existence = _existence(chosen, len(numbers))
    slice_count = (maximum - minimum).bit_length()
    bits = slice_bits(numbers, slice_count, minimum, sign)
    if chosen is not None:
        bits &= existence
    return HalfBits(count, minimum, maximum, chosen, existence, bits)


def _existence(chosen: Flags | None, row_count: int) -> Bytes:
    """Return the chosen rows as bits; without any bit set if `chosen` is None."""
    packed = np.empty(0, np.uint8) if chosen is None else np.packbits(chosen, bitorder="little")
    return pad_bits(packed, row_count)


def _serialize_existence(half: HalfBits, row_count: int) -> bytes | memoryview:
    if half.chosen is not None:
        return serialize_bit_slices(half.existence).data.data
    every = BitMap(range(row_count))
    every.run_optimize()
    return every.serialize()


def _part(data: bytearray, start: int, end: int) -> Part:
    with memoryview(data) as view:
        return Part(start, end - start, checksum32(view[start:end]))


def slice_bits(numbers: npt.NDArray[np.integer], slice_count: int, minimum: int = 0, sign: int = 1) -> Bytes:
    """Transpose magnitude - minimum of all rows to bits.

    Returns:
        Shape (slices, bytes): bit `row & 7` of byte `row >> 3`, padded to whole blocks. The bits of NULL rows, and of
        rows with numbers of the other sign, are arbitrary.
    """
    blocks = block_count(len(numbers))
    bits = np.zeros((slice_count, blocks * BLOCK_BYTES), np.uint8)
    least = np.int64(sign * minimum)
    # One block at a time keeps the working memory in the processor's cache. Each byte plane is copied together once, so
    # that the bits of eight slices come from contiguous bytes.
    for block in range(blocks):
        some = numbers[block * BLOCK_ROWS : (block + 1) * BLOCK_ROWS].astype("<i8", copy=False)
        offsets = some - least if sign > 0 else least - some
        planes = offsets.view(np.uint8).reshape(-1, 8)
        first_byte = block * BLOCK_BYTES
        used = slice(first_byte, first_byte - (-len(some) // 8))
        for bit in range(slice_count):
            if not bit % 8:
                plane = np.ascontiguousarray(planes[:, bit // 8])
            bits[bit, used] = np.packbits(plane & np.uint8(1 << bit % 8), bitorder="little")
    return bits


def layout_of_halves(halves: Halves, existence_gap: int = EXISTENCE_GAP) -> Ints:
    """Return the layout of halves; `existence_gap` bytes lie between each existence set and the next part."""
    numbers = [LAYOUT_VERSION]
    parts: list[Part] = []
    for half in (halves.positive, halves.negative):
        if half is None:
            numbers += [-1, 0, 0, 0, 0]
        else:
            last = half.slices[-1] if half.slices else half.existence
            end = last.offset + last.length + (0 if half.slices else existence_gap)
            numbers += [len(half.slices), half.row_count, half.minimum, half.maximum, end]
            parts += [half.existence, *half.slices]
    return np.array(numbers + [part.offset << 32 | (part.checksum or 0) for part in parts], np.int64)


def halves_of_layout(blob: Blob, layout: Ints, row_count: int, existence_gap: int = EXISTENCE_GAP) -> Halves:
    """Return the halves that a layout describes; `existence_gap` bytes lie behind each existence set.

    Raises:
        UnsupportedError: If the layout has another version.
        CorruptFileError: If the layout does not fit the blob.
    """
    numbers = check_layout(blob, layout, _PARTS_FROM)
    position = _PARTS_FROM
    halves: list[Half | None] = []
    for start in (1, 1 + _HALF_NUMBERS):
        slice_count, of_half, minimum, maximum, end = numbers[start : start + _HALF_NUMBERS]
        if slice_count == -1:
            halves.append(None)
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
        parts = _unpack_parts(numbers[position : position + 1 + slice_count], end, existence_gap)
        if any(part.length < 0 or part.offset < 0 for part in parts):
            raise corrupt(blob, "a layout whose parts overlap")
        halves.append(Half(of_half, minimum, maximum, parts[0], parts[1:]))
        position += 1 + slice_count
    return Halves(halves[0], halves[1])


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a part.

    Attributes:
        data: The bytes.
        are_bits: Whether these are the plain bits of all rows; otherwise they are a row set.
    """

    data: memoryview
    are_bits: bool = False


def content_as_stored(blob: Blob, part: Part, stored: memoryview, row_count: int) -> Content:
    """Return the content of a part that is stored as it is."""
    del blob, part, row_count
    return Content(stored)


def row_set_of_content(blob: Blob, part: Part, content: Content, row_count: int) -> BitMap:
    """Return the row set of a part's content.

    Raises:
        CorruptFileError: If the content is not a set of these rows.
    """
    if content.are_bits:
        return row_set_of_bits(content.data, row_count)
    return row_set_of_part(blob, part, content.data, row_count)


def row_set_of_part(blob: Blob, part: Part, content: memoryview, row_count: int) -> BitMap:
    """Parse a part's content as a row set.

    Raises:
        CorruptFileError: If the content is not a row set, or has rows beyond the row group.
    """
    return deserialize(content, row_count, location=blob.location, offset=blob.offset + part.offset)


def _unpack_parts(packed: list[int], end: int, existence_gap: int) -> tuple[Part, ...]:
    offsets = [number >> 32 for number in packed]
    ends = [offset - existence_gap * (index == 0) for index, offset in enumerate([*offsets[1:], end])]
    return tuple(
        Part(offset, stop - offset, number & 0xFFFF_FFFF)
        for offset, stop, number in zip(offsets, ends, packed, strict=True)
    )


def halves_of_blob(blob: Blob, row_count: int) -> Halves:
    """Parse the halves of a blob without a layout, such as a blob from Paimon.

    Raises:
        UnsupportedError: If the blob has another version.
        CorruptFileError: If the blob breaks the format.
    """
    data = blob.read_all()
    cursor = ByteCursor(data, blob.location, blob.offset)
    _check_version(blob, cursor.uint8())
    rows = cursor.int32_be()
    if rows != row_count:
        raise corrupt(blob, f"bit slices of {rows} rows for a row group of {row_count}", 1)
    positive = _parse_half(blob, data, cursor, row_count)
    negative = _parse_half(blob, data, cursor, row_count)
    cursor.expect_end()
    return Halves(positive, negative)


def _check_version(blob: Blob, version: int) -> None:
    if version != VERSION:
        raise UnsupportedError(f"{blob.location}: BSI version {version} is not one that this release knows")


def _parse_half(blob: Blob, data: memoryview, cursor: ByteCursor, row_count: int) -> Half | None:
    flag = cursor.uint8()
    if flag > 1:
        raise cursor.corrupt(f"{flag} is not a boolean")
    if not flag:
        return None
    _check_version(blob, cursor.uint8())
    minimum, maximum = cursor.int64_be(), cursor.int64_be()
    existence = _parse_part(blob, data, cursor)
    rows = deserialize(
        data[existence.offset : existence.offset + existence.length],
        row_count,
        location=blob.location,
        offset=blob.offset + existence.offset,
    )
    slice_count = cursor.count(cursor.int32_be(), 8, "slices")
    if slice_count > _MAXIMUM_SLICES or not 0 <= minimum <= maximum or (maximum - minimum).bit_length() > slice_count:
        raise cursor.corrupt(f"{slice_count} slices for numbers from {minimum} to {maximum}")
    slices = tuple(_parse_part(blob, data, cursor) for _ in range(slice_count))
    return Half(len(rows), minimum, maximum, existence, slices) if rows else None


def _parse_part(blob: Blob, data: memoryview, cursor: ByteCursor) -> Part:
    start = cursor.position
    length = serialized_length(data[start:], location=blob.location, offset=blob.offset + start)
    cursor.bytes(length, "row set")
    return Part(start, length)
