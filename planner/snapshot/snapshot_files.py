"""The data files of a snapshot with their delete files, kept; and files that are read whole or not at all."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, compress

import numpy as np
from cachetools import LRUCache
from pyiceberg.manifest import INITIAL_SEQUENCE_NUMBER, DataFileContent, ManifestEntry
from pyiceberg.manifest import DataFile as IcebergDataFile
from pyiceberg.schema import Schema
from pyiceberg.table import ManifestGroupPlanner, Table
from pyiceberg.table.delete_file_index import DeleteFileIndex
from pyiceberg.table.snapshots import Snapshot

from planner.clock import Clock
from planner.condition.tree.nodes import Everything, Predicate
from planner.prune.verdicts import Reason, kept_mask
from planner.snapshot.file_bounds import may_match
from puffin_index.data.data_table import DataFile, data_file_of
from puffin_index.data.deletes import DeleteFile
from puffin_index.storage.arrays import Bytes, Flags, Ints
from puffin_index.storage.caches import cleared_by
from puffin_index.storage.whole_files import held_in_memory

_KEPT_FILES = 50_000
"""Data files of all kept snapshots together: about 4 KiB of memory each."""


@dataclass(frozen=True, slots=True)
class FileWithDeletes:
    """A data file, delete files that may have positions of it, and whether equality deletes apply, never read here."""

    file: DataFile
    deletes: tuple[DeleteFile, ...]
    has_equality_deletes: bool


@dataclass(frozen=True, slots=True)
class ScanFile(FileWithDeletes):
    """A data file of a scan, with the manifest's entry: partition values and column bounds."""

    entry: IcebergDataFile


_snapshots: LRUCache[tuple[str, int], tuple[ScanFile, ...]] = LRUCache(
    maxsize=_KEPT_FILES, getsizeof=lambda f: 1 + len(f)
)
_snapshots_lock = threading.Lock()
cleared_by(_snapshots.clear, _snapshots_lock)


def list_scan_files(
    table: Table, snapshot: Snapshot, schema: Schema, predicate: Predicate, clock: Clock
) -> tuple[ScanFile, ...]:
    """List the data files of a snapshot that manifests leave by partitions and bounds, as far as the time allows."""
    key = (str(table.metadata.table_uuid), snapshot.snapshot_id)
    with _snapshots_lock:
        files = _snapshots.get(key)
    if files is None:
        files = _read_snapshot(table, snapshot)
        with _snapshots_lock:
            if len(files) < _KEPT_FILES:
                _snapshots[key] = files
    if isinstance(predicate, Everything):
        return files
    return tuple(compress(files, may_match(table, schema, [file.entry for file in files], predicate, clock)))


def _read_snapshot(table: Table, snapshot: Snapshot) -> tuple[ScanFile, ...]:
    planner = ManifestGroupPlanner(table.metadata, table.io)
    manifests = snapshot.manifests(table.io)
    with held_in_memory(table.io, [manifest.manifest_path for manifest in manifests]):
        entries = list(chain.from_iterable(planner.plan_manifest_entries(manifests)))
    deletes = DeleteFileIndex()
    latest_equality = -1
    for entry in entries:
        match entry.data_file.content:
            case DataFileContent.POSITION_DELETES:
                deletes.add_delete_file(entry, partition_key=entry.data_file.partition)
            case DataFileContent.EQUALITY_DELETES:
                latest_equality = max(latest_equality, _sequence_number(entry))
    data = (entry for entry in entries if entry.data_file.content == DataFileContent.DATA)
    return tuple(_scan_file(table, entry, deletes, latest_equality) for entry in data)


def _sequence_number(entry: ManifestEntry) -> int:
    return entry.sequence_number or INITIAL_SEQUENCE_NUMBER


def _scan_file(table: Table, entry: ManifestEntry, deletes: DeleteFileIndex, latest_equality: int) -> ScanFile:
    file = entry.data_file
    applying = _delete_files(deletes.for_data_file(_sequence_number(entry), file, partition_key=file.partition))
    # Equality deletes apply to older data. Their partition is not looked at: at worst a count is unknown.
    has_equality_deletes = _sequence_number(entry) < latest_equality
    has_deletes = bool(applying) or has_equality_deletes
    return ScanFile(data_file_of(table, file, has_deletes=has_deletes), applying, has_equality_deletes, file)


def _delete_files(files: Iterable[IcebergDataFile]) -> tuple[DeleteFile, ...]:
    found = (
        DeleteFile(file.file_path, file.file_size_in_bytes, file.record_count, file.file_format.value) for file in files
    )
    return tuple(sorted(found, key=lambda file: file.path))


def keep_whole_files(reasons: Bytes, file_of: Ints, is_read_whole: Flags) -> Bytes:
    """Return the reasons for a reader that has to read row groups because another of the same whole file is kept."""
    if not is_read_whole.any():
        return reasons
    kept = kept_mask(reasons)
    is_read_along = ~kept & is_read_whole & np.isin(file_of, file_of[kept])
    return np.where(is_read_along, np.uint8(Reason.READ_WHOLE), reasons)
