"""Read row sets in the portable roaring format (`puffin_index.roaring.write`), or make sets of rows, flags or bits."""

from __future__ import annotations

from array import array
from typing import NoReturn

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from puffin_index.errors import CorruptFileError
from puffin_index.roaring.write import (
    ARRAY_LIMIT,
    BLOCK_BYTES,
    BLOCK_ROWS,
    COOKIE,
    OFFSETS_FROM,
    RUN_COOKIE,
    block_count,
)
from puffin_index.storage.arrays import Bytes, Flags, Ints
from puffin_index.storage.binary import Buffer, ByteCursor, check_inside, few_uint16_le, few_uint32_le

_HEADER_BYTES = 8
_FEW_ROWS = 1000
_SPARSE = 64


def deserialize(
    data: Buffer, row_count: int, *, whole: bool = True, location: str = "<bytes>", offset: int = 0
) -> BitMap:
    """Read one serialised set of rows below `row_count`, which takes all bytes if `whole`.

    Raises CorruptFileError if the bytes are not such a set.
    """
    length = serialized_length(data, location=location, offset=offset)
    if whole and length != len(data):
        _corrupt(f"a row set of {length} bytes lies in {len(data)} bytes", location, offset)
    try:
        rows = BitMap.deserialize(bytes(data if length == len(data) else data[:length]))
    except ValueError as error:
        raise CorruptFileError(f"not a row set: {error}", location=location, offset=offset) from error
    if rows and rows.max() >= row_count:
        _corrupt(f"row {rows.max()} in a row group of {row_count} rows", location, offset)
    return rows


def row_set_of(rows: npt.NDArray[np.integer], row_count: int) -> BitMap:
    """Return rows, in any order and all below `row_count`, as a row set."""
    if len(rows) <= _FEW_ROWS:
        return BitMap(rows.tolist())
    if _SPARSE * len(rows) < row_count:
        return row_set_of_ascending(np.sort(rows))
    flags = np.zeros(row_count, np.bool_)
    flags[rows] = True
    return row_set_of_flags(flags)


def row_set_of_ascending(rows: npt.NDArray[np.integer]) -> BitMap:
    """Return ascending rows as a row set; pyroaring reads an `array` without making an object per row."""
    numbers = array("I")
    numbers.frombytes(rows.astype(np.uint32).data.cast("B"))
    return BitMap(numbers)


def row_set_of_flags(flags: Flags) -> BitMap:
    """Return the rows whose flag is set."""
    return row_set_of_bits(np.packbits(flags, bitorder="little").data, len(flags))


def row_set_of_bits(bits: Buffer, row_count: int) -> BitMap:
    """Return the rows whose bit is set: bit `row & 7` of byte `row >> 3`."""
    padded = np.zeros(block_count(row_count) * BLOCK_BYTES, np.uint8)
    padded[: len(bits)] = np.frombuffer(bits, np.uint8)
    blocks = padded.reshape(-1, BLOCK_BYTES)
    counts = np.bitwise_count(blocks.view(np.uint64)).sum(axis=1, dtype=np.int64)
    is_dense = counts > ARRAY_LIMIT
    dense = np.flatnonzero(is_dense)
    found = _set_of_blocks(blocks, dense, counts[dense]) if len(dense) else BitMap()
    if bool((~is_dense & (counts > 0)).any()):
        flat = np.where(is_dense[:, None], 0, blocks).reshape(-1) if len(dense) else blocks.reshape(-1)
        used = np.flatnonzero(flat)
        ones = np.flatnonzero(np.unpackbits(flat[used], bitorder="little").view(np.bool_))
        found |= row_set_of_ascending(used[ones >> 3] << 3 | ones & 7)
    return found


def serialize_bits(bits: Buffer) -> bytes:
    """Serialise the rows whose bit is set, as `puffin_index.roaring.write` does."""
    rows = row_set_of_bits(bits, 8 * len(bits))
    # None of the containers is one of runs yet: such a one would stay so where both forms are equally long.
    rows.run_optimize()
    data: bytes = rows.serialize()
    return data


def _set_of_blocks(blocks: Bytes, places: Ints, counts: Ints) -> BitMap:
    """Return the rows of some blocks, of more than `ARRAY_LIMIT` rows each: their bits are those of containers."""
    described = np.column_stack((places, counts - 1)).astype("<u2")
    start = _HEADER_BYTES + 8 * len(places)
    offsets = start + BLOCK_BYTES * np.arange(len(places))
    parts = (np.array([COOKIE, len(places)], "<u4"), described, offsets.astype("<u4"), blocks[places])
    return BitMap.deserialize(b"".join(part.tobytes() for part in parts))


def _corrupt(reason: str, location: str, offset: int) -> NoReturn:
    raise CorruptFileError(reason, location=location, offset=offset)


def serialized_length(data: Buffer, *, location: str = "<bytes>", offset: int = 0) -> int:
    """Return the length of the serialised set at the start of `data`.

    Raises CorruptFileError if the set does not end inside `data`.
    """
    if len(data) >= _HEADER_BYTES and (length := _length_of_bitsets(data)):
        return length
    cursor = ByteCursor(data, location, offset)
    cookie = cursor.uint32_le()
    with_runs = cookie & 0xFFFF == RUN_COOKIE
    if not with_runs and cookie != COOKIE:
        _corrupt(f"{cookie} is not the cookie of a row set", location, offset)
    count = (cookie >> 16) + 1 if with_runs else cursor.count(cursor.uint32_le(), 8, "containers")
    if count > BLOCK_ROWS:
        _corrupt(f"{count} containers in a row set", location, offset)
    flags = np.zeros(count, np.bool_)
    if with_runs:
        packed = np.frombuffer(cursor.bytes((count + 7) // 8, "run flags"), np.uint8)
        flags = np.unpackbits(packed, count=count, bitorder="little").astype(np.bool_)
    described = np.frombuffer(cursor.bytes(4 * count, "container keys"), "<u2").reshape(-1, 2)
    cardinalities = described[:, 1].astype(np.int64) + 1
    sizes = np.where(cardinalities > ARRAY_LIMIT, BLOCK_BYTES, 2 * cardinalities)
    if not with_runs or count >= OFFSETS_FROM:
        cursor.bytes(4 * count, "container offsets")
    position = cursor.position
    if not with_runs:
        position += int(sizes.sum())
        check_inside("row set", len(data), 0, position, location, offset)
        return position
    # Only a container of runs knows its own length, so the containers must be followed one by one.
    for is_run, size in zip(flags.tolist(), sizes.tolist(), strict=True):
        if is_run:
            check_inside("run count", len(data), position, 2, location, offset)
            position += 2 + 4 * int.from_bytes(data[position : position + 2], "little")
        else:
            position += size
    check_inside("row set", len(data), 0, position, location, offset)
    return position


def _length_of_bitsets(data: Buffer) -> int:
    """Return the length of a set whose containers all hold bits, as those of most bit slices do; 0 for other sets.

    One look at the header costs a tenth of reading each container's description.
    """
    cookie, count = few_uint32_le(data, 2, 0)
    start = _HEADER_BYTES + 8 * count
    end = start + BLOCK_BYTES * count
    if cookie != COOKIE or not 0 < count <= BLOCK_ROWS or end > len(data):
        return 0
    described = few_uint16_le(data, 2 * count, _HEADER_BYTES)
    return end if min(described[1::2]) >= ARRAY_LIMIT else 0
