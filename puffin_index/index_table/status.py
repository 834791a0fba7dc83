"""The status of an index: its coverage, lag and size; and the scope of a build: a snapshot, and data files of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from puffin_index.data import data_table as tables
from puffin_index.data.column_source import Reading, reading_of
from puffin_index.definition.index_definition import ResolvedColumn, without_indexes
from puffin_index.display import Cell, Described, Grid, Report, format_bytes, share_of
from puffin_index.errors import DefinitionError, NotFoundError
from puffin_index.index_table import entries as index_rows
from puffin_index.index_table.table import read_entries
from puffin_index.keys.map_key import FieldKind, index_of
from puffin_index.segments.segment import objection
from puffin_index.segments.source_segment import SourceSegment
from puffin_index.storage.parallel import in_parallel, requests_at_once


@dataclass(frozen=True, slots=True)
class BuildScope:
    """The data files to index; by default all of the current snapshot. An index serves all snapshots with the file.

    A snapshot, a branch or tag, a filter by Iceberg's own metadata, a number of files, or paths to leave out bound it.
    """

    snapshot_id: int | None = None
    ref: str | None = None
    row_filter: BooleanExpression | None = None
    max_files: int | None = None
    without: frozenset[str] = frozenset()

    def find_snapshot(self, table: Table) -> Snapshot | None:
        """Return the snapshot to index, None while the table is empty, or raise NotFoundError if the table lacks it."""
        return tables.find_snapshot(table, self.snapshot_id, self.ref)

    def list_data_files(self, table: Table) -> tuple[tables.DataFile, ...]:
        """List the data files in the scope, or raise NotFoundError, or DefinitionError if the filter does not fit."""
        snapshot = self.find_snapshot(table)
        if snapshot is None:
            return ()
        try:
            files = tables.list_data_files(table, snapshot.snapshot_id, self.row_filter)
        except (ValueError, TypeError, NotImplementedError) as error:
            raise DefinitionError(f"Iceberg cannot choose data files by this predicate: {error}") from error
        return tuple(file for file in files if file.path not in self.without)


WHOLE_TABLE = BuildScope()

_MOST_JUDGED = 10
"""Data files without an index whose footers are read for the reason."""


@dataclass(frozen=True, slots=True)
class ColumnStatus:
    """One indexed column by its current name: bytes of each kind, and about those of the current snapshot's files.

    Its bytes in the data files are None if their manifests lack the number.
    """

    JSON: ClassVar = (
        *("name", "field_id", "index_bytes", "kind_bytes=kinds", "live_index_bytes=live_bytes"),
        *("live_kind_bytes=live_kinds", "data_bytes"),
    )

    name: str
    field_id: int
    kinds: dict[str, int]
    data_bytes: int | None = None
    live_kinds: dict[str, int] = field(default_factory=dict)

    @property
    def index_bytes(self) -> int:
        """The bytes of all indexes of the column."""
        return sum(self.kinds.values())

    @property
    def live_bytes(self) -> int:
        """The bytes of all indexes of the column that belong to data files of the current snapshot."""
        return sum(self.live_kinds.values())


@dataclass(frozen=True, slots=True)
class IndexStatus(Described):
    """How much of a table's current snapshot is indexed, that is, by every index of the definition.

    A file whose manifest entry lists no row groups counts as one row group. `segments` and `index_bytes` are those of
    the segments that cover the snapshot's files, `live_index_bytes` only payloads of these files, `total_index_bytes`
    all segments. `unindexed_bytes` are those of data files. `snapshots_behind` counts from the snapshot that added the
    oldest file without an index. `outdated` says why indexes are unusable until a build, `left_out` why builds leave
    files out, `unusable` why parts of the definition and of the table properties are not used.
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
    outdated: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    live_index_bytes: int = 0
    total_index_bytes: int = 0
    index_table: str = ""
    unusable: tuple[str, ...] = ()

    def describe(self) -> Report:
        """Describe the status."""
        share = self.live_index_bytes / self.data_bytes if self.data_bytes else 0.0
        beside = f"{format_bytes(self.live_index_bytes)} beside {format_bytes(self.data_bytes)} ({share:.0%})"
        numbers: dict[str, Cell] = {
            "index table": self.index_table,
            "data files": share_of(self.indexed_data_files, self.data_files),
            "row groups": share_of(self.indexed_row_groups, self.row_groups),
            "segments": self.segments,
            "size": share_of(self.live_index_bytes, self.data_bytes, beside),
            "in all": f"{format_bytes(self.total_index_bytes)}, with directories and indexes of other snapshots",
            "behind": f"{self.snapshots_behind} snapshots, {format_bytes(self.unindexed_bytes)}",
        }
        sizes = [
            (column.name, kind, share_of(size, self.live_index_bytes, format_bytes(size)))
            for column in self.columns
            for kind, size in column.live_kinds.items()
        ]
        title = f"index of {self.table}, snapshot {self.snapshot_id}"
        sentences = [f"outdated: {line}" for line in self.outdated] + [f"left out: {line}" for line in self.left_out]
        return Report(title, numbers, (Grid(("column", "kind", "size"), sizes),), sentences, self.unusable)


@dataclass(frozen=True, slots=True)
class Lag:
    """How far an index is behind: bytes of the files without one, by path, and snapshots since the oldest of them."""

    snapshots: int
    files: Mapping[str, int]


def read_lag(
    data_table: Table, index_table: Table, columns: Sequence[ResolvedColumn], scope: BuildScope = WHOLE_TABLE
) -> Lag:
    """Return the lag of an index behind the current snapshot, or behind the scope of a build."""
    files = scope.list_data_files(data_table)
    missing = _unindexed(files, index_rows.readable_entries(read_entries(index_table), reading_of(data_table)), columns)
    return _lag(data_table, missing, scope.find_snapshot(data_table))


def read_status(data_table: Table, index_table: Table, columns: Sequence[ResolvedColumn]) -> IndexStatus:
    """Return the coverage of the current snapshot and the size of the indexes."""
    live, column_bytes = tables.measure_data_files(data_table, {column.field_id for column in columns})
    every, reading = read_entries(index_table), reading_of(data_table)
    entries = index_rows.readable_entries(every, reading)
    missing = _unindexed(live, entries, columns)
    snapshot = data_table.current_snapshot()
    lag = _lag(data_table, missing, snapshot)
    known = pa.array(
        [path for path, *_ in index_rows.indexed_kinds(entries, {file.identity for file in live})], pa.string()
    )
    used = entries.filter(pc.is_in(entries["data_file"], known))
    segments = index_rows.segment_sizes(used)
    row_groups = _row_group_count(live)
    whole, of_files = _kind_sizes(index_table, used)
    column_status: list[ColumnStatus] = []
    for column in columns:
        keys = {kind: index_of(column.column_id, kind) for kind in column.kinds}
        kinds, live_kinds = ({kind: sizes[key] for kind, key in keys.items()} for sizes in (whole, of_files))
        data_bytes = column_bytes.get(column.field_id)
        column_status.append(ColumnStatus(column.name, column.field_id, kinds, data_bytes, live_kinds))
    at_once = requests_at_once(data_table.io, data_table.location())
    judge = partial(objection, data_table.io, reading=reading, columns=columns)
    reasons = in_parallel(judge, missing[:_MOST_JUDGED], at_once)
    return IndexStatus(
        table=".".join(data_table.name()),
        snapshot_id=snapshot.snapshot_id if snapshot else None,
        data_files=len(live),
        indexed_data_files=len(live) - len(missing),
        row_groups=row_groups,
        indexed_row_groups=row_groups - _row_group_count(missing),
        segments=len(segments),
        index_bytes=sum(segments.values()),
        data_bytes=sum(file.file_size for file in live),
        columns=tuple(column_status),
        unindexed_bytes=sum(lag.files.values()),
        snapshots_behind=lag.snapshots,
        outdated=tuple(_outdated(every, live, reading)),
        left_out=tuple(reason for reason in reasons if reason is not None),
        live_index_bytes=sum(column.live_bytes for column in column_status),
        total_index_bytes=sum(index_rows.segment_sizes(every).values()),
        index_table=".".join(index_table.name()),
    )


def _outdated(entries: pa.Table, files: Sequence[tables.DataFile], reading: Reading) -> Iterator[str]:
    """Yield sentences about columns that scans read from another source, and files whose partition had other values."""
    rejected = reading.rejects(index_rows.sources_of(entries))
    paths = {file.path for file in files} if rejected else set()
    affected: dict[tuple[str, str], set[str]] = {}
    for path, directories in zip(entries["data_file"].to_pylist(), entries["directories"].to_pylist(), strict=True):
        for field_id, source in {(one["field_id"], one["source"]) for one in directories} if path in paths else ():
            if (field_id, source) in rejected:
                name = str(reading.schema.find_column_name(field_id))
                affected.setdefault((name, str(reading.objection(field_id, source))), set()).add(path)
    for (name, reason), of_files in sorted(affected.items()):
        yield f"column {name} of {len(of_files)} data files: {reason} when it was indexed"
    live, known = {file.identity for file in files}, set(index_rows.entry_files(entries))
    elsewhere = {(path, size, rows) for path, size, rows, _ in known - live}
    count = sum(file[:3] in elsewhere for file in live - known)
    if count:
        yield f"{count} data files: their partitions had other values when they were indexed"


def _unindexed(
    files: Sequence[tables.DataFile], entries: pa.Table, columns: Sequence[ResolvedColumn]
) -> list[tables.DataFile]:
    found = index_rows.indexed_kinds(entries, {file.identity for file in files})
    return [file for file in files if file.record_count and without_indexes(columns, found.get(file.identity, set()))]


def _lag(data_table: Table, missing: Sequence[tables.DataFile], head: Snapshot | None) -> Lag:
    files = {file.path: file.file_size for file in missing}
    return Lag(tables.count_snapshots_behind(data_table, head, files.keys()), files)


def _kind_sizes(index_table: Table, entries: pa.Table) -> tuple[Counter[FieldKind], Counter[FieldKind]]:
    """Return the bytes of all payloads in the segments of entries, and about those that belong to their data files."""
    whole, live = Counter[FieldKind](), Counter[FieldKind]()
    segments = list(index_rows.rows_by_segment(entries).values())
    at_once = requests_at_once(index_table.io, index_table.location())
    read = in_parallel(lambda rows: _read_segment(index_table, rows), segments, at_once)
    for rows, source in zip(segments, read, strict=True):
        for key, directory in source.directories.items():
            whole[key] += int(directory.numbers("length").sum())
        for row in rows:
            for key in source.directories.keys() & index_rows.directories_of([row]).keys():
                live[key] += source.live_bytes(key, row["first_row_group"], len(row["row_counts"]))
    return whole, live


def _read_segment(index_table: Table, rows: Sequence[index_rows.EntryRow]) -> SourceSegment:
    try:
        return index_rows.source_of(index_table.io, rows, with_statistics=False)
    except NotFoundError as error:
        raise NotFoundError(f"{error}: `puffin-index verify --repair` indexes its data files anew") from error


def _row_group_count(files: Sequence[tables.DataFile]) -> int:
    return sum(max(1, len(file.split_offsets)) for file in files)
