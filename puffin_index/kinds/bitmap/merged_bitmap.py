"""The blob type `puffin-index-merged-bitmap-v1`: the row set of each distinct key of many row groups.

The format is in docs/formats.md, Merged bitmaps. Merging segments makes the blob of the bitmaps of its row groups by
moving the containers to new container keys. A look-up of a key reads the root, one page if there are pages, and the
row set.
"""

from itertools import pairwise

import numpy as np
from pyroaring import BitMap

from puffin_index.keys.columns import KeyArray, join_keys
from puffin_index.kinds.held_keys import KeySets, are_few_keys
from puffin_index.kinds.postings.columns import CodedRows, KeyRows, code_rows
from puffin_index.kinds.postings.directory import Cuts
from puffin_index.kinds.postings.look_up import Postings
from puffin_index.kinds.postings.pages import BYTES_KEYS
from puffin_index.roaring.read import deserialize, row_set_of
from puffin_index.roaring.union import rows_by_set, union_of_sets
from puffin_index.storage.arrays import Ints
from puffin_index.storage.parts import Part, corrupt, read_parts

MERGED_BITMAP = "puffin-index-merged-bitmap-v1"
LAYOUT_FORMS = 2
"""The form in the layout is this much above the form of the keys, so that no reader mistakes row sets for blocks."""
_BYTES_AT_ONCE = 32 * 1024 * 1024
_SMALL_SET_ROWS = 1024


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
            found |= self._read(parts[first:end], row_counts[first:end])
        if len(found) != int(row_counts.sum()) or not found <= self._every_row():
            raise corrupt(self._blob, "row sets of other rows", parts[0].offset if parts else 0)
        return found

    def sets_of(self) -> KeySets | None:
        """Return the row set of each key; None if there are many keys."""
        if not are_few_keys(self._directory.key_count, self._numbers.row_count):
            return None
        keys, counts = self._every_key()
        parts = self._directory.parts(np.arange(self._directory.block_count))
        location, limit, start = self._blob.location, self._numbers.row_limit, self._blob.offset
        rows = [
            deserialize(view, limit, location=location, offset=start + part.offset)
            for part, view in zip(parts, read_parts(self._blob, parts), strict=True)
        ]
        nulls = self._null_rows()
        own_counts = [len(own) for own in rows]
        every = BitMap.union(nulls, *rows)
        are_disjoint = len(every) == sum(own_counts) + len(nulls)
        if own_counts != counts.tolist() or not are_disjoint or every != self._every_row():
            raise corrupt(self._blob, "row sets of other rows", parts[0].offset if parts else 0)
        return KeySets(self._value_type, keys, rows, nulls)

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
        keys = join_keys([page.array() for page in self._directory.separators()], self._form == BYTES_KEYS)
        return keys, np.diff(self._directory.table.rows[: len(keys) + 1])

    def in_memory(self) -> CodedRows:
        """Decode the key of each row from the row sets of all keys."""
        keys, _ = self._every_key()
        views = read_parts(self._blob, self._directory.parts(np.arange(self._directory.block_count)))
        lengths = np.array([len(view) for view in views], np.int64)
        rows, sets = rows_by_set(
            memoryview(b"".join(views)),
            np.cumsum(lengths) - lengths,
            lengths,
            self._numbers.row_limit,
            location=self._blob.location,
            offset=self._blob.offset,
        )
        # `to_numbers` takes only rows of row groups.
        if len(rows) != self._counts[0] or not row_set_of(rows, self._numbers.row_limit) <= self._every_row():
            raise corrupt(self._blob, "row sets of other rows")
        found = KeyRows(keys, sets, self._numbers.to_numbers(rows.astype(np.uint32)))
        return code_rows(self._blob, [found], len(keys), self._numbers, self._value_type)

    def _read(self, parts: list[Part], row_counts: Ints) -> BitMap:
        views = read_parts(self._blob, parts)
        is_small = row_counts <= _SMALL_SET_ROWS
        location, limit, start = self._blob.location, self._numbers.row_limit, self._blob.offset
        large = (
            deserialize(views[place], limit, location=location, offset=start + parts[place].offset)
            for place in np.flatnonzero(~is_small).tolist()
        )
        found = BitMap.union(BitMap(), *large)
        some = [views[place] for place in np.flatnonzero(is_small).tolist()]
        if not some:
            return found
        lengths = np.array([len(view) for view in some], np.int64)
        return found | union_of_sets(
            memoryview(b"".join(some)),
            np.cumsum(lengths) - lengths,
            lengths,
            limit,
            most_rows=int(row_counts.sum()),
            location=location,
            offset=start + parts[0].offset,
        )
