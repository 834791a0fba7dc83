"""Parse the entries of a bitmap blob, block by block: the values and the places of their row sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from puffin_index.keys.columns import join_keys, sorted_keys_of
from puffin_index.keys.sorted_keys import BytesKeys, IntKeys, SortedKeys
from puffin_index.keys.value_types import BYTES, dtype_of, from_stored, width_of
from puffin_index.kinds.bitmap.blob import VERSION
from puffin_index.storage.arrays import Ints
from puffin_index.storage.binary import ByteCursor, write_uint32_be
from puffin_index.storage.parts import CHECKSUM_BYTES, Part, checksum32, corrupt, read_parts
from puffin_index.storage.ranged import Blob

_WINDOW_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class EntryTable:
    """Entries by ascending key: offsets of row sets in the body or -1 - row, and their lengths, -1 for a row."""

    keys: SortedKeys
    offsets: Ints
    lengths: Ints


@dataclass(frozen=True, slots=True)
class BlockDirectory:
    """The first key and the place of each block."""

    keys: SortedKeys
    parts: tuple[Part, ...]


def parse_header(blob: Blob, data: memoryview, row_count: int, form: int) -> BlockDirectory:
    """Parse the header of a blob.

    Raises CorruptFileError if the header is cut short, of another row group or version, or describes no blocks.
    """
    cursor = ByteCursor(data, blob.location, blob.offset)
    version = cursor.uint8()
    rows, value_count, has_null = cursor.int32_be(), cursor.int32_be(), cursor.uint8()
    if version != VERSION or rows != row_count or value_count < 0 or has_null > 1:
        raise corrupt(blob, f"bitmaps of {value_count} values and {rows} rows for a row group of {row_count}", 1)
    # The layout has the place of the NULL rows as well.
    cursor.bytes(8 * has_null)
    count = cursor.count(cursor.int32_be(), width_of(form) + 4, "blocks")
    table, used = parse_entries(blob, data, cursor.position, count, form, with_lengths=False)
    cursor.bytes(used)
    body_offset = cursor.int32_be()
    base = cursor.position
    offsets = table.offsets.tolist()
    if not 0 <= body_offset <= blob.length - base or any(
        low >= high for low, high in pairwise([*offsets, body_offset])
    ):
        raise cursor.corrupt("blocks that overlap or leave the blob")
    parts = tuple(Part(base + low, high - low) for low, high in pairwise([*offsets, body_offset]))
    return BlockDirectory(table.keys, parts if offsets else ())


def read_blocks(blob: Blob, parts: Sequence[Part], form: int) -> list[EntryTable]:
    """Read and parse blocks; neighbours share a request."""
    return [
        _parse_block(blob, data, part.offset, form) for part, data in zip(parts, read_parts(blob, parts), strict=True)
    ]


def _parse_block(blob: Blob, data: memoryview, offset: int, form: int) -> EntryTable:
    """Parse a block at an offset of the blob, and check the seal behind its entries."""
    if len(data) < 4 + CHECKSUM_BYTES:
        raise corrupt(blob, f"a block of {len(data)} bytes", offset)
    content = data[: len(data) - CHECKSUM_BYTES]
    if write_uint32_be(checksum32(content)) != data[len(content) :]:
        raise corrupt(blob, "the bytes do not have their checksum", offset)
    count = ByteCursor(data, blob.location, blob.offset + offset).int32_be()
    table, used = parse_entries(blob, content, 4, count, form, with_lengths=True)
    if used != len(content) - 4:
        raise corrupt(blob, f"a block of {len(content)} bytes has {used} bytes of entries", offset)
    return table


def parse_entries(
    blob: Blob, data: memoryview, start: int, count: int, form: int, *, with_lengths: bool
) -> tuple[EntryTable, int]:
    """Parse consecutive entries; return the entries and their total length in bytes.

    Entries stored without lengths get the length -1. Raises CorruptFileError if the entries do not lie inside `data`.
    """
    numbers = [("offset", ">i4"), ("length", ">i4")] if with_lengths else [("offset", ">i4")]
    tail = np.dtype(numbers)
    if count < 0 or count * ((width_of(form) or 4) + tail.itemsize) > len(data) - start:
        raise corrupt(blob, f"{count} entries in {len(data) - start} bytes", start)
    if form != BYTES:
        record = np.dtype([("key", dtype_of(form)), *numbers])
        entries = np.frombuffer(data, record, count, start)
        return _table(IntKeys(from_stored(entries["key"], form)), entries), count * record.itemsize
    starts, ends = _chain(blob, data, start, count, tail.itemsize)
    entries = _records(data, ends, tail)
    used = int(ends[-1]) + tail.itemsize - start if count else 0
    return _table(BytesKeys(data, starts, ends), entries), used


def _table(keys: SortedKeys, entries: npt.NDArray[np.void]) -> EntryTable:
    offsets = entries["offset"].astype(np.int64)
    names = entries.dtype.names or ()
    lengths = entries["length"].astype(np.int64) if "length" in names else np.full(len(entries), -1, np.int64)
    return EntryTable(keys, offsets, lengths)


def _records(data: memoryview, places: Ints, record: np.dtype[np.void]) -> npt.NDArray[np.void]:
    """Copy records from arbitrary, also unaligned, places."""
    if not len(places):
        return np.empty(0, record)
    raw = np.frombuffer(data, np.uint8)[places[:, None] + np.arange(record.itemsize)]
    return np.ascontiguousarray(raw).view(record).reshape(-1)


def _chain(blob: Blob, data: memoryview, start: int, count: int, tail_bytes: int) -> tuple[Ints, Ints]:
    """Return the start and end of the bytes of each length-prefixed value.

    Only the length of a value tells where the next value begins. To avoid a loop over values, the search handles a
    window of bytes at once: it computes for every byte where a value beginning there would lead, then follows these
    leads in steps of 1, 2, 4, ... values (`_follow`).
    """
    raw = np.frombuffer(data, np.uint8)
    found: list[Ints] = []
    position, missing = start, count
    while missing:
        if position + 4 > len(data):
            raise corrupt(blob, f"{missing} entries are missing", position)
        window = raw[position : position + _WINDOW_BYTES + 3]
        wide = np.pad(window[: len(window)], (0, 3)).astype(np.int64)
        lengths = (wide[:-3] << 24) | (wide[1:-2] << 16) | (wide[2:-1] << 8) | wide[3:]
        span = min(len(window) - 3, _WINDOW_BYTES)
        places = _follow(np.arange(span) + 4 + lengths[:span] + tail_bytes, missing)
        last = int(places[-1])
        found.append(places + position)
        missing -= len(places)
        position += last + 4 + int(lengths[last]) + tail_bytes
        if position > len(data):
            raise corrupt(blob, "an entry that is cut short", position)
    if not found:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    places = np.concatenate(found)
    lengths = _records(data, places, np.dtype([("length", ">i4")]))["length"].astype(np.int64)
    return places + 4, places + 4 + lengths


def _follow(leads: Ints, limit: int) -> Ints:
    """Return place 0 and the places it leads to, one after the other, up to the end of the window or `limit` places.

    Each round doubles the known places: `jump` leads as many values ahead as there are known places.
    """
    outside = len(leads)
    jump = np.append(np.minimum(leads, outside), outside)
    places = np.zeros(1, np.int64)
    while len(places) < limit and places[-1] < outside:
        places = np.concatenate((places, jump[places]))
        jump = jump[jump]
    return places[places < outside][:limit]


def join_tables(tables: Sequence[EntryTable], form: int) -> EntryTable:
    """Join the entries of some blocks."""
    if len(tables) == 1:
        return tables[0]
    return EntryTable(
        sorted_keys_of(join_keys([table.keys.array() for table in tables], form == BYTES)),
        np.concatenate([np.empty(0, np.int64), *(table.offsets for table in tables)]),
        np.concatenate([np.empty(0, np.int64), *(table.lengths for table in tables)]),
    )
