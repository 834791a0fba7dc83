"""The blocks of a postings blob: keys and the rows of each key, bit-packed (docs/payloads.md, Postings, "Block").

A block holds whole keys: several in one section, or one key in several sections. A row stands here for its number
(`puffin_index.kinds.postings.sort`). The rows of a key are runs of neighbouring rows of one row group; a group is the
runs of one key in one section. The block of one key may also be a row set, of rows of the row space: that takes fewer
bytes where more than about every ninth row has the key, and far less time to read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import zstandard

from puffin_index.keys.sorted_keys import bytes_of_keys, cut_blocks
from puffin_index.kinds.postings.sort import OrderedRows, RowNumbers
from puffin_index.roaring import serialize_row_sets
from puffin_index.storage.arrays import Flags, Ints, Rows, Words, are_new, ramps
from puffin_index.storage.bit_packing import bit_lengths, bounds_of_streams, pack_streams

KEY_CONTENT_LIMIT_BYTES = 32 * 1024
STREAMS = 4
_LEVEL = 3
_LEAST_SHARE = 4
"""The shortest sections have this share of the most runs."""

_DENSE = 16
"""A row set is tried where more than one row in this many has the key."""

BLOCK_HEADER = np.dtype([("sections", "<u4"), ("key_word", "<u4"), ("key_number", "<u8")])
SECTION_HEADER = np.dtype(
    [("runs", "<u2"), ("groups", "<u2"), ("widths", "u1", STREAMS), ("least", "<u4", STREAMS), ("rows", "<u4")]
)


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of blocks and pages of a blob; readers accept any.

    Attributes:
        block_runs: The most runs of a block of several keys. A look-up reads and decodes the block whole, about 4 KB;
            smaller blocks would enlarge the directory.
        section_runs: The most runs of a section.
        key_content_bytes: The most bytes of keys in a block of several; not above `KEY_CONTENT_LIMIT_BYTES`.
        root_bytes: The longest root page that lists the blocks itself.
        page_bytes: The approximate length of the other pages.
        rows_at_once: The approximate number of rows per step: few enough that the working arrays stay in the caches.
    """

    block_runs: int = 1024
    section_runs: int = 4096
    key_content_bytes: int = KEY_CONTENT_LIMIT_BYTES
    root_bytes: int = 24 * 1024
    page_bytes: int = 8 * 1024
    rows_at_once: int = 3 << 14


@dataclass(frozen=True, slots=True)
class WrittenBlock:
    """A block and its numbers for the directory; the key is one of `OrderedRows.span`."""

    data: bytes
    row_count: int
    key_count: int
    first_key: int
    is_set: bool = False


@dataclass(frozen=True, slots=True)
class _Runs:
    """The runs of some whole keys: first rows and lengths, and the first run of each key, followed by their number."""

    starts: Ints
    lengths: Ints
    keys: Words
    key_ends: Ints


_KeyPart: TypeAlias = tuple[int, int, bytes | memoryview]
"""Word, number and content that a block has for its keys."""


def write_blocks(
    ordered: OrderedRows, numbers: RowNumbers, sizes: Sizes, *, are_sets: bool = False
) -> Iterator[WrittenBlock]:
    """Encode the rows of a segment as blocks, in the order of keys: as row sets where that saves bytes, or if asked."""
    dictionary = ordered.dictionary
    writer = _IntKeyWriter(sizes) if dictionary is None else _BytesKeyWriter(dictionary, sizes)
    first = 0
    while first < len(ordered):
        end = ordered.end_of_key(min(first + sizes.rows_at_once, len(ordered)) - 1)
        keys, rows = ordered.span(first, end)
        if are_sets:
            yield from _write_sets(keys, rows, numbers)
        else:
            for block in _write_some(_runs(keys, rows), writer, sizes.section_runs):
                yield _smaller(block, keys, rows, numbers)
        first = end


def _write_sets(keys: Words, rows: Rows, numbers: RowNumbers) -> Iterator[WrittenBlock]:
    starts = [*np.flatnonzero(np.diff(keys, prepend=~keys[:1])).tolist(), len(keys)]
    sets = serialize_row_sets(numbers.rows_of(rows).astype(np.uint32), starts)
    for data, (first, end) in zip(sets, pairwise(starts), strict=True):
        yield WrittenBlock(data, end - first, 1, int(keys[first]), is_set=True)


def _smaller(block: WrittenBlock, keys: Words, rows: Rows, numbers: RowNumbers) -> WrittenBlock:
    """Return a block, or the row set of its only key if the set is smaller."""
    if block.key_count > 1:
        return block
    first = int(np.searchsorted(keys, np.uint64(block.first_key)))
    own = slice(first, first + block.row_count)
    if _DENSE * block.row_count <= int(rows[own][-1]) - int(rows[own][0]):
        return block
    (other,) = _write_sets(keys[own], rows[own], numbers)
    return min(block, other, key=lambda one: len(one.data))


def _runs(keys: Words, rows: Rows) -> _Runs:
    is_first_of_key = are_new(keys)
    begins = is_first_of_key.copy()
    begins[1:] |= rows[1:] - rows[:-1] != 1
    if begins.all():
        key_ends = np.append(np.flatnonzero(is_first_of_key), len(rows))
        return _Runs(rows.astype(np.int64), np.ones(len(rows), np.int64), keys[is_first_of_key], key_ends)
    places = np.flatnonzero(begins)
    key_places = np.flatnonzero(is_first_of_key[places])
    return _Runs(
        rows[places].astype(np.int64),
        np.diff(places, append=len(rows)),
        keys[places[key_places]],
        np.append(key_places, len(places)),
    )


def _write_some(runs: _Runs, writer: _IntKeyWriter | _BytesKeyWriter, limit: int) -> Iterator[WrittenBlock]:
    block_keys = writer.cut(int(runs.keys[0]), np.diff(runs.key_ends))
    block_runs = runs.key_ends[block_keys]
    section_runs, section_counts = _cut_sections(runs, block_runs, np.diff(block_keys) == 1, limit)
    sections = _write_sections(runs, section_runs)
    key_parts = writer.write(runs.keys, block_keys)
    row_counts = np.add.reduceat(runs.lengths, block_runs[:-1])
    key_counts = np.diff(block_keys)
    section = 0
    for block, (word, number, content) in enumerate(key_parts):
        own = sections[section : section + section_counts[block]]
        section += len(own)
        header = np.array((len(own), word, number), BLOCK_HEADER)
        lengths = np.array([len(section) for section in own], "<u4")
        data = b"".join((header.tobytes(), lengths.tobytes(), content, *own))
        yield WrittenBlock(data, int(row_counts[block]), int(key_counts[block]), int(runs.keys[block_keys[block]]))


def _cut_sections(runs: _Runs, block_runs: Ints, are_alone: Flags, limit: int) -> tuple[Ints, Ints]:
    """Cut the runs of keys that are alone in a block into sections of up to a limit, so that about least bits result.

    Runs of another kind, as of another data file, are best in a section of their own, as each section has its widths.
    Return the first run of each section, followed by the number of runs, and the number of sections of each block.
    """
    least = max(limit // _LEAST_SHARE, 1)
    counts = np.where(are_alone, -(-np.diff(block_runs) // least), 1)
    cuts, ordinals = ramps(block_runs[:-1], counts, least), ramps(np.zeros(len(counts), np.int64), counts)
    if len(cuts) == len(counts):
        return block_runs, counts
    owners, run_counts = np.repeat(np.arange(len(counts)), counts), np.diff(cuts, append=len(runs.starts))
    gaps = np.diff(runs.starts, prepend=0)
    # No section of the key has its first gap.
    gaps[runs.key_ends[:-1]] = gaps[np.minimum(runs.key_ends[:-1] + 1, len(gaps) - 1)]
    bounds = [end.reduceat(numbers, cuts) for numbers in (gaps, runs.lengths) for end in (np.minimum, np.maximum)]
    bits, are_cuts = _bits(bounds, run_counts), np.ones(len(cuts), np.bool_)
    size = 2 * least
    while size <= limit:
        is_first = np.diff(owners * len(gaps) + ordinals * least // size, prepend=-1) != 0
        firsts, joined = np.flatnonzero(is_first), np.cumsum(is_first) - 1
        ends = (np.minimum, np.maximum, np.minimum, np.maximum)
        together = [end.reduceat(own, firsts) for end, own in zip(ends, bounds, strict=True)]
        whole = _bits(together, np.add.reduceat(run_counts, firsts))
        pays = (whole <= np.add.reduceat(bits, firsts))[joined]
        are_cuts &= is_first | ~pays
        bits, size = np.where(pays, np.where(is_first, whole[joined], 0), bits), 2 * size
    return np.append(cuts[are_cuts], len(gaps)), np.bincount(owners[are_cuts], minlength=len(counts))


def _bits(bounds: Sequence[Ints], run_counts: Ints) -> Ints:
    """Return the bits of sections, given the least and most of their gaps and of their lengths."""
    least_gap, most_gap, least, most = bounds
    widths = bit_lengths((most_gap - least_gap).view(np.uint64)) + bit_lengths((most - least).view(np.uint64))
    bits: Ints = 8 * (4 + SECTION_HEADER.itemsize) + run_counts * widths
    return bits


def _write_sections(runs: _Runs, section_runs: Ints) -> list[bytes]:
    """Encode sections; section i holds the runs from `section_runs[i]` up to `section_runs[i + 1]`."""
    is_first = np.zeros(len(runs.starts), np.bool_)
    is_first[runs.key_ends[:-1]] = True
    # A key that goes on in the next section begins a new group there: no section needs another to be decoded.
    is_first[section_runs[:-1]] = True
    first_runs = np.flatnonzero(is_first)
    section_groups = np.searchsorted(first_runs, section_runs)
    headers = np.zeros(len(section_runs) - 1, SECTION_HEADER)
    headers["runs"], headers["groups"] = np.diff(section_runs) - 1, np.diff(section_groups) - 1
    headers["rows"] = np.add.reduceat(runs.lengths, section_runs[:-1])
    ends = (section_groups, section_groups, section_runs - section_groups, section_runs)
    packed: list[list[memoryview]] = []
    # One stream at a time: the working memory of each is free before the next begins.
    for stream, numbers in enumerate(_streams(runs, first_runs, ~is_first)):
        least, widths, above = _above_least(numbers.view(np.uint64), ends[stream])
        headers["widths"][:, stream], headers["least"][:, stream] = widths, least
        packed.append(pack_streams(above, ends[stream], widths))
    return [b"".join(parts) for parts in zip(map(np.void.tobytes, headers), *packed, strict=True)]


def _streams(runs: _Runs, first_runs: Ints, is_later: Flags) -> Iterator[Ints]:
    """Yield the numbers of the four streams, for all sections: counts, first rows, gaps, run lengths."""
    yield np.diff(first_runs, append=len(runs.starts))
    yield runs.starts[first_runs]
    later = np.flatnonzero(is_later)
    yield runs.starts[later] - (runs.starts[later - 1] + runs.lengths[later - 1])
    yield runs.lengths


def _above_least(numbers: Words, ends: Ints) -> tuple[Words, Ints, Words]:
    """Return the least number of each stream, the width of the differences to it, and these differences."""
    # With a width of 0, the equal numbers are never written: subtracting the least would be wasted.
    if len(numbers) and numbers.min() == numbers.max():
        least = np.where(ends[1:] > ends[:-1], numbers[0], np.uint64(0))
        return least, np.zeros(len(least), np.int64), numbers
    least, most = bounds_of_streams(numbers, ends)
    return least, bit_lengths(most - least), numbers - np.repeat(least, np.diff(ends))


class _IntKeyWriter:
    """Cuts keys into blocks, and encodes the keys of each as steps."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes

    def cut(self, first_key: int, run_counts: Ints) -> Ints:  # noqa: ARG002 - the other writer needs it
        return cut_blocks(np.cumsum(run_counts), self._sizes.block_runs)

    def write(self, keys: Words, ends: Ints) -> list[_KeyPart]:
        is_first = np.zeros(len(keys), np.bool_)
        is_first[ends[:-1]] = True
        steps = (keys[1:] - keys[:-1])[~is_first[1:]]
        step_ends = ends - np.arange(len(ends))
        least, widths, above = _above_least(steps, step_ends)
        return list(zip(widths.tolist(), least.tolist(), pack_streams(above, step_ends, widths), strict=True))


class _BytesKeyWriter:
    """Cuts keys into blocks, and encodes the keys of each as compressed bytes."""

    def __init__(self, dictionary: pa.LargeBinaryArray, sizes: Sizes) -> None:
        self._sizes = sizes
        self._data, self._offsets = bytes_of_keys(dictionary)
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL)

    def cut(self, first_key: int, run_counts: Ints) -> Ints:
        # Each key weighs the larger of its bytes and its share of the run limit, scaled to bytes: a block that keeps
        # the limit of weights keeps the limits of bytes and of runs.
        sizes = 4 + np.diff(self._offsets[first_key : first_key + len(run_counts) + 1])
        limit = self._sizes.key_content_bytes
        weights = np.maximum(sizes, run_counts * -(-limit // self._sizes.block_runs))
        return cut_blocks(np.cumsum(weights), limit)

    def write(self, keys: Words, ends: Ints) -> list[_KeyPart]:
        return [self._part(int(keys[first]), int(keys[end - 1]) + 1) for first, end in pairwise(ends.tolist())]

    def _part(self, first: int, end: int) -> _KeyPart:
        ends = self._offsets[first : end + 1]
        content = np.diff(ends).astype("<u4").tobytes() + self._data[ends[0] : ends[-1]].tobytes()
        stored = content if end - first == 1 else self._compressor.compress(content)
        if len(stored) >= len(content):
            stored = content
        return len(stored), len(content), stored
