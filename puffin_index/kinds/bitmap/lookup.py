"""An opened bitmap payload of one row group: the body's row sets, read for entries; neighbours share a request."""

from __future__ import annotations

from functools import partial

import numpy as np
from pyroaring import BitMap

from puffin_index.errors import UnsupportedError
from puffin_index.keys.asked import AskedTest
from puffin_index.keys.columns import Column, KeyArray
from puffin_index.keys.leaf import LeafTest, NullTest, RangeTest, SetTest
from puffin_index.keys.value_types import is_form_of
from puffin_index.kinds.base import LookUp, OpenIndex, RowSet, StoredPayload
from puffin_index.kinds.bitmap.blob import LAYOUT_NUMBERS, NO_NULLS, VERSION
from puffin_index.kinds.bitmap.entries import Entries, RowSetPlaces, join_places
from puffin_index.kinds.held_keys import DistinctKeys, HoldsKeys, KeySets, are_few_keys
from puffin_index.kinds.postings.columns import column_of_codes, no_codes
from puffin_index.roaring import StoredSets, row_set_of
from puffin_index.storage.arrays import Ints
from puffin_index.storage.parts import CHECKSUM_BYTES, Part, check_layout, corrupt, parts_of, unsealed
from puffin_index.storage.ranged import Reading, at_once


class BitmapIndex(OpenIndex, HoldsKeys):
    """Answers any test from the entries of the tested values, and their row sets.

    Opening reads nothing, and raises UnsupportedError for a form of another type. All methods raise CorruptFileError if
    a row set leaves the body, breaks its seal, or is damaged.
    """

    def __init__(self, payload: StoredPayload) -> None:
        blob = payload.blob
        numbers = check_layout(blob, payload.layout, LAYOUT_NUMBERS)[1:LAYOUT_NUMBERS]
        form, version, header_end, checksum, body_start, null_offset, null_length = numbers
        if not is_form_of(form, payload.value_type):
            raise UnsupportedError(f"{blob.location}: form {form} is not one of a {payload.value_type.name} column")
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
