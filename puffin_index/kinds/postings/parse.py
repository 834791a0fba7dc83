"""Read and parse blocks of a postings blob: all headers and lengths are checked, streams are decoded on demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pyroaring import BitMap

from puffin_index.kinds.postings.blocks import BLOCK_HEADER, SECTION_HEADER, STREAMS
from puffin_index.kinds.postings.directory import BlockTable, PostingsDirectory
from puffin_index.kinds.postings.sort import RowNumbers
from puffin_index.roaring import row_set_of_ascending
from puffin_index.storage.arrays import Flags, Ints, Words, distinct, ramps, records_at
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
class ParsedBlocks:
    """Blocks of one blob or several (`blob` is the first) with their sections, one after the other.

    `owners` has the place of each block's blob, `offsets` the start in it; `first_keys` are those of the int64 domain.
    `raw` has the bytes of all blocks and slack; `key_starts` and `starts` are places in it. Count of numbers, width,
    least number and start of each of the four streams have the shape (sections, 4). Runs are numbered through all
    sections. The first run of each section and the first section of each block are followed by the number of all.
    """

    blob: Blob
    is_bytes: bool
    owners: Ints
    offsets: Ints
    first_keys: Ints
    raw: memoryview
    key_counts: Ints
    key_words: Ints
    key_numbers: Words
    key_starts: Ints
    section_counts: Ints
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
        numbers = unpack_streams(self.raw, self.starts[sections, which], counts, self.widths[sections, which])
        numbers += np.repeat(self.least[sections, which], counts).view(np.uint64)
        return numbers.view(np.int64)

    def group_counts(self, sections: Ints) -> Ints:
        """Return the number of runs of each group of some sections."""
        runs, groups = self.runs[sections], self.groups[sections]
        counts = self.stream(COUNTS, sections)
        if bool((np.add.reduceat(counts, np.cumsum(groups) - groups) != runs).any()):
            raise corrupt(self.blob, "a section of another number of runs", int(self.offsets[0]))
        return counts


def read_blocks(blob: Blob, directory: PostingsDirectory, numbers: Ints) -> Reading[StoredBlocks]:
    """Read ascending blocks, whose directory pages are loaded, or raise CorruptFileError."""
    return StoredBlocks(blob, numbers, (yield from parts_of(blob, directory.parts(numbers))), directory.table)


def parse_blocks(stored: Sequence[StoredBlocks], is_bytes: bool) -> ParsedBlocks:
    """Parse blocks of several blobs, all of one domain, at once.

    Raises CorruptFileError if a block contradicts the directory; the error names the first blob, whichever is damaged.
    """
    blob, tables = stored[0].blob, [(blocks.table, blocks.numbers) for blocks in stored]
    offsets = np.concatenate([table.offsets[numbers] for table, numbers in tables])

    def require(holds: Flags, reason: str) -> None:
        if not bool(holds.all()):
            raise corrupt(blob, reason, int(offsets[int(np.argmin(holds))]))

    views = [view for blocks in stored for view in blocks.views]
    raw = memoryview(b"".join((*views, bytes(SLACK_BYTES))))
    data, begins = np.frombuffer(raw, np.uint8), _before(np.array([len(view) for view in views], np.int64))
    block = records_at(data, begins[:-1], BLOCK_HEADER)
    key_counts = np.concatenate([table.keys[numbers] for table, numbers in tables])
    key_words, section_counts = block["key_word"].astype(np.int64), block["sections"].astype(np.int64)
    key_starts = begins[:-1] + BLOCK_HEADER.itemsize + 4 * section_counts
    section_starts = key_starts + (key_words if is_bytes else packed_bytes(key_counts - 1, key_words))
    fits = (section_starts <= begins[1:]) & (section_counts > 0) & (key_counts > 0)
    fits &= (key_words <= MAXIMUM_WIDTH) | is_bytes
    require(fits & ((section_counts == 1) | (key_counts == 1)), "a block whose header does not fit it")

    owners, block_sections = np.repeat(np.arange(len(offsets)), section_counts), _before(section_counts)
    first_sections = block_sections[:-1]
    places = ramps(begins[:-1] + BLOCK_HEADER.itemsize, section_counts, 4)
    lengths = records_at(data, places, np.dtype("<u4")).astype(np.int64)
    before = _before(lengths)
    starts = before[:-1] + (section_starts - before[first_sections])[owners]
    ends_well = section_starts + np.add.reduceat(lengths, first_sections) == begins[1:]
    long_enough = np.minimum.reduceat(lengths, first_sections) >= SECTION_HEADER.itemsize
    require(ends_well & long_enough, "sections that do not fill their block")
    header = records_at(data, starts, SECTION_HEADER)
    runs, groups = header["runs"].astype(np.int64) + 1, header["groups"].astype(np.int64) + 1
    widths, least = header["widths"].astype(np.int64), header["least"].astype(np.int64)
    counts = np.stack((groups, groups, runs - groups, runs), axis=1)
    stream_bytes = packed_bytes(counts, widths)
    rows, row_counts = header["rows"].astype(np.int64), [table.row_counts(numbers) for table, numbers in tables]
    fits = (stream_bytes.sum(axis=1) + SECTION_HEADER.itemsize == lengths) & (rows >= runs)
    fits &= (groups <= runs) & (widths <= _MAXIMUM_ROW_WIDTH).all(axis=1)
    fits &= (least[:, COUNTS] > 0) & (least[:, LENGTHS] > 0)
    fits &= groups == np.where(section_counts == 1, key_counts, 1)[owners]
    fits &= (np.add.reduceat(rows, first_sections) == np.concatenate(row_counts))[owners]
    require(np.logical_and.reduceat(fits, first_sections), "a section whose header does not fit it")
    return ParsedBlocks(
        blob,
        is_bytes,
        owners=np.repeat(np.arange(len(stored)), [len(blocks.numbers) for blocks in stored]),
        offsets=offsets,
        first_keys=np.concatenate([table.first_keys[numbers] for table, numbers in tables]),
        raw=raw,
        key_counts=key_counts,
        key_words=key_words,
        key_numbers=block["key_number"].astype(np.uint64),
        key_starts=key_starts,
        section_counts=section_counts,
        section_runs=_before(runs),
        block_sections=block_sections,
        runs=runs,
        groups=groups,
        rows=rows,
        counts=counts,
        widths=widths,
        least=least,
        starts=(starts + SECTION_HEADER.itemsize)[:, None] + np.cumsum(stream_bytes, axis=1) - stream_bytes,
    )


def _before(counts: Ints) -> Ints:
    """Return the sum of all counts before each count, followed by the sum of all."""
    ends = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    return ends


_SECTIONS_AT_ONCE = 256
_LONG_RUN_ROWS = 64
_LOW_HALF = np.uint64(0xFFFF_FFFF)


def rows_of_runs(
    blocks: ParsedBlocks, lows: Ints, highs: Ints, owners: Ints, numbers: Sequence[RowNumbers]
) -> list[BitMap]:
    """Return each blob's rows of ascending, disjoint intervals of runs, or raise CorruptFileError for other numbers."""
    some = lows < highs
    lows, highs, owners = lows[some], highs[some], owners[some]
    sections = sections_of(blocks, lows, highs)
    found = [BitMap() for _ in numbers]
    for place in range(0, len(sections), _SECTIONS_AT_ONCE):
        starts, lengths, counts = runs_in(blocks, sections[place : place + _SECTIONS_AT_ONCE], lows, highs)
        own_counts = np.bincount(owners, counts).astype(np.int64)
        own_ends = np.cumsum(own_counts)
        for owner in np.flatnonzero(own_counts).tolist():
            own = slice(own_ends[owner] - own_counts[owner], own_ends[owner])
            rows = row_set(starts[own], None if lengths is None else lengths[own], numbers[owner])
            if rows is None:
                raise corrupt(blocks.blob, "rows that no row group has", int(blocks.offsets[0]))
            found[owner] |= rows
    return found


def sections_of(blocks: ParsedBlocks, lows: Ints, highs: Ints) -> Ints:
    """Return the sections of ascending intervals of runs, none of them empty."""
    firsts = np.searchsorted(blocks.section_runs, lows, "right") - 1
    ends = np.searchsorted(blocks.section_runs, highs, "left")
    sections = ramps(firsts, ends - firsts)
    return distinct(sections)


def runs_in(blocks: ParsedBlocks, sections: Ints, lows: Ints, highs: Ints) -> tuple[Ints, Ints | None, Ints]:
    """Return the first number and length of the runs in some sections, and the number of runs of each interval."""
    starts, lengths = decode_runs(blocks, sections)
    own_lows = _own_places(blocks, sections, lows)
    counts = _own_places(blocks, sections, highs) - own_lows
    if int(counts.sum()) < len(starts):
        chosen = ramps(own_lows, counts)
        starts = starts[chosen]
        lengths = None if lengths is None else lengths[chosen]
    return starts, lengths, counts


def _own_places(blocks: ParsedBlocks, sections: Ints, places: Ints) -> Ints:
    """Translate places among all runs into places among the runs of some sections alone."""
    counts = blocks.runs[sections]
    begins = blocks.section_runs[sections]
    owners = np.searchsorted(begins, places, "right") - 1
    own = np.minimum(places - begins[owners], counts[owners]) + (np.cumsum(counts) - counts)[owners]
    return np.where(owners < 0, 0, own)


def decode_runs(blocks: ParsedBlocks, sections: Ints) -> tuple[Ints, Ints | None]:
    """Return the number of the first row of each run of some sections, and the length of each run; None if all are 1.

    Raises CorruptFileError if a section's runs or rows do not add up to the numbers in its header.
    """
    firsts = blocks.stream(FIRST_ROWS, sections)
    runs = blocks.runs[sections]
    all_single = bool((blocks.rows[sections] == runs).all())
    lengths = None if all_single else blocks.stream(LENGTHS, sections)
    if lengths is not None:
        sums = np.add.reduceat(lengths, np.cumsum(runs) - runs)
        if bool((sums != blocks.rows[sections]).any()):
            raise corrupt(blocks.blob, "a section of another number of rows", int(blocks.offsets[0]))
    if len(firsts) == int(runs.sum()):
        return firsts, lengths
    counts = blocks.group_counts(sections)
    group_runs = np.cumsum(counts) - counts
    steps = np.empty(int(runs.sum()), np.int64)
    is_later = np.ones(len(steps), np.bool_)
    is_later[group_runs] = False
    gaps = blocks.stream(GAPS, sections)
    gaps += 1 if lengths is None else lengths[:-1][is_later[1:]]
    steps[is_later] = gaps
    # One sum over all groups replaces one per group: the step to a group's first run leads back from the run before.
    steps[group_runs] = firsts
    spans = np.add.reduceat(steps, group_runs)
    steps[group_runs[1:]] -= spans[:-1]
    np.cumsum(steps, out=steps)
    return steps, lengths


def row_set(starts: Ints, lengths: Ints | None, numbers: RowNumbers) -> BitMap | None:
    """Return the rows of runs of numbers, in any order; None if a run leaves its row group."""
    if int((starts if lengths is None else starts + lengths - 1).max(initial=0)) >= numbers.limit:
        return None
    # Ascending rows let the set be built container by container. Start and length share a word to be sorted together.
    if lengths is None:
        ordered, counts = np.sort(starts.astype(np.uint32)).astype(np.int64), np.ones(len(starts), np.int64)
    else:
        packed = np.sort((starts << 32 | lengths).view(np.uint64))
        ordered, counts = (packed >> np.uint64(32)).view(np.int64), (packed & _LOW_HALF).view(np.int64)
    rows = numbers.to_rows(ordered, counts)
    if rows is None:
        return None
    # Runs of keys that one row may have several of overlap.
    are_disjoint = bool((ordered[1:] - ordered[:-1] >= counts[:-1]).all())
    if lengths is None:
        return row_set_of_ascending(rows if are_disjoint else distinct(rows))
    if are_disjoint and int(counts.sum()) <= _LONG_RUN_ROWS * len(counts):
        return row_set_of_ascending(ramps(rows, counts))
    found = BitMap()
    for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
        found.add_range(row, row + count)
    return found
