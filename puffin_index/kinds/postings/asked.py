"""Blocks of postings that were read for a test, of one segment or of many: searched by the same array operations."""

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
    """Blocks of one blob, and the keys in them that are asked for.

    Attributes:
        stored: The blocks.
        cuts: Around the keys.
        numbers: What rows the blob's row numbers are.
        form: The form of the keys.
    """

    stored: StoredBlocks
    cuts: Cuts
    numbers: RowNumbers
    form: int

    def rows_of_all(self, every: Sequence[AskedBlocks]) -> list[BitMap]:
        """Return the rows of each of several blobs that have the keys asked for; see `rows_of_asked`."""
        return rows_of_asked(every)


def rows_of_asked(asked: Sequence[AskedBlocks], near: Near | None = None) -> list[BitMap]:
    """Return the rows of each blob that have the keys asked for.

    Args:
        asked: Blocks of some blobs, with keys of one form; not none.
        near: Of the only blob, the runs that are wanted: rows of others may be left out.

    Raises:
        CorruptFileError: If a block is not what was written; where there are several blobs, it may name another.
    """
    parsed = parse_blocks([one.stored for one in asked], asked[0].form)
    runs = _runs(parsed, asked)
    owners = np.repeat(np.arange(len(asked)), [len(one.cuts.blocks) // 2 for one in asked])
    return rows_of_runs(parsed, runs[0::2], runs[1::2], owners, [one.numbers for one in asked], near)


def _runs(parsed: ParsedBlocks, asked: Sequence[AskedBlocks]) -> Ints:
    """Where the runs of each interval begin and end, in turns."""
    places, is_here = _places(asked)
    runs = parsed.section_runs[parsed.block_sections[places]]
    here = np.flatnonzero(is_here)
    if not len(here):
        return runs
    first_keys = np.concatenate([one.stored.first_keys for one in asked])
    right = np.concatenate([one.cuts.right for one in asked])
    ranks = np.zeros(len(places), np.int64)
    ranks[here] = key_ranks(parsed.raw, places[here], _keys(asked, here), right[here], first_keys)
    # Of most blocks that are read for one key, the key is none: where runs begin need not be known there.
    empty = is_here[0::2] & is_here[1::2] & (places[0::2] == places[1::2]) & (ranks[0::2] == ranks[1::2])
    there = here[~np.repeat(empty, 2)[here]]
    if len(there):
        runs[there] = first_runs(parsed, places[there], ranks[there])
    return runs


def _places(asked: Sequence[AskedBlocks]) -> tuple[Ints, Flags]:
    """The place among all blocks that each cut is in or before, and whether it is inside of that block."""
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
