"""A segment to copy from: its blobs, its directories, and the data files that they belong to."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO

from puffin_index.data.data_table import DataFile
from puffin_index.errors import CorruptFileError, UnsupportedError
from puffin_index.formats.puffin import BLOB_CHECKSUM, BlobMetadata, PuffinFile, read_blob, read_footer
from puffin_index.keys.map_key import FieldKind
from puffin_index.kinds.base import StoredPayload
from puffin_index.segments import directory as dirs
from puffin_index.storage.arrays import Floats, Ints
from puffin_index.storage.files import FileReader
from puffin_index.storage.ranged import Blob, BytesReader, RangedReader

_DIRECTORY_BLOBS = frozenset({dirs.STATISTICS_BLOB, dirs.DIRECTORY_BLOB, dirs.ROW_GROUPS_BLOB})


@dataclass(frozen=True, slots=True)
class Part:
    """The place of a data file's index: a segment, and the ordinal of the file's first row group in the segment."""

    segment: str
    first_row_group: int


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """A data file and the place of each of its indexes, in one segment or several.

    `row_group_offsets` are those of `puffin_index.data.row_groups`; `sources` are by field id.
    """

    file: DataFile
    row_counts: tuple[int, ...]
    row_group_offsets: tuple[int, ...]
    parts: Mapping[FieldKind, Part]
    sources: Mapping[int, str]
    has_pages: bool

    @property
    def origins(self) -> frozenset[str]:
        """The segments that have an index of the file."""
        return frozenset(part.segment for part in self.parts.values())


@dataclass(frozen=True, eq=False)
class SourceSegment:
    """A segment's footer and directories, and for each index the directory row of each row group's payload."""

    location: str
    size: int
    footer: PuffinFile
    directories: Mapping[FieldKind, dirs.Directory]
    statistics: Mapping[FieldKind, pa.RecordBatch]
    row_groups: pa.RecordBatch
    payload_rows: Mapping[FieldKind, Ints]

    @cached_property
    def spans(self) -> Ints:
        """Base and row count of each row group, shape (row groups, 2)."""
        return np.column_stack([dirs.int64_column(self.row_groups, name) for name in ("base", "row_count")])

    @cached_property
    def blobs(self) -> dict[tuple[int, int, str], BlobMetadata]:
        """The blobs of columns by offset, field id and kind; an empty blob shares its offset with the next blob."""
        return {
            (blob.offset, blob.fields[0], blob.properties.get("kind", "")): blob
            for blob in self.footer.blobs
            if blob.fields
        }

    @property
    def payload_bytes(self) -> int:
        """The length of all payloads in bytes, live or not."""
        return sum(blob.length for blob in self.footer.blobs if blob.type not in _DIRECTORY_BLOBS)

    @cached_property
    def payload_shares(self) -> dict[FieldKind, Floats]:
        """Each row group's share of its payload, in bytes, for each index."""
        row_counts = self.spans[:, 1]
        shares: dict[FieldKind, Floats] = {}
        for key, rows in self.payload_rows.items():
            lengths = self.directories[key].numbers("length")
            together = np.bincount(rows, row_counts, len(lengths))
            shares[key] = lengths[rows] * row_counts / np.maximum(together[rows], 1)
        return shares

    def can_merge(self, key: FieldKind) -> bool:
        """Return whether this release can rewrite the payloads."""
        try:
            known = dirs.index_kind(key[1]).every_type
        except UnsupportedError:
            return False
        return known.issuperset(self.directories[key].blob_types.unique().to_pylist())

    def payload(self, key: FieldKind, row: int, reader: RangedReader) -> StoredPayload:
        """Return a payload by the row of its directory."""
        directory = self.directories[key]
        return directory.payload(row, reader, self.spans[directory.covered(row)])

    def live_bytes(self, key: FieldKind, first: int, row_groups: int) -> int:
        """Return the approximate payload bytes of some neighbouring row groups."""
        return int(self.payload_shares[key][first : first + row_groups].sum())

    def read_payload(self, reader: RangedReader, key: FieldKind, row: int) -> memoryview:
        """Read one payload and check its checksum, or raise CorruptFileError if it or the directory is damaged."""
        directory = self.directories[key]
        offset, length = (int(directory.numbers(name)[row]) for name in ("offset", "length"))
        blob = self.blobs.get((offset, *key))
        if blob is None or blob.length != length:
            raise CorruptFileError("a payload that the footer does not know", location=self.location, offset=offset)
        if BLOB_CHECKSUM not in blob.properties:
            raise CorruptFileError("a payload without a checksum", location=self.location, offset=offset)
        return read_blob(reader, blob)


def read_source(
    io: FileIO, location: str, size: int, footer_size: int, directories: Collection[Mapping[str, int | str]]
) -> SourceSegment:
    """Read a segment's footer, and directories at the places that an entry of the index table has.

    Raises CorruptFileError if it is damaged or lacks a row group, UnsupportedError if it is later, and NotFoundError.
    """
    with FileReader(io, location, size) as file:
        # Directories, the list of row groups and the footer lie side by side: one request gets all.
        start = max(0, min([size - footer_size, *(int(one["offset"]) for one in directories)]))
        reader = BytesReader(file.read(start, size - start), location, start)
        footer = read_footer(reader, footer_size, require_checksum=True)
        of_kinds: dict[FieldKind, dirs.Directory] = {}
        statistics: dict[FieldKind, pa.RecordBatch] = {}
        for one in directories:
            key = int(one["field_id"]), str(one["kind"])
            own = int(one["offset"]), int(one["length"]), str(one["xxh64"])
            if dirs.is_statistics(key[1]):
                statistics[key] = dirs.read_statistics(reader, *own, ())
            else:
                of_kinds[key] = dirs.read_directory(reader, *own)
        lists = [blob for blob in footer.blobs if blob.type == dirs.ROW_GROUPS_BLOB]
        if len(lists) != 1:
            raise UnsupportedError(f"{location}: {len(lists)} lists of row groups in a segment")
        place = Blob(reader, lists[0].offset, lists[0].length)
        rows = dirs.parse_batch(place, read_blob(reader, lists[0]), dirs.ROW_GROUPS.names)
    if any(directory.row_group_count != len(rows) for directory in of_kinds.values()):
        raise CorruptFileError("a directory that does not have every row group once", location=location)
    payload_rows = {key: directory.payload_of_row_groups() for key, directory in of_kinds.items()}
    return SourceSegment(location, size, footer, of_kinds, statistics, rows, payload_rows)


def in_memory(io: FileIO, source: SourceSegment) -> BytesReader:
    """Read a whole segment with one request."""
    with FileReader(io, source.location, source.size) as reader:
        return BytesReader.of(reader.read(0, source.size), source.location)
