"""Search blocks of postings for the keys of a test: the blocks of many segments by the same array operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pyroaring import BitMap

from puffin_index.kinds.postings.demand import Cuts
from puffin_index.kinds.postings.keys import first_runs, key_ranks
from puffin_index.kinds.postings.numbers import RowNumbers
from puffin_index.kinds.postings.parse import ParsedBlocks, StoredBlocks, parse_blocks
from puffin_index.kinds.postings.rows import Near, rows_of_runs
from puffin_index.storage.arrays import Flags, Ints


@dataclass(frozen=True, slots=True, eq=False)
class AskedBlocks:
    """Blocks of one blob and the keys to look for.

    Attributes:
        stored: The blocks.
        cuts: The places around the keys.
        numbers: The row groups behind the row numbers of the blob.
        form: `INT_KEYS` or `BYTES_KEYS`.
    """

    stored: StoredBlocks
    cuts: Cuts
    numbers: RowNumbers
    form: int

    def rows_of_all(self, every: Sequence[AskedBlocks]) -> list[BitMap]:
        """Return, for each of several blobs, the rows with the keys asked for; see `rows_of_asked`."""
        return rows_of_asked(every)


def rows_of_asked(asked: Sequence[AskedBlocks], near: Near | None = None) -> list[BitMap]:
    """Return, for each blob, the rows with the keys asked for.

    Args:
        asked: Blocks of at least one blob, with keys of one form.
        near: The wanted runs, allowed only with a single blob; rows of other runs may be missing from the result.

    Raises:
        CorruptFileError: If a block is damaged. With several blobs, the error may name another of them.
    """
    parsed = parse_blocks([one.stored for one in asked], asked[0].form)
    runs = _runs(parsed, asked)
    owners = np.repeat(np.arange(len(asked)), [len(one.cuts.blocks) // 2 for one in asked])
    return rows_of_runs(parsed, runs[0::2], runs[1::2], owners, [one.numbers for one in asked], near)


def _runs(parsed: ParsedBlocks, asked: Sequence[AskedBlocks]) -> Ints:
    """Return the first run and the end of the runs of each interval, alternately."""
    places, is_here = _places(asked)
    runs = parsed.section_runs[parsed.block_sections[places]]
    here = np.flatnonzero(is_here)
    if not len(here):
        return runs
    first_keys = np.concatenate([one.stored.first_keys for one in asked])
    right = np.concatenate([one.cuts.right for one in asked])
    ranks = np.zeros(len(places), np.int64)
    ranks[here] = key_ranks(parsed.raw, places[here], _keys(asked, here), right[here], first_keys)
    # Most blocks read for one key turn out not to have the key: decoding their run counts would be wasted.
    empty = is_here[0::2] & is_here[1::2] & (places[0::2] == places[1::2]) & (ranks[0::2] == ranks[1::2])
    there = here[~np.repeat(empty, 2)[here]]
    if len(there):
        runs[there] = first_runs(parsed, places[there], ranks[there])
    return runs


def _places(asked: Sequence[AskedBlocks]) -> tuple[Ints, Flags]:
    """Return the block (its place among all blocks) in or before which each cut lies, and whether the cut is inside."""
    places, is_here, before = [], [], 0
    for one in asked:
        numbers, blocks = one.stored.numbers, one.cuts.blocks
        own = numbers.searchsorted(blocks)
        is_here.append(one.cuts.inside & (numbers[np.minimum(own, len(numbers) - 1)] == blocks))
        places.append(own + before)
        before += len(numbers)
    return np.concatenate(places), np.concatenate(is_here)


def _keys(asked: Sequence[AskedBlocks], chosen: Ints) -> Ints | list[bytes]:
    keys: list[bytes] = []
    numbers: list[Ints] = []
    for one in asked:
        if isinstance(one.cuts.keys, tuple):
            keys += one.cuts.keys
        else:
            numbers.append(one.cuts.keys)
    return np.concatenate(numbers)[chosen] if numbers else [keys[at] for at in chosen.tolist()]
