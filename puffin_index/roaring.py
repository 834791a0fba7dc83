"""Row sets in the portable roaring format, written and read; and sets made of rows, flags or bits.

The format is in docs/formats.md, Row sets; source: the RoaringBitmap format specification. A container holds runs where
runs take fewer bytes than its other form, as in Java's `runOptimize`.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from puffin_index.errors import CorruptFileError
from puffin_index.storage.arrays import Bytes, Ints, Rows
from puffin_index.storage.binary import Buffer

BLOCK_ROWS = 65_536
BLOCK_BYTES = BLOCK_ROWS // 8
_ARRAY_LIMIT = 4096
_COOKIE = 12_346
_HEADER_BYTES = 8
_FEW_ROWS = 1000
_SPARSE = 64


def block_count(row_count: int) -> int:
    """Return the number of blocks of 65,536 rows for a number of rows."""
    return -(-row_count // BLOCK_ROWS)


def serialize_row_sets(rows: Rows, starts: Sequence[int]) -> list[bytes]:
    """Serialise many row sets: the rows of one after the other, ascending in each.

    `starts` has the start of each set in `rows`, followed by the number of rows.
    """
    numbers = _numbers(rows)
    return [_serialized(BitMap(numbers[first:end])) for first, end in pairwise(starts)]


def _serialized(rows: BitMap) -> bytes:
    # None of the containers is one of runs yet: such a one would stay so where both forms are equally long.
    rows.run_optimize()
    data: bytes = rows.serialize()
    return data


def deserialize(data: Buffer, row_count: int, *, location: str = "<bytes>", offset: int = 0) -> BitMap:
    """Read one serialised set of rows below `row_count`, which takes all bytes, or raise CorruptFileError."""
    try:
        rows = BitMap.deserialize(bytes(data))
    except (ValueError, IndexError) as error:
        raise CorruptFileError(f"not a row set: {error}", location=location, offset=offset) from error
    # A set takes as many bytes when it is written again.
    if (length := len(rows.serialize())) != len(data):
        reason = f"a row set of {length} bytes lies in {len(data)} bytes"
        raise CorruptFileError(reason, location=location, offset=offset)
    if rows and rows.max() >= row_count:
        reason = f"row {rows.max()} in a row group of {row_count} rows"
        raise CorruptFileError(reason, location=location, offset=offset)
    return rows


@dataclass(frozen=True, slots=True, eq=False)
class StoredSets:
    """Serialised row sets, the bytes of each, disjoint where they are united.

    `location` and `offset` say where the bytes come from. All methods raise CorruptFileError if a set is damaged.
    """

    views: Sequence[Buffer]
    location: str = "<bytes>"
    offset: int = 0

    def each(self, row_count: int) -> list[BitMap]:
        """Return each set; all rows are below `row_count`."""
        return [deserialize(view, row_count, location=self.location, offset=self.offset) for view in self.views]

    def union(self, row_count: int, most_rows: int | None = None) -> BitMap:
        """Return the rows, all below `row_count`, of all sets, which have at most `most_rows`."""
        return BitMap.union(BitMap(), *self._bounded(row_count, row_count if most_rows is None else most_rows))

    def rows(self, row_count: int, most_rows: int | None = None) -> tuple[Ints, Ints]:
        """Return the rows, all below `row_count`, set by set, and the set of each; at most `most_rows` in all."""
        arrays = [own.to_array() for own in self._bounded(row_count, row_count if most_rows is None else most_rows)]
        rows = np.frombuffer(b"".join(arrays), np.uint32).astype(np.int64)
        return rows, np.repeat(np.arange(len(arrays)), list(map(len, arrays)))

    def _bounded(self, row_count: int, most_rows: int) -> list[BitMap]:
        # Runs take few bytes for many rows: rows are counted before they are unfolded.
        sets = self.each(row_count)
        if sum(map(len, sets)) > most_rows:
            reason = f"row sets of more than {most_rows} rows"
            raise CorruptFileError(reason, location=self.location, offset=self.offset)
        return sets


def row_set_of(rows: npt.NDArray[np.integer], row_count: int) -> BitMap:
    """Return rows, in any order and all below `row_count`, as a row set."""
    if len(rows) <= _FEW_ROWS:
        return BitMap(rows.tolist())
    if _SPARSE * len(rows) < row_count:
        return row_set_of_ascending(np.sort(rows))
    flags = np.zeros(row_count, np.bool_)
    flags[rows] = True
    return row_set_of_bits(np.packbits(flags, bitorder="little").data, row_count)


def row_set_of_ascending(rows: npt.NDArray[np.integer]) -> BitMap:
    """Return ascending rows as a row set."""
    return BitMap(_numbers(rows))


def _numbers(rows: npt.NDArray[np.integer]) -> array[int]:
    """Return rows in the type that pyroaring reads without making an object per row."""
    numbers = array("I")
    numbers.frombytes(np.ascontiguousarray(rows, np.uint32).data.cast("B"))
    return numbers


def row_set_of_bits(bits: Buffer, row_count: int) -> BitMap:
    """Return the rows whose bit is set: bit `row & 7` of byte `row >> 3`."""
    padded = np.zeros(block_count(row_count) * BLOCK_BYTES, np.uint8)
    padded[: len(bits)] = np.frombuffer(bits, np.uint8)
    blocks = padded.reshape(-1, BLOCK_BYTES)
    counts = np.bitwise_count(blocks.view(np.uint64)).sum(axis=1, dtype=np.int64)
    is_dense = counts > _ARRAY_LIMIT
    dense = np.flatnonzero(is_dense)
    found = _set_of_blocks(blocks, dense, counts[dense]) if len(dense) else BitMap()
    if bool((~is_dense & (counts > 0)).any()):
        flat = np.where(is_dense[:, None], 0, blocks).reshape(-1) if len(dense) else blocks.reshape(-1)
        used = np.flatnonzero(flat)
        ones = np.flatnonzero(np.unpackbits(flat[used], bitorder="little").view(np.bool_))
        found |= row_set_of_ascending(used[ones >> 3] << 3 | ones & 7)
    return found


def serialize_bits(bits: Buffer) -> bytes:
    """Serialise the rows whose bit is set."""
    return _serialized(row_set_of_bits(bits, 8 * len(bits)))


def _set_of_blocks(blocks: Bytes, places: Ints, counts: Ints) -> BitMap:
    """Return the rows of some blocks, of more than `_ARRAY_LIMIT` rows each: their bits are those of containers."""
    described = np.column_stack((places, counts - 1)).astype("<u2")
    start = _HEADER_BYTES + 8 * len(places)
    offsets = start + BLOCK_BYTES * np.arange(len(places))
    parts = (np.array([_COOKIE, len(places)], "<u4"), described, offsets.astype("<u4"), blocks[places])
    return BitMap.deserialize(b"".join(part.tobytes() for part in parts))
