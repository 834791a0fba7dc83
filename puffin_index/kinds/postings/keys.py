"""Decode the keys of postings blocks, and search the blocks of many segments by the same array operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from puffin_index.keys.columns import KeyArray
from puffin_index.keys.sorted_keys import BytesKeys, parse_block_of_bytes
from puffin_index.kinds.postings.blocks import KEY_CONTENT_LIMIT_BYTES
from puffin_index.kinds.postings.directory import Cuts
from puffin_index.kinds.postings.parse import ParsedBlocks, StoredBlocks, parse_blocks, rows_of_runs
from puffin_index.kinds.postings.sort import RowNumbers
from puffin_index.storage.arrays import Flags, Ints, numbered
from puffin_index.storage.bit_packing import unpack_streams
from puffin_index.storage.parts import content_of_frame, corrupt


def _first_runs(blocks: ParsedBlocks, places: Ints, ranks: Ints) -> Ints:
    """Return the first run of the key of each rank in a block, by ascending places, or raise CorruptFileError."""
    begins = blocks.section_runs[blocks.block_sections[places]]
    ends = blocks.section_runs[blocks.block_sections[places + 1]]
    # A block of several sections has one key: its only ranks are 0 and 1, so its first section suffices.
    chosen, owners = numbered(places)
    sections = blocks.block_sections[chosen]
    group_ends = np.concatenate(([0], np.cumsum(blocks.group_counts(sections))))
    groups = blocks.groups[sections]
    firsts = (np.cumsum(groups) - groups)[owners]
    between = begins + group_ends[firsts + np.minimum(ranks, groups[owners])] - group_ends[firsts]
    is_end = ranks == blocks.key_counts[places]
    return np.where(is_end, ends, between)


def keys_of_blocks(parsed: ParsedBlocks) -> KeyArray:
    """Return all keys of some blocks, ascending. Raises CorruptFileError if the keys of a block are damaged."""
    if not parsed.is_bytes:
        return _int_keys(parsed, np.arange(len(parsed.offsets)))
    keys = _every_bytes_key(parsed)
    if pc.any(pc.less_equal(keys[1:], keys[:-1])).as_py():
        raise corrupt(parsed.blob, "keys that do not ascend", int(parsed.offsets[0]))
    return keys


def _every_bytes_key(parsed: ParsedBlocks) -> pa.LargeBinaryArray:
    """Return the keys of all blocks, parsed by the same array operations. See `parse_block_of_bytes`."""
    counts = parsed.key_counts
    contents = [_content(parsed, block, count) for block, count in enumerate(counts.tolist())]
    begins, sizes = (4 * counts).tolist(), np.array([len(content) for content in contents], np.int64)
    lengths = b"".join(content[:begin] for content, begin in zip(contents, begins, strict=True))
    keys = b"".join(content[begin:] for content, begin in zip(contents, begins, strict=True))
    fits = sizes >= 4 * counts
    if fits.all():
        offsets = np.zeros(int(counts.sum()) + 1, np.int64)
        np.cumsum(np.frombuffer(lengths, "<u4"), out=offsets[1:])
        fits = offsets[np.cumsum(counts)] == np.cumsum(sizes - 4 * counts)
    if not fits.all():
        raise corrupt(parsed.blob, "keys that do not fill their block", int(parsed.offsets[int(np.argmin(fits))]))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(keys)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def _ranks(parsed: ParsedBlocks, places: Ints, keys: Ints | Sequence[bytes], right: Flags) -> Ints:
    """Return how many keys of a block, by ascending places, come before each key, or raise CorruptFileError."""
    blocks, owners = numbered(places)
    if not isinstance(keys, np.ndarray):
        opened = [_bytes_keys(parsed, block) for block in blocks.tolist()]
        queries = zip(owners.tolist(), keys, right.tolist(), strict=True)
        return np.array([opened[owner].rank(key, after) for owner, key, after in queries], np.int64)
    found = _int_keys(parsed, blocks)
    counts = parsed.key_counts[blocks]
    firsts = np.cumsum(counts) - counts
    if parsed.owners[blocks[0]] != parsed.owners[blocks[-1]]:
        own_keys = np.split(found, firsts[1:])
        asked = zip(owners.tolist(), keys.tolist(), right.tolist(), strict=True)
        return np.array([own_keys[owner].searchsorted(k, "right" if after else "left") for owner, k, after in asked])
    # The keys of all blocks of a blob ascend, so a single search of all blocks replaces one search per block.
    ranks = np.where(right, np.searchsorted(found, keys, "right"), np.searchsorted(found, keys, "left"))
    own: Ints = np.clip(ranks - firsts[owners], 0, counts[owners])
    return own


def _int_keys(parsed: ParsedBlocks, blocks: Ints) -> Ints:
    counts = parsed.key_counts[blocks]
    steps = np.zeros(int(counts.sum()), np.uint64)
    firsts = np.cumsum(counts) - counts
    is_step = np.ones(len(steps), np.bool_)
    is_step[firsts] = False
    above = unpack_streams(parsed.raw, parsed.key_starts[blocks], counts - 1, parsed.key_words[blocks])
    steps[is_step] = above + np.repeat(parsed.key_numbers[blocks], counts - 1)
    # All sums wrap modulo 2 ** 64: the difference to the sum at the block's first key is right all the same.
    sums = np.cumsum(steps)
    keys: Ints = (sums - np.repeat(sums[firsts] - parsed.first_keys[blocks].view(np.uint64), counts)).view(np.int64)
    descends = keys[1:] <= keys[:-1]
    blobs = parsed.owners[blocks]
    if blobs[0] != blobs[-1]:
        descends[firsts[1:][blobs[1:] != blobs[:-1]] - 1] = False
    if bool(descends.any()):
        raise corrupt(parsed.blob, "keys that do not ascend", int(parsed.offsets[blocks[0]]))
    return keys


def _bytes_keys(parsed: ParsedBlocks, block: int) -> BytesKeys:
    count = int(parsed.key_counts[block])
    return parse_block_of_bytes(parsed.blob, _content(parsed, block, count), int(parsed.offsets[block]), count, "<")


def _content(parsed: ParsedBlocks, block: int, key_count: int) -> memoryview:
    start, length = int(parsed.key_starts[block]), int(parsed.key_numbers[block])
    stored = parsed.raw[start : start + int(parsed.key_words[block])]
    if len(stored) == length:
        return stored
    offset = int(parsed.offsets[block])
    if key_count == 1 or length > KEY_CONTENT_LIMIT_BYTES:
        raise corrupt(parsed.blob, f"{key_count} keys of {length} bytes in {len(stored)}", offset)
    return content_of_frame(parsed.blob, stored, offset, length, length)


@dataclass(frozen=True, slots=True, eq=False)
class AskedBlocks:
    """Blocks of one blob, the places around the keys to look for, and the row groups behind its row numbers.

    `rows` has the rows of the blocks that are row sets, all of which are asked for; `stored` has the other blocks.
    """

    stored: StoredBlocks
    cuts: Cuts
    numbers: RowNumbers
    is_bytes: bool
    rows: BitMap

    def rows_of_all(self, every: Sequence[AskedBlocks]) -> list[BitMap]:
        """Return the rows with the keys asked for of each of several blobs of a domain, or raise CorruptFileError."""
        some = [one for one in every if len(one.stored.numbers)]
        if not some:
            return [one.rows for one in every]
        parsed = parse_blocks([one.stored for one in some], self.is_bytes)
        runs = runs_of(parsed, some)
        owners = np.repeat(np.arange(len(some)), [len(one.cuts.blocks) // 2 for one in some])
        found = iter(rows_of_runs(parsed, runs[0::2], runs[1::2], owners, [one.numbers for one in some]))
        return [next(found) | one.rows if len(one.stored.numbers) else one.rows for one in every]


def runs_of(parsed: ParsedBlocks, asked: Sequence[AskedBlocks]) -> Ints:
    """Return the first run and the end of the runs of each interval, alternately."""
    places, is_here = _places(asked)
    runs = parsed.section_runs[parsed.block_sections[places]]
    here = np.flatnonzero(is_here)
    if not len(here):
        return runs
    right = np.concatenate([one.cuts.right for one in asked])
    ranks = np.zeros(len(places), np.int64)
    ranks[here] = _ranks(parsed, places[here], _keys(asked, here), right[here])
    # Most blocks read for one key turn out not to have the key: decoding their run counts would be wasted.
    empty = is_here[0::2] & is_here[1::2] & (places[0::2] == places[1::2]) & (ranks[0::2] == ranks[1::2])
    there = here[~np.repeat(empty, 2)[here]]
    if len(there):
        runs[there] = _first_runs(parsed, places[there], ranks[there])
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
