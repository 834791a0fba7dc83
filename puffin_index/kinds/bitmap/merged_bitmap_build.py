"""Build merged bitmaps from bitmaps of row groups, and from merged bitmaps, by moving their containers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from puffin_index.errors import BuildError, CorruptFileError
from puffin_index.keys.columns import KeyArray, chosen_keys, tuple_of_keys
from puffin_index.keys.leaf import Key
from puffin_index.keys.merge import rank_keys
from puffin_index.keys.value_types import Domain
from puffin_index.kinds.base import (
    MergedPayload,
    MergePart,
    Payload,
    StoredPayload,
    as_it_was,
    count_kept,
    new_blocks,
)
from puffin_index.kinds.bitmap.entries import RowSetPlaces
from puffin_index.kinds.bitmap.lookup import BitmapIndex
from puffin_index.kinds.bitmap.merged_bitmap import LAYOUT_FORMS, MERGED_BITMAP, MergedBitmap
from puffin_index.kinds.postings.build import DEFAULT_SIZES, finish_postings
from puffin_index.kinds.postings.merge import merge_postings
from puffin_index.kinds.postings.pages import Child
from puffin_index.kinds.postings.sort import RowNumbers
from puffin_index.roaring.union import (
    BrokenSetError,
    LooseContainers,
    StoredSets,
    assemble_sets,
    containers_of_rows,
    joined,
)
from puffin_index.roaring.write import BLOCK_ROWS, block_count
from puffin_index.storage.arrays import Ints
from puffin_index.storage.hashing import xxh64_many
from puffin_index.storage.parts import corrupt, in_memory

_ROW_SPACE = 2**32
_MERGED_CONTAINERS = 1024 * 1024
"""The most containers to merge into one payload: each takes some hundred bytes of memory."""


@dataclass(frozen=True, slots=True, eq=False)
class KeyedContainers:
    """The distinct keys of a bitmap index, and the containers of each at new places, then those of NULL rows."""

    keys: KeyArray
    containers: LooseContainers


def bitmap_containers(payload: StoredPayload, new_base: int) -> KeyedContainers:
    """Take the bitmaps of one row group apart, for its new base. The payload is read whole."""
    row_count = payload.row_count
    blob = in_memory(payload.blob)
    index = BitmapIndex(replace(payload, blob=blob))
    table = index.entries.every()
    # NULL rows are the set behind the last entry.
    places = RowSetPlaces.joined((table.places, index.nulls))
    containers = _containers_of_places(places, index)
    if len(containers.blocks) and int(containers.blocks.max()) >= block_count(row_count):
        raise corrupt(blob, f"a row set leaves a row group of {row_count} rows", index.body_start)
    blocks = containers.blocks + new_base // BLOCK_ROWS
    return KeyedContainers(table.keys.array(), containers.moved(containers.sets, blocks))


def _containers_of_places(places: RowSetPlaces, index: BitmapIndex) -> LooseContainers:
    """Return the containers of the row sets at some places, which are numbered in their order."""
    sets = np.arange(len(places.offsets))
    is_row = places.offsets < 0
    rows = containers_of_rows(sets[is_row], -1 - places.offsets[is_row])
    found = index.sets(places).containers()
    return joined((rows, found.moved(sets[~is_row][found.sets], found.blocks)))


def merged_containers(payload: StoredPayload, new_bases: Ints) -> KeyedContainers:
    """Take merged bitmaps apart, for the new base of each row group, negative if dropped. The payload is read whole."""
    blob = in_memory(payload.blob)
    keys, parts, nulls = MergedBitmap(replace(payload, blob=blob)).every_set()
    places = [*parts, nulls] if nulls.length else parts
    starts = np.array([part.offset for part in places], np.int64)
    lengths = np.array([part.length for part in places], np.int64)
    containers = StoredSets(blob.read_all(), starts, lengths, blob.location, blob.offset).containers()
    blocks = new_blocks(blob, containers.blocks, payload.spans, new_bases)
    return KeyedContainers(keys, containers.moved(containers.sets, blocks))


def build_merged_bitmap(parts: Sequence[KeyedContainers], domain: Domain, spans: Ints, location: str) -> Payload:
    """Build the payload of row groups of these spans, shape (n, 2), from bitmaps that were taken apart.

    Raises BuildError if the rows exceed the row space, CorruptFileError if the parts do not have every row exactly
    once.
    """
    numbers = RowNumbers.of(spans)
    if numbers.row_limit > _ROW_SPACE:
        raise BuildError(f"{numbers.row_limit} rows in the row space of a segment, which has {_ROW_SPACE}")
    keys, containers = _ranked(parts, domain)
    set_count = len(keys) + 1
    row_counts = np.bincount(containers.sets, containers.cardinalities, set_count).astype(np.int64)
    if int(row_counts.sum()) != numbers.row_count:
        raise CorruptFileError(f"bitmaps of {row_counts.sum()} rows, not {numbers.row_count}", location=location)
    try:
        sets = assemble_sets(containers, set_count if row_counts[-1] else len(keys))
    except BrokenSetError as error:
        raise CorruptFileError(f"bitmaps that are not of one column: {error}", location=location) from error
    ends = sets.offsets[1 : len(keys) + 1]
    nulls_from = int(sets.offsets[len(keys)])
    hashes = xxh64_many(sets.data, sets.offsets[: len(keys)], np.diff(sets.offsets[: len(keys) + 1]))
    numbers_of_keys = np.stack((ends, row_counts[:-1], (hashes & np.uint64(0xFFFF_FFFF)).astype(np.int64)), axis=1)
    separators: Sequence[Key] = tuple_of_keys(keys)
    blocks = [
        Child(end, row_count, 1, checksum, key, True)
        for (end, row_count, checksum), key in zip(numbers_of_keys.tolist(), separators, strict=True)
    ]
    nulls = sets.data[nulls_from:].data
    data = bytearray(sets.data[:nulls_from])
    return finish_postings(MERGED_BITMAP, data, blocks, nulls, domain == "bytes", numbers, DEFAULT_SIZES, LAYOUT_FORMS)


def _ranked(parts: Sequence[KeyedContainers], domain: Domain) -> tuple[KeyArray, LooseContainers]:
    """Return the distinct keys that have rows, ascending, and the containers with places among these keys as sets."""
    keys, ranks = _rank([part.keys for part in parts], domain)
    sets: list[Ints] = []
    first = 0
    for part in parts:
        own = np.append(ranks[first : first + len(part.keys)], len(keys))
        first += len(part.keys)
        sets.append(own[part.containers.sets])
    every = joined([part.containers for part in parts])
    used = np.zeros(len(keys) + 1, np.bool_)
    ranked = np.concatenate(sets)
    used[ranked] = True
    used[-1] = True
    places = np.cumsum(used) - 1
    chosen = np.flatnonzero(used[:-1])
    return chosen_keys(keys, chosen), every.moved(places[ranked], every.blocks)


def _rank(arrays: Sequence[KeyArray], domain: Domain) -> tuple[KeyArray, Ints]:
    if domain == "int64":
        distinct, ranks = np.unique(np.concatenate(arrays), return_inverse=True)
        return distinct, ranks.astype(np.int64)
    keys, places = rank_keys(arrays)
    return keys, places.astype(np.int64)


def merge_bitmaps(run: Sequence[MergePart]) -> Iterator[MergedPayload]:
    """Merge bitmaps of single row groups, and merged bitmaps."""
    if len(run) == 1 and _stays(run[0]):
        yield as_it_was(run[0])
        return
    taken: list[tuple[MergePart, KeyedContainers]] = []
    count = 0
    for part in run:
        one = _containers(part)
        count += len(one.containers)
        if taken and count > _MERGED_CONTAINERS:
            yield _merged(taken)
            taken, count = [], len(one.containers)
        taken.append((part, one))
    yield _merged(taken)


def merge_all_postings(run: Sequence[MergePart]) -> MergedPayload:
    """Merge postings; postings of one segment that do not move are copied."""
    if len(run) == 1 and run[0].is_unmoved:
        return as_it_was(run[0])
    return MergedPayload(merge_postings(run), count_kept(run))


def _stays(part: MergePart) -> bool:
    """Return whether a payload fits the new segment unchanged.

    Only merged bitmaps hold rows of the segment's row space; bitmaps of a row group fit at any base.
    """
    return part.is_unmoved or (bool(part.is_kept.all()) and part.payload.blob_type != MERGED_BITMAP)


def _merged(taken: Sequence[tuple[MergePart, KeyedContainers]]) -> MergedPayload:
    parts = [part for part, _ in taken]
    if len(parts) == 1 and _stays(parts[0]):
        return as_it_was(parts[0])
    spans = np.concatenate([part.new_spans for part in parts])
    first = parts[0].payload
    payload = build_merged_bitmap([one for _, one in taken], first.value_type.domain, spans, first.blob.location)
    return MergedPayload(payload, count_kept(parts))


def _containers(part: MergePart) -> KeyedContainers:
    payload = part.payload
    if payload.blob_type == MERGED_BITMAP:
        return merged_containers(payload, part.new_bases)
    return bitmap_containers(payload, int(part.new_bases[0]))
