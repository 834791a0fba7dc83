"""The blocks of a payload of keys and their rows, found by its directory, and read: what all postings share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from pyroaring import BitMap

from puffin_index.errors import CorruptFileError, UnsupportedError
from puffin_index.keys.asked import AskedTest
from puffin_index.keys.columns import KeyArray, join_keys
from puffin_index.keys.leaf import NullTest
from puffin_index.kinds.base import LookUp, OpenIndex, RowSet, StoredPayload
from puffin_index.kinds.postings.columns import KeyRows, key_counts, key_rows
from puffin_index.kinds.postings.directory import BLOCKS_AT_ONCE, Cuts, PostingsDirectory, cost_of_blocks, cuts_at
from puffin_index.kinds.postings.keys import AskedBlocks, keys_of_blocks
from puffin_index.kinds.postings.parse import ParsedBlocks, parse_blocks, read_blocks
from puffin_index.kinds.postings.sort import RowNumbers
from puffin_index.roaring import StoredSets, deserialize, row_set_of
from puffin_index.storage.arrays import Ints
from puffin_index.storage.parts import Part, corrupt, parts_of
from puffin_index.storage.ranged import Reading, at_once, run

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
    """The keys of a payload in blocks with their rows, behind a directory, and sets of other rows. Safe to share.

    Memory keeps the directory and the sets once read, but no blocks. With `one_key_a_row`, the rows of two keys have
    none in common.

    Attributes:
        is_bytes: Whether keys are bytes.
        pair_count: The number of pairs of a key and a row, or a block of `block_rows` rows.
        numbers: The row groups behind the numbers of rows or blocks; `row_space` has those of rows.
    """

    one_key_a_row: ClassVar[bool]

    def __init__(
        self,
        payload: StoredPayload,
        form: int,
        pair_count: int,
        sets: Part,
        set_starts: Sequence[int],
        set_counts: Sequence[int],
        root: Part,
        block_rows: int = 1,
    ) -> None:
        blob, value_type = payload.blob, payload.value_type
        self.is_bytes = value_type.domain == "bytes"
        if form != self.is_bytes:
            raise UnsupportedError(f"{blob.location}: postings of form {form} are none of a {value_type.name} column")
        self._blob = blob
        self._value_type = value_type
        self.pair_count, self.block_rows = pair_count, block_rows
        self.row_space = RowNumbers.of(payload.spans)
        self.numbers = self.row_space if block_rows == 1 else RowNumbers.of(payload.spans, block_rows)
        self.directory = PostingsDirectory(blob, root, self.is_bytes, sets.offset, pair_count)
        self._sets_part, self._set_starts, self._set_counts = sets, set_starts, set_counts
        self._sets: Sequence[BitMap] | None = None

    @property
    def nbytes(self) -> int:
        """The approximate memory in bytes, including the read part of the directory."""
        row_space = 0 if self.block_rows == 1 else self.row_space.nbytes
        sets = 0 if self._sets is None else self._sets_part.length
        return self.directory.nbytes + self.numbers.nbytes + row_space + sets

    @property
    def sizes(self) -> tuple[int, int]:
        """The rows of all pairs together, and the number of keys; no keys before a test of keys is prepared."""
        return self.pair_count * self.block_rows, self.directory.key_count

    def prepare(self, asked: AskedTest) -> Reading[LookUp]:
        """Find the places of a test in the directory, as few pages of it as that takes."""
        # The places stay with the look-up: a test may have very many keys, and postings outlive a test.
        test, null_count = asked.test, self._set_counts[0]
        if isinstance(test, NullTest):
            count = null_count if test.is_null else self.row_space.row_count - null_count
            return LookUp((count, count), self._sets_cost(), partial(self._null_test, test.is_null))
        yield from self.directory.load(NO_BLOCKS)
        cuts = yield from cuts_at(asked.places(self.is_bytes), self.directory)
        bounds = self._bounds(asked, cuts)
        if not bounds[1]:
            return LookUp((0, 0), (0, 0), lambda _: at_once(RowSet(BitMap(), True)))
        plan = self._plan(cuts, asked.negated)
        is_short = not plan.subtract and len(plan.blocks) > 0 and self.block_rows == 1
        blocks = partial(self._read_asked, plan.blocks, plan.cuts) if is_short else None
        return LookUp(bounds, plan.cost, partial(self._rows, plan), blocks)

    @abstractmethod
    def _bounds(self, asked: AskedTest, cuts: Cuts) -> tuple[int, int]:
        """Return the least and the greatest number of rows of a test."""

    @abstractmethod
    def _rows(self, plan: BlockPlan, candidates: BitMap | None) -> Reading[RowSet]:
        """Read the rows of a plan."""

    def _null_test(self, is_null: bool, candidates: BitMap | None) -> Reading[RowSet]:
        nulls, *_ = yield from self.other_rows()
        found = nulls if is_null else self.row_space.every_row - nulls
        return RowSet(found.copy() if candidates is None else found & candidates, True)

    def other_rows(self) -> Reading[Sequence[BitMap]]:
        """Return the sets of rows behind the blocks, those that are NULL first, which nobody may change."""
        if self._sets is None:
            (stored,) = yield from parts_of(self._blob, [self._sets_part])
            found: list[BitMap] = []
            ends = (*self._set_starts[1:], len(stored))
            for start, end, count in zip(self._set_starts, ends, self._set_counts, strict=True):
                offset = self._sets_part.offset + start
                rows = BitMap()
                if end > start:
                    limit, place = self.row_space.row_limit, self._blob.offset + offset
                    rows = deserialize(stored[start:end], limit, location=self._blob.location, offset=place)
                if len(rows) != count or not rows <= self.row_space.every_row:
                    raise corrupt(self._blob, "a set of rows of other row groups", offset)
                found.append(rows)
            self._sets = found
        return self._sets

    def _sets_cost(self) -> tuple[int, int]:
        return (1, self._sets_part.length) if self._sets is None and self._sets_part.length else (0, 0)

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
            rows = stored_sets.union(self.numbers.row_limit, row_count)
            is_due = len(rows) == row_count or not self.one_key_a_row
            if not is_due or not rows <= self.numbers.every_row:
                raise self._undue(blocks)
        return AskedBlocks(stored, cuts, self.numbers, self.is_bytes, rows)

    def _undue(self, blocks: Ints) -> CorruptFileError:
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
        rows, sets = stored.rows(self.numbers.row_limit, int(counts.sum()))
        are_due = np.array_equal(np.bincount(sets, minlength=len(blocks)), counts)
        if not are_due or not row_set_of(rows, self.numbers.row_limit) <= self.numbers.every_row:
            raise self._undue(blocks)
        return KeyRows(self.directory.keys_at(blocks), sets, self.numbers.to_numbers(rows))

    def _scan(self, blocks: Ints) -> Reading[ParsedBlocks]:
        """Read and parse some blocks, ascending, whose pages are loaded."""
        stored = yield from read_blocks(self._blob, self.directory, blocks)
        return parse_blocks([stored], self.is_bytes)

    def _every_key(self) -> Reading[tuple[KeyArray, Ints]]:
        yield from self.directory.load()
        parts: list[tuple[KeyArray, Ints]] = []
        for some, are_sets in self._stretches():
            if are_sets:
                parts.append((self.directory.keys_at(some), self.directory.table.row_counts(some)))
            else:
                parts.append(key_counts((yield from self._scan(some))))
        keys = join_keys([keys for keys, _ in parts], self.is_bytes)
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
        return join_keys(parts, self.is_bytes)

    def _plan(self, cuts: Cuts, negated: bool) -> BlockPlan:
        inside = self._option(cuts, negated)
        # What other keys have says nothing of the rows with these, where a row may have both. Otherwise, the other
        # blocks take at least all bytes but those of the inside: up to one half, the inside is cheaper.
        if not self.one_key_a_row or 2 * inside.cost[1] <= self._sets_part.offset:
            return inside
        outside = self._option(cuts.complement(self.directory.block_count), not negated)
        return min(inside, outside, key=lambda option: option.cost[1])

    def _option(self, cuts: Cuts, subtract: bool) -> BlockPlan:
        blocks = cuts.needed_blocks()
        costs = [cost_of_blocks(blocks, self.directory), self.directory.cost_of_pages(blocks)]
        costs += [self._sets_cost()] if subtract else []
        return BlockPlan(cuts, blocks, subtract, (sum(cost[0] for cost in costs), sum(cost[1] for cost in costs)))
