"""The common part of all kinds in merging payloads of several segments into one segment."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from puffin_index.kinds.base import MergedPayload, Payload, StoredPayload
from puffin_index.roaring.write import BLOCK_ROWS
from puffin_index.storage.arrays import Flags, Ints
from puffin_index.storage.parts import corrupt
from puffin_index.storage.ranged import Blob

DROPPED = -1
"""The new base of a row group that the new segment leaves out."""


@dataclass(frozen=True, slots=True, eq=False)
class MergePart:
    """A payload to merge.

    Attributes:
        payload: The payload in its old segment; its value type is the column's type today.
        new_bases: The base of each covered row group in the row space of the new segment (a multiple of 65,536), or
            `DROPPED`.
    """

    payload: StoredPayload
    new_bases: Ints

    @property
    def is_kept(self) -> Flags:
        """Flags of the row groups that the new segment keeps."""
        return self.new_bases >= 0

    @property
    def new_spans(self) -> Ints:
        """Base and row count, in the new segment, of each kept row group: shape (n, 2)."""
        return np.stack((self.new_bases, self.payload.spans[:, 1]), axis=1)[self.is_kept]

    @property
    def is_unmoved(self) -> bool:
        """Whether the new segment keeps all row groups at their old bases."""
        return bool((self.new_bases == self.payload.spans[:, 0]).all())


@dataclass(frozen=True, slots=True)
class MergeLimits:
    """The most to merge into one payload. Memory holds a few times as much; postings and bit slices are streamed.

    Attributes:
        bytes: The most bytes of bitmaps or filters.
        containers: The most containers of bitmaps; each container takes a few hundred bytes of memory for a moment.
    """

    bytes: int = 128 * 1024 * 1024
    containers: int = 1024 * 1024


DEFAULT_LIMITS = MergeLimits()


def as_it_was(part: MergePart) -> MergedPayload:
    """Copy a payload unchecked: the reader compares the blob's `xxh64` in the footer of the segment."""
    payload = part.payload
    return MergedPayload(Payload(payload.blob_type, payload.blob.read_all(), payload.layout), len(part.new_bases))


def count_kept(parts: Iterable[MergePart]) -> int:
    """Count the row groups of some parts that the new segment keeps."""
    return sum(int(np.count_nonzero(part.is_kept)) for part in parts)


def runs_of(
    parts: Sequence[MergePart], form_of: Callable[[MergePart], Hashable], most_bytes: int | None
) -> Iterator[list[MergePart]]:
    """Yield runs of neighbouring parts of one form.

    Args:
        parts: The parts, in order.
        form_of: Returns the form of a part, which must be the same for all parts of a run.
        most_bytes: The most bytes of a run (a single part may have more); None for any number.
    """
    run: list[MergePart] = []
    form_of_run: Hashable = None
    length = 0
    for part in parts:
        own, form = part.payload.blob.length, form_of(part)
        is_full = most_bytes is not None and length + own > most_bytes
        if run and (is_full or form != form_of_run):
            yield run
            run, length = [], 0
        run.append(part)
        form_of_run = form
        length += own
    if run:
        yield run


def new_blocks(blob: Blob, blocks: Ints, spans: Ints, new_bases: Ints) -> Ints:
    """Return the keys of containers in the new row space; -1 for containers of dropped row groups.

    Args:
        blob: The blob of the containers, for error messages.
        blocks: The keys of the containers in the old row space.
        spans: Base and row count of each row group in the old row space.
        new_bases: The base of each row group in the new row space; negative for a dropped row group.

    Raises:
        CorruptFileError: If a container lies in no row group.
    """
    firsts, counts = spans[:, 0] // BLOCK_ROWS, -(-spans[:, 1] // BLOCK_ROWS)
    # A row group without rows shares its base with the next row group. The search finds the last row group at a base.
    owners = np.searchsorted(firsts, blocks, "right") - 1
    within = blocks - firsts[owners]
    if bool(((owners < 0) | (within >= counts[owners])).any()):
        raise corrupt(blob, "rows that no row group has")
    bases = new_bases[owners]
    return np.where(bases < 0, -1, bases // BLOCK_ROWS + within)
