"""Write row sets in the portable roaring format by array operations; `puffin_index.roaring.read` reads them.

The format is in docs/formats.md, Row sets; source: the RoaringBitmap format specification. A container holds runs where
runs take fewer bytes than its other form, as in Java's `runOptimize`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from puffin_index.storage.arrays import Bytes, Flags, Ints, Rows, put_bytes, ramps

BLOCK_ROWS = 65_536
BLOCK_BYTES = BLOCK_ROWS // 8
ARRAY_LIMIT = 4096
COOKIE = 12_346
RUN_COOKIE = 12_347
OFFSETS_FROM = 4
# Working arrays of this many elements stay in the processor's cache.
_AT_ONCE = 65_536


@dataclass(frozen=True, slots=True)
class SerializedSets:
    """Serialised row sets, gaps of zeros between them: each start, followed by the length of all bytes."""

    data: Bytes
    offsets: Ints


@dataclass(frozen=True)
class _Containers:
    """The containers of all sets: arrays of one length, ordered by set and key."""

    sets: Ints
    keys: npt.NDArray[np.uint16]
    cardinalities: Ints
    runs: Ints

    @cached_property
    def plain_sizes(self) -> Ints:
        return np.where(self.is_bitset, BLOCK_BYTES, 2 * self.cardinalities)

    @cached_property
    def has_runs(self) -> Flags:
        """Which containers are written as runs."""
        return 2 + 4 * self.runs < self.plain_sizes

    @cached_property
    def is_bitset(self) -> Flags:
        """Which containers are written as 65,536 bits, unless they are written as runs."""
        return self.cardinalities > ARRAY_LIMIT


def serialize_row_sets(rows: Rows, starts: npt.NDArray[np.integer], gap: int = 0) -> SerializedSets:
    """Serialise many row sets at once, with `gap` free bytes behind each.

    `rows` has the rows of one set after the other, ascending in each; `starts` has the start of each set, none of which
    is empty, followed by the number of rows.
    """
    if not len(rows):
        return SerializedSets(np.empty(0, np.uint8), np.zeros(len(starts), np.int64))
    low = rows.astype("<u2")
    first = np.zeros(len(rows), np.bool_)
    first[starts[:-1]] = True
    set_first = first.copy()
    for some, before in _neighbours(len(rows)):
        first[some] |= (rows[some] ^ rows[before]) >= BLOCK_ROWS
    container_starts = np.flatnonzero(first)
    # Within a container only the lower 16 bits of rows differ, so comparing these halves suffices.
    for some, before in _neighbours(len(rows)):
        first[some] |= low[some] - low[before] != 1
    containers = _Containers(
        np.cumsum(set_first[container_starts]) - 1,
        (rows[container_starts] >> 16).astype("<u2"),
        np.diff(container_starts, append=len(rows)),
        np.diff(np.searchsorted(np.flatnonzero(first), np.append(container_starts, len(rows)))),
    )
    sets, places = _lay_out(containers, len(starts) - 1, gap)
    _fill_arrays(sets.data, places, containers, low)
    _fill_runs(sets.data, places, containers, low, first)
    _fill_bitsets(sets.data, places, containers, low, container_starts)
    return sets


def _neighbours(count: int) -> Iterator[tuple[slice, slice]]:
    """Yield, in steps, the places of all elements but the first, and the places of their predecessors."""
    for start in range(1, count, _AT_ONCE):
        end = min(start + _AT_ONCE, count)
        yield slice(start, end), slice(start - 1, end - 1)


def block_count(row_count: int) -> int:
    """Return the number of blocks of 65,536 rows for a number of rows."""
    return -(-row_count // BLOCK_ROWS)


def _lay_out(containers: _Containers, set_count: int, gap: int) -> tuple[SerializedSets, Ints]:
    """Write the headers of sets and reserve room for their containers; return the start of each container as well."""
    has_runs = containers.has_runs
    sizes = np.where(has_runs, 2 + 4 * containers.runs, containers.plain_sizes)
    counts = np.bincount(containers.sets, minlength=set_count)
    with_runs = np.zeros(set_count, np.bool_)
    with_runs[containers.sets[has_runs]] = True
    flag_bytes = np.where(with_runs, (counts + 7) // 8, 4)
    offset_bytes = np.where(with_runs & (counts < OFFSETS_FROM), 0, 4 * counts)
    headers = 4 + flag_bytes + 4 * counts + offset_bytes
    set_sizes = headers + gap
    set_sizes += np.bincount(containers.sets, sizes, set_count).astype(np.int64)
    offsets = np.concatenate(([0], np.cumsum(set_sizes)))
    # Containers follow each other without gaps, except for the header and the gap between two sets.
    starts = np.cumsum(sizes) - sizes + np.cumsum(headers)[containers.sets] + gap * containers.sets
    sets = SerializedSets(np.zeros(offsets[-1], np.uint8), offsets)
    _write_headers(sets, containers, starts, counts, with_runs)
    ordinals = _ordinals(counts)[has_runs]
    places = sets.offsets[containers.sets[has_runs]] + 4 + (ordinals >> 3)
    np.bitwise_or.at(sets.data, places, (1 << (ordinals & 7)).astype(np.uint8))
    return sets, starts


def _write_headers(sets: SerializedSets, containers: _Containers, starts: Ints, counts: Ints, with_runs: Flags) -> None:
    begins = sets.offsets[:-1]
    _scatter(sets.data, begins, np.where(with_runs, RUN_COOKIE + ((counts - 1) << 16), COOKIE).astype("<u4"))
    _scatter(sets.data, begins[~with_runs] + 4, counts[~with_runs].astype("<u4"))
    ordinals = _ordinals(counts)
    keys_at = begins + 4 + np.where(with_runs, (counts + 7) // 8, 4)
    described = containers.keys.astype("<u4") | ((containers.cardinalities - 1).astype("<u4") << np.uint32(16))
    _scatter(sets.data, keys_at[containers.sets] + 4 * ordinals, described)
    listed = (~with_runs | (counts >= OFFSETS_FROM))[containers.sets]
    offsets_at = (keys_at + 4 * counts)[containers.sets] + 4 * ordinals
    relative = (starts - begins[containers.sets]).astype("<u4")
    _scatter(sets.data, offsets_at[listed], relative[listed])


def _ordinals(counts: Ints) -> Ints:
    return ramps(np.zeros(len(counts), np.int64), counts)


def _scatter(data: Bytes, places: Ints, numbers: npt.NDArray[np.unsignedinteger]) -> None:
    """Write little-endian numbers at arbitrary, also unaligned, byte positions."""
    width = numbers.dtype.itemsize
    if not (int(np.bitwise_or.reduce(places)) | len(data)) % width:
        data.view(numbers.dtype)[places // width] = numbers
        return
    columns = np.ascontiguousarray(numbers).view(np.uint8).reshape(-1, width)
    for byte in range(width):
        data[places + byte] = columns[:, byte]


def _fill_arrays(data: Bytes, starts: Ints, containers: _Containers, low: npt.NDArray[np.uint16]) -> None:
    chosen = ~containers.has_runs & ~containers.is_bitset
    if not chosen.any():
        return
    values = low if chosen.all() else low[np.repeat(chosen, containers.cardinalities)]
    content = np.ascontiguousarray(values).astype("<u2", copy=False).view(np.uint8)
    put_bytes(data, starts[chosen], 2 * containers.cardinalities[chosen], content)


def _fill_runs(data: Bytes, starts: Ints, containers: _Containers, low: npt.NDArray[np.uint16], begins: Flags) -> None:
    chosen = containers.has_runs
    if not chosen.any():
        return
    run_starts = np.flatnonzero(begins)
    in_chosen = np.repeat(chosen, containers.runs)
    lengths = np.diff(run_starts, append=len(low))[in_chosen]
    _scatter(data, starts[chosen], containers.runs[chosen].astype("<u2"))
    places = ramps(starts[chosen] + 2, containers.runs[chosen], step=4)
    _scatter(data, places, low[run_starts[in_chosen]].astype("<u2"))
    _scatter(data, places + 2, (lengths - 1).astype("<u2"))


def _fill_bitsets(
    data: Bytes, starts: Ints, containers: _Containers, low: npt.NDArray[np.uint16], container_starts: Ints
) -> None:
    chosen = np.flatnonzero(containers.is_bitset & ~containers.has_runs)
    ends = container_starts + containers.cardinalities
    places = zip(starts[chosen].tolist(), container_starts[chosen].tolist(), ends[chosen].tolist(), strict=True)
    for place, start, end in places:
        bits = np.zeros(BLOCK_ROWS, np.bool_)
        bits[low[start:end]] = True
        data[place : place + BLOCK_BYTES] = np.packbits(bits, bitorder="little")
