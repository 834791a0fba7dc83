"""Row sets as flat bits: bit `row & 7` of byte `row >> 3`, padded to whole blocks of 65,536 rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from puffin_index.errors import CorruptFileError
from puffin_index.roaring.union import BrokenSetError, array_rows, parse_containers, require, run_rows
from puffin_index.roaring.write import ARRAY_LIMIT, BLOCK_BYTES, BLOCK_ROWS, block_count
from puffin_index.storage.arrays import Bytes, Ints
from puffin_index.storage.binary import Buffer


def bits_of_sets(contents: Sequence[Buffer], row_count: int, *, location: str = "<bytes>", offset: int = 0) -> Bytes:
    """Return serialised row sets as bits.

    Args:
        contents: The bytes of each set in the portable roaring format.
        row_count: The limit that every row must be below.
        location: The file, for error messages.
        offset: The start of the first set in the file, for error messages.

    Returns:
        Shape (sets, bytes).

    Raises:
        CorruptFileError: If a set is damaged.
    """
    lengths = np.array([len(content) for content in contents], np.int64)
    # A reader of the first numbers of a set may look at eight bytes.
    raw = np.frombuffer(b"".join((*contents, bytes(8))), np.uint8)
    starts = np.cumsum(lengths) - lengths
    try:
        return _bits(raw, starts, starts + lengths, row_count)
    except BrokenSetError as error:
        raise CorruptFileError(f"not a row set: {error}", location=location, offset=offset) from error


def _bits(raw: Bytes, starts: Ints, ends: Ints, row_count: int) -> Bytes:
    blocks = block_count(row_count)
    bits = np.zeros((len(starts), blocks * BLOCK_BYTES), np.uint8)
    containers = parse_containers(raw, starts, ends)
    require(containers.bases < blocks * BLOCK_ROWS, f"rows beyond {row_count}")
    is_bitset = ~containers.are_runs & (containers.cardinalities > ARRAY_LIMIT)
    require(
        containers.starts[is_bitset] + BLOCK_BYTES <= containers.ends_of_sets[is_bitset], "a container is cut short"
    )
    places = (containers.sets * bits.shape[1] + containers.bases // 8)[is_bitset].tolist()
    flat = bits.reshape(-1)
    for place, start in zip(places, containers.starts[is_bitset].tolist(), strict=True):
        flat[place : place + BLOCK_BYTES] = raw[start : start + BLOCK_BYTES]
    others = () if is_bitset.all() else (array_rows(raw, containers), run_rows(raw, containers))
    for rows, sets in others:
        # Rows of a set are distinct, so that adding their bits is uniting them.
        np.add.at(flat, sets * bits.shape[1] + (rows >> 3), (1 << (rows & 7)).astype(np.uint8))
    expected = np.bincount(containers.sets, containers.cardinalities, len(starts))
    if not np.array_equal(popcount(bits), expected):
        raise BrokenSetError("rows of another number")
    beyond = bits[:, row_count >> 3 :]
    if beyond.shape[1] and ((beyond[:, 0] >> (row_count & 7)).any() or beyond[:, 1:].any()):
        last = np.flatnonzero(np.unpackbits(np.bitwise_or.reduce(bits, axis=0), bitorder="little"))[-1]
        raise BrokenSetError(f"row {last} in a row group of {row_count} rows")
    return bits


def popcount(bits: Bytes) -> Ints:
    """Count the set bits along the last axis, whose length is a multiple of 8."""
    counts: Ints = np.bitwise_count(bits.view(np.uint64)).sum(axis=-1, dtype=np.int64)
    return counts


def every_bit(row_count: int) -> Bytes:
    """Return the bits of all rows."""
    bits = np.zeros(block_count(row_count) * BLOCK_BYTES, np.uint8)
    bits[: row_count >> 3] = 0xFF
    if row_count & 7:
        bits[row_count >> 3] = (1 << (row_count & 7)) - 1
    return bits
