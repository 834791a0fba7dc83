"""Merge the postings of several segments into one blob, one range of keys at a time, so that memory stays bounded."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from puffin_index.errors import BuildError, CorruptFileError
from puffin_index.keys.columns import KeyArray, chosen_keys, sorted_keys_of
from puffin_index.keys.leaf import Key
from puffin_index.keys.merge import rank_keys
from puffin_index.keys.sorted_keys import BytesKeys
from puffin_index.kinds.base import MergePart, Payload
from puffin_index.kinds.postings.blocks import Sizes
from puffin_index.kinds.postings.build import DEFAULT_SIZES, MAXIMUM_ROWS, append_blocks, finish_postings, most_set_keys
from puffin_index.kinds.postings.look_up import Postings
from puffin_index.kinds.postings.pages import Child
from puffin_index.kinds.postings.sort import OrderedRows, RowNumbers, order_keyed
from puffin_index.storage.arrays import Flags, Ints, Rows
from puffin_index.storage.parts import corrupt
from puffin_index.storage.ranged import run

ROWS_AT_ONCE = 4 * 1024 * 1024
"""The approximate number of rows in memory at a time; a single key with more rows exceeds the number."""
_BLOCKS_AT_ONCE = 1024
_LOW_HALF = np.int64(0xFFFF_FFFF)


@dataclass(frozen=True, slots=True, eq=False)
class _Some:
    """Distinct keys, ascending, each with rows; the place of each row's key, and its new number, ascending in a key."""

    keys: KeyArray
    owners: Ints
    rows: Rows


def merge_postings(
    parts: Sequence[MergePart], sizes: Sizes = DEFAULT_SIZES, rows_at_once: int = ROWS_AT_ONCE
) -> Payload:
    """Merge postings whose new bases ascend through all parts, with about `rows_at_once` rows in memory.

    Raises BuildError if rows exceed the row space, CorruptFileError or UnsupportedError for an unreadable part.
    """
    is_bytes = parts[0].payload.value_type.domain == "bytes"
    numbers = RowNumbers.of(np.concatenate([part.new_spans for part in parts]))
    if max(numbers.limit, numbers.row_limit) > MAXIMUM_ROWS:
        raise BuildError(f"{numbers.row_limit} rows in the row space of a segment, which has {MAXIMUM_ROWS}")
    ends = np.cumsum([0, *(int(np.count_nonzero(part.is_kept)) for part in parts)]).tolist()
    sources = [
        _Source(part, numbers.firsts[first:end]) for part, (first, end) in zip(parts, pairwise(ends), strict=True)
    ]
    null_rows = np.concatenate([numbers.rows_of(source.null_numbers()) for source in sources]).astype(np.uint32)
    row_count = numbers.row_count - len(null_rows)
    are_sets = sum(source.key_count for source in sources) <= most_set_keys(row_count)
    data = bytearray()
    blocks: list[Child] = []
    before: bytes | None = None
    for limit in (*_limits(sources, is_bytes, rows_at_once), None):
        some = [one for source in sources for one in source.below(limit) if len(one.rows)]
        if not some:
            continue
        ordered = _ordered(some, (numbers.limit - 1).bit_length(), is_bytes)
        blocks += append_blocks(data, ordered, numbers, sizes, before, are_sets=are_sets)
        before = ordered.dictionary[-1].as_py() if ordered.dictionary is not None else None
    if sum(block.row_count for block in blocks) != row_count:
        raise CorruptFileError("postings that do not have every row once", location=parts[0].payload.blob.location)
    return finish_postings(data, blocks, null_rows, is_bytes, numbers, sizes)


class _Source:
    """The postings of one part, read once from the first block to the last."""

    def __init__(self, part: MergePart, new_firsts: Ints) -> None:
        payload = part.payload
        self.blob = payload.blob
        self.postings = Postings(payload)
        self._numbers = RowNumbers.of(payload.spans)
        self._is_kept = part.is_kept
        self._moves = np.zeros(len(payload.spans), np.int64)
        self._moves[self._is_kept] = new_firsts - self._numbers.firsts[self._is_kept]
        run(self.postings.directory.load())
        pages = self.postings.directory.separators()
        self.separators: list[bytes] = [
            page.key(place) for page in pages if isinstance(page, BytesKeys) for place in range(len(page))
        ]
        table = self.postings.directory.table
        self.first_keys, self.row_counts = table.first_keys[:-1], np.diff(table.rows)
        # A key counts in every row group with rows.
        self.key_count = self.postings.directory.key_count * int(np.count_nonzero(self._numbers.row_counts))
        self._next = 0
        self._pending: list[_Some] = []

    def below(self, limit: Key | None) -> list[_Some]:
        """Return all keys below a limit, or all keys without a limit, that no earlier call returned."""
        end = self.postings.directory.block_count
        if isinstance(limit, int):
            end = int(np.searchsorted(self.first_keys, np.int64(limit)))
        elif limit is not None:
            # A block whose separator is not below the limit has no key below the limit.
            end = bisect_left(self.separators, limit)
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

    def _read(self, blocks: Ints) -> Iterator[_Some]:
        for found in self.postings.key_rows(blocks):
            numbers, kept = self._moved(found.numbers)
            words = np.sort(found.codes[kept].astype(np.int64) << 32 | numbers)
            yield _without_unused(_Some(found.keys, words >> 32, (words & _LOW_HALF).astype(np.uint32)))

    def _moved(self, numbers: Ints) -> tuple[Ints, Flags]:
        """Return the new numbers of those rows that are kept, and which these are."""
        row_groups = np.searchsorted(self._numbers.firsts, numbers, "right") - 1
        if bool((numbers >= (self._numbers.firsts + self._numbers.row_counts)[row_groups]).any()):
            raise corrupt(self.blob, "rows that no row group has")
        kept = self._is_kept[row_groups]
        return (numbers + self._moves[row_groups])[kept], kept

    def null_numbers(self) -> Ints:
        """Return the new numbers of the NULL rows that are kept."""
        rows = np.frombuffer(run(self.postings.nulls()).to_array(), np.uint32)
        return self._moved(self._numbers.to_numbers(rows))[0]


def _slice(some: _Some, first: int, end: int | None) -> _Some:
    low = int(np.searchsorted(some.owners, first))
    high = len(some.owners) if end is None else int(np.searchsorted(some.owners, end))
    return _Some(some.keys[first:end], some.owners[low:high] - first, some.rows[low:high])


def _without_unused(some: _Some) -> _Some:
    """Leave out keys without rows: all their rows were in dropped row groups."""
    if len(some.keys) == np.count_nonzero(np.diff(some.owners, prepend=-1)):
        return some
    used, owners = np.unique(some.owners, return_inverse=True)
    return _Some(chosen_keys(some.keys, used), owners.astype(np.int64), some.rows)


def _limits(sources: Sequence[_Source], is_bytes: bool, rows_at_once: int) -> list[Key]:
    """Choose keys, ascending, with about `rows_at_once` rows between neighbours; estimated from the directories."""
    row_counts = np.concatenate([source.row_counts for source in sources])
    texts = [separator for source in sources for separator in source.separators]
    first_keys = np.concatenate([source.first_keys for source in sources])
    order = np.array(sorted(range(len(texts)), key=texts.__getitem__), np.int64) if is_bytes else first_keys.argsort()
    ranges = np.cumsum(row_counts[order]) // rows_at_once
    chosen = order[np.flatnonzero(np.diff(ranges)) + 1].tolist()
    keys: list[Key] = [texts[place] for place in chosen] if is_bytes else first_keys[chosen].tolist()
    return list(dict.fromkeys(keys))


def _ordered(some: Sequence[_Some], row_bits: int, is_bytes: bool) -> OrderedRows:
    if is_bytes:
        dictionary, ranks = rank_keys([one.keys for one in some])
        ends = np.cumsum([len(one.keys) for one in some])[:-1]
        coded = [(own[one.owners], one.rows) for one, own in zip(some, np.split(ranks, ends), strict=True)]
        return order_keyed(coded, 0, len(dictionary), row_bits, dictionary)
    arrays = [one.keys for one in some if isinstance(one.keys, np.ndarray)]
    keyed = [(keys[one.owners], one.rows) for keys, one in zip(arrays, some, strict=True)]
    return order_keyed(keyed, min(int(keys[0]) for keys in arrays), max(int(keys[-1]) for keys in arrays), row_bits)
