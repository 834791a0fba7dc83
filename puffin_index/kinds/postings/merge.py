"""Merge the postings of several segments into one blob, one range of keys at a time, so that memory stays bounded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from puffin_index.errors import CorruptFileError
from puffin_index.keys.columns import chosen_keys, join_keys, sorted_keys_of, tuple_of_keys
from puffin_index.keys.leaf import Key
from puffin_index.keys.merge import rank_keys
from puffin_index.kinds.base import MergePart, Payload
from puffin_index.kinds.postings.blocks import Sizes
from puffin_index.kinds.postings.build import DEFAULT_SIZES, append_blocks, finish_postings, most_set_keys, number_rows
from puffin_index.kinds.postings.columns import KeyRows
from puffin_index.kinds.postings.look_up import Postings
from puffin_index.kinds.postings.pages import Child
from puffin_index.kinds.postings.sort import OrderedRows, RowNumbers, order_keyed
from puffin_index.kinds.postings.stored import KeyBlocks
from puffin_index.storage.arrays import Flags, Ints, Rows
from puffin_index.storage.parts import corrupt
from puffin_index.storage.ranged import run

ROWS_AT_ONCE = 4 * 1024 * 1024
"""The approximate number of rows in memory at a time; a single key with more rows exceeds the number."""
_BLOCKS_AT_ONCE = 1024
_LOW_HALF = np.int64(0xFFFF_FFFF)


def merge_postings(
    parts: Sequence[MergePart], sizes: Sizes = DEFAULT_SIZES, rows_at_once: int = ROWS_AT_ONCE
) -> Payload:
    """Merge postings whose new bases ascend through all parts, with about `rows_at_once` rows in memory.

    Raises BuildError if rows exceed the row space, CorruptFileError or UnsupportedError for an unreadable part.
    """
    is_bytes = parts[0].payload.value_type.domain == "bytes"
    numbers = number_rows(np.concatenate([part.new_spans for part in parts]))
    opened = [Postings(part.payload) for part in parts]
    sources = sources_of(parts, opened, numbers)
    nulls = np.concatenate(
        [source.moved(run(own.other_rows())[0]) for source, own in zip(sources, opened, strict=True)]
    )
    null_rows = numbers.rows_of(nulls).astype(np.uint32)
    row_count = numbers.row_count - len(null_rows)
    data, blocks = merge_blocks(sources, numbers, row_count, is_bytes, sizes, rows_at_once)
    if sum(block.row_count for block in blocks) != row_count:
        raise CorruptFileError("postings that do not have every row once", location=parts[0].payload.blob.location)
    return finish_postings(data, blocks, null_rows, is_bytes, numbers, sizes)


def sources_of(parts: Sequence[MergePart], opened: Sequence[KeyBlocks], numbers: RowNumbers) -> list[Source]:
    """Return the opened parts to be read, their kept row groups numbered as in the merged payload."""
    ends = np.cumsum([0, *(int(np.count_nonzero(part.is_kept)) for part in parts)]).tolist()
    return [
        Source(part, own, numbers.firsts[first:end])
        for part, own, (first, end) in zip(parts, opened, pairwise(ends), strict=True)
    ]


def merge_blocks(
    sources: Sequence[Source], numbers: RowNumbers, pair_count: int, is_bytes: bool, sizes: Sizes, rows_at_once: int
) -> tuple[bytearray, list[Child]]:
    """Merge the blocks of all sources, which have about so many pairs of a row and a key."""
    are_sets = sum(source.key_count for source in sources) <= most_set_keys(pair_count)
    data = bytearray()
    blocks: list[Child] = []
    before: bytes | None = None
    for limit in (*_limits(sources, is_bytes, rows_at_once), None):
        some = [one for source in sources for one in source.below(limit) if len(one.numbers)]
        if not some:
            continue
        ordered = _ordered(some, (numbers.limit - 1).bit_length(), is_bytes)
        blocks += append_blocks(data, ordered, numbers, sizes, before, are_sets=are_sets)
        before = ordered.dictionary[-1].as_py() if ordered.dictionary is not None else None
    return data, blocks


class Source:
    """The blocks of one part, read once from the first block to the last.

    Gives distinct keys that have rows. The rows are ordered by key, then by new number.
    """

    def __init__(self, part: MergePart, opened: KeyBlocks, new_firsts: Ints) -> None:
        payload = part.payload
        self.blob = payload.blob
        self.opened = opened
        self._numbers = opened.numbers
        self._is_kept = part.is_kept
        self._moves = np.zeros(len(payload.spans), np.int64)
        self._moves[self._is_kept] = new_firsts - self._numbers.firsts[self._is_kept]
        run(self.opened.directory.load())
        self.separators = self.opened.directory.keys_at(np.arange(self.opened.directory.block_count))
        self.row_counts = np.diff(self.opened.directory.table.rows)
        # A key counts in every row group with rows.
        self.key_count = self.opened.directory.key_count * int(np.count_nonzero(self._numbers.row_counts))
        self._next = 0
        self._pending: list[KeyRows] = []

    def below(self, limit: Key | None) -> list[KeyRows]:
        """Return all keys below a limit, or all keys without a limit, that no earlier call returned."""
        end = self.opened.directory.block_count
        if limit is not None:
            # A block whose separator is not below the limit has no key below the limit.
            end = sorted_keys_of(self.separators).rank(limit, False)
        found = self._pending
        for first in range(self._next, end, _BLOCKS_AT_ONCE):
            found += self._read(np.arange(first, min(first + _BLOCKS_AT_ONCE, end)))
        self._next = max(self._next, end)
        if limit is None:
            self._pending = []
            return found
        cuts = [(some, sorted_keys_of(some.keys).rank(limit, False)) for some in found]
        self._pending = [_slice(some, cut, None) for some, cut in cuts if cut < len(some.keys)]
        return [_slice(some, 0, cut) for some, cut in cuts if cut]

    def _read(self, blocks: Ints) -> Iterator[KeyRows]:
        for found in self.opened.key_rows(blocks):
            numbers, kept = self._moved(found.numbers)
            words = np.sort(found.codes[kept].astype(np.int64) << 32 | numbers)
            yield _without_unused(KeyRows(found.keys, words >> 32, (words & _LOW_HALF).astype(np.uint32)))

    def _moved(self, numbers: npt.NDArray[np.integer]) -> tuple[Ints, Flags]:
        """Return the new numbers of those rows that are kept, and which these are."""
        row_groups = np.searchsorted(self._numbers.firsts, numbers, "right") - 1
        if bool((numbers >= (self._numbers.firsts + self._numbers.row_counts)[row_groups]).any()):
            raise corrupt(self.blob, "rows that no row group has")
        kept = self._is_kept[row_groups]
        return (numbers + self._moves[row_groups])[kept], kept

    def moved(self, rows: BitMap) -> Ints:
        """Return the new numbers of those rows that are kept."""
        return self._moved(self._numbers.to_numbers(np.frombuffer(rows.to_array(), np.uint32)))[0]


def _slice(some: KeyRows, first: int, end: int | None) -> KeyRows:
    low = int(np.searchsorted(some.codes, first))
    high = len(some.codes) if end is None else int(np.searchsorted(some.codes, end))
    return KeyRows(some.keys[first:end], some.codes[low:high] - first, some.numbers[low:high])


def _without_unused(some: KeyRows) -> KeyRows:
    """Leave out keys without rows: all their rows were in dropped row groups."""
    if len(some.keys) == np.count_nonzero(np.diff(some.codes, prepend=-1)):
        return some
    used, codes = np.unique(some.codes, return_inverse=True)
    return KeyRows(chosen_keys(some.keys, used), codes.astype(np.int64), some.numbers)


def _limits(sources: Sequence[Source], is_bytes: bool, rows_at_once: int) -> list[Key]:
    """Choose keys, ascending, with about `rows_at_once` rows between neighbours; estimated from the directories."""
    row_counts = np.concatenate([source.row_counts for source in sources])
    separators = join_keys([source.separators for source in sources], is_bytes)
    order = pc.sort_indices(pa.array(separators)).to_numpy()
    ranges = np.cumsum(row_counts[order]) // rows_at_once
    chosen = chosen_keys(separators, order[np.flatnonzero(np.diff(ranges)) + 1])
    return list(dict.fromkeys(tuple_of_keys(chosen)))


def _ordered(some: Sequence[KeyRows], row_bits: int, is_bytes: bool) -> OrderedRows:
    dictionary: pa.LargeBinaryArray | None = None
    if is_bytes:
        dictionary, ranks = rank_keys([one.keys for one in some])
        keys: Sequence[Rows | Ints] = np.split(ranks, np.cumsum([len(one.keys) for one in some])[:-1])
        least, most = 0, len(dictionary)
    else:
        keys = [one.keys for one in some if isinstance(one.keys, np.ndarray)]
        least, most = min(int(own[0]) for own in keys), max(int(own[-1]) for own in keys)
    numbers = (one.numbers.astype(np.uint32, copy=False) for one in some)
    keyed = [(own[one.codes], rows) for own, one, rows in zip(keys, some, numbers, strict=True)]
    return order_keyed(keyed, least, most, row_bits, dictionary)
