"""A segment whose contents are to be copied into another one: its blobs, its directories, and whose they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.io import FileIO

from puffin_index.data_table import DataFile
from puffin_index.directory import (
    DIRECTORY_BLOB,
    ROW_GROUPS_BLOB,
    STATISTICS_BLOB,
    int64_column,
    is_statistics,
    parse_directory,
    read_directory,
)
from puffin_index.entries import FieldKind
from puffin_index.errors import CorruptFileError, UnsupportedError
from puffin_index.kinds.postings import POSTINGS
from puffin_index.puffin import BLOB_CHECKSUM, BlobMetadata, PuffinFile, read_blob, read_footer
from puffin_index.ranged import BytesReader, RangedReader
from puffin_index.storage import FileReader

DIRECTORY_BLOBS = frozenset({STATISTICS_BLOB, DIRECTORY_BLOB, ROW_GROUPS_BLOB})
EACH, MERGED = "each", "merged"
_ROW_GROUP_COLUMNS = ("data_file", "ordinal", "offset", "row_count", "base")
_COLUMNS = ("first_row_group", "row_groups", "offset", "length", "blob_type", "layout")


@dataclass(frozen=True, slots=True)
class Part:
    """Where an index of a data file is: a segment, and the ordinal in it of the file's first row group."""

    segment: str
    first_row_group: int


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """A data file and its indexes, in one segment or several.

    Attributes:
        file: The data file.
        row_counts: Rows of each row group.
        row_group_offsets: Start of each row group in the data file, in bytes.
        parts: Where the index of each (field, kind) is.
        origins: The segments of its entries.
    """

    file: DataFile
    row_counts: tuple[int, ...]
    row_group_offsets: tuple[int, ...]
    parts: Mapping[FieldKind, Part]
    origins: frozenset[str]


@dataclass(frozen=True, eq=False)
class SourceSegment:
    """A segment's footer and directories.

    Attributes:
        location: Where it is.
        size: In bytes.
        footer: Its footer.
        directories: Directories and statistics.
        row_groups: The list of its row groups.
    """

    location: str
    size: int
    footer: PuffinFile
    directories: Mapping[FieldKind, pa.RecordBatch]
    row_groups: pa.RecordBatch

    @cached_property
    def spans(self) -> npt.NDArray[np.int64]:
        """Base and row count of each row group, shape (row groups, 2)."""
        return np.column_stack((int64_column(self.row_groups, "base"), int64_column(self.row_groups, "row_count")))

    @cached_property
    def blobs(self) -> dict[int, BlobMetadata]:
        """The blobs by their offset."""
        return {blob.offset: blob for blob in self.footer.blobs}

    @property
    def payload_bytes(self) -> int:
        """The bytes of all payloads, live or not."""
        return payload_bytes(self.footer)

    def value_type(self, key: FieldKind) -> str:
        """The name of the type that an index was built for."""
        return str((self.directories[key].schema.metadata or {}).get(b"value-type", b""), "utf-8", "replace")

    def layout(self, key: FieldKind) -> str | None:
        """`EACH` if every row group has a payload, `MERGED` if all have one together; None if it is something else."""
        batch = self.directories[key]
        if len(batch) == 1 and batch.column("blob_type")[0].as_py() == POSTINGS:
            return MERGED
        is_each = len(batch) == len(self.spans) and bool((int64_column(batch, "row_groups") == 1).all())
        return EACH if is_each else None

    def live_bytes(self, key: FieldKind, first: int, row_counts: tuple[int, ...]) -> int:
        """About how many bytes of payloads some neighbouring row groups have."""
        lengths = int64_column(self.directories[key], "length")
        if self.layout(key) == EACH:
            return int(lengths[first : first + len(row_counts)].sum())
        return int(lengths.sum() * sum(row_counts) / max(1, int(self.spans[:, 1].sum())))

    def read_payload(self, reader: RangedReader, key: FieldKind, row: int) -> tuple[BlobMetadata, memoryview]:
        """Read one payload, the bytes that were written.

        Args:
            reader: The segment.
            key: The index.
            row: The row of its directory.

        Raises:
            CorruptFileError: If directory and footer disagree, or the bytes are not those that were written.
        """
        offset = int(int64_column(self.directories[key], "offset")[row])
        blob = self.blobs.get(offset)
        if blob is None or blob.length != int(int64_column(self.directories[key], "length")[row]):
            raise CorruptFileError("a payload that the footer does not know", location=self.location, offset=offset)
        if BLOB_CHECKSUM not in blob.properties:
            raise CorruptFileError("a payload without a checksum", location=self.location, offset=offset)
        return blob, read_blob(reader, blob)


def payload_bytes(footer: PuffinFile) -> int:
    """The bytes of all payloads of a segment."""
    return sum(blob.length for blob in footer.blobs if blob.type not in DIRECTORY_BLOBS)


def read_source(
    io: FileIO, location: str, size: int, footer_size: int, directories: Iterable[Mapping[str, int | str]]
) -> SourceSegment:
    """Read a segment's footer and directories.

    Args:
        io: The FileIO of the index table.
        location: The segment.
        size: In bytes.
        footer_size: Of its footer, in bytes.
        directories: Its directories as an entry of the index table has them.

    Raises:
        CorruptFileError: If what is there is not what was written.
        UnsupportedError: If it is of a later version.
        NotFoundError: If the file is not there.
    """
    with FileReader(io, location, size) as reader:
        footer = read_footer(reader, footer_size, require_checksum=True)
        batches: dict[FieldKind, pa.RecordBatch] = {}
        for one in directories:
            kind = str(one["kind"])
            place = int(one["offset"]), int(one["length"]), str(one["xxh64"])
            batches[int(one["field_id"]), kind] = read_directory(
                reader, *place, () if is_statistics(kind) else _COLUMNS
            )
        lists = [blob for blob in footer.blobs if blob.type == ROW_GROUPS_BLOB]
        if len(lists) != 1:
            raise UnsupportedError(f"{location}: {len(lists)} lists of row groups in a segment")
        rows = parse_directory(
            read_blob(reader, lists[0]), _ROW_GROUP_COLUMNS, location=location, offset=lists[0].offset
        )
    return SourceSegment(location, size, footer, batches, rows)


def in_memory(io: FileIO, source: SourceSegment) -> BytesReader:
    """Read a whole segment with one request."""
    with FileReader(io, source.location, source.size) as reader:
        return BytesReader.of(reader.read(0, source.size), source.location)


def indexed_files(entries: pa.Table) -> list[IndexedFile]:
    """Return the data files of the index table and where their indexes are, by location.

    Args:
        entries: Live entries, in which no (field, kind) of a data file is named twice.
    """
    by_path: dict[str, list[dict[str, object]]] = {}
    for row in entries.to_pylist():
        by_path.setdefault(row["data_file"], []).append(row)
    return [_indexed_file(by_path[path]) for path in sorted(by_path)]


def _indexed_file(rows: list[dict[str, object]]) -> IndexedFile:
    first = rows[0]
    path, size, records = (first[name] for name in ("data_file", "file_size_in_bytes", "record_count"))
    offsets, counts = first["split_offsets"], first["row_counts"]
    assert isinstance(path, str) and isinstance(size, int) and isinstance(records, int)  # noqa: PT018
    assert isinstance(offsets, list) and isinstance(counts, list)  # noqa: PT018
    parts: dict[FieldKind, Part] = {}
    for row in rows:
        assert isinstance(row["directories"], list)
        part = Part(str(row["segment"]), int(str(row["first_row_group"])))
        parts.update(
            ((one["field_id"], one["kind"]), part) for one in row["directories"] if not is_statistics(one["kind"])
        )
    file = DataFile(path, size, records, tuple(offsets))
    return IndexedFile(file, tuple(counts), tuple(offsets), parts, frozenset(str(row["segment"]) for row in rows))
