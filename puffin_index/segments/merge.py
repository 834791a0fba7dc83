"""Payloads of several segments put together: what compaction calls for each column and kind. Pure: bytes in, bytes out.

| kind | parts | become |
| --- | --- | --- |
| bitmap | bitmaps of a row group, merged bitmaps | merged bitmaps (`puffin_index.kinds.postings.merged_bitmap`) |
| bitmap | postings | postings |
| bloom | filters of a row group, matrices | a matrix (`puffin_index.kinds.bloom.matrix`) |
| bsi | bit slices of a small row group, merged ones | merged bit slices (`puffin_index.kinds.bsi.merged_slices`) |
| bsi | bit slices of a large row group | they stay one a row group |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from puffin_index.definition.index_definition import Options
from puffin_index.errors import UnsupportedError
from puffin_index.keys.stored_form import form_of
from puffin_index.keys.value_types import ValueType
from puffin_index.kinds.base import MergedPayload, Payload
from puffin_index.kinds.bitmap.kind import BITMAP_VERSIONS
from puffin_index.kinds.bloom.kind import PAIMON_BLOOM, open_filter
from puffin_index.kinds.bloom.matrix import BLOOM_MATRIX, BloomMatrix
from puffin_index.kinds.bloom.matrix_build import BloomBits, build_bloom_matrix, filters_of_matrix
from puffin_index.kinds.bsi.kind import BitSlicedKind, may_merge, open_slices
from puffin_index.kinds.bsi.merged_slices import MergedSlices
from puffin_index.kinds.bsi.merged_slices_build import MERGED_BSI, SmallRowGroups, is_small
from puffin_index.kinds.merged import MERGED_SLICES
from puffin_index.kinds.postings.look_up import POSTINGS
from puffin_index.kinds.postings.merge import PostingsPart, merge_postings
from puffin_index.kinds.postings.merged_bitmap import MERGED_BITMAP
from puffin_index.kinds.postings.merged_bitmap_build import (
    KeyedContainers,
    bitmap_containers,
    build_merged_bitmap,
    merged_containers,
)
from puffin_index.storage.arrays import Flags, Ints
from puffin_index.storage.ranged import Blob

_FAMILIES = {
    **dict.fromkeys((*BITMAP_VERSIONS, MERGED_BITMAP), MERGED_BITMAP),
    POSTINGS: POSTINGS,
    PAIMON_BLOOM: BLOOM_MATRIX,
    BLOOM_MATRIX: BLOOM_MATRIX,
    **dict.fromkeys((*BitSlicedKind.blob_types, *MERGED_SLICES), MERGED_BSI),
}
"""Blob type -> what such blobs become together, where they are small."""

_STREAMED = frozenset({POSTINGS, MERGED_BSI})
_NO_OPTIONS: Options = MappingProxyType({})

DROPPED = -1
"""The new base of a row group that the new segment does not have."""


@dataclass(frozen=True, slots=True, eq=False)
class SourcePayload:
    """A payload of a segment that is to be merged: one row of its directory.

    Attributes:
        blob: Its bytes, in the segment that it is read from.
        blob_type: Its blob type.
        layout: Its layout.
        bases: For each row group that it covers, the base in the row space of its own segment.
        row_counts: For each, its rows.
        new_bases: For each, the base in the row space of the new segment (a multiple of 65,536), or `DROPPED`.
    """

    blob: Blob
    blob_type: str
    layout: Ints
    bases: Ints
    row_counts: Ints
    new_bases: Ints

    @property
    def is_kept(self) -> Flags:
        """Which of its row groups the new segment has."""
        return self.new_bases >= 0

    @property
    def spans(self) -> Ints:
        """Base and row count of each of its row groups: shape (n, 2)."""
        return np.stack((self.bases, self.row_counts), axis=1)


@dataclass(frozen=True, slots=True)
class RunLimits:
    """How much is merged at a time, and so in memory, a few times over. Postings and bit slices are streamed.

    Attributes:
        bytes: Of bitmaps or filters.
        containers: Of bitmaps: what is known of each takes a few hundred bytes for a moment.
    """

    bytes: int = 128 * 1024 * 1024
    containers: int = 1024 * 1024


DEFAULT_LIMITS = RunLimits()


def merge_payloads(
    value_type: ValueType,
    parts: Sequence[SourcePayload],
    options: Options = _NO_OPTIONS,
    limits: RunLimits = DEFAULT_LIMITS,
) -> Iterator[MergedPayload]:
    """Merge the payloads of one kind of one column.

    Made one after the other, each when it is asked for, so that no more than one (and what it is made of) is in memory.
    Together they cover the row groups that are not dropped, in order. A payload that has no fit neighbour, and whose
    rows stay where they are, comes back as it was, unchecked: compare the blob's `xxh64` in its segment's footer, as
    for whatever else is copied. All other parts are checked as they are read.

    Args:
        value_type: The column's type today. Parts may be of a type that it was promoted from.
        parts: The payloads, in the order of the new segment: the new bases of all row groups that are not dropped
            ascend through all parts.
        options: What the definition says of the index: bit slices of small row groups stay as they are where they are
            not to be compressed.
        limits: How much to merge at a time.

    Raises:
        CorruptFileError: While iterating: if a part is not what was written. Its row groups need to be built anew.
        UnsupportedError: While iterating: if a part is of a version that this release does not know, or its keys are of
            another domain than those of the column's type today (decimals that now have more than 18 digits): leave
            the segment that it is from as it is.
        BuildError: While iterating: if the rows leave the row space of the new segment.
    """
    kept = [part for part in parts if part.is_kept.any()]
    for run in _runs(kept, limits.bytes):
        if _family(run[0]) == MERGED_BSI:
            yield from _merge_slices(run, value_type, may_merge(options))
        else:
            yield from _merge_run(run, value_type, limits)


def merged_type(blob_type: str) -> str:
    """Return what payloads of a blob type become together with others of their kind: a blob type.

    Raises:
        UnsupportedError: If this release does not know how to merge them.
    """
    if blob_type not in _FAMILIES:
        raise UnsupportedError(f"a blob {blob_type} cannot be merged")
    return _FAMILIES[blob_type]


def _runs(parts: Sequence[SourcePayload], run_bytes: int) -> Iterator[list[SourcePayload]]:
    """Neighbours that go together."""
    run: list[SourcePayload] = []
    length = 0
    for part in parts:
        length += part.blob.length
        if run and (not _go_together(run[0], part) or (length > run_bytes and _family(part) not in _STREAMED)):
            yield run
            run, length = [], part.blob.length
        run.append(part)
    if run:
        yield run


def _go_together(one: SourcePayload, other: SourcePayload) -> bool:
    if _family(one) != _family(other):
        return False
    return _family(one) != BLOOM_MATRIX or _bloom_form(one) == _bloom_form(other)


def _family(part: SourcePayload) -> str:
    if part.blob_type not in _FAMILIES:
        raise UnsupportedError(f"{part.blob.location}: a blob {part.blob_type} cannot be merged")
    return _FAMILIES[part.blob_type]


def _bloom_form(part: SourcePayload) -> int | None:
    """The form of the values that were hashed: after version and form go other numbers of either blob type."""
    return int(part.layout[1]) if len(part.layout) > 1 else None


def _merge_run(run: Sequence[SourcePayload], value_type: ValueType, limits: RunLimits) -> Iterator[MergedPayload]:
    family = _family(run[0])
    if len(run) == 1 and _stays(run[0]):
        yield _as_it_was(run[0])
    elif family == MERGED_BITMAP:
        yield from _merge_bitmaps(run, value_type, limits.containers)
    elif family == POSTINGS:
        postings = [PostingsPart(part.blob, part.layout, part.spans, part.new_bases) for part in run]
        yield MergedPayload(merge_postings(postings, value_type), _count_kept(run))
    else:
        yield MergedPayload(_merge_filters(run, value_type), _count_kept(run))


def _count_kept(run: Sequence[SourcePayload]) -> int:
    return sum(int(np.count_nonzero(part.is_kept)) for part in run)


def _stays(part: SourcePayload) -> bool:
    """Whether a payload is right for the new segment as it is."""
    # Only what is merged has rows of the row space in it; filters have no rows at all.
    has_rows = part.blob_type in (MERGED_BITMAP, POSTINGS)
    return bool(part.is_kept.all()) and not (has_rows and (part.new_bases != part.bases).any())


def _as_it_was(part: SourcePayload) -> MergedPayload:
    return MergedPayload(Payload(part.blob_type, part.blob.read_all(), part.layout), len(part.bases))


def _merge_bitmaps(
    run: Sequence[SourcePayload], value_type: ValueType, most_containers: int
) -> Iterator[MergedPayload]:
    taken: list[tuple[SourcePayload, KeyedContainers]] = []
    count = 0
    for part in run:
        one = _containers(part, value_type)
        count += len(one.containers)
        if taken and count > most_containers:
            yield _merged_bitmap(taken, value_type)
            taken, count = [], len(one.containers)
        taken.append((part, one))
    yield _merged_bitmap(taken, value_type)


def _merged_bitmap(taken: Sequence[tuple[SourcePayload, KeyedContainers]], value_type: ValueType) -> MergedPayload:
    parts = [part for part, _ in taken]
    if len(parts) == 1 and _stays(parts[0]):
        return _as_it_was(parts[0])
    spans = np.concatenate([np.stack((part.new_bases, part.row_counts), axis=1)[part.is_kept] for part in parts])
    payload = build_merged_bitmap([one for _, one in taken], value_type.domain, spans, parts[0].blob.location)
    return MergedPayload(payload, _count_kept(parts))


def _containers(part: SourcePayload, value_type: ValueType) -> KeyedContainers:
    if part.blob_type == MERGED_BITMAP:
        return merged_containers(part.blob, part.layout, value_type, part.spans, part.new_bases)
    version = BITMAP_VERSIONS[part.blob_type]
    return bitmap_containers(
        part.blob, version, part.layout, value_type, int(part.row_counts[0]), int(part.new_bases[0])
    )


def _merge_slices(run: Sequence[SourcePayload], value_type: ValueType, merges_small: bool) -> Iterator[MergedPayload]:
    """Put the small row groups together as a build does; copy the others."""
    small = SmallRowGroups()
    for part in run:
        if part.blob_type in MERGED_SLICES:
            columns = MergedSlices(part.blob, part.blob_type, part.layout, value_type, part.spans).columns()
        elif merges_small and is_small(int(part.row_counts[0])):
            slices = open_slices(part.blob, part.blob_type, part.layout, value_type, int(part.row_counts[0]))
            columns = [slices.column(value_type)]
        else:
            yield from small.flush()
            yield _as_it_was(part)
            continue
        for place in np.flatnonzero(part.is_kept).tolist():
            yield from small.add(columns[place])
    yield from small.flush()


def _merge_filters(run: Sequence[SourcePayload], value_type: ValueType) -> Payload:
    filters: list[BloomBits] = []
    for part in run:
        if part.blob_type == BLOOM_MATRIX:
            every = filters_of_matrix(BloomMatrix(part.blob, part.layout, value_type, len(part.bases)))
            filters += [every[place] for place in np.flatnonzero(part.is_kept).tolist()]
        else:
            opened = open_filter(part.blob, part.layout, value_type, int(part.row_counts[0]))
            filters.append(BloomBits(*opened.read_filter()))
    form = _bloom_form(run[0])
    return build_bloom_matrix(filters, form_of(value_type) if form is None else form)
