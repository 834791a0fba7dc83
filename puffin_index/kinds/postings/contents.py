"""The blob type `puffin-index-contents-v1`: the rows that contain each key (docs/payloads.md, Contents).

Blocks and directory are those of postings, of which a row may have several keys or none. Besides, three sets say which
rows are NULL, which contain nothing, and which contain NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from puffin_index.keys.asked import AskedTest
from puffin_index.keys.columns import SortedColumn, chosen_keys
from puffin_index.keys.contents import SortedContents
from puffin_index.keys.leaf import RangeTest, SetTest
from puffin_index.kinds.base import LookUp, MergePart, Payload, RowSet, StoredPayload
from puffin_index.kinds.postings.blocks import Sizes
from puffin_index.kinds.postings.build import DEFAULT_SIZES, append_blocks, append_others, number_rows
from puffin_index.kinds.postings.columns import join_key_rows
from puffin_index.kinds.postings.directory import Cuts, bounds_of
from puffin_index.kinds.postings.merge import ROWS_AT_ONCE, merge_blocks, sources_of
from puffin_index.kinds.postings.pages import Child
from puffin_index.kinds.postings.sort import OrderedRows, RowNumbers, order_rows
from puffin_index.kinds.postings.stored import BlockPlan, KeyBlocks
from puffin_index.storage.arrays import Ints, Rows, are_new
from puffin_index.storage.parts import LAYOUT_VERSION, Part, check_layout, corrupt
from puffin_index.storage.ranged import Reading, run

CONTENTS = "puffin-index-contents-v1"
_LAYOUT_NUMBERS = 15
_MOST_BLOCK_ROWS = 65_536

NOTHING: Final = RangeTest(None, None, negated=True)
"""What only rows satisfy that contain nothing: neither any key nor NULL."""

PlacedContents: TypeAlias = tuple[int, SortedContents]
"""What the rows of a row group contain, behind its first row in the segment's row space, a multiple of 65,536."""


def build_contents(columns: Sequence[PlacedContents], sizes: Sizes = DEFAULT_SIZES) -> Payload:
    """Build the payload of all row groups of a segment: columns of one type, by ascending base.

    Raises BuildError if the rows exceed the row space.
    """
    is_bytes = columns[0][1].column.value_type.domain == "bytes"
    every = [own.contents for _, own in columns]
    rows, block_rows = number_rows([(base, own.row_count) for base, own in columns]), every[0].block_rows
    numbers = RowNumbers.of(rows.spans, block_rows)
    ordered = _each_once(order_rows([own for _, own in columns], numbers, is_bytes, [one.blocks for one in every]))
    data = bytearray()
    blocks = append_blocks(data, ordered, numbers, sizes)
    bases = [np.uint32(base) for base, _ in columns]
    others = [
        np.concatenate([found + base for found, base in zip(own, bases, strict=True)])
        for own in zip(*((one.null_rows, one.empty_rows, one.open_rows) for one in every), strict=True)
    ]
    return _finish(data, blocks, others, is_bytes, rows, block_rows, sizes)


def _each_once(ordered: OrderedRows) -> OrderedRows:
    """Leave out that a row contains a key again."""
    is_first = are_new(ordered.words)
    if ordered.rows is not None:
        is_first |= are_new(ordered.rows)
    if is_first.all():
        return ordered
    rows = None if ordered.rows is None else ordered.rows[is_first]
    return replace(ordered, words=ordered.words[is_first], rows=rows)


def _finish(
    data: bytearray,
    blocks: Sequence[Child],
    others: Sequence[Rows],
    is_bytes: bool,
    rows: RowNumbers,
    block_rows: int,
    sizes: Sizes,
) -> Payload:
    lengths, (sets_from, sets_sum, *directory) = append_others(data, others, blocks, is_bytes, sizes)
    counts = [block_rows, sum(block.row_count for block in blocks), *map(len, others), rows.checksum]
    places = [sets_from, *lengths[:2], sets_sum, *directory]
    layout = np.array([LAYOUT_VERSION, is_bytes, *counts, *places], np.int64)
    return Payload(CONTENTS, data, layout, len(rows.bases))


class ContentsIndex(KeyBlocks):
    """Answer which rows contain one of some keys; negated, which rows are not NULL and contain neither these nor NULL.

    Raises UnsupportedError for another version or domain, CorruptFileError for another layout.
    """

    one_key_a_row = False

    def __init__(self, payload: StoredPayload) -> None:
        blob = payload.blob
        numbers = check_layout(blob, payload.layout, _LAYOUT_NUMBERS)[1:_LAYOUT_NUMBERS]
        form, block_rows, pair_count, null_count, empty_count, open_count, groups_sum, *places = numbers
        sets_from, null_bytes, empty_bytes, sets_sum, pages_from, root_from, root_sum = places
        if not 0 < block_rows <= _MOST_BLOCK_ROWS or _MOST_BLOCK_ROWS % block_rows:
            raise corrupt(blob, f"blocks of {block_rows} rows")
        sets = Part(sets_from, pages_from - sets_from, sets_sum)
        root = Part(root_from, blob.length - root_from, root_sum)
        starts, counts = (0, null_bytes, null_bytes + empty_bytes), (null_count, empty_count, open_count)
        super().__init__(payload, form, pair_count, sets, starts, counts, root, block_rows)
        if not 0 <= sets_from <= pages_from <= root_from <= blob.length or min(pair_count, null_bytes, empty_bytes) < 0:
            raise corrupt(blob, "a layout that describes no contents blob")
        if null_count + empty_count > self.row_space.row_count or groups_sum != self.row_space.checksum:
            raise corrupt(blob, "contents of other row groups")

    def prepare(self, asked: AskedTest) -> Reading[LookUp]:
        """Prepare a test as postings do; one set has the rows that contain nothing."""
        if asked.test == NOTHING and self.block_rows == 1:
            count = self._set_counts[1]
            return LookUp((count, count), self._sets_cost(), self._empty_rows)
        return (yield from super().prepare(asked))

    def _bounds(self, asked: AskedTest, cuts: Cuts) -> tuple[int, int]:
        not_null = self.row_space.row_count - self._set_counts[0]
        if asked.negated:
            return 0, not_null
        least, most = bounds_of(cuts, self.directory)
        if self.block_rows > 1:
            # The last block of a row group may have a single row.
            return min(least, 1), min(most * self.block_rows, self.row_space.row_count)
        # A row with several of the keys counts once.
        is_one = isinstance(asked.test, SetTest) and len(asked.test.keys) == 1
        return least if is_one else min(least, 1), min(most, not_null)

    def _empty_rows(self, candidates: BitMap | None) -> Reading[RowSet]:
        _, found, _ = yield from self.other_rows()
        return RowSet(found.copy() if candidates is None else found & candidates, True)

    def _rows(self, plan: BlockPlan, candidates: BitMap | None) -> Reading[RowSet]:
        found = yield from self._rows_of_blocks(plan)
        if plan.subtract:
            null, _, open_rows = yield from self.other_rows()
            # A block with a word may have rows without it.
            found = self.row_space.every_row - null - open_rows - (found if self.block_rows == 1 else BitMap())
        elif self.block_rows > 1:
            found = self._rows_in(found)
        return RowSet(found if candidates is None else found & candidates, True)

    def _rows_in(self, blocks: BitMap) -> BitMap:
        """Return the rows of some blocks."""
        numbers = np.frombuffer(blocks.to_array(), np.uint32).astype(np.int64)
        begins = np.ones(len(numbers) + 1, np.bool_)
        begins[1:-1] = numbers[1:] != numbers[:-1] + 1
        rows = BitMap()
        for first, last in zip(numbers[begins[:-1]].tolist(), numbers[begins[1:]].tolist(), strict=True):
            rows.add_range(first * self.block_rows, (last + 1) * self.block_rows)
        return rows & self.row_space.every_row


def merge_contents(
    parts: Sequence[MergePart], sizes: Sizes = DEFAULT_SIZES, rows_at_once: int = ROWS_AT_ONCE
) -> Payload:
    """Merge contents whose new bases ascend through all parts, with about `rows_at_once` pairs in memory.

    Raises BuildError if rows exceed the row space, CorruptFileError or UnsupportedError for an unreadable part.
    """
    is_bytes = parts[0].payload.value_type.domain == "bytes"
    rows = number_rows(np.concatenate([part.new_spans for part in parts]))
    opened = [ContentsIndex(part.payload) for part in parts]
    numbers = RowNumbers.of(rows.spans, opened[0].block_rows)
    sources = sources_of(parts, opened, numbers)
    data, blocks = merge_blocks(sources, numbers, sum(one.pair_count for one in opened), is_bytes, sizes, rows_at_once)
    others = [
        np.concatenate([_moved(part, found) for part, found in zip(parts, own, strict=True)])
        for own in zip(*(run(one.other_rows()) for one in opened), strict=True)
    ]
    return _finish(data, blocks, others, is_bytes, rows, opened[0].block_rows, sizes)


def _moved(part: MergePart, rows: BitMap) -> Rows:
    """Return the new rows in place of those that are kept."""
    own, bases = np.frombuffer(rows.to_array(), np.uint32).astype(np.int64), part.payload.spans[:, 0]
    owners = np.searchsorted(bases, own, "right") - 1
    kept = part.is_kept[owners]
    return (own + (part.new_bases - bases)[owners])[kept].astype(np.uint32)


def proof_of_contents(index: ContentsIndex, row_counts: Ints) -> Callable[[int, SortedColumn], Iterator[str]]:
    """Return a proof that compares which rows contain which keys, decoded once, and the rows without any."""
    every = join_key_rows(list(index.key_rows()), index.is_bytes)
    numbers = every.numbers.astype(np.int64)
    (null, empty, open_rows), begins = run(index.other_rows()), index.numbers.firsts

    def prove(place: int, column: SortedColumn) -> Iterator[str]:
        assert isinstance(column, SortedContents)
        own, base = column.contents, int(index.numbers.bases[place]) * index.block_rows
        here = (numbers >= begins[place]) & (numbers < begins[place] + index.numbers.row_counts[place])
        used, own_codes = np.unique(every.codes[here], return_inverse=True)
        stored = set_of_pairs(own_codes, numbers[here] - begins[place])
        # Words may be read by smaller blocks than they are stored.
        wanted = set_of_pairs(column.codes, own.blocks // max(index.block_rows // own.block_rows, 1))
        if not pa.array(chosen_keys(every.keys, used)).equals(pa.array(column.keys)) or not np.array_equal(
            stored, wanted
        ):
            yield "rows that contain other keys than in the data"
        for name, found, rows in (
            ("are NULL", null, own.null_rows),
            ("contain nothing", empty, own.empty_rows),
            ("contain NULL", open_rows, own.open_rows),
        ):
            within = found & BitMap(range(base, base + int(row_counts[place])))
            if not np.array_equal(np.frombuffer(within.to_array(), np.uint32) - np.uint32(base), rows):
                yield f"other rows than in the data {name}"

    return prove


def set_of_pairs(codes: Ints | Rows, rows: Ints | Rows) -> Ints:
    """Return pairs of a key's place and a row, each once, as ascending numbers."""
    return np.unique(codes.astype(np.int64) << np.int64(32) | rows.astype(np.int64))
