"""The directory of a postings blob, read lazily: which blocks a test needs, at what cost, for how many rows."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from puffin_index.keys.asked import MANY_KEYS, Places
from puffin_index.keys.columns import KeyArray
from puffin_index.keys.sorted_keys import BytesKeys, IntKeys, SortedKeys
from puffin_index.kinds.postings.pages import BLOCKS, PAGES, Page, parse_page
from puffin_index.storage.arrays import Flags, Ints, distinct, numbered, ramps
from puffin_index.storage.parts import Part, corrupt, cost_of_parts, parts_of
from puffin_index.storage.ranged import GAP_BYTES, Blob, Reading

# The memory of one child: five numbers in the table or six in the root, and two flags.
_CHILD_BYTES = 51
_EMPTY_BYTES = 4096


@dataclass(frozen=True, slots=True, eq=False)
class BlockTable:
    """The known numbers of the blocks: arrays by block number, filled as pages are read.

    A block ends where the next begins; `rows` counts those of all blocks before. `are_exact` marks separators that are
    the block's first key, `are_sets` row sets; `first_keys` are separators of the int64 domain.
    """

    offsets: Ints
    rows: Ints
    keys: Ints
    checksums: Ints
    first_keys: Ints
    are_exact: Flags
    are_sets: Flags

    @classmethod
    def empty(cls, block_count: int) -> BlockTable:
        """Return a table without known numbers."""
        offsets, rows, keys, checksums, first_keys = np.zeros((5, block_count + 1), np.int64)
        return cls(offsets, rows, keys, checksums, first_keys, *np.zeros((2, block_count + 1), np.bool_))

    def row_counts(self, blocks: Ints) -> Ints:
        """Return the number of rows of some blocks."""
        return self.rows[blocks + 1] - self.rows[blocks]

    def fill(self, first: int, page: Page) -> None:
        """Copy the numbers from a page whose first block is `first`."""
        end = first + len(page)
        self.offsets[first : end + 1], self.rows[first : end + 1] = page.offsets, page.rows + self.rows[first]
        self.keys[first:end], self.checksums[first:end] = page.keys, page.checksums
        self.are_exact[first:end], self.are_sets[first:end] = page.are_exact, page.are_sets
        if isinstance(page.separators, IntKeys):
            self.first_keys[first:end] = page.separators.keys


class PostingsDirectory:
    """Find the blocks of keys; read the root and each needed page only once. Safe to share between threads.

    The blocks end at `blocks_end` in the blob. Nothing is known before `load`; the numbers in `table` are known at both
    ends and on every page read by `locate` or `load`. `nbytes` is about the memory of all that.
    """

    def __init__(self, blob: Blob, root: Part, is_bytes: bool, blocks_end: int, row_count: int) -> None:
        self._blob = blob
        self._root_part = root
        self._is_bytes = is_bytes
        self._ends = (blocks_end, row_count)
        self._root: Page | None = None
        self.table = BlockTable.empty(0)
        self._pages: dict[int, SortedKeys] = {}
        self.nbytes = _EMPTY_BYTES
        self._lock = threading.Lock()

    @property
    def block_count(self) -> int:
        """The number of blocks of the blob."""
        return self._opened().block_count

    @property
    def key_count(self) -> int:
        """The number of keys of the blob; 0 before the root is loaded."""
        return 0 if self._root is None else int(self._root.keys.sum())

    def locate(self, keys: Ints | Sequence[bytes], right: Flags) -> Reading[tuple[Ints, Flags]]:
        """Find the place of each ascending key, before equal keys or (`right`) after them, as the directory tells.

        Return a block for each key, and whether the place lies inside the block, where only the block's keys tell the
        exact place; otherwise the place lies before the whole block.
        """
        root = self._opened()
        if not len(root):
            return np.zeros(len(keys), np.int64), np.zeros(len(keys), np.bool_)
        pages = np.zeros(len(keys), np.int64)
        if root.level == PAGES:
            pages = np.maximum(_last_not_above(root.separators, keys), 0)
        if pages[0] == pages[-1]:  # they ascend
            page = int(pages[0])
            yield from self._read_pages(pages[:1])
            return self._locate_in(page, keys, right)
        used = distinct(pages)
        yield from self._read_pages(used)
        blocks, inside = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.bool_)
        for page in used.tolist():
            chosen = np.flatnonzero(pages == page)
            blocks[chosen], inside[chosen] = self._locate_in(page, _chosen(keys, chosen), right[chosen])
        return blocks, inside

    def _locate_in(self, page: int, keys: Ints | Sequence[bytes], right: Flags) -> tuple[Ints, Flags]:
        """Find the places of keys among the blocks of a page of level 0."""
        first, separators = page * self._opened().child_blocks, self._pages[page]
        blocks = _last_not_above(separators, keys)
        at = np.maximum(blocks, 0)
        are_exact = self.table.are_exact[first + at]
        is_first = _equal(separators, at, keys) & are_exact & (blocks >= 0)
        # An exact separator settles the place before the first key. If the block has no other key, the separator
        # settles every place after the first key as well.
        before = (blocks < 0) | (is_first & ~right)
        after = ~before & are_exact & (self.table.keys[first + at] == 1)
        return first + np.where(after, at + 1, at), ~(before | after)

    def load(self, blocks: Ints | None = None) -> Reading[None]:
        """Read the root, and the directory pages of some blocks, or of all."""
        yield from self._open()
        yield from self._read_pages(self._pages_of(np.arange(self.block_count) if blocks is None else blocks))

    def cost_of_pages(self, blocks: Ints) -> tuple[int, int]:
        """Return the requests and bytes for reading those directory pages of some blocks that are not read yet."""
        missing = (page for page in self._pages_of(blocks).tolist() if page not in self._pages)
        return cost_of_parts(map(self._page_part, missing))

    def parts(self, blocks: Ints) -> list[Part]:
        """Return the places and checksums of blocks whose pages are loaded."""
        table = self.table
        starts, ends, checksums = table.offsets[blocks], table.offsets[blocks + 1], table.checksums[blocks]
        columns = zip(starts.tolist(), ends.tolist(), checksums.tolist(), strict=True)
        return [Part(start, end - start, checksum) for start, end, checksum in columns]

    def keys_at(self, blocks: Ints) -> KeyArray:
        """Return the separators of blocks whose pages are loaded."""
        if not self._is_bytes:
            return self.table.first_keys[blocks]
        root = self._opened()
        page_blocks = root.child_blocks if root.level == PAGES else root.block_count
        found = [self._pages[at // page_blocks].key(at % page_blocks) for at in blocks.tolist()]
        return pa.array(found, pa.large_binary())

    def _pages_of(self, blocks: Ints) -> Ints:
        root = self._opened()
        if root.level == BLOCKS:
            return np.empty(0, np.int64)
        return distinct(blocks // root.child_blocks)

    def _opened(self) -> Page:
        assert self._root is not None
        return self._root

    def _open(self) -> Reading[None]:
        if self._root is not None:
            return
        (data,) = yield from parts_of(self._blob, [self._root_part])
        with self._lock:
            if self._root is None:
                self._root = self._parse_root(data)

    def _parse_root(self, data: memoryview) -> Page:
        root = parse_page(self._blob, data, self._root_part.offset, self._is_bytes)
        if int(root.rows[-1]) != self._ends[1]:
            raise corrupt(self._blob, f"{root.rows[-1]} rows, not {self._ends[1]}", self._root_part.offset)
        self.table = BlockTable.empty(root.block_count)
        self.table.offsets[-1], self.table.rows[-1] = self._ends
        if root.level == BLOCKS:
            self._pages[0] = self._take(0, root)
        self.nbytes += _CHILD_BYTES * len(root)
        # The caller sets the root last: to other threads, its presence means that the table is ready.
        return root

    def _page_part(self, page: int) -> Part:
        root = self._opened()
        start = int(root.offsets[page])
        return Part(start, int(root.offsets[page + 1]) - start, int(root.checksums[page]))

    def _read_pages(self, pages: Ints) -> Reading[None]:
        missing = [page for page in pages.tolist() if page not in self._pages]
        if not missing:
            return
        parts = [self._page_part(page) for page in missing]
        contents = yield from parts_of(self._blob, parts)
        with self._lock:
            for page, part, data in zip(missing, parts, contents, strict=True):
                # Another thread may have read the page by now.
                if page not in self._pages:
                    self._pages[page] = self._parse_child(page, part, data)

    def _parse_child(self, page: int, part: Part, data: memoryview) -> SortedKeys:
        root = self._opened()
        parsed = parse_page(self._blob, data, part.offset, self._is_bytes)
        first = page * root.child_blocks
        count = min(root.child_blocks, root.block_count - first)
        rows = int(root.rows[page + 1] - root.rows[page])
        if parsed.level != BLOCKS or len(parsed) != count or int(parsed.rows[-1]) != rows:
            raise corrupt(self._blob, "a directory page that does not fit the root", part.offset)
        self.table.rows[first] = root.rows[page]
        return self._take(first, parsed)

    def _take(self, first: int, page: Page) -> SortedKeys:
        """Copy a page into the table; separators refer to the table, so that memory holds each number once."""
        self.table.fill(first, page)
        separators = page.separators
        self.nbytes += _CHILD_BYTES * len(page) + (len(separators.data) if isinstance(separators, BytesKeys) else 0)
        is_bytes = isinstance(separators, BytesKeys)
        return separators if is_bytes else IntKeys(self.table.first_keys[first : first + len(page)])


def _chosen(keys: Ints | Sequence[bytes], places: Ints) -> Ints | Sequence[bytes]:
    return keys[places] if isinstance(keys, np.ndarray) else [keys[place] for place in places.tolist()]


def _last_not_above(separators: SortedKeys, keys: Ints | Sequence[bytes]) -> Ints:
    """Return, for each key, the last child whose separator is not greater than the key; -1 without such a child."""
    if isinstance(keys, np.ndarray):
        assert isinstance(separators, IntKeys)
        return np.searchsorted(separators.keys, keys, "right").astype(np.int64) - 1
    if len(keys) > len(separators):
        # Both ascend, so the fewer may as well be searched for among the more.
        firsts = [bisect_left(keys, separators.key(child)) for child in range(len(separators))]
        return np.searchsorted(firsts, np.arange(len(keys)), "right").astype(np.int64) - 1
    return np.array([separators.rank(key, True) - 1 for key in keys], np.int64)


def _equal(separators: SortedKeys, places: Ints, keys: Ints | Sequence[bytes]) -> Flags:
    if isinstance(separators, IntKeys):
        return np.equal(separators.keys[places], keys).astype(np.bool_, copy=False)
    used, numbers = numbered(places)
    own = [separators.key(place) for place in used.tolist()]
    return np.array([own[at] == key for at, key in zip(numbers.tolist(), keys, strict=True)], np.bool_)


BLOCKS_AT_ONCE = 1024


@dataclass(frozen=True, slots=True, eq=False)
class Cuts:
    """Places between keys, ascending, each pair around an interval of keys: `Places` located among blocks.

    A place lies in its block, at its key, or before the whole block; its key is then arbitrary.
    """

    blocks: Ints
    inside: Flags
    keys: Ints | tuple[bytes, ...]
    right: Flags
    key_limits: Ints

    @property
    def ends(self) -> tuple[Ints, Flags, Ints, Flags]:
        """The blocks of the places where intervals begin, whether these lie inside, and the same where they end."""
        return self.blocks[0::2], self.inside[0::2], self.blocks[1::2], self.inside[1::2]

    def needed_blocks(self) -> Ints:
        """Return the blocks that may have keys of the intervals, ascending."""
        lows, _, highs, in_highs = self.ends
        if len(lows) == 1:
            return np.arange(lows[0], highs[0] + in_highs[0])
        return distinct(ramps(lows, np.maximum(highs + in_highs - lows, 0)))

    def complement(self, block_count: int) -> Cuts:
        """Return the intervals of all other keys."""
        return Cuts(
            np.concatenate(([0], self.blocks, [block_count])),
            np.concatenate(([False], self.inside, [False])),
            (b"", *self.keys, b"") if isinstance(self.keys, tuple) else np.concatenate(([0], self.keys, [0])),
            np.concatenate(([False], self.right, [False])),
            np.full(len(self.key_limits) + 1, MANY_KEYS),
        )


def cuts_at(places: Places, directory: PostingsDirectory) -> Reading[Cuts]:
    """Locate places among the blocks of some postings, whose root is loaded."""
    keys, right = places.keys, places.right
    if len(right) and not places.is_end.any():
        located = yield from directory.locate(keys, right)
        return Cuts(*located, keys, right, places.key_limits)
    # A place before or after all keys has no key to search for: it lies before the first or after the last block.
    blocks = np.where(right, directory.block_count, 0)
    inside = np.zeros(len(right), np.bool_)
    asked = np.flatnonzero(~places.is_end)
    if len(asked):
        blocks[asked], inside[asked] = yield from directory.locate(_chosen(keys, asked), right[asked])
    return Cuts(blocks, inside, keys, right, places.key_limits)


def bounds_of(cuts: Cuts, directory: PostingsDirectory) -> tuple[int, int]:
    """Return the least and the greatest number of rows that the intervals may have."""
    table = directory.table
    lows, in_lows, highs, in_highs = cuts.ends
    least = table.rows[highs] - table.rows[lows + in_lows]
    most = table.rows[highs + in_highs] - table.rows[lows]
    within = in_highs & (lows == highs)
    blocks, asked = highs[within], cuts.key_limits[within]
    if len(blocks) > 1:
        blocks, owners = numbered(blocks)
        asked = np.bincount(owners, asked).astype(np.int64)
    # Each key of a block that the test does not ask for has at least one row.
    most_within = table.row_counts(blocks) - np.maximum(table.keys[blocks] - asked, 0)
    total = int(most[~within].sum()) + int(most_within.sum())
    return int(np.maximum(least, 0).sum()), min(total, int(table.rows[-1]))


def cost_of_blocks(blocks: Ints, directory: PostingsDirectory) -> tuple[int, int]:
    """Return the requests and bytes for reading ascending blocks, whose runs begin and end on pages that were read."""
    if not len(blocks):
        return 0, 0
    offsets = directory.table.offsets
    if len(blocks) == 1:
        return 1, int(offsets[blocks[0] + 1] - offsets[blocks[0]])
    breaks = np.flatnonzero(np.diff(blocks) > 1) + 1
    gaps = offsets[blocks[breaks]] - offsets[blocks[breaks - 1] + 1]
    apart = (gaps > GAP_BYTES) | (breaks % BLOCKS_AT_ONCE == 0)
    chunk_ends = np.arange(BLOCKS_AT_ONCE, len(blocks), BLOCKS_AT_ONCE)
    requests = 1 + len(np.union1d(breaks[apart], chunk_ends))
    span = int(offsets[blocks[-1] + 1] - offsets[blocks[0]])
    return requests, span - int(gaps[apart].sum())
