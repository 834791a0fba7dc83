"""The body of a bitmap blob: read the row sets of entries; neighbours share a request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pyroaring import BitMap

from puffin_index.kinds.bitmap.blob import NO_NULLS
from puffin_index.roaring.read import row_set_of
from puffin_index.roaring.union import StoredSets
from puffin_index.storage.arrays import Ints
from puffin_index.storage.hashing import xxh64_many
from puffin_index.storage.parts import CHECKSUM_BYTES, corrupt
from puffin_index.storage.ranged import Blob, near_groups


@dataclass(frozen=True, slots=True)
class RowSetPlaces:
    """Offsets of row sets in the body or -1 - row, and their lengths, undefined for a row."""

    offsets: Ints
    lengths: Ints

    @classmethod
    def none(cls) -> RowSetPlaces:
        """Return no places."""
        return cls(np.empty(0, np.int64), np.empty(0, np.int64))

    @classmethod
    def joined(cls, places: Sequence[RowSetPlaces]) -> RowSetPlaces:
        """Join several places to one object."""
        if not places:
            return cls.none()
        return cls(np.concatenate([p.offsets for p in places]), np.concatenate([p.lengths for p in places]))


@dataclass(frozen=True, slots=True)
class BitmapBody:
    """The row sets of a blob: the start of its body, and that of NULLs (or -1 - row).

    The NULLs' length is 0 where the offset is a row, `NO_NULLS` without NULLs. All methods raise CorruptFileError if a
    row set leaves the body, breaks its seal, or is damaged.
    """

    blob: Blob
    start: int
    row_count: int
    null_offset: int
    null_length: int

    @property
    def nulls(self) -> RowSetPlaces:
        """The place of the NULL rows, if there are any."""
        if self.null_length == NO_NULLS:
            return RowSetPlaces.none()
        return RowSetPlaces(np.array([self.null_offset]), np.array([self.null_length]))

    def null_rows(self) -> BitMap:
        """Return the NULL rows."""
        return self.rows_of(self.nulls)

    def rows_of(self, places: RowSetPlaces) -> BitMap:
        """Return the rows of some entries."""
        singles = row_set_of(self._single_rows(places), self.row_count)
        return singles | self.sets(places).union(self.row_count)

    def rows_by_entry(self, places: RowSetPlaces) -> tuple[Ints, Ints]:
        """Return the rows of all entries, in any order, and the entry of each row."""
        is_row = places.offsets < 0
        found, sets = self.sets(places).rows(self.row_count)
        rows = np.concatenate((self._single_rows(places), found))
        return rows, np.concatenate((np.flatnonzero(is_row), np.flatnonzero(~is_row)[sets]))

    def set_of_each(self, places: RowSetPlaces) -> list[BitMap]:
        """Return the row set of each entry."""
        singles = iter(self._single_rows(places).tolist())
        others = iter(self.sets(places).each(self.row_count))
        return [BitMap([next(singles)]) if offset < 0 else next(others) for offset in places.offsets.tolist()]

    def _single_rows(self, places: RowSetPlaces) -> Ints:
        """Return the rows of entries of one row, or raise CorruptFileError if a row lies beyond the row group."""
        rows: Ints = -1 - places.offsets[places.offsets < 0]
        if len(rows) and int(rows.max()) >= self.row_count:
            raise corrupt(self.blob, f"row {rows.max()} in a row group of {self.row_count} rows")
        return rows

    def sets(self, places: RowSetPlaces) -> StoredSets:
        """Read the row sets of those entries that have several rows, in the order of the entries."""
        several = places.offsets >= 0
        starts, lengths = places.offsets[several], places.lengths[several]
        if not len(starts):
            return StoredSets.of([])
        ends = starts + lengths + CHECKSUM_BYTES
        body_bytes = self.blob.length - self.start
        if int(lengths.min()) < 1 or int(ends.max()) > body_bytes:
            raise corrupt(self.blob, f"a row set leaves a body of {body_bytes} bytes", self.start)
        order = np.argsort(starts, kind="stable")
        firsts, request_ends = near_groups(starts[order], ends[order])
        begins = starts[order][firsts]
        sizes = request_ends - begins
        requests = zip(begins.tolist(), sizes.tolist(), strict=True)
        read = [self.blob.read(self.start + begin, size) for begin, size in requests]
        data = read[0] if len(read) == 1 else memoryview(b"".join(read))
        # The bytes of each request follow those of the request before.
        moves = np.cumsum(sizes) - sizes - begins
        starts = starts + moves[np.searchsorted(begins, starts, "right") - 1]
        self._check_seals(data, starts, lengths)
        return StoredSets(data, starts, lengths, self.blob.location, self.blob.offset + self.start)

    def _check_seals(self, data: memoryview, starts: Ints, lengths: Ints) -> None:
        """Check the seals behind row sets, at starts and lengths in the data."""
        raw = np.frombuffer(data, np.uint8)
        found = raw[(starts + lengths)[:, None] + np.arange(CHECKSUM_BYTES)]
        seals = np.ascontiguousarray(found).view(">u4").reshape(-1)
        if bool(((xxh64_many(raw, starts, lengths) & np.uint64(0xFFFF_FFFF)) != seals).any()):
            raise corrupt(self.blob, "the bytes do not have their checksum", self.start)
