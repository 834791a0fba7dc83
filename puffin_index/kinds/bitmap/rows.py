"""The body of a bitmap blob: read the row sets of entries; neighbours share a request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pyroaring import BitMap

from puffin_index.kinds.bitmap.blob import NO_NULLS
from puffin_index.roaring.read import deserialize, row_set_of
from puffin_index.roaring.union import rows_by_set, union_of_sets
from puffin_index.storage.arrays import Ints
from puffin_index.storage.binary import write_uint32_be
from puffin_index.storage.hashing import xxh64_many
from puffin_index.storage.parts import CHECKSUM_BYTES, checksum32, corrupt
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

    The NULLs' length is 0 where the offset is a row, `NO_NULLS` without NULLs.
    """

    blob: Blob
    start: int
    row_count: int
    null_offset: int
    null_length: int

    def null_rows(self) -> BitMap:
        """Return the NULL rows."""
        if self.null_length == NO_NULLS:
            return BitMap()
        return self.rows_of(RowSetPlaces(np.array([self.null_offset]), np.array([self.null_length])))

    def rows_of(self, places: RowSetPlaces) -> BitMap:
        """Return the rows of some entries.

        Raises CorruptFileError if a row set leaves the body, breaks its seal, or is damaged.
        """
        is_row = places.offsets < 0
        found = row_set_of(self._single_rows(places), self.row_count)
        if is_row.all():
            return found
        order = np.argsort(places.offsets[~is_row], kind="stable")
        starts, lengths = places.offsets[~is_row][order], places.lengths[~is_row][order]
        self._check_inside(starts, lengths)
        first, request_ends = near_groups(starts, starts + lengths + CHECKSUM_BYTES)
        lasts = [*first[1:].tolist(), len(starts)]
        for low, high, end in zip(first.tolist(), lasts, request_ends.tolist(), strict=True):
            found |= self._read(starts[low:high], lengths[low:high], end)
        return found

    def rows_by_entry(self, places: RowSetPlaces) -> tuple[Ints, Ints]:
        """Return the rows of all entries, in any order, and the entry of each row.

        Raises CorruptFileError if a row set leaves the body, breaks its seal, or is damaged.
        """
        is_row = places.offsets < 0
        entries, several = np.flatnonzero(is_row), np.flatnonzero(~is_row)
        rows = self._single_rows(places)
        if not len(several):
            return rows, entries
        starts, lengths = places.offsets[several], places.lengths[several]
        data = self.read_all(starts, lengths)
        offset = self.blob.offset + self.start
        found, sets = rows_by_set(data, starts, lengths, self.row_count, location=self.blob.location, offset=offset)
        return np.concatenate((rows, found)), np.concatenate((entries, several[sets]))

    def set_of_each(self, places: RowSetPlaces) -> list[BitMap]:
        """Return the row set of each entry.

        Raises CorruptFileError if a row set leaves the body, breaks its seal, or is damaged.
        """
        is_row = places.offsets < 0
        found = iter(self._single_rows(places).tolist())
        starts, lengths = places.offsets[~is_row], places.lengths[~is_row]
        data = self.read_all(starts, lengths)
        offset = self.blob.offset + self.start
        spans = zip(starts.tolist(), lengths.tolist(), strict=True)
        read = (
            deserialize(
                data[start : start + length],
                self.row_count,
                location=self.blob.location,
                offset=offset + start,
            )
            for start, length in spans
        )
        return [BitMap([next(found)]) if single else next(read) for single in is_row.tolist()]

    def _single_rows(self, places: RowSetPlaces) -> Ints:
        """Return the rows of entries of one row, or raise CorruptFileError if a row lies beyond the row group."""
        rows: Ints = -1 - places.offsets[places.offsets < 0]
        if len(rows) and int(rows.max()) >= self.row_count:
            raise corrupt(self.blob, f"row {rows.max()} in a row group of {self.row_count} rows")
        return rows

    def read_all(self, starts: Ints, lengths: Ints) -> memoryview:
        """Read the body, if it has one of some row sets, and check their seals.

        Raises CorruptFileError if a row set leaves the body or breaks its seal.
        """
        if not len(starts):
            return memoryview(b"")
        self._check_inside(starts, lengths)
        data = self.blob.read(self.start, self.blob.length - self.start)
        self._check_seals(data, starts, lengths, self.start)
        return data

    def _check_inside(self, starts: Ints, lengths: Ints) -> None:
        body_bytes = self.blob.length - self.start
        if int(lengths.min()) < 1 or int((starts + lengths).max()) + CHECKSUM_BYTES > body_bytes:
            raise corrupt(self.blob, f"a row set leaves a body of {body_bytes} bytes", self.start)

    def _read(self, starts: Ints, lengths: Ints, end: int) -> BitMap:
        """Read row sets that lie close to each other with one request; return their union."""
        begin = int(starts[0])
        data = self.blob.read(self.start + begin, end - begin)
        offset = self.start + begin
        relative = starts - begin
        location, file_offset = self.blob.location, self.blob.offset + offset
        if len(starts) == 1:
            content = data[: int(lengths[0])]
            if write_uint32_be(checksum32(content)) != data[len(content) :]:
                raise corrupt(self.blob, "the bytes do not have their checksum", offset)
            return deserialize(content, self.row_count, location=location, offset=file_offset)
        self._check_seals(data, relative, lengths, offset)
        return union_of_sets(data, relative, lengths, self.row_count, location=location, offset=file_offset)

    def _check_seals(self, data: memoryview, starts: Ints, lengths: Ints, offset: int) -> None:
        """Check the seals behind row sets, at starts and lengths in the data, or raise CorruptFileError."""
        raw = np.frombuffer(data, np.uint8)
        found = raw[(starts + lengths)[:, None] + np.arange(CHECKSUM_BYTES)]
        seals = np.ascontiguousarray(found).view(">u4").reshape(-1)
        if bool(((xxh64_many(raw, starts, lengths) & np.uint64(0xFFFF_FFFF)) != seals).any()):
            raise corrupt(self.blob, "the bytes do not have their checksum", offset)
