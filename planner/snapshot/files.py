"""The data files of a snapshot, each with its delete files; kept, as a snapshot never changes."""

from dataclasses import dataclass, field
from itertools import chain, compress

from cachetools import cached
from pyiceberg.io import FileIO
from pyiceberg.manifest import INITIAL_SEQUENCE_NUMBER, DataFile as IcebergDataFile, DataFileContent, ManifestEntry
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.delete_file_index import DeleteFileIndex
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import VoidTransform
from pyiceberg.typedef import Record
from pyroaring import BitMap

from planner.clock import Clock
from planner.condition.tree.nodes import Everything, Predicate
from planner.snapshot.equality_deletes import delete_columns
from planner.snapshot.file_bounds import may_match
from puffin_index.data.data_table import DataFile, data_file_of, manifests_of, read_manifests
from puffin_index.data.deletes import DeleteFile, EqualityDelete, deleted_positions
from puffin_index.storage.caches import shared_cache

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

    def deleted_rows(self, io: FileIO, first: int, row_count: int) -> BitMap:
        """The rows that position deletes delete in a row group, numbered from 0, by its place in the file."""
        if not self.deletes:
            return BitMap()
        positions = deleted_positions(io, self.file.path, self.deletes)
        return (positions & BitMap(range(first, first + row_count))).shift(-first)


@dataclass(frozen=True, slots=True)
class ScanFile(FileWithDeletes):
    """A data file of a scan, with the manifest's entry: partition values and column bounds."""

    entry: IcebergDataFile


_snapshots, _snapshots_lock = shared_cache(_KEPT_FILES, lambda files: 1 + len(files))


def list_scan_files(
    table: Table, snapshot: Snapshot, schema: Schema, predicate: Predicate, clock: Clock
) -> tuple[ScanFile, ...]:
    """List the data files of a snapshot that manifests leave by partitions and bounds, as far as the time allows."""
    files = _read_snapshot(table, snapshot, schema)
    if isinstance(predicate, Everything):
        return files
    return tuple(compress(files, may_match(table, schema, [file.entry for file in files], predicate, clock)))


@cached(
    _snapshots,
    key=lambda table, snapshot, schema: (str(table.metadata.table_uuid), snapshot.snapshot_id, schema.schema_id),
    lock=_snapshots_lock,
)
def _read_snapshot(table: Table, snapshot: Snapshot, schema: Schema) -> tuple[ScanFile, ...]:
    entries = list(read_manifests(table, manifests_of(table, snapshot)))
    if all(entry.data_file.content == DataFileContent.DATA for entry in entries):
        return tuple(ScanFile(data_file_of(table, entry.data_file), (), (), entry.data_file) for entry in entries)
    deletes, equality_deletes = DeleteFileIndex(), _EqualityDeletes(table, schema)
    for entry in entries:
        match entry.data_file.content:
            case DataFileContent.POSITION_DELETES:
                deletes.add_delete_file(entry, partition_key=Record(*_partition_key(entry.data_file)))
            case DataFileContent.EQUALITY_DELETES:
                equality_deletes.add(entry)
    found: list[ScanFile] = []
    for entry in (entry for entry in entries if entry.data_file.content == DataFileContent.DATA):
        file, key = entry.data_file, Record(*_partition_key(entry.data_file))
        by_position = (
            DeleteFile(*_described(one))
            for one in deletes.for_data_file(_sequence_number(entry), file, partition_key=key)
        )
        applying, by_equality = tuple(sorted(by_position, key=lambda one: one.path)), equality_deletes.of(entry)
        has_deletes = bool(applying or by_equality)
        found.append(ScanFile(data_file_of(table, file, has_deletes=has_deletes), applying, by_equality, file))
    return tuple(found)


def _sequence_number(entry: ManifestEntry) -> int:
    return entry.sequence_number or INITIAL_SEQUENCE_NUMBER


@dataclass(slots=True)
class _EqualityDeletes:
    """The equality delete files of a snapshot, by partition; without one they apply to all data files."""

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


def _described(file: IcebergDataFile) -> tuple[str, int, int, str]:
    return file.file_path, file.file_size_in_bytes, file.record_count, file.file_format.value
