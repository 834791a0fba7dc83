"""An opened bitmap payload of one row group: the entries of values, by the block directory or among all."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from pyroaring import BitMap

from puffin_index.errors import UnsupportedError
from puffin_index.keys.columns import Column, KeyArray
from puffin_index.keys.leaf import Key, LeafTest, NullTest, RangeTest, SetTest
from puffin_index.keys.value_types import ValueType, is_form_of
from puffin_index.kinds.base import RowSet, StoredPayload
from puffin_index.kinds.bitmap.blob import LAYOUT_NUMBERS, NO_NULLS, VERSION
from puffin_index.kinds.bitmap.entries import (
    BlockDirectory,
    EntryTable,
    join_tables,
    parse_header,
    read_blocks,
)
from puffin_index.kinds.bitmap.rows import BitmapBody, RowSetPlaces
from puffin_index.kinds.held_keys import DistinctKeys, HoldsKeys, KeySets, are_few_keys
from puffin_index.kinds.postings.columns import column_of_codes, no_codes
from puffin_index.storage.parts import Part, check_layout, corrupt, read_parts
from puffin_index.storage.ranged import Blob

Query: TypeAlias = tuple[Key, bool]
"""A key, and whether to look for the place after the key instead of before the key."""
Position: TypeAlias = tuple[int, int]
"""A block, and an entry in the block."""


@dataclass(frozen=True, slots=True)
class EntryRange:
    """A range of entries to be read, and about the effort, comparable only among ranges of one blob."""

    cost: int
    entries: Callable[[], RowSetPlaces]


class Entries:
    """The entries of a blob, found by their keys: directory and blocks are read on demand, each once."""

    def __init__(self, blob: Blob, header: Part, row_count: int, form: int) -> None:
        self._blob = blob
        self._header = header
        self._row_count = row_count
        self._form = form
        self._known: BlockDirectory | None = None
        self._tables: dict[int, EntryTable] = {}

    def with_keys(self, keys: Sequence[Key]) -> RowSetPlaces:
        """Return the row sets of those keys that the blob has."""
        places = self._find([(key, right) for key in keys for right in (False, True)])
        return RowSetPlaces.joined(
            [self._places(low, high) for low, high in zip(places[0::2], places[1::2], strict=True) if low < high]
        )

    def between(self, low: Query | None, high: Query | None) -> tuple[EntryRange, EntryRange]:
        """Return the entries between two places, and all other entries."""
        queries = [query for query in (low, high) if query is not None]
        found = self._find(queries)
        first, last = (0, 0), (len(self._directory.parts), 0)
        start = first if low is None else found[0]
        end = max(start, last if high is None else found[-1])
        return (
            EntryRange(self._cost(start, end), lambda: self._places(start, end)),
            EntryRange(
                self._cost(first, start) + self._cost(end, last),
                lambda: RowSetPlaces.joined([self._places(first, start), self._places(end, last)]),
            ),
        )

    def every(self) -> EntryTable:
        """Return all entries, in ascending order."""
        blocks = range(len(self._directory.parts))
        self._read(blocks)
        return join_tables([self._tables[block] for block in blocks], self._form)

    @property
    def _directory(self) -> BlockDirectory:
        if self._known is None:
            data = read_parts(self._blob, [self._header])[0]
            self._known = parse_header(self._blob, data, self._row_count, self._form)
        return self._known

    def _find(self, queries: Sequence[Query]) -> list[Position]:
        directory = self._directory
        blocks = [directory.keys.rank(key, True) - 1 for key, _ in queries]
        self._read(sorted({block for block in blocks if block >= 0}))
        positions = [
            (block, self._tables[block].keys.rank(key, right)) if block >= 0 else (0, 0)
            for block, (key, right) in zip(blocks, queries, strict=True)
        ]
        # The place after the last entry of a block is the place before the first entry of the next block.
        return [
            (block + 1, 0) if block in self._tables and index == len(self._tables[block].offsets) else (block, index)
            for block, index in positions
        ]

    def _cost(self, start: Position, end: Position) -> int:
        """Return the bytes of the blocks, plus the bytes of row sets in those blocks that are read already."""
        blocks = range(start[0], end[0] + (end[1] > 0))
        cost = 0
        for block in blocks:
            table = self._tables.get(block)
            if table is None:
                cost += self._directory.parts[block].length
            else:
                chosen = table.lengths[start[1] if block == start[0] else 0 : end[1] if block == end[0] else None]
                cost += int(chosen.clip(0).sum()) + len(chosen)
        return cost

    def _places(self, start: Position, end: Position) -> RowSetPlaces:
        if start >= end:
            return RowSetPlaces.none()
        blocks = range(start[0], end[0] + (end[1] > 0))
        self._read(blocks)
        tables = [self._tables[block] for block in blocks]
        offsets = np.concatenate([table.offsets for table in tables])
        lengths = np.concatenate([table.lengths for table in tables])
        tail = len(tables[-1].offsets) - end[1] if end[1] else 0
        chosen = slice(start[1], len(offsets) - tail)
        return RowSetPlaces(offsets[chosen], lengths[chosen])

    def _read(self, blocks: Sequence[int]) -> None:
        missing = [block for block in blocks if block not in self._tables]
        parts = [self._directory.parts[block] for block in missing]
        self._tables.update(zip(missing, read_blocks(self._blob, parts, self._form), strict=True))


def open_entries(payload: StoredPayload) -> tuple[Entries, BitmapBody]:
    """Open a bitmap blob by its layout, without reading it."""
    blob, row_count = payload.blob, payload.row_count
    numbers = check_layout(blob, payload.layout, LAYOUT_NUMBERS)[1:LAYOUT_NUMBERS]
    form, version, header_end, checksum, body_start, null_offset, null_length = numbers
    if not is_form_of(form, payload.value_type):
        raise UnsupportedError(f"{blob.location}: form {form} is not one of a {payload.value_type.name} column")
    if version != VERSION or not 0 < header_end <= body_start <= blob.length or null_length < NO_NULLS:
        raise corrupt(blob, "a layout that does not describe a bitmap blob")
    body = BitmapBody(blob, body_start, row_count, null_offset, null_length)
    return Entries(blob, Part(0, header_end, checksum), row_count, form), body


class BitmapIndex(HoldsKeys):
    """Answers any test from the entries of the tested values."""

    def __init__(self, entries: Entries, body: BitmapBody, row_count: int, value_type: ValueType) -> None:
        self._value_type = value_type
        self._entries = entries
        self._body = body
        self._row_count = row_count

    def evaluate(self, test: LeafTest, candidates: BitMap | None = None) -> RowSet:
        """Return the rows that satisfy `test`, among the candidates."""
        if candidates is not None and not candidates:
            return RowSet(BitMap(), True)
        if isinstance(test, NullTest):
            rows = self._body.null_rows() if test.is_null else self._valid_rows()
        else:
            rows = self._set_rows(test) if isinstance(test, SetTest) else self._range_rows(test)
        return RowSet(rows if candidates is None else rows & candidates, True)

    def keys(self, most: int) -> KeyArray | None:
        """Return the keys of the entries; None if there are more than `most`."""
        keys = self._entries.every().keys
        return None if len(keys) > most else keys.array()

    def keys_of(self, rows: BitMap | None) -> Column:
        """Return the keys of some rows, decoded from the row sets of all values."""
        table = self._entries.every()
        found, entries = self._body.rows_by_entry(RowSetPlaces(table.offsets, table.lengths))
        codes = no_codes(self._row_count, len(table.offsets))
        codes[found] = entries + 1
        is_null = codes == 0
        nulls = self._body.null_rows()
        is_whole = len(found) + len(nulls) == self._row_count and np.count_nonzero(is_null) == len(nulls)
        if not is_whole or not is_null[np.frombuffer(nulls.to_array(), np.uint32)].all():
            raise corrupt(self._body.blob, "rows of two values, or of none")
        own = codes if rows is None else codes[np.frombuffer(rows.to_array(), np.uint32)]
        return column_of_codes(self._value_type, table.keys.array(), own)

    def sets_of(self) -> KeySets | None:
        """Return the row set of each value; None if there are many values."""
        table = self._entries.every()
        if not are_few_keys(len(table.offsets), self._row_count):
            return None
        rows, nulls = self._body.set_of_each(RowSetPlaces(table.offsets, table.lengths)), self._body.null_rows()
        counts = [len(own) for own in (*rows, nulls)]
        # The sets add up to all rows only if they are disjoint and leave no row out.
        if sum(counts) != self._row_count or len(BitMap.union(nulls, *rows)) != self._row_count or 0 in counts[:-1]:
            raise corrupt(self._body.blob, "rows of two values, or of none")
        return KeySets(self._value_type, table.keys.array(), rows, nulls)

    def distinct_of(self, rows: BitMap) -> DistinctKeys:
        """Return the distinct keys of some rows; of all rows without reading a row set of a key."""
        if len(rows) < self._row_count:
            return super().distinct_of(rows)
        keys = self._entries.every().keys
        return DistinctKeys(keys.array(), self._row_count - len(self._body.null_rows()))

    def _valid_rows(self) -> BitMap:
        return BitMap(range(self._row_count)) - self._body.null_rows()

    def _set_rows(self, test: SetTest) -> BitMap:
        found = self._body.rows_of(self._entries.with_keys(test.keys))
        return self._valid_rows() - found if test.negated else found

    def _range_rows(self, test: RangeTest) -> BitMap:
        low = None if test.low is None else (test.low, not test.low_inclusive)
        high = None if test.high is None else (test.high, test.high_inclusive)
        inside, outside = self._entries.between(low, high)
        # The cheaper entries are read: those inside the range, or those outside, whose rows are then subtracted.
        if inside.cost <= outside.cost:
            found = self._body.rows_of(inside.entries())
            return self._valid_rows() - found if test.negated else found
        found = self._body.rows_of(outside.entries())
        return found if test.negated else self._valid_rows() - found
