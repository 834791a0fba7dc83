"""An opened bitmap payload of one row group: entries, read block by block, and the body's row sets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from puffin_index.keys.asked import AskedTest
from puffin_index.keys.columns import Column, KeyArray, join_keys, sorted_keys_of
from puffin_index.keys.leaf import Key, LeafTest, NullTest, RangeTest, SetTest
from puffin_index.keys.sorted_keys import BytesKeys, IntKeys, SortedKeys, check_separators
from puffin_index.keys.value_types import BYTES, DTYPES, check_form, from_stored, width_of
from puffin_index.kinds.base import LookUp, OpenIndex, RowSet, StoredPayload
from puffin_index.kinds.bitmap.blob import LAYOUT_NUMBERS, NO_NULLS, VERSION
from puffin_index.kinds.held_keys import DistinctKeys, HoldsKeys, KeySets, are_few_keys
from puffin_index.kinds.postings.columns import column_of_codes, no_codes
from puffin_index.roaring import StoredSets, row_set_of
from puffin_index.storage.arrays import Ints, records_at
from puffin_index.storage.binary import ByteCursor
from puffin_index.storage.parts import CHECKSUM_BYTES, Part, check_layout, corrupt, parts_of, unsealed
from puffin_index.storage.ranged import Blob, Reading, at_once

Query: TypeAlias = tuple[Key, bool]
"""A key, and whether to look for the place after the key instead of before the key."""
Position: TypeAlias = tuple[int, int]
"""A block, and an entry in the block."""
Span: TypeAlias = tuple[Position, Position]
"""The entries from a position up to another one."""

RowSetPlaces: TypeAlias = Ints
"""Offsets of row sets in the body or -1 - row, and their lengths, undefined for a row: shape (2, row sets)."""
EntryTable: TypeAlias = tuple[SortedKeys, RowSetPlaces]
"""Entries by ascending key."""
BlockDirectory: TypeAlias = tuple[SortedKeys, tuple[Part, ...]]
"""The first key and the place of each block."""


def join_places(places: Iterable[RowSetPlaces]) -> RowSetPlaces:
    """Join the places of several blocks, or of none."""
    return np.concatenate([np.empty((2, 0), np.int64), *places], axis=1)


def _parse_header(blob: Blob, data: memoryview, row_count: int, form: int) -> BlockDirectory:
    """Parse the header of a blob, or raise CorruptFileError if it is not of this row group and version, and whole."""
    cursor = ByteCursor(data, blob.location, blob.offset)
    version = cursor.uint8()
    rows, value_count, has_null = cursor.int32_be(), cursor.int32_be(), cursor.uint8()
    if version != VERSION or rows != row_count or value_count < 0 or has_null > 1:
        raise corrupt(blob, f"bitmaps of {value_count} values and {rows} rows for a row group of {row_count}", 1)
    # The layout has the place of the NULL rows as well.
    cursor.bytes(8 * has_null)
    count = cursor.count(cursor.int32_be(), width_of(form) + 4, "blocks")
    keys, entries, used = _parse_entries(blob, data, cursor.position, count, form, [("offset", ">i4")])
    cursor.bytes(used)
    body_offset = cursor.int32_be()
    base = cursor.position
    places = list(pairwise([*entries["offset"].tolist(), body_offset]))
    if not 0 <= body_offset <= blob.length - base or any(low >= high for low, high in places):
        raise cursor.corrupt("blocks that overlap or leave the blob")
    return keys, tuple(Part(base + low, high - low) for low, high in places)


def _parse_block(blob: Blob, data: memoryview, offset: int, form: int) -> EntryTable:
    """Parse a block at an offset of the blob, and check the seal behind its entries."""
    if len(data) < 4 + CHECKSUM_BYTES:
        raise corrupt(blob, f"a block of {len(data)} bytes", offset)
    content = unsealed(blob, data, offset)
    count = ByteCursor(data, blob.location, blob.offset + offset).int32_be()
    keys, entries, used = _parse_entries(blob, content, 4, count, form, [("offset", ">i4"), ("length", ">i4")])
    if used != len(content) - 4:
        raise corrupt(blob, f"a block of {len(content)} bytes has {used} bytes of entries", offset)
    return keys, np.array([entries["offset"], entries["length"]], np.int64)


def _parse_entries(
    blob: Blob, data: memoryview, start: int, count: int, form: int, numbers: list[tuple[str, str]]
) -> tuple[SortedKeys, npt.NDArray[np.void], int]:
    """Parse consecutive keys with some numbers behind each; return both, and their total length in bytes.

    Raises CorruptFileError if the entries do not lie inside `data`.
    """
    tail = np.dtype(numbers)
    if count < 0 or count * ((width_of(form) or 4) + tail.itemsize) > len(data) - start:
        raise corrupt(blob, f"{count} entries in {len(data) - start} bytes", start)
    if form != BYTES:
        record = np.dtype([("key", DTYPES[form]), *numbers])
        entries = np.frombuffer(data, record, count, start)
        return IntKeys(from_stored(entries["key"], form)), entries, count * record.itemsize
    starts, ends = _chain(blob, data, start, count, tail.itemsize)
    entries = records_at(np.frombuffer(data, np.uint8), ends, tail)
    used = int(ends[-1]) + tail.itemsize - start if count else 0
    return BytesKeys(data, starts, ends), entries, used


def _chain(blob: Blob, data: memoryview, start: int, count: int, tail_bytes: int) -> tuple[Ints, Ints]:
    """Return the start and end of the bytes of each length-prefixed value."""
    starts: list[int] = []
    ends: list[int] = []
    for left in range(count, 0, -1):
        if start + 4 > len(data):
            raise corrupt(blob, f"{left} entries are missing", start)
        starts.append(start + 4)
        ends.append(start + 4 + int.from_bytes(data[start : start + 4], "big"))
        start = ends[-1] + tail_bytes
        if start > len(data):
            raise corrupt(blob, "an entry that is cut short", start)
    return np.array(starts, np.int64), np.array(ends, np.int64)


@dataclass(slots=True)
class Entries:
    """The entries of a blob, found by their keys: directory and blocks are read on demand, each once."""

    _blob: Blob
    _header: Part
    _row_count: int
    _form: int
    _known: BlockDirectory | None = None
    _tables: dict[int, EntryTable] = field(default_factory=dict)

    def with_keys(self, keys: Sequence[Key]) -> Reading[RowSetPlaces]:
        """Return the row sets of those keys that the blob has."""
        found = yield from self._find([(key, right) for key in keys for right in (False, True)])
        pairs = zip(found[0::2], found[1::2], strict=True)
        return (yield from self.places([(low, high) for low, high in pairs if low < high]))

    def between(self, low: Query | None, high: Query | None) -> Reading[tuple[list[Span], list[Span]]]:
        """Return the entries between two places, and all other entries."""
        found = yield from self._find([query for query in (low, high) if query is not None])
        first, last = (0, 0), (len(self._directory[1]), 0)
        start = first if low is None else found[0]
        end = max(start, last if high is None else found[-1])
        return [(start, end)], [(first, start), (end, last)]

    def every(self) -> Reading[EntryTable]:
        """Return all entries, in ascending order."""
        yield from self._open()
        first_keys, parts = self._directory
        yield from self._read(range(len(parts)))
        tables = [self._tables[block] for block in range(len(parts))]
        check_separators(self._blob, first_keys, [keys for keys, _ in tables])
        keys = join_keys([keys.array() for keys, _ in tables], self._form == BYTES)
        return sorted_keys_of(keys), join_places(places for _, places in tables)

    def cost(self, spans: Sequence[Span]) -> int:
        """Return the bytes of the blocks, plus the bytes of row sets in those blocks that are read already.

        The result is comparable only among spans of one blob.
        """
        cost = 0
        for block, chosen in _blocks_of(spans):
            table = self._tables.get(block)
            if table is None:
                cost += self._directory[1][block].length
            else:
                lengths = table[1][1, chosen]
                cost += int(lengths.clip(0).sum()) + len(lengths)
        return cost

    def places(self, spans: Sequence[Span]) -> Reading[RowSetPlaces]:
        """Return the row sets of some entries."""
        blocks = list(_blocks_of(spans))
        yield from self._read([block for block, _ in blocks])
        return join_places(self._tables[block][1][:, chosen] for block, chosen in blocks)

    @property
    def _directory(self) -> BlockDirectory:
        assert self._known is not None
        return self._known

    def _open(self) -> Reading[None]:
        if self._known is None:
            (data,) = yield from parts_of(self._blob, [self._header])
            self._known = _parse_header(self._blob, data, self._row_count, self._form)

    def _find(self, queries: Sequence[Query]) -> Reading[list[Position]]:
        yield from self._open()
        blocks = [self._directory[0].rank(key, True) - 1 for key, _ in queries]
        yield from self._read(sorted({block for block in blocks if block >= 0}))
        positions = [
            (block, self._tables[block][0].rank(key, right)) if block >= 0 else (0, 0)
            for block, (key, right) in zip(blocks, queries, strict=True)
        ]
        # The place after the last entry of a block is the place before the first entry of the next block.
        return [
            (block + 1, 0) if block in self._tables and index == len(self._tables[block][0]) else (block, index)
            for block, index in positions
        ]

    def _read(self, blocks: Sequence[int]) -> Reading[None]:
        missing = [block for block in blocks if block not in self._tables]
        parts = [self._directory[1][block] for block in missing]
        contents = yield from parts_of(self._blob, parts)
        read = zip(missing, parts, contents, strict=True)
        self._tables |= {block: _parse_block(self._blob, data, part.offset, self._form) for block, part, data in read}


def _blocks_of(spans: Sequence[Span]) -> Iterator[tuple[int, slice]]:
    """Yield the blocks of some entries, and which entries of each."""
    for start, end in spans:
        for block in range(start[0], end[0] + (end[1] > 0)):
            yield block, slice(start[1] if block == start[0] else 0, end[1] if block == end[0] else None)


class BitmapIndex(OpenIndex, HoldsKeys):
    """Answers any test from the entries of the tested values, and their row sets.

    Opening reads nothing, and raises UnsupportedError for a form of another type. All methods raise CorruptFileError if
    a row set leaves the body, breaks its seal, or is damaged.
    """

    def __init__(self, payload: StoredPayload) -> None:
        blob = payload.blob
        numbers = check_layout(blob, payload.layout, LAYOUT_NUMBERS)[1:LAYOUT_NUMBERS]
        form, version, header_end, checksum, body_start, null_offset, null_length = numbers
        check_form(form, payload.value_type, blob.location)
        if version != VERSION or not 0 < header_end <= body_start <= blob.length or null_length < NO_NULLS:
            raise corrupt(blob, "a layout that does not describe a bitmap blob")
        self._blob = blob
        self._value_type = payload.value_type
        self._row_count = payload.row_count
        self.entries = Entries(blob, Part(0, header_end, checksum), payload.row_count, form)
        self.body_start = body_start
        # For a single NULL row the offset is -1 - row, and the length 0.
        self._nulls_at = null_offset, null_length

    @property
    def nulls(self) -> RowSetPlaces:
        """The place of the NULL rows, if there are any."""
        offset, length = self._nulls_at
        return join_places(()) if length == NO_NULLS else np.array([[offset], [length]])

    def prepare(self, asked: AskedTest) -> Reading[LookUp]:
        """Prepare a test; nothing is read for that."""
        return at_once(LookUp((0, self._row_count), (3, self._blob.length), partial(self._rows, asked.test)))

    def _rows(self, test: LeafTest, candidates: BitMap | None) -> Reading[RowSet]:
        if candidates is not None and not candidates:
            return RowSet(BitMap(), True)
        if isinstance(test, NullTest):
            rows = yield from self._rows_of(self.nulls) if test.is_null else self._valid_rows()
        else:
            found, is_answer = yield from self._tested_rows(test)
            rows = found if is_answer else (yield from self._valid_rows()) - found
        return RowSet(rows if candidates is None else rows & candidates, True)

    def keys(self, most: int) -> Reading[KeyArray | None]:
        """Return the keys of the entries; None if there are more than `most`."""
        keys, _ = yield from self.entries.every()
        return None if len(keys) > most else keys.array()

    def keys_of(self, rows: BitMap | None) -> Reading[Column]:
        """Return the keys of some rows, decoded from the row sets of all values."""
        keys, places = yield from self.entries.every()
        stored = yield from self.sets(places)
        of_sets, sets = stored.rows(self._row_count)
        is_row = places[0] < 0
        found = np.concatenate((self._single_rows(places), of_sets))
        codes = no_codes(self._row_count, len(keys))
        codes[found] = np.concatenate((np.flatnonzero(is_row), np.flatnonzero(~is_row)[sets])) + 1
        is_null = codes == 0
        nulls = yield from self._rows_of(self.nulls)
        is_whole = len(found) + len(nulls) == self._row_count and np.count_nonzero(is_null) == len(nulls)
        if not is_whole or not is_null[np.frombuffer(nulls.to_array(), np.uint32)].all():
            raise corrupt(self._blob, "rows of two values, or of none")
        own = codes if rows is None else codes[np.frombuffer(rows.to_array(), np.uint32)]
        return column_of_codes(self._value_type, keys.array(), own)

    def sets_of(self) -> Reading[KeySets | None]:
        """Return the row set of each value; None if there are many values."""
        keys, places = yield from self.entries.every()
        if not are_few_keys(len(keys), self._row_count):
            return None
        stored = yield from self.sets(places)
        singles, others = iter(self._single_rows(places).tolist()), iter(stored.each(self._row_count))
        rows = [BitMap([next(singles)]) if offset < 0 else next(others) for offset in places[0].tolist()]
        nulls = yield from self._rows_of(self.nulls)
        counts = [len(own) for own in (*rows, nulls)]
        # The sets add up to all rows only if they are disjoint and leave no row out.
        if sum(counts) != self._row_count or len(BitMap.union(nulls, *rows)) != self._row_count or 0 in counts[:-1]:
            raise corrupt(self._blob, "rows of two values, or of none")
        return KeySets(self._value_type, keys.array(), rows, nulls)

    def distinct_of(self, rows: BitMap) -> Reading[DistinctKeys]:
        """Return the distinct keys of some rows; of all rows without reading a row set of a key."""
        if len(rows) < self._row_count:
            return (yield from super().distinct_of(rows))
        keys, _ = yield from self.entries.every()
        nulls = yield from self._rows_of(self.nulls)
        return keys.array(), self._row_count - len(nulls)

    def _valid_rows(self) -> Reading[BitMap]:
        nulls = yield from self._rows_of(self.nulls)
        return BitMap(range(self._row_count)) - nulls

    def _tested_rows(self, test: SetTest | RangeTest) -> Reading[tuple[BitMap, bool]]:
        """Return the rows of a test, or all other rows that are not NULL, and which of both."""
        if isinstance(test, SetTest):
            places = yield from self.entries.with_keys(test.keys)
            return (yield from self._rows_of(places)), not test.negated
        low = None if test.low is None else (test.low, not test.low_inclusive)
        high = None if test.high is None else (test.high, test.high_inclusive)
        inside, outside = yield from self.entries.between(low, high)
        # The cheaper entries are read: those inside the range, or those outside, whose rows are then subtracted.
        is_inside = self.entries.cost(inside) <= self.entries.cost(outside)
        places = yield from self.entries.places(inside if is_inside else outside)
        return (yield from self._rows_of(places)), is_inside != test.negated

    def _rows_of(self, places: RowSetPlaces) -> Reading[BitMap]:
        singles = row_set_of(self._single_rows(places), self._row_count)
        sets = yield from self.sets(places)
        return singles | sets.union(self._row_count)

    def _single_rows(self, places: RowSetPlaces) -> Ints:
        """Return the rows of entries of one row, or raise CorruptFileError if a row lies beyond the row group."""
        rows: Ints = -1 - places[0, places[0] < 0]
        if len(rows) and int(rows.max()) >= self._row_count:
            raise corrupt(self._blob, f"row {rows.max()} in a row group of {self._row_count} rows")
        return rows

    def sets(self, places: RowSetPlaces) -> Reading[StoredSets]:
        """Read the row sets of those entries that have several rows, in the order of the entries."""
        starts, lengths = places[:, places[0] >= 0] + [[0], [CHECKSUM_BYTES]]
        body_bytes = self._blob.length - self.body_start
        if len(starts) and (int(lengths.min()) <= CHECKSUM_BYTES or int((starts + lengths).max()) > body_bytes):
            raise corrupt(self._blob, f"a row set leaves a body of {body_bytes} bytes", self.body_start)
        parts = list(map(Part, (self.body_start + starts).tolist(), lengths.tolist()))
        contents = yield from parts_of(self._blob, parts)
        views = [unsealed(self._blob, data, part.offset) for part, data in zip(parts, contents, strict=True)]
        return StoredSets(views, self._blob.location, self._blob.offset + self.body_start)
