"""The blob type `puffin-index-postings-v1`: the rows of a segment's keys, sorted by key (docs/formats.md, Postings).

Looking up a key takes the root, one page (if there are pages) and one block. A range takes either all blocks from its
lower to its upper bound or all other blocks, whichever are fewer bytes. Rows of rare keys are runs, several keys a
block: one roaring bitmap per value would take 7 to 14 bytes a row. Rows of frequent keys are row sets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from puffin_index.errors import CorruptFileError, UnsupportedError
from puffin_index.keys.asked import AskedTest
from puffin_index.keys.columns import Column, KeyArray, join_keys
from puffin_index.keys.leaf import NullTest, SetTest
from puffin_index.kinds.base import LookUp, OpenIndex, RowSet, StoredPayload
from puffin_index.kinds.held_keys import HoldsKeys, KeyCounts, KeySets, are_few_keys
from puffin_index.kinds.postings.columns import (
    CodedRows,
    KeyRows,
    RowsWithin,
    code_rows,
    key_counts,
    key_rows,
    rows_of_keys,
)
from puffin_index.kinds.postings.directory import (
    BLOCKS_AT_ONCE,
    Cuts,
    PostingsDirectory,
    bounds_of,
    cost_of_blocks,
    cuts_at,
)
from puffin_index.kinds.postings.keys import AskedBlocks
from puffin_index.kinds.postings.parse import ParsedBlocks, parse_blocks, read_blocks
from puffin_index.kinds.postings.sort import RowNumbers
from puffin_index.roaring import StoredSets, deserialize, row_set_of
from puffin_index.storage.arrays import Ints
from puffin_index.storage.parts import Part, check_layout, corrupt, parts_of
from puffin_index.storage.ranged import Reading, at_once, run

_LAYOUT_NUMBERS = 10
_NO_BLOCKS = np.empty(0, np.int64)
_ROWS_AT_ONCE = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """The blocks to read for a test, and the places in them; with `subtract`, the answer is all other non-NULL rows."""

    cuts: Cuts
    blocks: Ints
    subtract: bool
    cost: tuple[int, int]


class Postings(OpenIndex, HoldsKeys):
    """Answer any test with rows of the segment's row space. Memory keeps the directory once read, but no blocks.

    Safe to share. Raises UnsupportedError for another version or domain, CorruptFileError for another layout.
    """

    def __init__(self, payload: StoredPayload) -> None:
        blob, value_type = payload.blob, payload.value_type
        row_numbers = RowNumbers.of(payload.spans)
        numbers = check_layout(blob, payload.layout, _LAYOUT_NUMBERS)[1:_LAYOUT_NUMBERS]
        form, row_count, null_count, groups_sum, nulls_from, nulls_sum, pages_from, root_from, root_sum = numbers
        self._is_bytes = value_type.domain == "bytes"
        if form != self._is_bytes:
            raise UnsupportedError(f"{blob.location}: postings of form {form} are none of a {value_type.name} column")
        if not 0 <= nulls_from <= pages_from <= root_from <= blob.length or min(row_count, null_count) < 0:
            raise corrupt(blob, "a layout that describes no postings blob")
        if row_count + null_count != row_numbers.row_count or groups_sum != row_numbers.checksum:
            raise corrupt(blob, "postings of other row groups")
        self._blob = blob
        self._numbers = row_numbers
        self._value_type = value_type
        self._counts = (row_count, null_count)
        self._nulls_part = Part(nulls_from, pages_from - nulls_from, nulls_sum)
        root = Part(root_from, blob.length - root_from, root_sum)
        self.directory = PostingsDirectory(blob, root, self._is_bytes, nulls_from, row_count)
        self._nulls: BitMap | None = BitMap() if null_count == 0 else None

    @property
    def nbytes(self) -> int:
        """The approximate memory in bytes, including the read part of the directory."""
        nulls = 0 if self._nulls is None else self._nulls_part.length
        return self.directory.nbytes + self._numbers.nbytes + nulls

    @property
    def sizes(self) -> tuple[int, int]:
        """The numbers of non-NULL rows and of distinct keys; no keys before a test of keys is prepared."""
        return self._counts[0], self.directory.key_count

    def prepare(self, asked: AskedTest) -> Reading[LookUp]:
        """Find the places of a test in the directory, as few pages of it as that takes."""
        # The places stay with the look-up: a test may have very many keys, and postings outlive a test.
        test, (row_count, null_count) = asked.test, self._counts
        if isinstance(test, NullTest):
            count = null_count if test.is_null else row_count
            return LookUp((count, count), self._nulls_cost(), partial(self._null_test, test.is_null))
        yield from self.directory.load(_NO_BLOCKS)
        cuts = yield from cuts_at(asked.places(self._is_bytes), self.directory)
        least, most = bounds_of(cuts, self.directory)
        bounds = (row_count - most, row_count - least) if asked.negated else (least, most)
        if not bounds[1]:
            return LookUp((0, 0), (0, 0), lambda _: at_once(RowSet(BitMap(), True)))
        plan = self._plan(cuts, asked.negated)
        is_short = not plan.subtract and len(plan.blocks) > 0
        return LookUp(
            bounds,
            plan.cost,
            partial(self._rows, plan),
            partial(self._read_asked, plan.blocks, plan.cuts) if is_short else None,
        )

    def _null_test(self, is_null: bool, candidates: BitMap | None) -> Reading[RowSet]:
        nulls = yield from self.nulls()
        found = nulls if is_null else self._numbers.every_row - nulls
        return RowSet(found.copy() if candidates is None else found & candidates, True)

    def _rows(self, plan: _Plan, candidates: BitMap | None) -> Reading[RowSet]:
        found = BitMap()
        for first in range(0, len(plan.blocks), BLOCKS_AT_ONCE):
            asked = yield from self._read_asked(plan.blocks[first : first + BLOCKS_AT_ONCE], plan.cuts)
            found |= asked.rows_of_all([asked])[0]
        if plan.subtract:
            nulls = yield from self.nulls()
            found = self._numbers.every_row - nulls - found
        return RowSet(found if candidates is None else found & candidates, True)

    def _read_asked(self, blocks: Ints, cuts: Cuts) -> Reading[AskedBlocks]:
        yield from self.directory.load(blocks)
        stored = yield from read_blocks(self._blob, self.directory, blocks)
        are_sets = self.directory.table.are_sets[blocks]
        rows = BitMap()
        if are_sets.any():
            sets, stored = stored.chosen(are_sets), stored.chosen(~are_sets)
            row_count = int(sets.table.row_counts(sets.numbers).sum())
            stored_sets = StoredSets(sets.views, self._blob.location, self._blob.offset)
            rows = stored_sets.union(self._numbers.row_limit, row_count)
            if len(rows) != row_count or not rows <= self._numbers.every_row:
                raise self._other_rows(blocks)
        return AskedBlocks(stored, cuts, self._numbers, self._is_bytes, rows)

    def _other_rows(self, blocks: Ints) -> CorruptFileError:
        return corrupt(self._blob, "row sets of other rows", int(self.directory.table.offsets[blocks[0]]))

    def sets_of(self) -> Reading[KeySets | None]:
        """Return the row set of each key; None if there are many keys, or not each has a row set."""
        yield from self.directory.load(_NO_BLOCKS)
        blocks = np.arange(self.directory.block_count)
        if not are_few_keys(len(blocks), self._numbers.row_count):
            return None
        yield from self.directory.load()
        if not self.directory.table.are_sets[blocks].all():
            return None
        stored = yield from self._read_sets(blocks)
        rows, nulls = stored.each(self._numbers.row_limit), (yield from self.nulls())
        counts = self.directory.table.row_counts(blocks)
        every = BitMap.union(nulls, *rows)
        are_disjoint = len(every) == sum(map(len, rows)) + len(nulls)
        if [len(own) for own in rows] != counts.tolist() or not are_disjoint or every != self._numbers.every_row:
            raise self._other_rows(blocks)
        return KeySets(self._value_type, self.directory.keys_at(blocks), rows, nulls)

    def _read_sets(self, blocks: Ints) -> Reading[StoredSets]:
        views = yield from parts_of(self._blob, self.directory.parts(blocks))
        return StoredSets(views, self._blob.location, self._blob.offset)

    def keys_of(self, rows: BitMap | None) -> Reading[Column]:
        """Return the keys of some rows."""
        decoded = yield from self.in_memory()
        return (yield from decoded.keys_of(rows))

    def in_memory(self) -> Reading[CodedRows]:
        """Decode the key of each row, or raise CorruptFileError if the blob is damaged."""
        yield from self.directory.load()
        key_count = int(self.directory.table.keys[:-1].sum())
        return (yield from code_rows(self._blob, self._parts(), key_count, self._numbers, self._value_type))

    def within(self, test: AskedTest) -> Reading[RowsWithin | None]:
        """Prepare to read the blocks of the keys of a test; the directory is read for that."""
        if isinstance(test.test, NullTest) or test.negated:
            return None
        places = test.places(self._is_bytes, one_by_one=True)
        yield from self.directory.load(_NO_BLOCKS)
        cuts = yield from cuts_at(places, self.directory)
        blocks = cuts.needed_blocks()
        cost = cost_of_blocks(blocks, self.directory)[1]

        def read() -> Reading[list[KeyRows]]:
            yield from self.directory.load(blocks)
            parts: list[KeyRows] = []
            for some, are_sets in self._stretches(blocks):
                if are_sets:
                    parts.append((yield from self._set_rows(some)))
                elif isinstance(test.test, SetTest):
                    keys = pa.array(test.test.keys, pa.large_binary()) if self._is_bytes else places.keys[0::2]
                    parts.append(rows_of_keys((yield from self._read_asked(some, cuts)), keys))
                else:
                    parts.append((yield from self._run_rows(some)))
            return parts

        return RowsWithin(self._blob, read, cost, self._numbers, self._value_type)

    def counts_of(self, rows: BitMap) -> Reading[KeyCounts]:
        """Return the distinct keys of some rows; of all rows without decoding any."""
        if len(rows) < self._numbers.row_count:
            return (yield from super().counts_of(rows))
        keys, counts = yield from self._every_key()
        if int(counts.sum()) != self._counts[0]:
            raise corrupt(self._blob, "postings of another number of rows")
        return KeyCounts(self._value_type, keys, counts, self._counts[1])

    def _stretches(self, chosen: Ints | None = None) -> Iterator[tuple[Ints, bool]]:
        """Yield blocks (None for all) with loaded pages, some at a time, and whether these are row sets."""
        every = np.arange(self.directory.block_count) if chosen is None else chosen
        are_sets = self.directory.table.are_sets[every]
        rows = np.cumsum(self.directory.table.row_counts(every))
        chunks = np.arange(len(every)) // BLOCKS_AT_ONCE + rows // _ROWS_AT_ONCE
        ends = np.flatnonzero((np.diff(chunks) > 0) | (are_sets[1:] != are_sets[:-1])) + 1
        for some in np.split(every, ends) if len(every) else ():
            yield some, bool(self.directory.table.are_sets[some[0]])

    def _every_key(self) -> Reading[tuple[KeyArray, Ints]]:
        yield from self.directory.load()
        parts: list[tuple[KeyArray, Ints]] = []
        for some, are_sets in self._stretches():
            if are_sets:
                parts.append((self.directory.keys_at(some), self.directory.table.row_counts(some)))
            else:
                parts.append(key_counts((yield from self._scan(some))))
        keys = join_keys([keys for keys, _ in parts], self._is_bytes)
        return keys, np.concatenate([np.empty(0, np.int64), *(counts for _, counts in parts)])

    def key_rows(self, blocks: Ints | None = None) -> Iterator[KeyRows]:
        """Read and decode blocks, some at a time; None for all. Raises CorruptFileError on damage."""
        run(self.directory.load(blocks))
        return map(run, self._parts(blocks))

    def _parts(self, blocks: Ints | None = None) -> Iterator[Reading[KeyRows]]:
        for some, are_sets in self._stretches(blocks):
            yield self._set_rows(some) if are_sets else self._run_rows(some)

    def _run_rows(self, blocks: Ints) -> Reading[KeyRows]:
        return key_rows((yield from self._scan(blocks)))

    def _set_rows(self, blocks: Ints) -> Reading[KeyRows]:
        stored = yield from self._read_sets(blocks)
        rows, sets = stored.rows(self._numbers.row_limit)
        are_due = np.array_equal(np.bincount(sets, minlength=len(blocks)), self.directory.table.row_counts(blocks))
        if not are_due or not row_set_of(rows, self._numbers.row_limit) <= self._numbers.every_row:
            raise self._other_rows(blocks)
        return KeyRows(self.directory.keys_at(blocks), sets, self._numbers.to_numbers(rows))

    def keys(self, most: int) -> Reading[KeyArray | None]:
        """Return the distinct keys, ascending; None if there are more than `most`."""
        yield from self.directory.load(_NO_BLOCKS)
        return None if self.directory.key_count > most else (yield from self._every_key())[0]

    def _scan(self, blocks: Ints) -> Reading[ParsedBlocks]:
        """Read and parse some blocks, ascending, whose pages are loaded."""
        stored = yield from read_blocks(self._blob, self.directory, blocks)
        return parse_blocks([stored], self._is_bytes)

    def _plan(self, cuts: Cuts, negated: bool) -> _Plan:
        inside = self._option(cuts, negated)
        # The other blocks take at least all bytes but those of the inside: up to one half, the inside is cheaper.
        if 2 * inside.cost[1] <= self._nulls_part.offset:
            return inside
        outside = self._option(cuts.complement(self.directory.block_count), not negated)
        return min(inside, outside, key=lambda option: option.cost[1])

    def _option(self, cuts: Cuts, subtract: bool) -> _Plan:
        blocks = cuts.needed_blocks()
        costs = [cost_of_blocks(blocks, self.directory), self.directory.cost_of_pages(blocks)]
        costs += [self._nulls_cost()] if subtract else []
        return _Plan(cuts, blocks, subtract, (sum(cost[0] for cost in costs), sum(cost[1] for cost in costs)))

    def _nulls_cost(self) -> tuple[int, int]:
        return (1, self._nulls_part.length) if self._nulls is None else (0, 0)

    def nulls(self) -> Reading[BitMap]:
        """Return the NULL rows, which nobody may change."""
        if self._nulls is None:
            place = self._blob.offset + self._nulls_part.offset
            (stored,) = yield from parts_of(self._blob, [self._nulls_part])
            nulls = deserialize(stored, self._numbers.row_limit, location=self._blob.location, offset=place)
            if len(nulls) != self._counts[1] or not nulls <= self._numbers.every_row:
                raise corrupt(self._blob, "a set of NULL rows of other row groups", self._nulls_part.offset)
            self._nulls = nulls
        return self._nulls
