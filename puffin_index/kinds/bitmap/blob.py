"""Paimon's bitmap format, version 2, with seals: the row set of each value (docs/payloads.md, Bitmap; seed 001).

Paimon writes no seals and skips ours. Its bitmaps do not support binary, fixed, uuid and decimals of more than 18
digits, which are held here as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from puffin_index.errors import BuildError
from puffin_index.keys.columns import KeyArray, SortedColumn, chosen_keys
from puffin_index.keys.sorted_keys import bytes_of_keys, cut_blocks
from puffin_index.keys.value_types import DTYPES, form_of, to_stored, width_of
from puffin_index.roaring import serialize_row_sets
from puffin_index.storage.arrays import Bytes, Ints
from puffin_index.storage.binary import write_int32_be, write_uint8, write_uint32_be
from puffin_index.storage.parts import CHECKSUM_BYTES, LAYOUT_VERSION, checksum32

VERSION = 2
LAYOUT_NUMBERS = 8
NO_NULLS = -1
DEFAULT_BLOCK_BYTES = 16 * 1024
_MAXIMUM_BYTES = 2**31 - 1
_MAXIMUM_BLOCK_BYTES = 1024 * 1024
_SINGLE_ROW_SET_BYTES = 18


def serialize_bitmaps(ordered: SortedColumn, block_bytes: int | None) -> tuple[bytes, Ints]:
    """Return the blob of a column, and its layout.

    A block of entries has at most `block_bytes`; None balances the directory with the blocks, from 16 KiB up.
    """
    # Rows first: one sort makes rows and keys.
    rows, counts, column, nulls = ordered.rows, ordered.counts, ordered.column, ordered.column.null_rows
    several, has_null_set = counts > 1, len(nulls) > 1
    sets = serialize_row_sets(nulls, (0, len(nulls))) if has_null_set else []
    of_values = rows if several.all() else rows[np.repeat(several, counts)]
    sets += serialize_row_sets(of_values, [0, *np.cumsum(counts[several], dtype=np.int64).tolist()])
    set_lengths = np.array([len(one) for one in sets], np.int64)
    set_offsets = np.cumsum(set_lengths + CHECKSUM_BYTES) - (set_lengths + CHECKSUM_BYTES)
    # A value of one row has no set, but the row in place of an offset.
    offsets, lengths = -1 - rows[ordered.starts[:-1]].astype(np.int64), np.full(len(several), -1, np.int64)
    offsets[several], lengths[several] = set_offsets[has_null_set:], set_lengths[has_null_set:]

    form = form_of(column.value_type)
    directory, blocks = _write_blocks(form, ordered.keys, [offsets, lengths], block_bytes)
    blocks_bytes = sum(map(len, blocks)) + CHECKSUM_BYTES * len(blocks)
    size = len(directory) + blocks_bytes + int((set_lengths + CHECKSUM_BYTES).sum())
    if size > _MAXIMUM_BYTES:
        raise BuildError(
            f"the bitmaps of {len(several)} values take {size} bytes, {_MAXIMUM_BYTES} at most are possible"
        )
    null_offset, null_length = 0, NO_NULLS
    header = write_uint8(VERSION) + write_int32_be(column.row_count) + write_int32_be(len(several))
    header += write_uint8(int(len(nulls) > 0))
    if len(nulls):
        null_offset, null_length = (0, int(set_lengths[0])) if has_null_set else (-1 - int(nulls[0]), 0)
        header += write_int32_be(null_offset) + write_int32_be(null_length or _SINGLE_ROW_SET_BYTES)
    header += write_int32_be(len(blocks)) + directory + write_int32_be(blocks_bytes)
    sealed = (part for one in (*blocks, *sets) for part in (one, write_uint32_be(checksum32(one))))
    places = [len(header), checksum32(header), len(header) + blocks_bytes, null_offset, null_length]
    return b"".join((header, *sealed)), np.array([LAYOUT_VERSION, form, VERSION, *places], np.int64)


def _write_blocks(
    form: int, keys: KeyArray, numbers: Sequence[Ints], block_bytes: int | None
) -> tuple[bytes, list[bytes]]:
    """Encode keys with some numbers behind each; return the directory of the blocks, and the blocks without seals."""
    if isinstance(keys, np.ndarray):
        ends = (width_of(form) + 8) * np.arange(1, len(keys) + 1)
    else:
        ends = bytes_of_keys(keys)[1][1:] + 12 * np.arange(1, len(keys) + 1)
    starts = _first_entries(ends, block_bytes)
    bounds, content = np.append(0, ends)[starts], _with_numbers(form, keys, numbers)
    offsets = bounds[:-1] + (4 + CHECKSUM_BYTES) * np.arange(len(starts) - 1)
    places = zip(np.diff(starts).tolist(), pairwise(bounds.tolist()), strict=True)
    blocks = [write_int32_be(count) + content[begin:end].tobytes() for count, (begin, end) in places]
    return _with_numbers(form, chosen_keys(keys, starts[:-1]), [offsets]).tobytes(), blocks


def _first_entries(ends: Ints, block_bytes: int | None) -> Ints:
    """Return the first entry of each block, followed by the number of entries."""
    limit = block_bytes or DEFAULT_BLOCK_BYTES
    if block_bytes is None and len(ends):
        total = int(ends[-1])
        # A look-up reads directory and one block: blocks grow until the directory is no larger than a block.
        while limit < _MAXIMUM_BLOCK_BYTES and total / limit * (total / len(ends)) > limit:
            limit *= 2
    return cut_blocks(ends, max(limit - 4, 1))


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
