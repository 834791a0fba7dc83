"""The blocks of a payload of keys and their rows, found by its directory, and read: what all postings share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from pyroaring import BitMap

from puffin_index.errors import CorruptFileError, UnsupportedError
from puffin_index.keys.columns import KeyArray, join_keys
from puffin_index.kinds.base import OpenIndex, StoredPayload
from puffin_index.kinds.postings.columns import KeyRows, key_counts, key_rows
from puffin_index.kinds.postings.directory import BLOCKS_AT_ONCE, Cuts, PostingsDirectory, cost_of_blocks
from puffin_index.kinds.postings.keys import AskedBlocks, keys_of_blocks
from puffin_index.kinds.postings.parse import ParsedBlocks, parse_blocks, read_blocks
from puffin_index.kinds.postings.sort import RowNumbers
from puffin_index.roaring import StoredSets, row_set_of
from puffin_index.storage.arrays import Ints
from puffin_index.storage.parts import Part, corrupt, parts_of
from puffin_index.storage.ranged import Reading, run

NO_BLOCKS = np.empty(0, np.int64)
_ROWS_AT_ONCE = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, eq=False)
class BlockPlan:
    """The blocks to read for a test, and the places in them; with `subtract`, the answer is all other non-NULL rows."""

    cuts: Cuts
    blocks: Ints
    subtract: bool
    cost: tuple[int, int]


class KeyBlocks(OpenIndex):
    """The keys of a payload in blocks, with the rows of each, behind a directory. Safe to share.

    Memory keeps the directory once read, but no blocks. With `one_key_a_row`, the rows of two keys have none in common.
    """

    one_key_a_row: ClassVar[bool]

    def __init__(
        self, payload: StoredPayload, form: int, pair_count: int, blocks_end: int, root: Part, block_rows: int = 1
    ) -> None:
        blob, value_type = payload.blob, payload.value_type
        self._is_bytes = value_type.domain == "bytes"
        if form != self._is_bytes:
            raise UnsupportedError(f"{blob.location}: postings of form {form} are none of a {value_type.name} column")
        self._blob = blob
        self._numbers = RowNumbers.of_blocks(payload.spans, block_rows)
        self._value_type = value_type
        self.directory = PostingsDirectory(blob, root, self._is_bytes, blocks_end, pair_count)

    @property
    def is_bytes(self) -> bool:
        """Whether keys are bytes."""
        return self._is_bytes

    @property
    def numbers(self) -> RowNumbers:
        """The row groups behind the numbers of rows."""
        return self._numbers

    def _rows_of_blocks(self, plan: BlockPlan) -> Reading[BitMap]:
        """Read the rows of the keys between the cuts, some blocks at a time."""
        found = BitMap()
        for first in range(0, len(plan.blocks), BLOCKS_AT_ONCE):
            asked = yield from self._read_asked(plan.blocks[first : first + BLOCKS_AT_ONCE], plan.cuts)
            found |= asked.rows_of_all([asked])[0]
        return found

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
            is_due = len(rows) == row_count or not self.one_key_a_row
            if not is_due or not rows <= self._numbers.every_row:
                raise self._other_rows(blocks)
        return AskedBlocks(stored, cuts, self._numbers, self._is_bytes, rows)

    def _other_rows(self, blocks: Ints) -> CorruptFileError:
        return corrupt(self._blob, "row sets of other rows", int(self.directory.table.offsets[blocks[0]]))

    def _read_sets(self, blocks: Ints) -> Reading[StoredSets]:
        views = yield from parts_of(self._blob, self.directory.parts(blocks))
        return StoredSets(views, self._blob.location, self._blob.offset)

    def _stretches(self, chosen: Ints | None = None) -> Iterator[tuple[Ints, bool]]:
        """Yield blocks (None for all) with loaded pages, some at a time, and whether these are row sets."""
        every = np.arange(self.directory.block_count) if chosen is None else chosen
        are_sets = self.directory.table.are_sets[every]
        rows = np.cumsum(self.directory.table.row_counts(every))
        chunks = np.arange(len(every)) // BLOCKS_AT_ONCE + rows // _ROWS_AT_ONCE
        ends = np.flatnonzero((np.diff(chunks) > 0) | (are_sets[1:] != are_sets[:-1])) + 1
        for some in np.split(every, ends) if len(every) else ():
            yield some, bool(self.directory.table.are_sets[some[0]])

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
        counts = self.directory.table.row_counts(blocks)
        rows, sets = stored.rows(self._numbers.row_limit, int(counts.sum()))
        are_due = np.array_equal(np.bincount(sets, minlength=len(blocks)), counts)
        if not are_due or not row_set_of(rows, self._numbers.row_limit) <= self._numbers.every_row:
            raise self._other_rows(blocks)
        return KeyRows(self.directory.keys_at(blocks), sets, self._numbers.to_numbers(rows))

    def _scan(self, blocks: Ints) -> Reading[ParsedBlocks]:
        """Read and parse some blocks, ascending, whose pages are loaded."""
        stored = yield from read_blocks(self._blob, self.directory, blocks)
        return parse_blocks([stored], self._is_bytes)

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

    def keys(self, most: int) -> Reading[KeyArray | None]:
        """Return the distinct keys, ascending; None if there are more than `most`."""
        yield from self.directory.load(NO_BLOCKS)
        if self.directory.key_count > most:
            return None
        yield from self.directory.load()
        parts: list[KeyArray] = []
        for some, are_sets in self._stretches():
            parts.append(self.directory.keys_at(some) if are_sets else keys_of_blocks((yield from self._scan(some))))
        return join_keys(parts, self._is_bytes)

    def _option(self, cuts: Cuts, subtract: bool) -> BlockPlan:
        blocks = cuts.needed_blocks()
        costs = [cost_of_blocks(blocks, self.directory), self.directory.cost_of_pages(blocks)]
        costs += [self._nulls_cost()] if subtract else []
        return BlockPlan(cuts, blocks, subtract, (sum(cost[0] for cost in costs), sum(cost[1] for cost in costs)))

    @abstractmethod
    def _nulls_cost(self) -> tuple[int, int]:
        """The requests and bytes that reading the rows without a key takes."""
