"""Unite many serialised row sets at once by array operations.

Row sets as flat bits have bit `row & 7` of byte `row >> 3`, padded to whole blocks of 65,536 rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from pyroaring import BitMap

from puffin_index.errors import CorruptFileError
from puffin_index.roaring.read import deserialize, row_set_of
from puffin_index.roaring.write import (
    ARRAY_LIMIT,
    BLOCK_BYTES,
    BLOCK_ROWS,
    COOKIE,
    OFFSETS_FROM,
    RUN_COOKIE,
    block_count,
)
from puffin_index.storage.arrays import Bytes, Flags, Ints, ramps, records_at
from puffin_index.storage.binary import Buffer

_FEW_SETS = 32
_SMALL_SET_ROWS = 1024
"""The rows of sets of up to this many are united at once, and other sets one by one."""

_BITSETS_AT_ONCE = 64


class BrokenSetError(Exception):
    """Says that a set breaks the format; the caller adds the file and the offset."""


@dataclass(frozen=True, slots=True, eq=False)
class LooseContainers:
    """Containers of some sets: arrays of one length, in any order, that say where the bytes of each lie in `data`.

    A block is the upper 16 bits of a container's rows.
    """

    sets: Ints
    blocks: Ints
    cardinalities: Ints
    are_runs: Flags
    data: Bytes
    starts: Ints
    sizes: Ints

    def __len__(self) -> int:
        return len(self.sets)

    def chosen(self, some: Flags) -> LooseContainers:
        """Return some of the containers."""
        return LooseContainers(
            self.sets[some],
            self.blocks[some],
            self.cardinalities[some],
            self.are_runs[some],
            self.data,
            self.starts[some],
            self.sizes[some],
        )


@dataclass(frozen=True, slots=True, eq=False)
class StoredSets:
    """Serialised row sets in some bytes of a file, disjoint where they are united.

    `location` and `offset` say where the bytes come from. All methods raise CorruptFileError if a set is damaged.
    """

    data: memoryview
    starts: Ints
    lengths: Ints
    location: str = "<bytes>"
    offset: int = 0

    @classmethod
    def of(cls, views: Sequence[Buffer], location: str = "<bytes>", offset: int = 0) -> StoredSets:
        """Return sets that have the bytes of one view each."""
        lengths = np.array([len(view) for view in views], np.int64)
        return cls(memoryview(b"".join(views)), np.cumsum(lengths) - lengths, lengths, location, offset)

    def each(self, row_count: int) -> list[BitMap]:
        """Return each set; all rows are below `row_count`."""
        return [
            deserialize(self.data[start : start + length], row_count, location=self.location, offset=self.offset)
            for start, length in zip(self.starts.tolist(), self.lengths.tolist(), strict=True)
        ]

    def union(self, row_count: int, most_rows: int | None = None) -> BitMap:
        """Return the rows, all below `row_count`, of all sets, which have at most `most_rows`."""
        if len(self.starts) <= _FEW_SETS:
            return BitMap.union(BitMap(), *self.each(row_count))
        with self._checked():
            containers = self._bounded(row_count if most_rows is None else most_rows)
            row_counts = np.bincount(containers.sets, containers.cardinalities, len(self.starts))
            is_small = row_counts <= _SMALL_SET_ROWS
            rows, _ = _rows_of(containers.chosen(is_small[containers.sets]), row_count)
        others = replace(self, starts=self.starts[~is_small], lengths=self.lengths[~is_small])
        return BitMap.union(row_set_of(rows, row_count), *others.each(row_count))

    def rows(self, row_count: int) -> tuple[Ints, Ints]:
        """Return the rows, all below `row_count`, in any order, and the set of each."""
        with self._checked():
            return _rows_of(self._bounded(row_count), row_count)

    def bits(self, row_count: int) -> Bytes:
        """Return the sets of rows below `row_count` as bits: shape (sets, bytes)."""
        with self._checked():
            return _bits(self._parsed(), len(self.starts), row_count)

    @contextmanager
    def _checked(self) -> Iterator[None]:
        try:
            yield
        except BrokenSetError as error:
            raise CorruptFileError(f"not a row set: {error}", location=self.location, offset=self.offset) from error

    def _parsed(self) -> LooseContainers:
        raw, ends = np.frombuffer(self.data, np.uint8), self.starts + self.lengths
        require((self.starts >= 0) & (self.lengths >= 8) & (ends <= len(raw)), "it leaves its blob")
        return _parse_containers(raw, self.starts, ends)

    def _bounded(self, most_rows: int) -> LooseContainers:
        containers = self._parsed()
        if int(containers.cardinalities.sum()) > most_rows:
            raise BrokenSetError(f"more than {most_rows} rows")
        return containers


def _rows_of(containers: LooseContainers, row_count: int) -> tuple[Ints, Ints]:
    parts = [_array_rows(containers), _run_rows(containers), _bitset_rows(containers)]
    rows = np.concatenate([rows for rows, _ in parts])
    if len(rows) and int(rows.max()) >= row_count:
        raise BrokenSetError(f"row {rows.max()} in a row group of {row_count} rows")
    return rows, np.concatenate([sets for _, sets in parts])


def _uint32_at(raw: Bytes, places: Ints) -> Ints:
    return records_at(raw, places, np.dtype("<u4")).astype(np.int64)


def _uint16_at(raw: Bytes, places: Ints) -> Ints:
    numbers: Ints = raw[places].astype(np.int64)
    numbers |= raw[places + 1].astype(np.int64) << 8
    return numbers


def require(holds: Flags, reason: str) -> None:
    """Raise `BrokenSetError` unless all flags are set."""
    if not bool(holds.all()):
        raise BrokenSetError(reason)


def _parse_containers(raw: Bytes, starts: Ints, ends: Ints) -> LooseContainers:
    """Find the containers of serialised sets without decoding any, or raise BrokenSetError."""
    cookies = _uint32_at(raw, starts)
    with_runs = cookies & 0xFFFF == RUN_COOKIE
    require(with_runs | (cookies == COOKIE), "no cookie")
    counts = np.where(with_runs, (cookies >> 16) + 1, _uint32_at(raw, starts + 4))
    keys_at = starts + np.where(with_runs, 4 + (counts + 7) // 8, 8)
    listed = ~with_runs | (counts >= OFFSETS_FROM)
    bodies = keys_at + 4 * counts + np.where(listed, 4 * counts, 0)
    require((counts <= BLOCK_ROWS) & (bodies <= ends), "too many containers")
    sets = np.repeat(np.arange(len(starts)), counts)
    ordinals = ramps(np.zeros(len(starts), np.int64), counts)
    described = _uint32_at(raw, keys_at[sets] + 4 * ordinals)
    cardinalities = (described >> 16) + 1
    flags = raw[starts[sets] + 4 + (ordinals >> 3)] >> (ordinals & 7).astype(np.uint8) & 1
    are_runs = with_runs[sets] & (flags == 1)
    places = starts[sets]
    in_listed = listed[sets]
    directory = (keys_at + 4 * counts)[sets] + 4 * ordinals
    places[in_listed] += _uint32_at(raw, directory[in_listed])
    if not in_listed.all():
        _place_unlisted(raw, places, ordinals, sets, are_runs, cardinalities, bodies, ends, ~in_listed)
    require((places >= bodies[sets]) & (places + 2 <= ends[sets]), "a container outside of its set")
    sizes = np.where(cardinalities > ARRAY_LIMIT, BLOCK_BYTES, 2 * cardinalities)
    sizes[are_runs] = 2 + 4 * _uint16_at(raw, places[are_runs])
    require(places + sizes <= ends[sets], "a container is cut short")
    return LooseContainers(sets, described & 0xFFFF, cardinalities, are_runs, raw, places, sizes)


def _place_unlisted(
    raw: Bytes,
    places: Ints,
    ordinals: Ints,
    sets: Ints,
    are_runs: Flags,
    cardinalities: Ints,
    bodies: Ints,
    ends: Ints,
    unlisted: Flags,
) -> None:
    """Find the containers of sets without a list of offsets: at most three per set, each behind the previous one."""
    position = bodies.copy()
    sizes = np.where(cardinalities > ARRAY_LIMIT, BLOCK_BYTES, 2 * cardinalities)
    for ordinal in range(OFFSETS_FROM - 1):
        here = np.flatnonzero(unlisted & (ordinals == ordinal))
        own = sets[here]
        require(position[own] + 2 <= ends[own], "a container outside of its set")
        places[here] = position[own]
        run_bytes = 2 + 4 * _uint16_at(raw, places[here])
        position[own] += np.where(are_runs[here], run_bytes, sizes[here])


def _array_rows(containers: LooseContainers) -> tuple[Ints, Ints]:
    chosen = ~containers.are_runs & (containers.cardinalities <= ARRAY_LIMIT)
    starts, counts = containers.starts[chosen], containers.cardinalities[chosen]
    low = _uint16_at(containers.data, ramps(starts, counts, step=2))
    return low | np.repeat(containers.blocks[chosen] << 16, counts), np.repeat(containers.sets[chosen], counts)


def _run_rows(containers: LooseContainers) -> tuple[Ints, Ints]:
    chosen = containers.are_runs
    counts = (containers.sizes[chosen] - 2) // 4
    pairs = _uint32_at(containers.data, ramps(containers.starts[chosen] + 2, counts, step=4))
    lengths = (pairs >> 16) + 1
    # Callers have bounded the cardinalities; runs that claim more rows would allocate without bound.
    owners = np.repeat(np.arange(len(counts)), counts)
    unfolded = np.bincount(owners, lengths, minlength=len(counts))
    require(unfolded == containers.cardinalities[chosen], "runs of another cardinality")
    rows = ramps((pairs & 0xFFFF) + np.repeat(containers.blocks[chosen] << 16, counts), lengths)
    return rows, np.repeat(containers.sets[chosen], containers.cardinalities[chosen])


def _bitset_rows(containers: LooseContainers) -> tuple[Ints, Ints]:
    chosen = np.flatnonzero(~containers.are_runs & (containers.cardinalities > ARRAY_LIMIT))
    found = [np.empty(0, np.int64)]
    for first in range(0, len(chosen), _BITSETS_AT_ONCE):
        some = chosen[first : first + _BITSETS_AT_ONCE]
        bits = containers.data[containers.starts[some][:, None] + np.arange(BLOCK_BYTES)]
        owners, low = np.nonzero(np.unpackbits(bits, axis=1, bitorder="little"))
        require(np.bincount(owners, minlength=len(some)) == containers.cardinalities[some], "bits of another number")
        found.append(low + (containers.blocks[some] << 16)[owners])
    return np.concatenate(found), np.repeat(containers.sets[chosen], containers.cardinalities[chosen])


def _bits(containers: LooseContainers, set_count: int, row_count: int) -> Bytes:
    blocks = block_count(row_count)
    bits = np.zeros((set_count, blocks * BLOCK_BYTES), np.uint8)
    require(containers.blocks < blocks, f"rows beyond {row_count}")
    is_bitset = ~containers.are_runs & (containers.cardinalities > ARRAY_LIMIT)
    places = (containers.sets * bits.shape[1] + containers.blocks * BLOCK_BYTES)[is_bitset].tolist()
    flat = bits.reshape(-1)
    for place, start in zip(places, containers.starts[is_bitset].tolist(), strict=True):
        flat[place : place + BLOCK_BYTES] = containers.data[start : start + BLOCK_BYTES]
    others = () if is_bitset.all() else (_array_rows(containers), _run_rows(containers))
    for rows, sets in others:
        # Rows of a set are distinct, so that adding their bits is uniting them.
        np.add.at(flat, sets * bits.shape[1] + (rows >> 3), (1 << (rows & 7)).astype(np.uint8))
    expected = np.bincount(containers.sets, containers.cardinalities, set_count)
    if not np.array_equal(popcount(bits), expected):
        raise BrokenSetError("rows of another number")
    beyond = bits[:, row_count >> 3 :]
    if beyond.shape[1] and ((beyond[:, 0] >> (row_count & 7)).any() or beyond[:, 1:].any()):
        last = np.flatnonzero(np.unpackbits(np.bitwise_or.reduce(bits, axis=0), bitorder="little"))[-1]
        raise BrokenSetError(f"row {last} in a row group of {row_count} rows")
    return bits


def popcount(bits: Bytes) -> Ints:
    """Count the set bits along the last axis, whose length is a multiple of 8."""
    counts: Ints = np.bitwise_count(bits.view(np.uint64)).sum(axis=-1, dtype=np.int64)
    return counts


def every_bit(row_count: int) -> Bytes:
    """Return the bits of all rows."""
    bits = np.zeros(block_count(row_count) * BLOCK_BYTES, np.uint8)
    bits[: row_count >> 3] = 0xFF
    if row_count & 7:
        bits[row_count >> 3] = (1 << (row_count & 7)) - 1
    return bits
