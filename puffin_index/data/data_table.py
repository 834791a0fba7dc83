"""The data table, read only: its snapshots and the data files of each."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias, TypeVar

import numpy as np
from cachetools import cached
from pyiceberg.avro.reader import DoubleReader
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, RESTError
from pyiceberg.expressions import BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile as IcebergDataFile, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import ManifestGroupPlanner, Table
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of
from pyiceberg.utils.concurrent import ExecutorFactory

from puffin_index.data.constants import constants_text, parse_constants
from puffin_index.errors import NotFoundError, did_you_mean
from puffin_index.storage.caches import shared_cache
from puffin_index.storage.whole_files import held_in_memory, read_whole

T = TypeVar("T")

_HELD_FILES: Final = 256
_KEPT_ENTRIES: Final = 8_000
"""Of all kept manifests together, and of all kept lists of manifests: about 4 KiB of memory each."""
_kept, _kept_lock = shared_cache(_KEPT_ENTRIES, len)
_lists, _lists_lock = shared_cache(_KEPT_ENTRIES, len)

# PyIceberg 0.12 rounds doubles of manifests, such as partition values, to 32 bits (iceberg-python pull request 3808).
DoubleReader.read = lambda _, decoder: float(np.frombuffer(decoder.read(8), "<f8")[0])  # type: ignore[assignment,method-assign]

FileIdentity: TypeAlias = tuple[str, int, int, str]
"""Location, size, record count and partition constants, which together identify a data file."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """One data file of the table; an index entry is used only if path, size, rows and partition constants agree.

    `split_offsets` are the starts of row groups, ascending, if the manifest has them; the format is `PARQUET`, `ORC` or
    `AVRO`; `has_deletes` is known of the files of a scan.
    """

    path: str
    file_size: int
    record_count: int
    split_offsets: tuple[int, ...]
    format: str = "PARQUET"
    has_deletes: bool = False
    constants_text: str = ""

    @property
    def constants(self) -> dict[int, str]:
        """The text of each constant by field id."""
        return parse_constants(self.constants_text)

    @property
    def identity(self) -> FileIdentity:
        """The identity that an index entry of this very file has."""
        return self.path, self.file_size, self.record_count, self.constants_text


def open_table(catalog: Catalog, identifier: tuple[str, ...]) -> Table:
    """Load a data table, or raise NotFoundError if the table does not exist."""
    try:
        return read_whole(catalog.load_table(identifier))
    except (NoSuchTableError, NoSuchNamespaceError) as error:
        name = ".".join(identifier)
        near = did_you_mean(name, _known_tables(catalog, identifier))
        raise NotFoundError(f"there is no table {name} in catalog {catalog.name!r}{near}") from error


def _known_tables(catalog: Catalog, identifier: tuple[str, ...]) -> list[str]:
    """List the tables that somebody may have meant, without index tables; empty if the catalog does not say."""
    with suppress(NoSuchNamespaceError, NotImplementedError, RESTError):
        names = [".".join(name) for name in catalog.list_tables(identifier[:-1])]
        return [name for name in names if not name.endswith("__puffin_index")]
    with suppress(NoSuchNamespaceError, NotImplementedError, RESTError):
        return [".".join((*namespace, identifier[-1])) for namespace in catalog.list_namespaces()]
    return []


def refresh_table(table: Table, *, with_data: bool = False) -> None:
    """Load the newest state of a table, or raise NotFoundError if it is gone or another table has its name."""
    name, before = ".".join(table.name()), table.io
    try:
        read_whole(table.refresh(), before, with_data=with_data)
    except NoSuchTableError as error:
        raise NotFoundError(f"table {name} is gone") from error
    except ValueError as error:
        # PyIceberg reports a changed UUID by this error.
        raise NotFoundError(f"table {name} was dropped and created anew: {error}") from error


def find_snapshot(table: Table, snapshot_id: int | None = None, ref: str | None = None) -> Snapshot | None:
    """Find a snapshot by id, branch or tag, or raise NotFoundError; by default the current one, None without one."""
    if snapshot_id is None and ref is None:
        return table.current_snapshot()
    found = table.snapshot_by_name(ref or "") if snapshot_id is None else table.snapshot_by_id(snapshot_id)
    if found is None:
        what = f"branch or tag {ref!r}" if snapshot_id is None else f"snapshot {snapshot_id}"
        raise NotFoundError(f"table {'.'.join(table.name())} has no {what}")
    return found


def list_data_files(
    table: Table, snapshot_id: int | None = None, row_filter: BooleanExpression | None = None
) -> tuple[DataFile, ...]:
    """List the data files of a snapshot that remain after Iceberg's own pruning, or raise NotFoundError without it."""
    return tuple(data_file_of(table, file) for file in _listed(table, snapshot_id, row_filter))


def first_data_file(table: Table) -> DataFile | None:
    """Return a data file of the current snapshot, by one manifest; None if the table has none."""
    snapshot = table.current_snapshot()
    for manifest in () if snapshot is None else manifests_of(table, snapshot):
        if manifest.content == ManifestContent.DATA:
            for entry in read_manifests(table, [manifest]):
                return data_file_of(table, entry.data_file)
    return None


def measure_data_files(table: Table, field_ids: Collection[int]) -> tuple[list[DataFile], dict[int, int]]:
    """List the data files of the current snapshot, and sum the bytes of some columns, where manifests state them."""
    files: list[DataFile] = []
    sizes: dict[int, int] = {}
    for file in _listed(table, None, None):
        files.append(data_file_of(table, file))
        own = file.column_sizes or {}
        for field_id in own.keys() & set(field_ids):
            sizes[field_id] = sizes.get(field_id, 0) + own[field_id]
    return files, sizes


def count_snapshots_behind(table: Table, head: Snapshot | None, missing: Collection[str]) -> int:
    """Count the snapshots from the one that added the oldest data file without an index to the head, including both.

    All retained ancestors count if a snapshot that added one of these files has expired; none without such files.
    """
    entries = read_manifests(table, manifests_of(table, head)) if head and missing else ()
    added = {entry.snapshot_id for entry in entries if entry.data_file.file_path in missing}
    behind = 0
    for snapshot in ancestors_of(head, table.metadata) if added else ():
        behind += 1
        added.discard(snapshot.snapshot_id)
        if not added:
            break
    return behind


def _listed(table: Table, snapshot_id: int | None, row_filter: BooleanExpression | None) -> Iterator[IcebergDataFile]:
    snapshot = find_snapshot(table, snapshot_id)
    if snapshot is None:
        return
    # Without manifests of delete files: PyIceberg does not plan scans of tables with equality deletes.
    manifests = [one for one in manifests_of(table, snapshot) if one.content == ManifestContent.DATA]
    if row_filter is None:
        yield from (entry.data_file for entry in read_manifests(table, manifests))
        return
    # Otherwise PyIceberg takes the last of columns that differ in case only.
    names = table.schema().column_names
    is_case_needed = len({name.lower() for name in names}) < len(names)
    planner = ManifestGroupPlanner(table.metadata, table.io, row_filter, is_case_needed)
    for entries in planner.plan_manifest_entries(manifests):
        yield from (entry.data_file for entry in entries)


def retained_files(table: Table) -> dict[FileIdentity, DataFile]:
    """Return the data files of all snapshots of the table, on any branch or tag."""
    manifests: dict[str, ManifestFile] = {}
    # A snapshot that only adds files has all those of its parent.
    appends = (one for one in table.snapshots() if one.summary and one.summary.operation == Operation.APPEND)
    parents = {one.parent_snapshot_id for one in appends}
    for snapshots in _some_at_once([one for one in table.snapshots() if one.snapshot_id not in parents]):
        with held_in_memory(table.io, [snapshot.manifest_list for snapshot in snapshots]):
            for manifest in (one for snapshot in snapshots for one in manifests_of(table, snapshot)):
                if manifest.content == ManifestContent.DATA:
                    manifests[manifest.manifest_path] = manifest
    files = [data_file_of(table, entry.data_file) for entry in read_manifests(table, [*manifests.values()])]
    return {file.identity: file for file in files}


def read_manifests(table: Table, manifests: Sequence[ManifestFile]) -> Iterator[ManifestEntry]:
    """Yield the entries of manifests without deleted ones; many are kept, as a manifest never changes."""
    for some in _some_at_once(manifests):
        with _kept_lock:
            found = {one: _kept[one.manifest_path] for one in some if one.manifest_path in _kept}
        unknown = [one for one in some if one not in found]
        with held_in_memory(table.io, [one.manifest_path for one in unknown]):
            read = ExecutorFactory.get_or_create().map(partial(_entries_of, table.io), unknown)
            found.update(zip(unknown, read, strict=True))
        for manifest in some:
            yield from found[manifest]


@cached(_lists, key=lambda _, snapshot: snapshot.manifest_list, lock=_lists_lock)
def manifests_of(table: Table, snapshot: Snapshot) -> list[ManifestFile]:
    """Return the manifests of a snapshot; kept, as a snapshot never changes."""
    return snapshot.manifests(table.io)


@cached(_kept, key=lambda _, manifest: manifest.manifest_path, lock=_kept_lock)
def _entries_of(io: FileIO, manifest: ManifestFile) -> list[ManifestEntry]:
    return manifest.fetch_manifest_entry(io, discard_deleted=True)


def _some_at_once(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Cut metadata files into parts that memory can hold."""
    return (items[first : first + _HELD_FILES] for first in range(0, len(items), _HELD_FILES))


def data_file_of(table: Table, file: IcebergDataFile, *, has_deletes: bool = False) -> DataFile:
    """Return a data file as a manifest of the table describes the file."""
    spec = table.specs()[file.spec_id]
    return DataFile(
        path=file.file_path,
        file_size=file.file_size_in_bytes,
        record_count=file.record_count,
        split_offsets=tuple(file.split_offsets or ()),
        format=file.file_format.value,
        has_deletes=has_deletes,
        constants_text=constants_text(file.partition, spec) if spec.fields else "",
    )
