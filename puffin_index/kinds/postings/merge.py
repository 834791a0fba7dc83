"""Merge the postings of several segments into one blob, one range of keys at a time, so that memory stays bounded."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from puffin_index.errors import BuildError, CorruptFileError
from puffin_index.keys.columns import KeyArray, chosen_keys, sorted_keys_of
from puffin_index.keys.leaf import Key
from puffin_index.keys.merge import rank_keys
from puffin_index.keys.sorted_keys import BytesKeys
from puffin_index.kinds.base import MergePart, Payload, new_blocks
from puffin_index.kinds.postings.blocks import Sizes
from puffin_index.kinds.postings.build import (
    DEFAULT_SIZES,
    MAXIMUM_ROWS,
    POSTINGS,
    append_blocks,
    finish_postings,
)
from puffin_index.kinds.postings.columns import group_codes
from puffin_index.kinds.postings.keys import keys_of_blocks
from puffin_index.kinds.postings.look_up import Postings
from puffin_index.kinds.postings.pages import Child
from puffin_index.kinds.postings.rows import decode_runs
from puffin_index.kinds.postings.sort import OrderedRows, RowNumbers, order_keyed
from puffin_index.roaring.union import BrokenSetError, LooseContainers, StoredSets, assemble_sets, joined
from puffin_index.storage.arrays import Ints, Rows, ramps
from puffin_index.storage.parts import corrupt

ROWS_AT_ONCE = 4 * 1024 * 1024
"""The approximate number of rows in memory at a time; a single key with more rows exceeds the number."""
_BLOCKS_AT_ONCE = 1024


@dataclass(frozen=True, slots=True, eq=False)
class _Some:
    """Distinct keys, ascending, each with rows; the place of each row's key, and its new number, ascending in a key."""

    keys: KeyArray
    owners: Ints
    rows: Rows


def merge_postings(
    parts: Sequence[MergePart],
    sizes: Sizes = DEFAULT_SIZES,
    rows_at_once: int = ROWS_AT_ONCE,
) -> Payload:
    """Merge postings whose new bases ascend through all parts, with about `rows_at_once` rows in memory.

    Raises BuildError if the rows exceed the row space, CorruptFileError or UnsupportedError for a part that cannot be
    read.
    """
    is_bytes = parts[0].payload.value_type.domain == "bytes"
    numbers = RowNumbers.of(np.concatenate([part.new_spans for part in parts]))
    if max(numbers.limit, numbers.row_limit) > MAXIMUM_ROWS:
        raise BuildError(f"{numbers.row_limit} rows in the row space of a segment, which has {MAXIMUM_ROWS}")
    sources: list[_Source] = []
    first = 0
    for part in parts:
        end = first + int(np.count_nonzero(part.is_kept))
        sources.append(_Source(part, numbers.firsts[first:end]))
        first = end
    data = bytearray()
    blocks: list[Child] = []
    before: bytes | None = None
    for ordered in _ranges(sources, numbers, is_bytes, rows_at_once):
        blocks += append_blocks(data, ordered, sizes, before)
        before = ordered.dictionary[-1].as_py() if ordered.dictionary is not None else None
    nulls, null_count = _merge_nulls(parts, sources)
    if sum(block.row_count for block in blocks) + null_count != numbers.row_count:
        raise CorruptFileError("postings that do not have every row once", location=parts[0].payload.blob.location)
    return finish_postings(POSTINGS, data, blocks, nulls, is_bytes, numbers, sizes)


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
        pages = self.postings.directory.separators()
        self.separators: list[bytes] = [
            page.key(place) for page in pages if isinstance(page, BytesKeys) for place in range(len(page))
        ]
        self._next = 0
        self._pending: list[_Some] = []

    @property
    def first_keys(self) -> Ints:
        """The first key of each block; only in the int64 domain."""
        return self.postings.directory.table.first_keys[:-1]

    @property
    def row_counts(self) -> Ints:
        """The number of rows of each block."""
        return np.diff(self.postings.directory.table.rows)

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
            found.append(self._read(np.arange(first, min(first + _BLOCKS_AT_ONCE, end))))
        self._next = max(self._next, end)
        if limit is None:
            self._pending = []
            return found
        cuts = [(some, sorted_keys_of(some.keys).rank(limit, False)) for some in found]
        self._pending = [_slice(some, cut, None) for some, cut in cuts if cut < len(some.keys)]
        return [_slice(some, 0, cut) for some, cut in cuts if cut]

    def _read(self, blocks: Ints) -> _Some:
        parsed = self.postings.scan(blocks)
        keys = keys_of_blocks(parsed.raw)
        sections = np.arange(len(parsed.runs))
        starts, lengths = decode_runs(parsed, sections)
        counts = np.ones(len(starts), np.int64) if lengths is None else lengths
        owners = np.repeat(group_codes(parsed), parsed.group_counts(sections))
        row_groups = np.searchsorted(self._numbers.firsts, starts, "right") - 1
        # No run reaches into the next row group, so each run moves or is dropped as a whole.
        ends = (self._numbers.firsts + self._numbers.row_counts)[row_groups]
        if bool((starts + counts > ends).any()):
            raise corrupt(self.blob, "rows that no row group has", int(parsed.raw.offsets[0]))
        kept = self._is_kept[row_groups]
        starts = (starts + self._moves[row_groups])[kept]
        counts, owners = counts[kept], owners[kept]
        some = _Some(keys, np.repeat(owners, counts), ramps(starts, counts).astype(np.uint32))
        return some if kept.all() else _without_unused(some)


def _slice(some: _Some, first: int, end: int | None) -> _Some:
    """Return the keys from one place to another, and their rows."""
    low = int(np.searchsorted(some.owners, first))
    high = len(some.owners) if end is None else int(np.searchsorted(some.owners, end))
    return _Some(some.keys[first:end], some.owners[low:high] - first, some.rows[low:high])


def _without_unused(some: _Some) -> _Some:
    """Leave out keys without rows: all their rows were in dropped row groups."""
    used, owners = np.unique(some.owners, return_inverse=True)
    return _Some(chosen_keys(some.keys, used), owners.astype(np.int64), some.rows)


def _ranges(
    sources: Sequence[_Source], numbers: RowNumbers, is_bytes: bool, rows_at_once: int
) -> Iterator[OrderedRows]:
    """Yield the rows of each range of keys, by ascending keys."""
    for limit in (*_limits(sources, is_bytes, rows_at_once), None):
        some = [one for source in sources for one in source.below(limit) if len(one.rows)]
        if some:
            yield _ordered(some, (numbers.limit - 1).bit_length(), is_bytes)


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


def _merge_nulls(parts: Sequence[MergePart], sources: Sequence[_Source]) -> tuple[bytes, int]:
    """Return the serialised set of all NULL rows, and their number."""
    found: list[LooseContainers] = []
    for part, source in zip(parts, sources, strict=True):
        data = source.postings.read_nulls()
        if len(data):
            place = part.payload.blob.location
            one = StoredSets.of([data], place).containers()
            found.append(
                one.moved(one.sets, new_blocks(part.payload.blob, one.blocks, part.payload.spans, part.new_bases))
            )
    containers = joined(found) if found else None
    if containers is None or not len(containers.blocks):
        return b"", 0
    try:
        return assemble_sets(containers, 1).data.tobytes(), int(containers.cardinalities.sum())
    except BrokenSetError as error:
        raise CorruptFileError(f"NULL rows: {error}", location=parts[0].payload.blob.location) from error
