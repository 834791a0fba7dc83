"""Unite many serialised row sets at once by array operations, as ranges over many distinct values need it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pyroaring import BitMap

from puffin_index.errors import CorruptFileError
from puffin_index.roaring.read import deserialize, row_set_of
from puffin_index.roaring.write import ARRAY_LIMIT, BLOCK_BYTES, BLOCK_ROWS, COOKIE, OFFSETS_FROM, RUN_COOKIE
from puffin_index.storage.arrays import Bytes, Flags, Ints
from puffin_index.storage.many_ranges import ramps

_FEW_SETS = 32
_BITSETS_AT_ONCE = 64


class BrokenSetError(Exception):
    """Says that a set breaks the format; the caller adds the file and the offset."""


@dataclass(frozen=True, slots=True)
class ParsedContainers:
    """All containers of all sets, in order.

    Attributes:
        sets: The set of each container.
        bases: The least row that each container may hold, a multiple of 65,536.
        cardinalities: The number of rows of each container.
        are_runs: Whether each container holds runs.
        starts: The start of each container.
        ends_of_sets: The end of each container's set.
    """

    sets: Ints
    bases: Ints
    cardinalities: Ints
    are_runs: Flags
    starts: Ints
    ends_of_sets: Ints


def union_of_sets(
    data: memoryview,
    starts: Ints,
    lengths: Ints,
    row_count: int,
    *,
    most_rows: int | None = None,
    location: str = "<bytes>",
    offset: int = 0,
) -> BitMap:
    """Return the union of disjoint serialised row sets.

    Args:
        data: The bytes.
        starts: The start of each set.
        lengths: The length of each set.
        row_count: The limit that every row must be below.
        most_rows: The most rows of all sets together; `row_count` by default.
        location: The file, for error messages.
        offset: The start of `data` in the file, for error messages.

    Raises:
        CorruptFileError: If a set is damaged.
    """
    _check_inside(data, starts, lengths, location, offset)
    if len(starts) <= _FEW_SETS:
        pairs = zip(starts.tolist(), lengths.tolist(), strict=True)
        return BitMap.union(
            BitMap(),
            *(
                deserialize(data[s : s + n], row_count, whole=False, location=location, offset=offset + s)
                for s, n in pairs
            ),
        )
    limit = row_count if most_rows is None else most_rows
    rows, _ = _decode(data, starts, lengths, row_count, limit, location, offset)
    return row_set_of(rows, row_count)


def rows_by_set(
    data: memoryview, starts: Ints, lengths: Ints, row_count: int, *, location: str = "<bytes>", offset: int = 0
) -> tuple[Ints, Ints]:
    """Return the rows of disjoint serialised row sets, in any order, and the set of each row.

    Args:
        data: The bytes.
        starts: The start of each set.
        lengths: The length of each set.
        row_count: The limit that every row must be below.
        location: The file, for error messages.
        offset: The start of `data` in the file, for error messages.

    Raises:
        CorruptFileError: If a set is damaged.
    """
    _check_inside(data, starts, lengths, location, offset)
    return _decode(data, starts, lengths, row_count, row_count, location, offset)


def _check_inside(data: memoryview, starts: Ints, lengths: Ints, location: str, offset: int) -> None:
    if bool(((starts < 0) | (lengths < 8) | (starts + lengths > len(data))).any()):
        raise CorruptFileError("a row set leaves its blob", location=location, offset=offset)


def _decode(
    data: memoryview, starts: Ints, lengths: Ints, row_count: int, most_rows: int, location: str, offset: int
) -> tuple[Ints, Ints]:
    raw = np.frombuffer(data, np.uint8)
    try:
        containers = parse_containers(raw, starts, starts + lengths)
        if int(containers.cardinalities.sum()) > most_rows:
            raise BrokenSetError(f"more than {most_rows} rows")
        parts = [array_rows(raw, containers), run_rows(raw, containers), _bitset_rows(raw, containers)]
        rows = np.concatenate([rows for rows, _ in parts])
        if len(rows) and int(rows.max()) >= row_count:
            raise BrokenSetError(f"row {rows.max()} in a row group of {row_count} rows")
    except BrokenSetError as error:
        raise CorruptFileError(f"not a row set: {error}", location=location, offset=offset) from error
    return rows, np.concatenate([sets for _, sets in parts])


def _uint32_at(raw: Bytes, places: Ints) -> Ints:
    """Return little-endian 32-bit numbers from arbitrary places."""
    columns = raw[places[:, None] + np.arange(4)]
    return np.ascontiguousarray(columns).view("<u4").reshape(-1).astype(np.int64)


def uint16_at(raw: Bytes, places: Ints) -> Ints:
    """Return little-endian 16-bit numbers from arbitrary places."""
    numbers: Ints = raw[places].astype(np.int64)
    numbers |= raw[places + 1].astype(np.int64) << 8
    return numbers


def require(holds: Flags, reason: str) -> None:
    """Raise `BrokenSetError` unless all flags are set."""
    if not bool(holds.all()):
        raise BrokenSetError(reason)


def parse_containers(raw: Bytes, starts: Ints, ends: Ints) -> ParsedContainers:
    """Find the containers of serialised sets without decoding any.

    Raises:
        BrokenSetError: If the headers of a set break the format.
    """
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
    return ParsedContainers(sets, (described & 0xFFFF) << 16, cardinalities, are_runs, places, ends[sets])


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
        run_bytes = 2 + 4 * uint16_at(raw, places[here])
        position[own] += np.where(are_runs[here], run_bytes, sizes[here])


def array_rows(raw: Bytes, containers: ParsedContainers) -> tuple[Ints, Ints]:
    """Return the rows of all array containers, and the set of each row."""
    chosen = ~containers.are_runs & (containers.cardinalities <= ARRAY_LIMIT)
    starts, counts = containers.starts[chosen], containers.cardinalities[chosen]
    require(starts + 2 * counts <= containers.ends_of_sets[chosen], "a container is cut short")
    rows = uint16_at(raw, ramps(starts, counts, step=2)) | np.repeat(containers.bases[chosen], counts)
    return rows, np.repeat(containers.sets[chosen], counts)


def run_rows(raw: Bytes, containers: ParsedContainers) -> tuple[Ints, Ints]:
    """Return the rows of all containers of runs, and the set of each row."""
    chosen = containers.are_runs
    starts = containers.starts[chosen]
    counts = uint16_at(raw, starts)
    require(starts + 2 + 4 * counts <= containers.ends_of_sets[chosen], "a container is cut short")
    pairs = _uint32_at(raw, ramps(starts + 2, counts, step=4))
    lengths = (pairs >> 16) + 1
    # Callers have bounded the cardinalities; runs that claim more rows would allocate without bound.
    owners = np.repeat(np.arange(len(starts)), counts)
    unfolded = np.bincount(owners, lengths, minlength=len(starts))
    require(unfolded == containers.cardinalities[chosen], "runs of another cardinality")
    rows = ramps((pairs & 0xFFFF) + np.repeat(containers.bases[chosen], counts), lengths)
    return rows, np.repeat(containers.sets[chosen], containers.cardinalities[chosen])


def _bitset_rows(raw: Bytes, containers: ParsedContainers) -> tuple[Ints, Ints]:
    chosen = np.flatnonzero(~containers.are_runs & (containers.cardinalities > ARRAY_LIMIT))
    starts = containers.starts[chosen]
    require(starts + BLOCK_BYTES <= containers.ends_of_sets[chosen], "a container is cut short")
    found = [np.empty(0, np.int64)]
    for first in range(0, len(chosen), _BITSETS_AT_ONCE):
        some = chosen[first : first + _BITSETS_AT_ONCE]
        bits = raw[containers.starts[some][:, None] + np.arange(BLOCK_BYTES)]
        owners, low = np.nonzero(np.unpackbits(bits, axis=1, bitorder="little"))
        require(np.bincount(owners, minlength=len(some)) == containers.cardinalities[some], "bits of another number")
        found.append(low + containers.bases[some][owners])
    return np.concatenate(found), np.repeat(containers.sets[chosen], containers.cardinalities[chosen])
