"""The rows of postings blocks: runs decoded and united to a row set."""

from __future__ import annotations

from array import array

import numpy as np
from pyroaring import BitMap

from puffin_index.kinds.parts import corrupt
from puffin_index.kinds.postings_bits import Ints
from puffin_index.kinds.postings_parse import FIRST_ROWS, GAPS, LENGTHS, ParsedBlocks
from puffin_index.kinds.postings_sort import Rows
from puffin_index.kinds.roaring import ramps

_SECTIONS_AT_ONCE = 64
_LONG_RUN_ROWS = 64


def rows_of_runs(blocks: ParsedBlocks, lows: Ints, highs: Ints, row_limit: int) -> BitMap:
    """Return the rows of some runs.

    Args:
        blocks: The blocks.
        lows: Where some runs begin, ascending.
        highs: Where they end: none before its low, none after the next low.
        row_limit: Every row must be below.

    Raises:
        CorruptFileError: If one is not.
    """
    some = lows < highs
    lows, highs = lows[some], highs[some]
    firsts = np.searchsorted(blocks.section_runs, lows, "right") - 1
    ends = np.searchsorted(blocks.section_runs, highs, "left")
    sections = np.unique(ramps(firsts, ends - firsts))
    found = BitMap()
    for place in range(0, len(sections), _SECTIONS_AT_ONCE):
        found |= _rows_in(blocks, sections[place : place + _SECTIONS_AT_ONCE], lows, highs, row_limit)
    return found


def _rows_in(blocks: ParsedBlocks, sections: Ints, lows: Ints, highs: Ints, row_limit: int) -> BitMap:
    starts, lengths = _decode(blocks, sections)
    most = int((starts if lengths is None else starts + (lengths - 1)).max())
    if most >= row_limit:
        raise corrupt(blocks.raw.blob, f"row {most} in a segment of {row_limit} rows", int(blocks.raw.offsets[0]))
    own_lows = _own_places(blocks, sections, lows)
    counts = _own_places(blocks, sections, highs) - own_lows
    if int(counts.sum()) < len(starts):
        chosen = ramps(own_lows, counts)
        starts = starts[chosen]
        lengths = None if lengths is None else lengths[chosen]
    return row_set_of_runs(starts, lengths)


def _own_places(blocks: ParsedBlocks, sections: Ints, places: Ints) -> Ints:
    """Where the place of a run is if there are no runs but those of some sections."""
    counts = blocks.sections.runs[sections]
    begins = blocks.section_runs[sections]
    owners = np.searchsorted(begins, places, "right") - 1
    own = np.minimum(places - begins[owners], counts[owners]) + (np.cumsum(counts) - counts)[owners]
    return np.where(owners < 0, 0, own)


def _decode(blocks: ParsedBlocks, sections: Ints) -> tuple[Ints, Ints | None]:
    """The first row and the length of each run; None if all lengths are 1."""
    parsed = blocks.sections
    firsts = parsed.stream(FIRST_ROWS, sections)
    runs = parsed.runs[sections]
    all_single = bool((parsed.rows[sections] == runs).all())
    lengths = None if all_single else parsed.stream(LENGTHS, sections)
    if lengths is not None:
        _check_row_counts(blocks, sections, lengths)
    if len(firsts) == int(runs.sum()):
        return firsts, lengths
    counts = blocks.group_counts(sections)
    group_runs = np.cumsum(counts) - counts
    steps = np.ones(int(runs.sum()), np.int64)
    if lengths is not None:
        steps[1:] = lengths[:-1]
    is_first = np.zeros(len(steps), np.bool_)
    is_first[group_runs] = True
    steps[~is_first] += parsed.stream(GAPS, sections)
    steps[is_first] = 0
    np.cumsum(steps, out=steps)
    steps += np.repeat(firsts - steps[group_runs], counts)
    return steps, lengths


def _check_row_counts(blocks: ParsedBlocks, sections: Ints, lengths: Ints) -> None:
    runs = blocks.sections.runs[sections]
    sums = np.add.reduceat(lengths, np.cumsum(runs) - runs)
    if bool((sums != blocks.sections.rows[sections]).any()):
        raise corrupt(blocks.raw.blob, "a section of another number of rows", int(blocks.raw.offsets[0]))


def row_set_of_runs(starts: Ints, lengths: Ints | None) -> BitMap:
    """Return the rows of disjoint runs, in any order, as a row set."""
    if lengths is None:
        return _row_set(np.sort(starts.astype(np.uint32)))
    if int(lengths.sum()) > _LONG_RUN_ROWS * len(lengths):
        found = BitMap()
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
            found.add_range(start, start + length)
        return found
    # Ordered by their rows, so that the set is built container by container.
    packed = np.sort((starts << 32 | lengths).view(np.uint64))
    ordered = (packed >> np.uint64(32)).view(np.int64)
    return _row_set(ramps(ordered, (packed & np.uint64(0xFFFF_FFFF)).view(np.int64)).astype(np.uint32))


def _row_set(rows: Rows) -> BitMap:
    """Ascending rows as a row set; from an `array` it is built without an object a row."""
    numbers = array("I")
    numbers.frombytes(rows.data.cast("B"))
    return BitMap(numbers)
