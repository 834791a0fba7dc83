"""Decode the runs of postings blocks and unite them to row sets."""

from collections.abc import Sequence

import numpy as np
from pyroaring import BitMap

from puffin_index.kinds.postings.parse import FIRST_ROWS, GAPS, LENGTHS, ParsedBlocks
from puffin_index.kinds.postings.sort import RowNumbers
from puffin_index.roaring.read import row_set_of_ascending
from puffin_index.storage.arrays import Ints, ramps
from puffin_index.storage.parts import corrupt

_SECTIONS_AT_ONCE = 256
_LONG_RUN_ROWS = 64
_LOW_HALF = np.uint64(0xFFFF_FFFF)


def rows_of_runs(
    blocks: ParsedBlocks,
    lows: Ints,
    highs: Ints,
    owners: Ints,
    numbers: Sequence[RowNumbers],
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
                raise corrupt(blocks.raw.blob, "rows that no row group has", int(blocks.raw.offsets[0]))
            found[owner] |= rows
    return found


def sections_of(blocks: ParsedBlocks, lows: Ints, highs: Ints) -> Ints:
    """Return the sections of ascending intervals of runs, none of them empty."""
    firsts = np.searchsorted(blocks.section_runs, lows, "right") - 1
    ends = np.searchsorted(blocks.section_runs, highs, "left")
    sections = ramps(firsts, ends - firsts)
    return np.unique(sections) if len(lows) > 1 else sections


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
            raise corrupt(blocks.raw.blob, "a section of another number of rows", int(blocks.raw.offsets[0]))
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
    """Return the rows of disjoint runs of numbers, in any order; None if a run leaves its row group."""
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
    if lengths is None:
        return row_set_of_ascending(rows)
    if int(counts.sum()) <= _LONG_RUN_ROWS * len(counts):
        return row_set_of_ascending(ramps(rows, counts))
    found = BitMap()
    for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
        found.add_range(row, row + count)
    return found
