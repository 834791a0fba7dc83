"""The files of an index table: listed in its storage, those that are ours, and those that its metadata reaches."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, FileSystem, FileType
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

from puffin_index.index_table import SEGMENTS_FOLDER

_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_SEGMENT = re.compile(rf"{SEGMENTS_FOLDER}/[0-9a-f]{{32}}\.puffin")
_TABLE_FILE = re.compile(
    rf"data/[^/]*{_UUID}[^/]*\.parquet|metadata/(\d+-{_UUID}\.metadata\.json|[^/]*{_UUID}[^/]*\.avro)"
)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file below the location of an index table.

    Attributes:
        name: Its path below that location.
        location: Its location.
        size: In bytes.
        modified: When it was written.
    """

    name: str
    location: str
    size: int
    modified: datetime

    @property
    def is_segment(self) -> bool:
        """Whether it has the name of a segment."""
        return _SEGMENT.fullmatch(self.name) is not None

    @property
    def is_ours(self) -> bool:
        """Whether it has a name that a build or a commit gives; nothing else is ever deleted."""
        return self.is_segment or _TABLE_FILE.fullmatch(self.name) is not None


def list_stored_files(table: Table) -> list[StoredFile]:
    """List what lies below the location of an index table."""
    root = table.location().rstrip("/")
    filesystem, path = _filesystem(table)
    found = filesystem.get_file_info(FileSelector(path, allow_not_found=True, recursive=True))
    prefix = path.rstrip("/") + "/"
    return [
        StoredFile(name, f"{root}/{name}", info.size, info.mtime)
        for info in found
        if info.type == FileType.File
        for name in [info.path.removeprefix(prefix)]
    ]


def delete_files(table: Table, files: Iterable[StoredFile]) -> None:
    """Delete files; those that are gone already are none the worse."""
    for file in files:
        with suppress(FileNotFoundError):
            table.io.delete(file.location)


def delete_empty_folders(table: Table) -> None:
    """Delete what is left of a dropped table's location where folders are kept, unless there is a file in it."""
    filesystem, path = _filesystem(table)
    found = filesystem.get_file_info(FileSelector(path, allow_not_found=True, recursive=True))
    if found and all(info.type == FileType.Directory for info in found):
        filesystem.delete_dir(path)


def _filesystem(table: Table) -> tuple[FileSystem, str]:
    # Only PyArrow's FileIO can list; it understands the properties of the others.
    io = table.io if isinstance(table.io, PyArrowFileIO) else PyArrowFileIO(table.io.properties)
    scheme, netloc, path = io.parse_location(table.location(), io.properties)
    return io.fs_by_scheme(scheme, netloc), path


def reachable_files(table: Table) -> set[str]:
    """Locations of all files that the metadata of a table names, of any of its snapshots."""
    found = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
    found.update(snapshot.manifest_list for snapshot in table.snapshots())
    for manifest in _manifests(table):
        found.add(manifest.manifest_path)
        found.update(_data_files(table, manifest))
    return found


def committed_segments(table: Table) -> set[str]:
    """Locations of all segments that any snapshot of an index table names."""
    found: set[str] = set()
    for path in {path for manifest in _manifests(table) for path in _data_files(table, manifest)}:
        with suppress(FileNotFoundError), table.io.new_input(path).open() as stream:
            segments: pa.Table = pq.read_table(stream, columns=["segment"])
            found.update(segments["segment"].to_pylist())
    return found


def _manifests(table: Table) -> list[ManifestFile]:
    by_path: dict[str, ManifestFile] = {}
    for snapshot in table.snapshots():
        by_path.update((manifest.manifest_path, manifest) for manifest in snapshot.manifests(table.io))
    return list(by_path.values())


def _data_files(table: Table, manifest: ManifestFile) -> list[str]:
    return [entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)]
