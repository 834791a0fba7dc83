"""The blob type `puffin-index-postings-v1`: the rows of a segment's keys, sorted by key (docs/payloads.md, Postings).

Looking up a key takes the root, one page (if there are pages) and one block. A range takes either all blocks from its
lower to its upper bound or all other blocks, whichever are fewer bytes. Rows of rare keys are runs, several keys a
block: one roaring bitmap per value would take 7 to 14 bytes a row. Rows of frequent keys are row sets.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from puffin_index.keys.asked import AskedTest
from puffin_index.keys.columns import Column
from puffin_index.keys.leaf import NullTest, SetTest
from puffin_index.kinds.base import RowSet, StoredPayload
from puffin_index.kinds.held_keys import HoldsKeys, KeyCounts, KeySets, are_few_keys
from puffin_index.kinds.postings.columns import CodedRows, KeyRows, RowsWithin, code_rows, rows_of_keys
from puffin_index.kinds.postings.directory import Cuts, bounds_of, cost_of_blocks, cuts_at
from puffin_index.kinds.postings.stored import NO_BLOCKS, BlockPlan, KeyBlocks
from puffin_index.storage.parts import Part, check_layout, corrupt
from puffin_index.storage.ranged import Reading

_LAYOUT_NUMBERS = 10


class Postings(KeyBlocks, HoldsKeys):
    """Answer any test with rows of the segment's row space.

    Raises UnsupportedError for another version or domain, CorruptFileError for another layout.
    """

    one_key_a_row = True

    def __init__(self, payload: StoredPayload) -> None:
        blob = payload.blob
        numbers = check_layout(blob, payload.layout, _LAYOUT_NUMBERS)[1:_LAYOUT_NUMBERS]
        form, row_count, null_count, groups_sum, nulls_from, nulls_sum, pages_from, root_from, root_sum = numbers
        nulls = Part(nulls_from, pages_from - nulls_from, nulls_sum)
        root = Part(root_from, blob.length - root_from, root_sum)
        super().__init__(payload, form, row_count, nulls, (0,), (null_count,), root)
        if not 0 <= nulls_from <= pages_from <= root_from <= blob.length or min(row_count, null_count) < 0:
            raise corrupt(blob, "a layout that describes no postings blob")
        if row_count + null_count != self.numbers.row_count or groups_sum != self.numbers.checksum:
            raise corrupt(blob, "postings of other row groups")
        self._sets = None if null_count else [BitMap()]

    def _bounds(self, asked: AskedTest, cuts: Cuts) -> tuple[int, int]:
        least, most = bounds_of(cuts, self.directory)
        return (self.pair_count - most, self.pair_count - least) if asked.negated else (least, most)

    def _rows(self, plan: BlockPlan, candidates: BitMap | None) -> Reading[RowSet]:
        found = yield from self._rows_of_blocks(plan)
        if plan.subtract:
            (nulls,) = yield from self.other_rows()
            found = self.numbers.every_row - nulls - found
        return RowSet(found if candidates is None else found & candidates, True)

    def sets_of(self) -> Reading[KeySets | None]:
        """Return the row set of each key; None if there are many keys, or not each has a row set."""
        yield from self.directory.load(NO_BLOCKS)
        blocks = np.arange(self.directory.block_count)
        if not are_few_keys(len(blocks), self.numbers.row_count):
            return None
        yield from self.directory.load()
        if not self.directory.table.are_sets[blocks].all():
            return None
        stored = yield from self._read_sets(blocks)
        rows, (nulls,) = stored.each(self.numbers.row_limit), (yield from self.other_rows())
        counts = self.directory.table.row_counts(blocks)
        every = BitMap.union(nulls, *rows)
        are_disjoint = len(every) == sum(map(len, rows)) + len(nulls)
        if [len(own) for own in rows] != counts.tolist() or not are_disjoint or every != self.numbers.every_row:
            raise self._undue(blocks)
        return KeySets(self._value_type, self.directory.keys_at(blocks), rows, nulls)

    def keys_of(self, rows: BitMap | None) -> Reading[Column]:
        """Return the keys of some rows."""
        decoded = yield from self.in_memory()
        return (yield from decoded.keys_of(rows))

    def in_memory(self) -> Reading[CodedRows]:
        """Decode the key of each row, or raise CorruptFileError if the blob is damaged."""
        yield from self.directory.load()
        key_count = int(self.directory.table.keys[:-1].sum())
        return (yield from code_rows(self._blob, self._parts(), key_count, self.numbers, self._value_type))

    def within(self, test: AskedTest) -> Reading[RowsWithin | None]:
        """Prepare to read the blocks of the keys of a test; the directory is read for that."""
        if isinstance(test.test, NullTest) or test.negated:
            return None
        places = test.places(self.is_bytes, one_by_one=True)
        yield from self.directory.load(NO_BLOCKS)
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
                    keys = pa.array(test.test.keys, pa.large_binary()) if self.is_bytes else places.keys[0::2]
                    parts.append(rows_of_keys((yield from self._read_asked(some, cuts)), keys))
                else:
                    parts.append((yield from self._run_rows(some)))
            return parts

        return RowsWithin(self._blob, read, cost, self.numbers, self._value_type)

    def counts_of(self, rows: BitMap) -> Reading[KeyCounts]:
        """Return the distinct keys of some rows; of all rows without decoding any."""
        if len(rows) < self.numbers.row_count:
            return (yield from super().counts_of(rows))
        keys, counts = yield from self._every_key()
        if int(counts.sum()) != self.pair_count:
            raise corrupt(self._blob, "postings of another number of rows")
        return KeyCounts(self._value_type, keys, counts, self.numbers.row_count - self.pair_count)
