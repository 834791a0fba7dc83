"""Merge bitmap indexes: bitmaps to merged bitmaps, postings to postings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from puffin_index.kinds.base import MergedPayload
from puffin_index.kinds.bitmap.merged_bitmap import MERGED_BITMAP
from puffin_index.kinds.bitmap.merged_bitmap_build import (
    KeyedContainers,
    bitmap_containers,
    build_merged_bitmap,
    merged_containers,
)
from puffin_index.kinds.merging import MergeLimits, MergePart, as_it_was, count_kept
from puffin_index.kinds.postings.merge import merge_postings


def merge_bitmaps(
    run: Sequence[MergePart], versions: Mapping[str, int], limits: MergeLimits
) -> Iterator[MergedPayload]:
    """Merge bitmaps of single row groups and merged bitmaps.

    Args:
        run: The parts, at least one.
        versions: The format version of each blob type of single row groups.
        limits: The most to merge into one payload.
    """
    if len(run) == 1 and _stays(run[0]):
        yield as_it_was(run[0])
        return
    taken: list[tuple[MergePart, KeyedContainers]] = []
    count = 0
    for part in run:
        one = _containers(part, versions)
        count += len(one.containers)
        if taken and count > limits.containers:
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


def _containers(part: MergePart, versions: Mapping[str, int]) -> KeyedContainers:
    payload = part.payload
    if payload.blob_type == MERGED_BITMAP:
        return merged_containers(payload, part.new_bases)
    return bitmap_containers(payload, versions[payload.blob_type], int(part.new_bases[0]))
