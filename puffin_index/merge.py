"""Payloads of several segments put together: what compaction calls for each column and kind. Pure: bytes in, bytes out.

| kind | parts | become |
| --- | --- | --- |
| bitmap | bitmaps of a row group, merged bitmaps | merged bitmaps (`puffin_index.kinds.merged_bitmap`) |
| bitmap | postings | postings |
| bloom | filters of a row group, matrices | a matrix (`puffin_index.kinds.bloom_matrix`) |
| bsi | | they stay one a row group |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from puffin_index.errors import UnsupportedError
from puffin_index.kinds.base import Payload
from puffin_index.kinds.bitmap import BITMAP_VERSIONS
from puffin_index.kinds.bloom import PAIMON_BLOOM, open_filter
from puffin_index.kinds.bloom_matrix import BLOOM_MATRIX, BloomMatrix
from puffin_index.kinds.bloom_matrix_build import BloomBits, build_bloom_matrix, filters_of_matrix
from puffin_index.kinds.merged_bitmap import MERGED_BITMAP
from puffin_index.kinds.merged_bitmap_build import (
    KeyedContainers,
    bitmap_containers,
    build_merged_bitmap,
    merged_containers,
)
from puffin_index.kinds.postings import POSTINGS
from puffin_index.kinds.postings_merge import PostingsPart, merge_postings
from puffin_index.kinds.stored_form import form_of
from puffin_index.ranged import Blob
from puffin_index.value_types import ValueType

_RUN_BYTES = 128 * 1024 * 1024
"""Bitmaps and filters that are merged at a time are in memory, a few times over: no more than so many bytes of them."""
_FAMILIES = {
    **dict.fromkeys((*BITMAP_VERSIONS, MERGED_BITMAP), MERGED_BITMAP),
    POSTINGS: POSTINGS,
    PAIMON_BLOOM: BLOOM_MATRIX,
    BLOOM_MATRIX: BLOOM_MATRIX,
}
"""Blob type -> what such blobs become together."""

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
    layout: npt.NDArray[np.int64]
    bases: npt.NDArray[np.int64]
    row_counts: npt.NDArray[np.int64]
    new_bases: npt.NDArray[np.int64]

    @property
    def is_kept(self) -> npt.NDArray[np.bool_]:
        """Which of its row groups the new segment has."""
        return self.new_bases >= 0

    @property
    def spans(self) -> npt.NDArray[np.int64]:
        """Base and row count of each of its row groups: shape (n, 2)."""
        return np.stack((self.bases, self.row_counts), axis=1)


@dataclass(frozen=True, slots=True)
class MergedPayload:
    """A payload of the new segment.

    Attributes:
        payload: The payload.
        row_groups: How many row groups it covers: the next ones of the new segment, the first one after those of the
            payload before.
    """

    payload: Payload
    row_groups: int


def merge_payloads(
    kind: str, value_type: ValueType, parts: Sequence[SourcePayload], run_bytes: int = _RUN_BYTES
) -> Iterator[MergedPayload] | None:
    """Merge the payloads of one kind of one column.

    Made one after the other, each when it is asked for, so that no more than one (and what it is made of) is in memory.
    Together they cover the row groups that are not dropped, in order. A payload that has no fit neighbour, and whose
    rows stay where they are, comes back as it was, unchecked: compare the blob's `xxh64` in its segment's footer, as
    for whatever else is copied. All other parts are checked as they are read.

    Args:
        kind: The index kind.
        value_type: The column's type today. Parts may be of a type that it was promoted from.
        parts: The payloads, in the order of the new segment: the new bases of all row groups that are not dropped
            ascend through all parts.
        run_bytes: How many bytes of bitmaps or filters to merge at most; postings are merged all.

    Returns:
        None if payloads of this kind are not merged: copy those of the row groups that are kept, one by one (each
        covers one row group).

    Raises:
        CorruptFileError: While iterating: if a part is not what was written. Its row groups need to be built anew.
        UnsupportedError: While iterating: if a part is of a version that this release does not know, or its keys are of
            another domain than those of the column's type today (decimals that now have more than 18 digits): leave
            the segment that it is from as it is.
        BuildError: While iterating: if the rows leave the row space of the new segment.
    """
    if kind not in ("bitmap", "bloom"):
        return None
    kept = [part for part in parts if part.is_kept.any()]
    return (_merge_run(run, value_type) for run in _runs(kept, run_bytes))


def _runs(parts: Sequence[SourcePayload], run_bytes: int) -> Iterator[list[SourcePayload]]:
    """Neighbours that go together."""
    run: list[SourcePayload] = []
    length = 0
    for part in parts:
        length += part.blob.length
        if run and (not _go_together(run[0], part) or (length > run_bytes and part.blob_type != POSTINGS)):
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


def _merge_run(run: Sequence[SourcePayload], value_type: ValueType) -> MergedPayload:
    count = sum(int(np.count_nonzero(part.is_kept)) for part in run)
    only = run[0]
    family = _family(only)
    # Only what is merged has rows of the row space in it; filters have no rows at all.
    has_rows = only.blob_type in (MERGED_BITMAP, POSTINGS)
    is_same = bool(only.is_kept.all()) and not (has_rows and (only.new_bases != only.bases).any())
    if len(run) == 1 and is_same:
        return MergedPayload(Payload(only.blob_type, only.blob.read_all(), only.layout), count)
    if family == POSTINGS:
        postings = [PostingsPart(part.blob, part.layout, part.spans, part.new_bases) for part in run]
        return MergedPayload(merge_postings(postings, value_type), count)
    if family == MERGED_BITMAP:
        return MergedPayload(_merge_bitmaps(run, value_type), count)
    return MergedPayload(_merge_filters(run, value_type), count)


def _merge_bitmaps(run: Sequence[SourcePayload], value_type: ValueType) -> Payload:
    containers = [_containers(part, value_type) for part in run]
    spans = [
        span
        for part in run
        for span in zip(part.new_bases[part.is_kept].tolist(), part.row_counts[part.is_kept].tolist(), strict=True)
    ]
    return build_merged_bitmap(containers, value_type.domain, spans, run[0].blob.location)


def _containers(part: SourcePayload, value_type: ValueType) -> KeyedContainers:
    if part.blob_type == MERGED_BITMAP:
        return merged_containers(part.blob, part.layout, value_type, part.spans, part.new_bases)
    version = BITMAP_VERSIONS[part.blob_type]
    return bitmap_containers(
        part.blob, version, part.layout, value_type, int(part.row_counts[0]), int(part.new_bases[0])
    )


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
