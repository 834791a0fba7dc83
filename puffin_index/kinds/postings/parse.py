"""Read and parse blocks of a postings blob: all headers and lengths are checked, streams are decoded on demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from puffin_index.kinds.postings.blocks import BLOCK_HEADER, SECTION_HEADER, STREAMS
from puffin_index.kinds.postings.directory import BlockTable, PostingsDirectory
from puffin_index.storage.arrays import Flags, Ints, Words, ramps, records_at
from puffin_index.storage.bit_packing import MAXIMUM_WIDTH, SLACK_BYTES, packed_bytes, unpack_streams
from puffin_index.storage.parts import corrupt, parts_of
from puffin_index.storage.ranged import Blob, Reading

COUNTS, FIRST_ROWS, GAPS, LENGTHS = range(STREAMS)
_MAXIMUM_ROW_WIDTH = 32


@dataclass(frozen=True, slots=True, eq=False)
class StoredBlocks:
    """The bytes of some blocks, by ascending number, and the table of the directory that describes them."""

    blob: Blob
    numbers: Ints
    views: list[memoryview]
    table: BlockTable

    def chosen(self, some: Flags) -> StoredBlocks:
        """Return some of the blocks."""
        views = [self.views[place] for place in np.flatnonzero(some).tolist()]
        return StoredBlocks(self.blob, self.numbers[some], views, self.table)


@dataclass(frozen=True, slots=True, eq=False)
class RawBlocks:
    """Blocks of one blob or several (`blob` is the first) with parsed headers.

    `owners` has the place of each block's blob, `offsets` the start in it; `first_keys` are those of the int64 domain.
    `raw` has the bytes of all blocks and slack; `starts`, `key_starts` and `section_starts` are places in it, `starts`
    with the end of all.
    """

    blob: Blob
    is_bytes: bool
    owners: Ints
    offsets: Ints
    first_keys: Ints
    raw: memoryview
    starts: Ints
    key_counts: Ints
    row_counts: Ints
    key_words: Ints
    key_numbers: Words
    key_starts: Ints
    section_starts: Ints
    section_counts: Ints

    def require(self, holds: Flags, reason: str) -> None:
        """Raise `CorruptFileError` at the first block whose flag is not set."""
        if not bool(holds.all()):
            raise corrupt(self.blob, reason, int(self.offsets[int(np.argmin(holds))]))


@dataclass(frozen=True, slots=True, eq=False)
class ParsedBlocks:
    """Blocks and their sections, one after the other: runs, groups and rows of each, and its four streams.

    Count of numbers, width, least number and start in the bytes of each stream have the shape (sections, 4). Runs are
    numbered through all sections. The first run of each section and the first section of each block are followed by the
    number of all.
    """

    raw: RawBlocks
    section_runs: Ints
    block_sections: Ints
    runs: Ints
    groups: Ints
    rows: Ints
    counts: Ints
    widths: Ints
    least: Ints
    starts: Ints

    def stream(self, which: int, sections: Ints) -> Ints:
        """Decode one of the four streams of some sections."""
        counts = self.counts[sections, which]
        if not self.widths[sections, which].any():
            return np.repeat(self.least[sections, which], counts)
        numbers = unpack_streams(self.raw.raw, self.starts[sections, which], counts, self.widths[sections, which])
        numbers += np.repeat(self.least[sections, which], counts).view(np.uint64)
        return numbers.view(np.int64)

    def group_counts(self, sections: Ints) -> Ints:
        """Return the number of runs of each group of some sections."""
        runs, groups = self.runs[sections], self.groups[sections]
        counts = self.stream(COUNTS, sections)
        if bool((np.add.reduceat(counts, np.cumsum(groups) - groups) != runs).any()):
            raise corrupt(self.raw.blob, "a section of another number of runs", int(self.raw.offsets[0]))
        return counts


def read_blocks(blob: Blob, directory: PostingsDirectory, numbers: Ints) -> Reading[StoredBlocks]:
    """Read ascending blocks, whose directory pages are loaded, or raise CorruptFileError."""
    return StoredBlocks(blob, numbers, (yield from parts_of(blob, directory.parts(numbers))), directory.table)


def parse_blocks(stored: Sequence[StoredBlocks], is_bytes: bool) -> ParsedBlocks:
    """Parse blocks of several blobs, all of one domain, at once.

    Raises CorruptFileError if a block contradicts the directory; the error names the first blob, whichever is damaged.
    """
    return _parse_sections(_parse_headers(stored, is_bytes))


def _before(counts: Ints) -> Ints:
    """Return the sum of all counts before each count, followed by the sum of all."""
    ends = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    return ends


def _parse_headers(stored: Sequence[StoredBlocks], is_bytes: bool) -> RawBlocks:
    views = [view for blocks in stored for view in blocks.views]
    joined = b"".join((*views, bytes(SLACK_BYTES)))
    starts = _before(np.array([len(view) for view in views], np.int64))
    header = records_at(np.frombuffer(joined, np.uint8), starts[:-1], BLOCK_HEADER)
    tables = [(blocks.table, blocks.numbers) for blocks in stored]
    keys = np.concatenate([table.keys[numbers] for table, numbers in tables])
    words, sections = header["key_word"].astype(np.int64), header["sections"].astype(np.int64)
    key_bytes = words if is_bytes else packed_bytes(keys - 1, words)
    key_starts = starts[:-1] + BLOCK_HEADER.itemsize + 4 * sections
    raw = RawBlocks(
        stored[0].blob,
        is_bytes,
        np.repeat(np.arange(len(stored)), [len(blocks.numbers) for blocks in stored]),
        np.concatenate([table.offsets[numbers] for table, numbers in tables]),
        np.concatenate([table.first_keys[numbers] for table, numbers in tables]),
        memoryview(joined),
        starts,
        keys,
        np.concatenate([table.row_counts(numbers) for table, numbers in tables]),
        words,
        header["key_number"].astype(np.uint64),
        key_starts,
        key_starts + key_bytes,
        sections,
    )
    fits = (key_starts + key_bytes <= starts[1:]) & (sections > 0) & (keys > 0)
    fits &= (words <= MAXIMUM_WIDTH) | is_bytes
    raw.require(fits & ((sections == 1) | (keys == 1)), "a block whose header does not fit it")
    return raw


def _parse_sections(raw: RawBlocks) -> ParsedBlocks:
    data = np.frombuffer(raw.raw, np.uint8)
    owners = np.repeat(np.arange(len(raw.offsets)), raw.section_counts)
    block_sections = _before(raw.section_counts)
    first_sections = block_sections[:-1]
    places = ramps(raw.starts[:-1] + BLOCK_HEADER.itemsize, raw.section_counts, 4)
    lengths = records_at(data, places, np.dtype("<u4")).astype(np.int64)
    before = _before(lengths)
    starts = before[:-1] + (raw.section_starts - before[first_sections])[owners]
    ends_well = raw.section_starts + np.add.reduceat(lengths, first_sections) == raw.starts[1:]
    long_enough = np.minimum.reduceat(lengths, first_sections) >= SECTION_HEADER.itemsize
    raw.require(ends_well & long_enough, "sections that do not fill their block")
    header = records_at(data, starts, SECTION_HEADER)
    runs, groups = header["runs"].astype(np.int64) + 1, header["groups"].astype(np.int64) + 1
    widths, least = header["widths"].astype(np.int64), header["least"].astype(np.int64)
    counts = np.stack((groups, groups, runs - groups, runs), axis=1)
    stream_bytes = packed_bytes(counts, widths)
    stream_starts = (starts + SECTION_HEADER.itemsize)[:, None] + np.cumsum(stream_bytes, axis=1) - stream_bytes
    rows = header["rows"].astype(np.int64)
    fits = (stream_bytes.sum(axis=1) + SECTION_HEADER.itemsize == lengths) & (rows >= runs)
    fits &= (groups <= runs) & (widths <= _MAXIMUM_ROW_WIDTH).all(axis=1)
    fits &= (least[:, COUNTS] > 0) & (least[:, LENGTHS] > 0)
    fits &= groups == np.where(raw.section_counts == 1, raw.key_counts, 1)[owners]
    fits &= (np.add.reduceat(rows, first_sections) == raw.row_counts)[owners]
    raw.require(np.logical_and.reduceat(fits, first_sections), "a section whose header does not fit it")
    return ParsedBlocks(raw, _before(runs), block_sections, runs, groups, rows, counts, widths, least, stream_starts)
