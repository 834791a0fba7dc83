"""How an index stands: what of the data table is indexed, how far it is behind, how large it is beside the data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypedDict

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from puffin_index.build import indexed_kinds, lacking_columns
from puffin_index.data_table import DataFile, count_snapshots_behind, measure_data_files
from puffin_index.definition import ResolvedColumn
from puffin_index.directory import STATISTICS, int64_column, read_directory
from puffin_index.index_table import read_entries
from puffin_index.map_key import plain_kind
from puffin_index.scope import WHOLE_TABLE, BuildScope
from puffin_index.storage import FileReader

KindSizes: TypeAlias = dict[tuple[int, str], int]


class DirectoryRow(TypedDict):
    """Where the index table says that a directory is."""

    field_id: int
    kind: str
    offset: int
    length: int
    xxh64: str


@dataclass(frozen=True, slots=True)
class ColumnStatus:
    """One indexed column.

    Attributes:
        name: Its name today.
        field_id: Its field id.
        kinds: The bytes of each of its index kinds.
        data_bytes: What the column takes in the data files, None where their manifests do not tell.
    """

    name: str
    field_id: int
    kinds: dict[str, int]
    data_bytes: int | None = None

    @property
    def index_bytes(self) -> int:
        """Bytes of all its indexes."""
        return sum(self.kinds.values())


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """How much of a table's current snapshot is indexed.

    Attributes:
        table: The data table.
        snapshot_id: Its current snapshot, None while it is empty.
        data_files: Its data files.
        indexed_data_files: Those with every index of the definition.
        row_groups: Row groups of all data files (a file whose manifest entry lists none counts as one).
        indexed_row_groups: Row groups of the indexed files.
        segments: Segments that cover them.
        index_bytes: Bytes of those segments.
        data_bytes: Bytes of all data files.
        columns: The indexed columns.
        unindexed_bytes: Bytes of the data files that are not indexed, or not with every index.
        snapshots_behind: How many snapshots back the oldest of these files was added; 0 if there is none.
    """

    table: str
    snapshot_id: int | None
    data_files: int
    indexed_data_files: int
    row_groups: int
    indexed_row_groups: int
    segments: int
    index_bytes: int
    data_bytes: int
    columns: tuple[ColumnStatus, ...]
    unindexed_bytes: int = 0
    snapshots_behind: int = 0


@dataclass(frozen=True, slots=True)
class Lag:
    """How far an index is behind its table.

    Attributes:
        snapshots: How many snapshots back the oldest data file without an index was added; 0 if there is none.
        files: The data files that are not indexed, or not with every index.
        bytes: Their bytes.
    """

    snapshots: int
    files: int
    bytes: int


def read_lag(
    data_table: Table, index_table: Table, columns: Sequence[ResolvedColumn], scope: BuildScope = WHOLE_TABLE
) -> Lag:
    """Say how far an index is behind the current snapshot, or behind what a build is to take."""
    files = scope.list_data_files(data_table)
    missing = _unindexed(files, read_entries(index_table), columns)
    return _lag(data_table, missing, scope.find_snapshot(data_table))


def read_status(data_table: Table, index_table: Table, columns: Sequence[ResolvedColumn]) -> IndexStatus:
    """Say how much of the current snapshot is indexed, and how large the indexes are."""
    live = measure_data_files(data_table, {column.field_id for column in columns})
    entries = read_entries(index_table)
    missing = _unindexed(live.files, entries, columns)
    snapshot = data_table.current_snapshot()
    lag = _lag(data_table, missing, snapshot)
    known = pa.array(list(indexed_kinds(entries, live.files)), pa.string())
    used = entries.filter(pc.is_in(entries["data_file"], known))
    segments = dict(zip(used["segment"].to_pylist(), used["segment_size_in_bytes"].to_pylist(), strict=True))
    row_groups = _row_group_count(live.files)
    return IndexStatus(
        table=".".join(data_table.name()),
        snapshot_id=snapshot.snapshot_id if snapshot else None,
        data_files=len(live.files),
        indexed_data_files=len(live.files) - len(missing),
        row_groups=row_groups,
        indexed_row_groups=row_groups - _row_group_count(missing),
        segments=len(segments),
        index_bytes=sum(segments.values()),
        data_bytes=sum(file.file_size for file in live.files),
        columns=_column_status(columns, _kind_sizes(index_table, used), live.column_bytes),
        unindexed_bytes=lag.bytes,
        snapshots_behind=lag.snapshots,
    )


def _unindexed(files: Sequence[DataFile], entries: pa.Table, columns: Sequence[ResolvedColumn]) -> list[DataFile]:
    found = indexed_kinds(entries, files)
    return [file for file in files if file.record_count and lacking_columns(columns, found.get(file.path, set()))]


def _lag(data_table: Table, missing: Sequence[DataFile], head: Snapshot | None) -> Lag:
    behind = count_snapshots_behind(data_table, head, {file.path for file in missing})
    return Lag(behind, len(missing), sum(file.file_size for file in missing))


def _column_status(
    columns: Sequence[ResolvedColumn], sizes: KindSizes, column_bytes: dict[int, int]
) -> tuple[ColumnStatus, ...]:
    return tuple(
        ColumnStatus(
            column.name,
            column.field_id,
            {kind: sizes.get((column.field_id, column.stored_kind(kind)), 0) for kind in column.kinds},
            column_bytes.get(column.field_id),
        )
        for column in columns
    )


def _kind_sizes(index_table: Table, entries: pa.Table) -> KindSizes:
    sizes: KindSizes = {}
    for segment, size, directories in _segments(entries):
        with FileReader(index_table.io, segment, size) as reader:
            for directory in directories:
                if plain_kind(directory["kind"]) == STATISTICS:
                    continue
                batch = read_directory(reader, directory["offset"], directory["length"], directory["xxh64"], ["length"])
                key = (directory["field_id"], directory["kind"])
                sizes[key] = sizes.get(key, 0) + int(int64_column(batch, "length").sum())
    return sizes


def _segments(entries: pa.Table) -> Iterator[tuple[str, int, list[DirectoryRow]]]:
    columns = (entries[name].to_pylist() for name in ("segment", "segment_size_in_bytes", "directories"))
    seen: set[str] = set()
    for segment, size, directories in zip(*columns, strict=True):
        if segment not in seen:
            seen.add(segment)
            yield segment, size, directories


def _row_group_count(files: Sequence[DataFile]) -> int:
    return sum(max(1, len(file.split_offsets)) for file in files)
