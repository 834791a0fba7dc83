"""The blob type `puffin-index-merged-bitmap-v1`: the row set of each distinct key of many row groups.

The format is in docs/formats.md, Merged bitmaps. Merging segments makes the blob of the bitmaps of its row groups by
moving the containers to new container keys. A look-up of a key reads the root, one page if there are pages, and the
row set.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from pyroaring import BitMap

from puffin_index.keys.columns import KeyArray, join_keys
from puffin_index.kinds.held_keys import KeySets, are_few_keys
from puffin_index.kinds.postings.columns import CodedRows, KeyRows, code_rows
from puffin_index.kinds.postings.directory import Cuts
from puffin_index.kinds.postings.look_up import Postings
from puffin_index.roaring.read import row_set_of
from puffin_index.roaring.union import StoredSets
from puffin_index.storage.arrays import Ints
from puffin_index.storage.parts import Part, corrupt, read_parts

MERGED_BITMAP = "puffin-index-merged-bitmap-v1"
LAYOUT_FORMS = 2
"""The form in the layout is this much above the form of the keys, so that no reader mistakes row sets for blocks."""
_BYTES_AT_ONCE = 32 * 1024 * 1024


class MergedBitmap(Postings):
    """Answer any test with rows of the segment's row space. Memory keeps the directory once read, but no row sets."""

    _FIRST_FORM = LAYOUT_FORMS
    _HAS_RUNS = False

    def _found(self, blocks: Ints, cuts: Cuts) -> BitMap:
        """Return the rows of some keys; every block between the cuts counts, as a block is the row set of one key."""
        del cuts
        table = self._directory.table
        if bool((table.keys[blocks] != 1).any()):
            raise corrupt(self._blob, "a row set that is not of one key", int(table.offsets[blocks[0]]))
        row_counts = table.rows[blocks + 1] - table.rows[blocks]
        parts = self._directory.parts(blocks)
        found = BitMap()
        cut_at = np.cumsum([part.length for part in parts]) // _BYTES_AT_ONCE
        bounds = [0, *(np.flatnonzero(np.diff(cut_at)) + 1).tolist(), len(parts)]
        for first, end in pairwise(bounds):
            most_rows = int(row_counts[first:end].sum())
            found |= self._sets(parts[first:end]).union(self._numbers.row_limit, most_rows)
        if len(found) != int(row_counts.sum()) or not found <= self._every_row():
            raise corrupt(self._blob, "row sets of other rows", parts[0].offset if parts else 0)
        return found

    def sets_of(self) -> KeySets | None:
        """Return the row set of each key; None if there are many keys."""
        if not are_few_keys(self._directory.key_count, self._numbers.row_count):
            return None
        keys, counts = self._every_key()
        parts = self._directory.parts(np.arange(self._directory.block_count))
        rows = self._sets(parts).each(self._numbers.row_limit)
        nulls = self._null_rows()
        own_counts = [len(own) for own in rows]
        every = BitMap.union(nulls, *rows)
        are_disjoint = len(every) == sum(own_counts) + len(nulls)
        if own_counts != counts.tolist() or not are_disjoint or every != self._every_row():
            raise corrupt(self._blob, "row sets of other rows", parts[0].offset if parts else 0)
        return KeySets(self._value_type, keys, rows, nulls)

    def _sets(self, parts: Sequence[Part]) -> StoredSets:
        """Read the row sets of some blocks."""
        return StoredSets.of(read_parts(self._blob, parts), self._blob.location, self._blob.offset)

    def _key_list(self) -> KeyArray:
        return self._every_key()[0]

    def every_set(self) -> tuple[KeyArray, list[Part], Part]:
        """Read and check the whole blob; return all keys, the places of their row sets, and that of the NULL rows."""
        keys, _ = self._every_key()
        parts = self._directory.parts(np.arange(self._directory.block_count))
        read_parts(self._blob, [*parts, self._nulls_part])
        return keys, parts, self._nulls_part

    def _every_key(self) -> tuple[KeyArray, Ints]:
        """Return all keys and the number of rows of each, from the directory."""
        keys = join_keys([page.array() for page in self._directory.separators()], self._is_bytes)
        return keys, np.diff(self._directory.table.rows[: len(keys) + 1])

    def in_memory(self) -> CodedRows:
        """Decode the key of each row from the row sets of all keys."""
        keys, _ = self._every_key()
        parts = self._directory.parts(np.arange(self._directory.block_count))
        rows, sets = self._sets(parts).rows(self._numbers.row_limit)
        # `to_numbers` takes only rows of row groups.
        if len(rows) != self._counts[0] or not row_set_of(rows, self._numbers.row_limit) <= self._every_row():
            raise corrupt(self._blob, "row sets of other rows")
        found = KeyRows(keys, sets, self._numbers.to_numbers(rows.astype(np.uint32)))
        return code_rows(self._blob, [found], len(keys), self._numbers, self._value_type)
