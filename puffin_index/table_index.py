"""`TableIndex`: the index of one table, as users hold it."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from puffin_index import index_table as catalogue
from puffin_index.build import TARGET_SEGMENT_BYTES, indexed_kinds
from puffin_index.compact import FEWEST_SMALL, CompactListener, CompactReport, compact, is_due
from puffin_index.data_table import DataFile, list_data_files, open_table, refresh_table
from puffin_index.definition import IndexDefinition, ResolvedColumn, from_json, resolve, to_json
from puffin_index.directory import STATISTICS, int64_column, read_directory
from puffin_index.drop import DropReport, drop_index
from puffin_index.engine import LocalEngine, SparkEngine
from puffin_index.errors import NotFoundError
from puffin_index.expire import DEFAULT_GRACE, ExpireReport, expire
from puffin_index.fit import fit_warnings
from puffin_index.index_table import TableName
from puffin_index.job import BuildHandle, BuildReport, ProgressListener, build
from puffin_index.map_key import split_kind
from puffin_index.storage import FileReader
from puffin_index.verify import DEFAULT_SAMPLE, VerifyReport, drop_bad_entries, verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ColumnStatus:
    """One indexed column: its kinds with the bytes of each."""

    name: str
    field_id: int
    kinds: dict[str, int]

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


class TableIndex:
    """The index of one Iceberg table.

    Made by `open` or `create`; holds the data table (only read) and the index table.
    """

    def __init__(self, catalog: Catalog, data_table: Table, index_table: Table) -> None:
        self.catalog = catalog
        self.data_table = data_table
        self.index_table = index_table

    @classmethod
    def create(cls, catalog: Catalog, table: str, definition: IndexDefinition) -> TableIndex:
        """Define the index of a table; if it has one, its definition is replaced.

        Nothing is built yet. Indexes of columns and kinds that the new definition keeps stay in use. What is a
        bad fit for its column is logged as a warning (`puffin_index.fit`).

        Args:
            catalog: The catalog of the data table.
            table: `namespace.table`.
            definition: What to index.

        Raises:
            NotFoundError: If the table is not there.
            DefinitionError: If the definition does not fit it.
        """
        name = TableName.parse(table)
        data_table = open_table(catalog, name.identifier)
        columns = resolve(definition, data_table.schema())
        for warning in fit_warnings(columns):
            _log.warning("%s", warning)
        text = to_json(columns)
        index_name = catalogue.index_table_name(name)
        index_table = catalogue.create_index_table(catalog, index_name, data_table, text)
        data_table_uuid = str(data_table.metadata.table_uuid)
        if not catalogue.is_bound_to(index_table, data_table_uuid):
            # The data table was dropped and made anew: nothing in the old index can be of use.
            catalog.drop_table(index_name.identifier)
            index_table = catalogue.create_index_table(catalog, index_name, data_table, text)
        if index_table.properties.get(catalogue.PROPERTY_DEFINITION) != text:
            with index_table.transaction() as transaction:
                transaction.set_properties({catalogue.PROPERTY_DEFINITION: text})
        return cls(catalog, data_table, index_table)

    @classmethod
    def open(cls, catalog: Catalog, table: str) -> TableIndex:
        """Open the index of a table.

        Raises:
            NotFoundError: If the table or its index is not there, or the index belongs to a dropped table of that name.
        """
        name = TableName.parse(table)
        data_table = open_table(catalog, name.identifier)
        index_table = catalogue.load_index_table(catalog, catalogue.index_table_name(name))
        if not catalogue.is_bound_to(index_table, str(data_table.metadata.table_uuid)):
            raise NotFoundError(
                f"the index of {table} belongs to an earlier table of that name: run `puffin-index create` again"
            )
        return cls(catalog, data_table, index_table)

    @property
    def name(self) -> str:
        """`namespace.table` of the data table."""
        return ".".join(self.data_table.name())

    @property
    def columns(self) -> tuple[ResolvedColumn, ...]:
        """The definition, bound to the data table's schema."""
        return from_json(self.index_table.properties[catalogue.PROPERTY_DEFINITION], self.data_table.schema())

    def refresh(self) -> None:
        """Load the newest state of both tables.

        Raises:
            NotFoundError: If one of them is gone.
        """
        refresh_table(self.data_table)
        refresh_table(self.index_table)

    def build(
        self,
        spark: SparkSession | None = None,
        progress: ProgressListener | None = None,
        *,
        workers: int | None = None,
    ) -> BuildReport:
        """Index the data files of the current snapshot that have no index yet.

        Args:
            spark: The session whose executors do the work; None for a pool of local processes.
            progress: Called after each commit.
            workers: Processes of the local pool; the number of cores by default.
        """
        self.refresh()
        engine = LocalEngine(workers) if spark is None else SparkEngine(spark, f"puffin-index-{uuid.uuid4().hex}")
        return build(self.data_table, self.index_table, self.columns, engine, progress)

    def build_async(self, spark: SparkSession) -> BuildHandle:
        """Start `build` in the background of a live Spark application."""
        self.refresh()
        engine = SparkEngine(spark, f"puffin-index-{uuid.uuid4().hex}")
        # The handle's thread has tables of its own: refreshing these here must not disturb it.
        other = TableIndex.open(self.catalog, ".".join(self.data_table.name()))
        columns = self.columns
        return BuildHandle(
            lambda listener: build(other.data_table, other.index_table, columns, engine, listener), engine.cancel
        )

    def verify(self, sample: int | None = DEFAULT_SAMPLE, *, repair: bool = False) -> VerifyReport:
        """Check the index: coverage, checksums, directories, and a sample of it against the data.

        Args:
            sample: How many row groups to compare with the data; None for all.
            repair: Drop what is bad and index it anew at once, with a pool of local processes.
        """
        self.refresh()
        report = verify(self.data_table, self.index_table, self._wanted, sample)
        if not repair or not report.findings:
            return report
        repaired = drop_bad_entries(self.index_table, report.findings)
        self.build()
        return replace(report, repaired=repaired)

    def compact(
        self, target_bytes: int = TARGET_SEGMENT_BYTES, progress: CompactListener | None = None
    ) -> CompactReport:
        """Rewrite small segments, and those of which little is live, as segments of the target size.

        Args:
            target_bytes: About how large a segment should become.
            progress: Called at the start and after each commit.
        """
        self.refresh()
        return compact(self.data_table, self.index_table, self._wanted, target_bytes, listener=progress)

    def compact_if_due(
        self, target_bytes: int = TARGET_SEGMENT_BYTES, *, fewest: int = FEWEST_SMALL
    ) -> CompactReport | None:
        """Compact once there are many small segments; cheap where there are not: what a service calls after each build.

        Args:
            target_bytes: About how large a segment should become.
            fewest: How many small segments it takes.

        Returns:
            What was done; None if nothing was due.
        """
        self.index_table.refresh()
        if not is_due(catalogue.read_entries(self.index_table), target_bytes, fewest):
            return None
        return self.compact(target_bytes)

    def expire(self, older_than: timedelta = DEFAULT_GRACE, *, dry_run: bool = False) -> ExpireReport:
        """Drop entries, segments and files that nothing needs (`puffin_index.expire`).

        Segments of which little is live are rewritten first.

        Args:
            older_than: Files that no commit names may be those of a running build for so long.
            dry_run: Change nothing.
        """
        self.refresh()
        return expire(self.data_table, self.index_table, self._wanted, older_than, dry_run=dry_run)

    def drop(self) -> DropReport:
        """Drop the index table and all its segments; the data table is left as it is."""
        return drop_index(self.catalog, ".".join(self.index_table.name()))

    @property
    def _wanted(self) -> frozenset[tuple[int, str]]:
        return _field_kinds(self.columns)

    def status(self) -> IndexStatus:
        """Say how much of the current snapshot is indexed, and how large the indexes are."""
        self.refresh()
        columns = self.columns
        live = list_data_files(self.data_table)
        entries = catalogue.read_entries(self.index_table)
        wanted = _field_kinds(columns)
        found = indexed_kinds(entries, live)
        indexed = {file.path for file in live if wanted <= found.get(file.path, set())}
        used = entries.filter(pc.is_in(entries["data_file"], pa.array(list(found), pa.string())))
        segments = dict(zip(used["segment"].to_pylist(), used["segment_size_in_bytes"].to_pylist(), strict=True))
        snapshot = self.data_table.current_snapshot()
        return IndexStatus(
            table=self.name,
            snapshot_id=snapshot.snapshot_id if snapshot else None,
            data_files=len(live),
            indexed_data_files=len(indexed),
            row_groups=_row_group_count(live),
            indexed_row_groups=_row_group_count([file for file in live if file.path in indexed]),
            segments=len(segments),
            index_bytes=sum(segments.values()),
            data_bytes=sum(file.file_size for file in live),
            columns=self._column_status(columns, used),
        )

    def _column_status(self, columns: Sequence[ResolvedColumn], entries: pa.Table) -> tuple[ColumnStatus, ...]:
        sizes: dict[tuple[int, str], int] = {}
        seen: set[str] = set()
        rows = zip(
            *(entries[name].to_pylist() for name in ("segment", "segment_size_in_bytes", "directories")), strict=True
        )
        for segment, size, directories in rows:
            if segment in seen:
                continue
            seen.add(segment)
            with FileReader(self.index_table.io, segment, size) as reader:
                for directory in directories:
                    if split_kind(directory["field_id"], directory["kind"])[1] == STATISTICS:
                        continue
                    batch = read_directory(
                        reader, directory["offset"], directory["length"], directory["xxh64"], ["length"]
                    )
                    key = (directory["field_id"], directory["kind"])
                    sizes[key] = sizes.get(key, 0) + int(int64_column(batch, "length").sum())
        return tuple(
            ColumnStatus(
                column.name,
                column.field_id,
                {kind: sizes.get((column.field_id, column.stored_kind(kind)), 0) for kind in column.kinds},
            )
            for column in columns
        )


def _field_kinds(columns: Sequence[ResolvedColumn]) -> frozenset[tuple[int, str]]:
    return frozenset((column.field_id, column.stored_kind(kind)) for column in columns for kind in column.kinds)


def _row_group_count(files: Sequence[DataFile]) -> int:
    return sum(max(1, len(file.split_offsets)) for file in files)
