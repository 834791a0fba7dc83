"""Describe a file of indexes: the blobs, directories and payloads of a segment, or the indexes of a container."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from puffin_index.display import Described, Grid, Report, format_bytes
from puffin_index.formats.paimon_container import MAGIC, Container
from puffin_index.formats.puffin import BLOB_CHECKSUM, BlobMetadata, PuffinFile, read_blob
from puffin_index.keys.map_key import ColumnId, split_kind
from puffin_index.segments import directory as dirs
from puffin_index.storage.binary import write_int64_be
from puffin_index.storage.parts import corrupt
from puffin_index.storage.ranged import Blob, RangedReader

_CONTAINER_MAGIC = write_int64_be(MAGIC)


@dataclass(frozen=True, slots=True)
class PayloadPlace:
    """One payload of a segment as its directory describes it, of a stored kind and a type by Iceberg's name."""

    field_id: int
    kind: str
    value_type: str
    blob_type: str
    first_row_group: int
    row_groups: int
    offset: int
    length: int

    @property
    def column(self) -> ColumnId:
        """The column, or one key of a map."""
        return split_kind(self.field_id, self.kind)[0]


@dataclass(frozen=True, slots=True)
class DirectorySummary:
    """One directory of a segment, or a column's `statistics`, without payloads; some cover several row groups."""

    field_id: int
    kind: str
    value_type: str
    row_groups: int
    payloads: int
    blob_types: tuple[str, ...]
    payload_bytes: int
    directory_bytes: int


def is_container(reader: RangedReader) -> bool:
    """Return whether a file begins like a Paimon container."""
    return bytes(reader.read(0, min(len(_CONTAINER_MAGIC), reader.size))) == _CONTAINER_MAGIC


def read_payload_places(reader: RangedReader, footer: PuffinFile) -> Iterator[PayloadPlace]:
    """Yield the payloads of a segment, or raise CorruptFileError or UnsupportedError for a directory."""
    for blob in footer.blobs:
        if blob.type == dirs.DIRECTORY_BLOB:
            field_id, directory = _read(reader, blob)
            columns = (directory.numbers(name).tolist() for name in dirs.NUMBERS)
            for blob_type, *place in zip(directory.blob_types.to_pylist(), *columns, strict=True):
                yield PayloadPlace(field_id, directory.kind, directory.type_name, blob_type, *place)


def summarize_directories(reader: RangedReader, footer: PuffinFile) -> list[DirectorySummary]:
    """Return a summary of each directory of a segment, in order, or raise CorruptFileError or UnsupportedError."""
    summaries: list[DirectorySummary] = []
    for blob in footer.blobs:
        if blob.type == dirs.STATISTICS_BLOB:
            place = Blob(reader, blob.offset, blob.length)
            batch = dirs.parse_batch(place, read_blob(reader, blob), ("row_count",))
            value_type, field_id = dirs.metadata_of(place, batch, "value-type"), _field_id(place, blob)
            kind = blob.properties.get("kind", dirs.STATISTICS)
            summaries.append(DirectorySummary(field_id, kind, value_type, len(batch), 0, (), 0, blob.length))
        elif blob.type == dirs.DIRECTORY_BLOB:
            field_id, own = _read(reader, blob)
            types, length = tuple(dict.fromkeys(own.blob_types.to_pylist())), int(own.numbers("length").sum())
            groups = own.row_group_count, len(own)
            summaries.append(DirectorySummary(field_id, own.kind, own.type_name, *groups, types, length, blob.length))
    return summaries


def _read(reader: RangedReader, blob: BlobMetadata) -> tuple[int, dirs.Directory]:
    place, data = Blob(reader, blob.offset, blob.length), read_blob(reader, blob)
    return _field_id(place, blob), dirs.parse_directory(place, data)


def _field_id(place: Blob, blob: BlobMetadata) -> int:
    if len(blob.fields) != 1:
        raise corrupt(place, f"a directory of {len(blob.fields)} columns")
    return blob.fields[0]


@dataclass(frozen=True, slots=True)
class PuffinContent(Described):
    """The blobs and directories of a Puffin file."""

    JSON: ClassVar = ("file", "format", "size=footer.file_size", "footer.properties", "footer.blobs", "directories")

    file: str
    footer: PuffinFile
    directories: Sequence[DirectorySummary]
    format: ClassVar = "puffin"

    def describe(self) -> Report:
        """Describe the blobs, and below them the directories."""
        blobs = [
            (
                *(blob.type, ",".join(map(str, blob.fields)), blob.offset, blob.length, blob.compression_codec or ""),
                ", ".join(f"{key}={value}" for key, value in blob.properties.items() if key != BLOB_CHECKSUM),
            )
            for blob in self.footer.blobs
        ]
        title = f"{self.file}, {format_bytes(self.footer.file_size)}, {len(blobs)} blobs"
        grid = Grid(("type", "fields", "offset", "length", "codec", "properties"), blobs)
        if not self.directories:
            return Report(title, grids=(grid,))
        headers = ("field", "kind", "value type", "groups", "payloads", "bytes", "directory", "blob types")
        rows = [
            (
                *(one.field_id, one.kind, one.value_type, one.row_groups, one.payloads, one.payload_bytes),
                *(one.directory_bytes, ", ".join(one.blob_types)),
            )
            for one in self.directories
        ]
        below = "directories: row groups, payloads and their bytes, bytes of the directory"
        return Report(title, grids=(grid,), below=Report(below, grids=(Grid(headers, rows),)))


@dataclass(frozen=True, slots=True)
class ContainerContent(Described):
    """The indexes of a container; one without bytes has no offset."""

    JSON: ClassVar = ("file", "format", "container.size", "container.head_size", "indexes")

    file: str
    container: Container
    format: ClassVar = "paimon-container"

    @property
    def indexes(self) -> list[dict[str, str | int | None]]:
        """The place of each index."""
        return [
            {
                "column": column,
                "index": name,
                "offset": body.offset if body else None,
                "length": body.length if body else 0,
            }
            for column, bodies in self.container.indexes.items()
            for name, body in bodies.items()
        ]

    def describe(self) -> Report:
        """Describe the indexes."""
        rows = [["" if value is None else value for value in index.values()] for index in self.indexes]
        columns = len(self.container.indexes)
        title = f"{self.file}, {format_bytes(self.container.size)}, indexes of {columns} columns"
        return Report(title, grids=(Grid(("column", "index", "offset", "length"), rows),))
