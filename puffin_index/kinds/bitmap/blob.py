"""Paimon's bitmap format, version 2, with seals: the row set of each value (docs/formats.md, Bitmap; seed 001).

Paimon writes no seals and skips ours. Its bitmaps do not support binary, fixed, uuid and decimals of more than 18
digits, which are held here as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from puffin_index.errors import BuildError
from puffin_index.keys.columns import KeyArray, SortedColumn, chosen_keys
from puffin_index.keys.sorted_keys import bytes_of_keys, cut_blocks
from puffin_index.keys.value_types import DTYPES, form_of, to_stored, width_of
from puffin_index.roaring.write import SerializedSets, serialize_row_sets
from puffin_index.storage.arrays import Bytes, Flags, Ints, Rows
from puffin_index.storage.binary import write_int32_be, write_uint8, write_uint32_be
from puffin_index.storage.parts import CHECKSUM_BYTES, LAYOUT_VERSION, checksum32

VERSION = 2
LAYOUT_NUMBERS = 8
NO_NULLS = -1
DEFAULT_BLOCK_BYTES = 16 * 1024
_MAXIMUM_BYTES = 2**31 - 1
_MAXIMUM_BLOCK_BYTES = 1024 * 1024
_SINGLE_ROW_SET_BYTES = 18
_BLOCKS_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class _Entries:
    """The entries of all distinct values, by first row, and which have several; writing computes offsets and lengths.

    Offsets are of row sets in the body, only of keys with several rows, followed by its end.
    """

    form: int
    keys: KeyArray
    first_rows: Rows
    several: Flags
    offsets: Ints

    def __len__(self) -> int:
        return len(self.first_rows)


def serialize_bitmaps(ordered: SortedColumn, block_bytes: int | None) -> tuple[memoryview, Ints]:
    """Return the blob of a column, and its layout.

    A block of entries has at most `block_bytes`; None balances the directory with the blocks, from 16 KiB up.
    """
    column, nulls = ordered.column, ordered.column.null_rows
    entries, sets = _entries(ordered, nulls if len(nulls) > 1 else nulls[:0])
    head = write_uint8(VERSION) + write_int32_be(column.row_count) + write_int32_be(len(entries))
    head += write_uint8(int(len(nulls) > 0))
    null_offset, null_length = 0, NO_NULLS
    if len(nulls):
        is_set = len(nulls) > 1
        null_offset, null_length = (0, int(sets.offsets[1]) - CHECKSUM_BYTES) if is_set else (-1 - int(nulls[0]), 0)
        head += write_int32_be(null_offset) + write_int32_be(null_length or _SINGLE_ROW_SET_BYTES)
    data, header_end = _write_blocks(head, entries, len(sets.data), block_bytes)
    body_start = len(data) - len(sets.data)
    data[body_start:] = sets.data
    checksum = checksum32(data[:header_end].data)
    layout = [LAYOUT_VERSION, entries.form, VERSION, header_end, checksum, body_start, null_offset, null_length]
    return data.data, np.array(layout, np.int64)


def _entries(ordered: SortedColumn, nulls: Rows) -> tuple[_Entries, SerializedSets]:
    """Return the entries, and the row sets of some NULL rows, if any, and of values with several rows."""
    rows, counts = ordered.rows, ordered.counts
    several = counts > 1
    chosen, lengths = rows if several.all() else rows[np.repeat(several, counts)], counts[several]
    if len(nulls):
        chosen, lengths = np.concatenate((nulls, chosen)), np.append(len(nulls), lengths)
    sets = serialize_row_sets(chosen, np.append(0, np.cumsum(lengths, dtype=np.int64)), CHECKSUM_BYTES)
    _check_size(len(sets.data), ordered.distinct_count)
    # The checksum of each set stands in the gap behind the set.
    starts, ends = sets.offsets[:-1], sets.offsets[1:] - CHECKSUM_BYTES
    view, places = sets.data.data, zip(starts.tolist(), ends.tolist(), strict=True)
    seals = np.array([checksum32(view[start:end]) for start, end in places], ">u4")
    sets.data[ends[:, None] + np.arange(CHECKSUM_BYTES)] = seals.view(np.uint8).reshape(-1, CHECKSUM_BYTES)
    offsets = sets.offsets[1:] if len(nulls) else sets.offsets
    form = form_of(ordered.column.value_type)
    return _Entries(form, ordered.keys, rows[ordered.starts[:-1]], several, offsets), sets


def _check_size(size: int, value_count: int) -> None:
    if size > _MAXIMUM_BYTES:
        raise BuildError(
            f"the bitmaps of {value_count} values take {size} bytes, {_MAXIMUM_BYTES} at most are possible"
        )


def _write_blocks(head: bytes, entries: _Entries, body_bytes: int, block_bytes: int | None) -> tuple[Bytes, int]:
    """Encode header and blocks, with room for the body; return the data and the end of the header."""
    numbers = np.arange(1, len(entries) + 1)
    if isinstance(entries.keys, np.ndarray):
        ends = (width_of(entries.form) + 8) * numbers
    else:
        ends = bytes_of_keys(entries.keys)[1][1:] + 12 * numbers
    starts = _first_entries(ends, block_bytes)
    counts = np.diff(starts)
    bounds = np.append(0, ends)[starts]
    offsets = bounds + (4 + CHECKSUM_BYTES) * np.arange(len(starts))
    directory = _with_numbers(entries.form, chosen_keys(entries.keys, starts[:-1]), [offsets[:-1]])
    header = head + write_int32_be(len(counts)) + directory.tobytes() + write_int32_be(int(offsets[-1]))
    size = len(header) + int(offsets[-1]) + body_bytes
    _check_size(size, len(entries))
    data = np.empty(size, np.uint8)
    data[: len(header)] = np.frombuffer(header, np.uint8)
    # A limited number of blocks at a time bounds the memory of joined entries.
    for first in range(0, len(counts), _BLOCKS_AT_ONCE):
        last = min(first + _BLOCKS_AT_ONCE, len(counts))
        stream = _joined(entries, slice(int(starts[first]), int(starts[last])))
        for block in range(first, last):
            begin, end = len(header) + int(offsets[block]), len(header) + int(offsets[block + 1])
            content = data[begin : end - CHECKSUM_BYTES]
            content[:4] = np.frombuffer(write_int32_be(int(counts[block])), np.uint8)
            content[4:] = stream[bounds[block] - bounds[first] : bounds[block + 1] - bounds[first]]
            data[end - CHECKSUM_BYTES : end] = np.frombuffer(write_uint32_be(checksum32(content.data)), np.uint8)
    return data, len(header)


def _first_entries(ends: Ints, block_bytes: int | None) -> Ints:
    """Return the first entry of each block, followed by the number of entries."""
    limit = block_bytes or DEFAULT_BLOCK_BYTES
    if block_bytes is None and len(ends):
        total = int(ends[-1])
        # A look-up reads directory and one block: blocks grow until the directory is no larger than a block.
        while limit < _MAXIMUM_BLOCK_BYTES and total / limit * (total / len(ends)) > limit:
            limit *= 2
    return cut_blocks(ends, max(limit - 4, 1))


def _joined(entries: _Entries, chosen: slice) -> Bytes:
    several = entries.several[chosen]
    offsets = -1 - entries.first_rows[chosen].astype(np.int32)
    lengths = np.full(len(several), -1, np.int32)
    if several.any():
        before = int(np.count_nonzero(entries.several[: chosen.start]))
        bounds = entries.offsets[before : before + np.count_nonzero(several) + 1]
        offsets[several] = bounds[:-1]
        lengths[several] = np.diff(bounds) - CHECKSUM_BYTES
    return _with_numbers(entries.form, entries.keys[chosen], [offsets, lengths])


def _with_numbers(form: int, keys: KeyArray, numbers: Sequence[npt.NDArray[np.integer]]) -> Bytes:
    """Encode keys, with some numbers behind each."""
    if not isinstance(keys, np.ndarray):
        key_lengths = np.diff(bytes_of_keys(keys)[1]).astype(">i4")
        tail = np.stack(numbers, axis=1).astype(">i4")
        parts = _fixed_width(key_lengths), keys, _fixed_width(tail), pa.scalar(b"", pa.large_binary())
        return bytes_of_keys(pc.binary_join_element_wise(*parts))[0]
    fields = [("key", DTYPES[form]), *((f"number{index}", np.dtype(">i4")) for index in range(len(numbers)))]
    joined = np.empty(len(keys), fields)
    joined["key"] = to_stored(keys, form)
    for index, values in enumerate(numbers):
        joined[f"number{index}"] = values
    return joined.view(np.uint8)


def _fixed_width(values: npt.NDArray[np.generic]) -> pa.LargeBinaryArray:
    """Return the bytes of each element of an array as a byte string."""
    width = values.nbytes // max(len(values), 1)
    offsets = np.arange(len(values) + 1, dtype=np.int64) * width
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(values).view(np.uint8))]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(values), buffers)
