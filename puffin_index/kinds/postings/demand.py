"""Tell from the directory of a postings blob what a test needs: which blocks, at what cost, for how many rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from puffin_index.keys.asked_test import MANY_KEYS, AskedTest
from puffin_index.kinds.postings.directory import PostingsDirectory
from puffin_index.storage.arrays import Flags, Ints
from puffin_index.storage.many_ranges import ramps
from puffin_index.storage.near import GAP_BYTES
from puffin_index.storage.parts import cost_of_parts

BLOCKS_AT_ONCE = 256


@dataclass(frozen=True, slots=True, eq=False)
class Cuts:
    """Places between keys, ascending; each pair of places encloses an interval of keys.

    Attributes:
        blocks: The block in or before which each place lies.
        inside: Whether the place lies inside the block, at the place's key; otherwise it lies before the whole block.
        keys: The key of each place; arbitrary for places not inside a block.
        right: Whether the place lies after equal keys instead of before them.
        key_limits: The most keys that each interval may have.
    """

    blocks: Ints
    inside: Flags
    keys: Ints | tuple[bytes, ...]
    right: Flags
    key_limits: Ints

    @property
    def lows(self) -> tuple[Ints, Flags]:
        """The blocks of the places where the intervals begin, and whether these places lie inside."""
        return self.blocks[0::2], self.inside[0::2]

    @property
    def highs(self) -> tuple[Ints, Flags]:
        """The blocks of the places where the intervals end, and whether these places lie inside."""
        return self.blocks[1::2], self.inside[1::2]

    def needed_blocks(self) -> Ints:
        """Return the blocks that may have keys of the intervals, ascending."""
        (lows, _), (highs, in_highs) = self.lows, self.highs
        if len(lows) == 1:
            return np.arange(lows[0], highs[0] + in_highs[0])
        return np.unique(ramps(lows, np.maximum(highs + in_highs - lows, 0)))

    def complement(self, block_count: int) -> Cuts:
        """Return the intervals of all other keys."""
        return Cuts(
            np.concatenate(([0], self.blocks, [block_count])),
            np.concatenate(([False], self.inside, [False])),
            (b"", *self.keys, b"") if isinstance(self.keys, tuple) else np.concatenate(([0], self.keys, [0])),
            np.concatenate(([False], self.right, [False])),
            np.full(len(self.key_limits) + 1, MANY_KEYS),
        )


def cuts_of(test: AskedTest, directory: PostingsDirectory, is_bytes: bool) -> Cuts:
    """Locate the places of a test among the blocks of some postings."""
    places = test.places(is_bytes)
    keys, right = places.keys, places.right
    if len(right) and not places.is_end.any():
        return Cuts(*directory.locate(keys, right), keys, right, places.key_limits)
    # A place before or after all keys has no key to search for: it lies before the first or after the last block.
    blocks = np.where(right, directory.block_count, 0)
    inside = np.zeros(len(right), np.bool_)
    asked = np.flatnonzero(~places.is_end)
    some: Ints | Sequence[bytes]
    some = [keys[place] for place in asked.tolist()] if isinstance(keys, tuple) else keys[asked]
    if len(asked):
        blocks[asked], inside[asked] = directory.locate(some, right[asked])
    return Cuts(blocks, inside, keys, right, places.key_limits)


def bounds_of(cuts: Cuts, directory: PostingsDirectory) -> tuple[int, int]:
    """Return the least and the greatest number of rows that the intervals may have."""
    table = directory.table
    (lows, in_lows), (highs, in_highs) = cuts.lows, cuts.highs
    least = table.rows[highs] - table.rows[lows + in_lows]
    most = table.rows[highs + in_highs] - table.rows[lows]
    within = in_highs & (lows == highs)
    blocks, asked = highs[within], cuts.key_limits[within]
    if len(blocks) > 1:
        blocks, owners = np.unique(blocks, return_inverse=True)
        asked = np.bincount(owners, asked).astype(np.int64)
    # Each key of a block that the test does not ask for has at least one row.
    most_within = table.rows[blocks + 1] - table.rows[blocks] - np.maximum(table.keys[blocks] - asked, 0)
    total = int(most[~within].sum()) + int(most_within.sum())
    return int(np.maximum(least, 0).sum()), min(total, int(table.rows[-1]))


def cost_of_blocks(blocks: Ints, directory: PostingsDirectory) -> tuple[int, int]:
    """Return the requests and bytes for reading some blocks.

    Args:
        blocks: The blocks, ascending.
        directory: The directory; of each run of neighbouring blocks it must have read the pages of the first and last.
    """
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


def cost_of_pages(blocks: Ints, directory: PostingsDirectory) -> tuple[int, int]:
    """Return the requests and bytes for reading those directory pages of some blocks that are not read yet."""
    return cost_of_parts(directory.missing(blocks))
