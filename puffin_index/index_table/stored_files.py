"""The files of an index table: list its storage, choose the table's own files, and find those its metadata reaches."""

import json
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, FileSystem, FileType
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

from puffin_index.data.data_table import manifests_of, read_manifests
from puffin_index.errors import DamagedIndexError
from puffin_index.index_table.table import PROPERTY_LOCATION, SEGMENTS_FOLDER, index_table_read, refresh_index_table

_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_SEGMENT = re.compile(rf"{SEGMENTS_FOLDER}/[0-9a-f]{{32}}\.puffin")
_TABLE_FILE = re.compile(
    rf"data/[^/]*{_UUID}[^/]*\.parquet|metadata/(\d+-{_UUID}\.metadata\.json|[^/]*{_UUID}[^/]*\.avro)"
)
_METADATA_FILE = re.compile(r"metadata/[^/]*\.metadata\.json")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file below the location of an index table, and its path from there."""

    name: str
    location: str
    size: int
    modified: datetime

    @property
    def is_segment(self) -> bool:
        """Whether the file has the name of a segment."""
        return _SEGMENT.fullmatch(self.name) is not None

    @property
    def is_ours(self) -> bool:
        """Whether the file has a name that builds or commits give; no other file is ever deleted."""
        return self.is_segment or _TABLE_FILE.fullmatch(self.name) is not None


def list_stored_files(io: FileIO, location: str) -> list[StoredFile]:
    """List all files below a location."""
    root = location.rstrip("/")
    filesystem, path = _filesystem(io, root)
    found = filesystem.get_file_info(FileSelector(path, allow_not_found=True, recursive=True))
    prefix = path.rstrip("/") + "/"
    return [
        StoredFile(name, f"{root}/{name}", info.size, info.mtime)
        for info in found
        if info.type == FileType.File
        for name in [info.path.removeprefix(prefix)]
    ]


def own_files(table: Table, listed: Sequence[StoredFile]) -> list[StoredFile]:
    """Return only the files of this very index table, which upkeep may delete, of all files below its location.

    Two tables that once had the same name may share a location. If no property states that the location belongs to this
    table alone, and metadata of another table lies there, only files in this table's history count as its own.
    """
    ours = [file for file in listed if file.is_ours]
    if table.properties.get(PROPERTY_LOCATION) == table.location() or not has_other_metadata(table, listed):
        return ours
    try:
        named = reachable_files(table) | committed_segments(table)
    except DamagedIndexError:
        named = {table.metadata_location}
    return [file for file in ours if file.location in named]


def has_other_metadata(table: Table, listed: Iterable[StoredFile]) -> bool:
    """Return whether a metadata file below a table's location belongs, or may belong, to another table."""
    own = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
    others = [file for file in listed if _METADATA_FILE.fullmatch(file.name) and file.location not in own]
    return any(_table_uuid(table.io, file.location) != str(table.metadata.table_uuid) for file in others)


def _table_uuid(io: FileIO, location: str) -> str | None:
    try:
        with io.new_input(location).open() as stream:
            return str(json.loads(stream.read())["table-uuid"])
    except (ValueError, LookupError, TypeError):
        return None


def delete_files(io: FileIO, files: Iterable[StoredFile]) -> None:
    """Delete files, ignoring files that are already gone."""
    for file in files:
        with suppress(FileNotFoundError):
            io.delete(file.location)


def delete_empty_folders(io: FileIO, location: str) -> None:
    """Delete the empty folders that a dropped table leaves in stores with real folders; keep folders with files."""
    filesystem, path = _filesystem(io, location)
    found = filesystem.get_file_info(FileSelector(path, allow_not_found=True, recursive=True))
    if found and all(info.type == FileType.Directory for info in found):
        # Another drop may delete them at the same moment, or still write there.
        with suppress(OSError):
            filesystem.delete_dir(path)


def _filesystem(io: FileIO, location: str) -> tuple[FileSystem, str]:
    # Only PyArrow's FileIO can list files, and it understands the properties of the other FileIOs.
    arrow = io if isinstance(io, PyArrowFileIO) else PyArrowFileIO(io.properties)
    scheme, netloc, path = arrow.parse_location(location, arrow.properties)
    return arrow.fs_by_scheme(scheme, netloc), path


def reachable_files(table: Table, expired: Collection[int] = ()) -> set[str]:
    """Return the locations of all files in the metadata of all other snapshots, or raise DamagedIndexError."""

    def read() -> set[str]:
        found = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
        found.update(snapshot.manifest_list for snapshot in table.snapshots() if snapshot.snapshot_id not in expired)
        for manifest in _manifests(table, expired):
            found.update([manifest.manifest_path, *_data_files(table, manifest)])
        return found

    return _of_all_snapshots(table, read)


def committed_segments(table: Table, expired: Collection[int] = ()) -> set[str]:
    """Return the locations of all segments in any other snapshot of an index table, or raise DamagedIndexError."""

    def read() -> set[str]:
        found: set[str] = set()
        for path in {path for manifest in _manifests(table, expired) for path in _data_files(table, manifest)}:
            with suppress(FileNotFoundError), table.io.new_input(path).open() as stream:
                segments: pa.Table = pq.read_table(stream, columns=["segment"])
                found.update(segments["segment"].to_pylist())
        return found

    return _of_all_snapshots(table, read)


def _of_all_snapshots(table: Table, read: Callable[[], set[str]]) -> set[str]:
    """Load the table anew if an expiration deletes old snapshots while they are read."""
    while True:
        try:
            with index_table_read(".".join(table.name())):
                return read()
        except DamagedIndexError:
            known = table.metadata_location
            refresh_index_table(table)
            if table.metadata_location == known:
                raise


def _manifests(table: Table, expired: Collection[int] = ()) -> list[ManifestFile]:
    snapshots = [one for one in table.snapshots() if one.snapshot_id not in expired]
    manifests = [manifest for snapshot in snapshots for manifest in manifests_of(table, snapshot)]
    return list({manifest.manifest_path: manifest for manifest in manifests}.values())


def _data_files(table: Table, manifest: ManifestFile) -> list[str]:
    return [entry.data_file.file_path for entry in read_manifests(table, [manifest])]
