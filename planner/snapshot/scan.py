"""A scan: the data files of a snapshot with their delete files, kept, and the row groups that a view knows of them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress

import numpy as np
from cachetools import LRUCache
from pyiceberg.io import FileIO
from pyiceberg.manifest import INITIAL_SEQUENCE_NUMBER, DataFile as IcebergDataFile, DataFileContent, ManifestEntry
from pyiceberg.schema import Schema
from pyiceberg.table import ManifestGroupPlanner, Table
from pyiceberg.table.delete_file_index import DeleteFileIndex
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import VoidTransform

from planner.clock import Clock
from planner.condition.tree.nodes import Everything, Predicate
from planner.prune.verdicts import Reason, kept_mask
from planner.snapshot.equality_deletes import delete_columns
from planner.snapshot.file_bounds import may_match
from planner.view.directories import selection_of
from planner.view.index_view import IndexView
from puffin_index.data.data_table import DataFile, data_file_of
from puffin_index.data.deletes import DeleteFile
from puffin_index.data.equality_deletes import EqualityDelete
from puffin_index.storage.arrays import Bytes, Flags, Ints
from puffin_index.storage.caches import cleared_by
from puffin_index.storage.whole_files import held_in_memory

_KEPT_FILES = 50_000
"""Data files of all kept snapshots together: about 4 KiB of memory each."""


@dataclass(frozen=True, slots=True)
class FileWithDeletes:
    """A data file, delete files that may have positions of it, and equality delete files that apply to it."""

    file: DataFile
    deletes: tuple[DeleteFile, ...]
    equality_deletes: tuple[EqualityDelete, ...]

    @property
    def has_deletes(self) -> bool:
        """Whether some of its rows may be deleted."""
        return bool(self.deletes or self.equality_deletes)


@dataclass(frozen=True, slots=True)
class ScanFile(FileWithDeletes):
    """A data file of a scan, with the manifest's entry: partition values and column bounds."""

    entry: IcebergDataFile


_snapshots: LRUCache[tuple[str, int, int], tuple[ScanFile, ...]] = LRUCache(
    maxsize=_KEPT_FILES, getsizeof=lambda f: 1 + len(f)
)
_snapshots_lock = threading.Lock()
cleared_by(_snapshots.clear, _snapshots_lock)


def list_scan_files(
    table: Table, snapshot: Snapshot, schema: Schema, predicate: Predicate, clock: Clock
) -> tuple[ScanFile, ...]:
    """List the data files of a snapshot that manifests leave by partitions and bounds, as far as the time allows."""
    key = (str(table.metadata.table_uuid), snapshot.snapshot_id, schema.schema_id)
    with _snapshots_lock:
        files = _snapshots.get(key)
    if files is None:
        files = _read_snapshot(table, snapshot, schema)
        with _snapshots_lock:
            if len(files) < _KEPT_FILES:
                _snapshots[key] = files
    if isinstance(predicate, Everything):
        return files
    return tuple(compress(files, may_match(table, schema, [file.entry for file in files], predicate, clock)))


def _read_snapshot(table: Table, snapshot: Snapshot, schema: Schema) -> tuple[ScanFile, ...]:
    planner = ManifestGroupPlanner(table.metadata, table.io)
    manifests = snapshot.manifests(table.io)
    with held_in_memory(table.io, [manifest.manifest_path for manifest in manifests]):
        entries = list(chain.from_iterable(planner.plan_manifest_entries(manifests)))
    deletes, equality_deletes = DeleteFileIndex(), _EqualityDeletes(table, schema)
    for entry in entries:
        match entry.data_file.content:
            case DataFileContent.POSITION_DELETES:
                deletes.add_delete_file(entry, partition_key=entry.data_file.partition)
            case DataFileContent.EQUALITY_DELETES:
                equality_deletes.add(entry)
    data = (entry for entry in entries if entry.data_file.content == DataFileContent.DATA)
    return tuple(_scan_file(table, entry, deletes, equality_deletes) for entry in data)


def _sequence_number(entry: ManifestEntry) -> int:
    return entry.sequence_number or INITIAL_SEQUENCE_NUMBER


@dataclass(slots=True)
class _EqualityDeletes:
    """The equality delete files of a snapshot, with their sequence numbers, by partition spec and partition.

    Without a partition they apply to all data files.
    """

    table: Table
    schema: Schema
    _files: dict[tuple[object, ...], list[tuple[int, EqualityDelete]]] = field(default_factory=dict)

    def add(self, entry: ManifestEntry) -> None:
        file, spec = entry.data_file, self.table.specs()[entry.data_file.spec_id]
        is_global = all(isinstance(one.transform, VoidTransform) for one in spec.fields)
        columns = delete_columns(self.table, self.schema, file.equality_ids or ())
        delete = EqualityDelete(*_described(file), columns)
        key = () if is_global else _partition_key(file)
        self._files.setdefault(key, []).append((_sequence_number(entry), delete))

    def of(self, entry: ManifestEntry) -> tuple[EqualityDelete, ...]:
        every = chain(self._files.get((), ()), self._files.get(_partition_key(entry.data_file), ()))
        applying = (delete for number, delete in every if _sequence_number(entry) < number)
        return tuple(sorted(applying, key=lambda delete: delete.path))


def _partition_key(file: IcebergDataFile) -> tuple[object, ...]:
    # As text NaN equals itself, and the two zeros differ.
    return file.spec_id, *(repr(file.partition[place]) for place in range(len(file.partition)))


def _scan_file(
    table: Table, entry: ManifestEntry, deletes: DeleteFileIndex, equality_deletes: _EqualityDeletes
) -> ScanFile:
    file = entry.data_file
    applying = _delete_files(deletes.for_data_file(_sequence_number(entry), file, partition_key=file.partition))
    by_equality = equality_deletes.of(entry)
    has_deletes = bool(applying or by_equality)
    return ScanFile(data_file_of(table, file, has_deletes=has_deletes), applying, by_equality, file)


def _delete_files(files: Iterable[IcebergDataFile]) -> tuple[DeleteFile, ...]:
    return tuple(sorted((DeleteFile(*_described(file)) for file in files), key=lambda file: file.path))


def _described(file: IcebergDataFile) -> tuple[str, int, int, str]:
    return file.file_path, file.file_size_in_bytes, file.record_count, file.file_format.value


@dataclass(frozen=True, slots=True, eq=False)
class Scan:
    """What a query may have to read of one table: row groups, data file by data file.

    A file without an index counts the row groups that it lists.

    Attributes:
        numbers: For each row group its number in the view, -1 where it has no index.
        file_of: For each row group its data file, as a number among those of the scan.
        ordinals: For each row group its ordinal in the data file.
        has_deletes: For each row group whether some of its rows may be deleted.
        paths: Locations of the data files, by number.
        files: The data files by number; those without deletes may be missing.
        snapshot_id: The snapshot; None for an empty table, and where it is not known.
        unlisted: How many more row groups there are, which have no index.
        row_counts: For each row group its rows, 0 where it has no index.
        first_rows: For each row group the position of its first row in the data file, 0 where it has no index.
        is_read_whole: For each row group whether readers of byte ranges read its data file whole or not at all.
    """

    view: IndexView
    numbers: Ints
    file_of: Ints
    ordinals: Ints
    has_deletes: Flags
    paths: tuple[str, ...]
    files: Mapping[int, FileWithDeletes]
    io: FileIO
    table: str = ""
    snapshot_id: int | None = None
    unlisted: int = 0
    unlisted_files: int = 0
    is_indexed: Flags = field(init=False)
    row_counts: Ints = field(init=False)
    first_rows: Ints = field(init=False)
    is_read_whole: Flags = field(init=False)

    def __post_init__(self) -> None:
        """Say what the view knows of the row groups."""
        indexed = self.numbers >= 0
        object.__setattr__(self, "is_indexed", indexed)
        here = selection_of(self.numbers) if indexed.all() else None
        for name in ("row_counts", "first_rows", "is_read_whole"):
            of_view = getattr(self.view, name)
            if here is None:
                own = np.zeros(len(indexed), of_view.dtype)
                own[indexed] = of_view[self.numbers[indexed]]
            else:
                own = of_view[here]
            object.__setattr__(self, name, own)

    @classmethod
    def of_files(
        cls,
        view: IndexView,
        files: Sequence[DataFile],
        known: Sequence[FileWithDeletes] = (),
        io: FileIO | None = None,
        table: str = "",
        snapshot_id: int | None = None,
    ) -> Scan:
        """The scan of some data files, with their delete files if these are to be subtracted."""
        found = [view.row_groups_of(file) for file in files]
        counts = np.array(
            [max(1, len(f.split_offsets)) if own is None else len(own) for f, own in zip(files, found, strict=True)],
            np.int64,
        )
        file_of = np.repeat(np.arange(len(files)), counts)
        ordinals = np.arange(len(file_of)) - np.repeat(np.cumsum(counts) - counts, counts)
        first = np.array([-1 if own is None else own.start for own in found], np.int64)[file_of]
        numbers = np.where(first >= 0, first + ordinals, -1)
        has_deletes = np.array([file.has_deletes for file in files], np.bool_)[file_of]
        paths = tuple(file.path for file in files)
        own_files = dict(enumerate(known))
        return cls(view, numbers, file_of, ordinals, has_deletes, paths, own_files, io or view.io, table, snapshot_id)

    @classmethod
    def of_view(
        cls,
        view: IndexView,
        numbers: Ints,
        files: Mapping[int, FileWithDeletes] | None = None,
        has_deletes: Flags | None = None,
        io: FileIO | None = None,
    ) -> Scan:
        """The scan of some row groups of a view, whose deletes are known by the view's numbers of data files.

        Without `files`, deletes are not to be subtracted; without `has_deletes`, they are where `files` has some.
        """
        here = selection_of(numbers)
        file_of = view.file_of[here]
        if has_deletes is None:
            has_deletes = np.isin(file_of, list(files or ()))
        ordinals = view.ordinals_in_file[here]
        return cls(view, numbers, file_of, ordinals, has_deletes, view.paths, files or {}, io or view.io)

    def deletes_of(self, at: int) -> FileWithDeletes | None:
        """The data file of a row group with what deletes its rows; None if nothing does."""
        file = self.files.get(int(self.file_of[at]))
        return file if file is not None and file.has_deletes else None


def keep_whole_files(reasons: Bytes, file_of: Ints, is_read_whole: Flags) -> Bytes:
    """Return the reasons for a reader that has to read row groups because another of the same whole file is kept."""
    if not is_read_whole.any():
        return reasons
    kept = kept_mask(reasons)
    is_read_along = ~kept & is_read_whole & np.isin(file_of, file_of[kept])
    return np.where(is_read_along, np.uint8(Reason.READ_WHOLE), reasons)
