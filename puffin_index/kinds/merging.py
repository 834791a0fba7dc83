"""Payloads of several segments on their way into one: what all kinds share when compaction merges."""

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
"""The new base of a row group that the new segment does not have."""


@dataclass(frozen=True, slots=True, eq=False)
class MergePart:
    """A payload that is to be merged.

    Attributes:
        payload: The payload in its own segment; its value type is the column's type today.
        new_bases: For each row group that it covers, the base in the row space of the new segment (a multiple of
            65,536), or `DROPPED`.
    """

    payload: StoredPayload
    new_bases: Ints

    @property
    def is_kept(self) -> Flags:
        """Which of its row groups the new segment has."""
        return self.new_bases >= 0

    @property
    def new_spans(self) -> Ints:
        """Base and row count in the new segment of each row group that the new segment has: shape (n, 2)."""
        return np.stack((self.new_bases, self.payload.spans[:, 1]), axis=1)[self.is_kept]

    @property
    def is_unmoved(self) -> bool:
        """Whether the new segment has all row groups, at their old places."""
        return bool((self.new_bases == self.payload.spans[:, 0]).all())


@dataclass(frozen=True, slots=True)
class MergeLimits:
    """How much is merged at a time, and so in memory, a few times over. Postings and bit slices are streamed.

    Attributes:
        bytes: Of bitmaps or filters.
        containers: Of bitmaps: what is known of each takes a few hundred bytes for a moment.
    """

    bytes: int = 128 * 1024 * 1024
    containers: int = 1024 * 1024


DEFAULT_LIMITS = MergeLimits()


def as_it_was(part: MergePart) -> MergedPayload:
    """Copy a payload unchecked: whoever reads compares the blob's `xxh64` in the footer of its segment."""
    payload = part.payload
    return MergedPayload(Payload(payload.blob_type, payload.blob.read_all(), payload.layout), len(part.new_bases))


def count_kept(parts: Iterable[MergePart]) -> int:
    """Count the row groups of some parts that the new segment has."""
    return sum(int(np.count_nonzero(part.is_kept)) for part in parts)


def runs_of(
    parts: Sequence[MergePart], form_of: Callable[[MergePart], Hashable], most_bytes: int | None
) -> Iterator[list[MergePart]]:
    """Yield neighbours of one form.

    Args:
        parts: The parts, in order.
        form_of: Tells what must be the same of parts that are merged.
        most_bytes: How many bytes the parts of a run have together, unless it is one part; None for any number.
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
    """Return the keys that containers get in the new row space; -1 where their row group is left out.

    Args:
        blob: What they are from, for messages.
        blocks: Their keys.
        spans: Base and row count of each row group, in its own segment.
        new_bases: Where each begins in the new row space; negative for one that is left out.

    Raises:
        CorruptFileError: If one is in no row group.
    """
    firsts, counts = spans[:, 0] // BLOCK_ROWS, -(-spans[:, 1] // BLOCK_ROWS)
    # A row group without rows begins where the next one does, which is the last of those that begin there.
    owners = np.searchsorted(firsts, blocks, "right") - 1
    within = blocks - firsts[owners]
    if bool(((owners < 0) | (within >= counts[owners])).any()):
        raise corrupt(blob, "rows that no row group has")
    bases = new_bases[owners]
    return np.where(bases < 0, -1, bases // BLOCK_ROWS + within)
