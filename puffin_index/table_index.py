"""`TableIndex`: the index of one table, as the Python interface offers it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from puffin_index.data.data_table import open_table, refresh_table
from puffin_index.data.row_groups import share_of_unique_words
from puffin_index.definition import index_definition
from puffin_index.definition.index_definition import IndexDefinition, ResolvedColumn
from puffin_index.definition.names import NamedIndex
from puffin_index.display import Cell, Described, Grid, Report, show_live
from puffin_index.errors import DefinitionError, NotFoundError, PuffinIndexError
from puffin_index.index_table import table as catalogue
from puffin_index.index_table.commit import LOCK_SECONDS, while_locked
from puffin_index.index_table.entries import TARGET_SEGMENT_BYTES, change_definition, stored_definition
from puffin_index.index_table.lookup import find_index_table, following_hint
from puffin_index.index_table.status import WHOLE_TABLE, BuildScope, IndexStatus, read_status
from puffin_index.index_table.table import TableName
from puffin_index.jobs.build_handle import BuildHandle
from puffin_index.jobs.build_job import BuildProgress, BuildReport, ProgressListener, build
from puffin_index.jobs.compact import FEWEST_SMALL, CompactReport, compact, due_bytes
from puffin_index.jobs.drop import DropReport, drop_index
from puffin_index.jobs.engine import Engine, engine_for
from puffin_index.jobs.expire import DEFAULT_GRACE, ExpireReport, expire
from puffin_index.jobs.export import ExportedContainer, export_indexes
from puffin_index.jobs.follow import define_index_table, ensure_index_table, follow
from puffin_index.jobs.verify import DEFAULT_SAMPLE, VerifyReport, drop_bad_entries, verify
from puffin_index.keys.map_key import Contents, FieldKind
from puffin_index.kinds.kind import Options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_MOSTLY = 0.5


class TableIndex(Described):
    """The index of one Iceberg table; holds the data table, which is only read, and the index table."""

    def __init__(self, catalog: Catalog, data_table: Table, index_table: Table) -> None:
        self.catalog = catalog
        self.data_table = data_table
        self.index_table = index_table

    @classmethod
    def create(cls, catalog: Catalog, table: str, definition: IndexDefinition, *, replace: bool = True) -> TableIndex:
        """Define the index of a table; the new definition replaces any earlier one.

        No index is built yet. Indexes of columns and kinds that the new definition keeps stay in use. Kinds that suit
        their column badly are logged as warnings (`puffin_index.definition.index_definition`).

        What the new definition takes away is logged, or an error unless `replace`. Raises NotFoundError if the table
        does not exist, DefinitionError if the definition does not fit the table, or takes something away and must not.
        """
        data_table = open_table(catalog, TableName.parse(table))
        columns = _resolve(definition, data_table)
        with suppress(NotFoundError):
            known = find_index_table(catalog, data_table)
            lost = "; ".join(stored_definition(data_table, known).losses(columns))
            if lost and not replace:
                raise DefinitionError(f"the new definition would take away: {lost}")
            if lost:
                _log.warning("the new definition of %s takes away: %s", table, lost)
        index_table = define_index_table(catalog, data_table, index_definition.to_json(columns))
        return cls(catalog, data_table, index_table)

    @classmethod
    def open_or_define(cls, catalog: Catalog, table: str) -> TableIndex:
        """Open the index of a table, or create the one that its properties define, or raise NotFoundError."""
        try:
            return cls.open(catalog, table)
        except NotFoundError:
            data_table = open_table(catalog, TableName.parse(table))
            found = index_definition.read_properties(data_table.properties, data_table.schema())
            for warning in found.warnings:
                _log.warning("%s", warning)
            if not found.columns:
                raise
        return cls(catalog, data_table, define_index_table(catalog, data_table, index_definition.to_json(())))

    @classmethod
    def add(cls, catalog: Catalog, table: str, name: str, definition: IndexDefinition) -> TableIndex:
        """Add an index of a free name to the definition of a table; create the index table if it is missing.

        Indexes that exist keep their options if none are given. Raises NotFoundError if the table does not exist,
        IndexExistsError if another index has the name, DefinitionError if the definition does not fit the table, or an
        index exists with other options.
        """
        data_table = open_table(catalog, TableName.parse(table))
        columns = _resolve(definition, data_table)
        index_table = ensure_index_table(catalog, data_table, index_definition.to_json(()))
        change_definition(data_table, index_table, lambda stored: stored.with_index(name, columns))
        return cls(catalog, data_table, index_table)

    @classmethod
    def open(cls, catalog: Catalog, table: str) -> TableIndex:
        """Open the index of a table, by its UUID if the index table was left behind when the table was renamed.

        Raises NotFoundError if the table or its index does not exist, or a dropped table of the name had the index,
        DamagedIndexError if the metadata of the index table is missing or broken.
        """
        name = TableName.parse(table)
        data_table = open_table(catalog, name)
        index_table = find_index_table(catalog, data_table)
        if TableName(index_table.name()) != catalogue.index_table_name(name):
            _log.warning("%s", following_hint(catalog, name, TableName(index_table.name())))
        return cls(catalog, data_table, index_table)

    @classmethod
    def follow(cls, catalog: Catalog, table: str) -> TableIndex:
        """Open the index of a renamed table, and rename the index table, or raise NotFoundError if there is none."""
        data_table = open_table(catalog, TableName.parse(table))
        return cls(catalog, data_table, follow(catalog, data_table))

    def __repr__(self) -> str:
        described = "; ".join(f"{column.name}: {', '.join(sorted(column.kinds))}" for column in self.columns)
        return f"TableIndex({self.name}: {described or 'no columns'})"

    def describe(self) -> Report:
        """Describe the index."""
        options = [
            (column.name, column.value_type.name, kind, ", ".join(f"{key} = {value}" for key, value in own.items()))
            for column in self.columns
            for kind, own in sorted(column.kinds.items())
        ]
        snapshot = self.data_table.current_snapshot()
        names: dict[str, Cell] = {
            "index table": ".".join(self.index_table.name()),
            "snapshot": "none, the table is empty" if snapshot is None else str(snapshot.snapshot_id),
        }
        columns = Grid(("column", "type", "kind", "options"), options)
        return Report(f"index of {self.name}", names, (columns,), warnings=self.warnings)

    def add_kinds(self, definition: IndexDefinition) -> None:
        """Add kinds to the definition; everything else of the definition stays. The next build makes them.

        A kind that is there already keeps its options if none are given. Raises DefinitionError if the kinds do not
        fit the table.
        """
        self.refresh()
        columns = _resolve(definition, self.data_table)
        change_definition(self.data_table, self.index_table, lambda stored: stored.with_kinds(columns))

    def remove_kinds(self, definition: IndexDefinition) -> None:
        """Take kinds out of the definition, or raise DefinitionError if one is missing or nothing would be left."""
        self.refresh()
        columns = index_definition.resolve(definition, self.data_table.schema())
        change_definition(self.data_table, self.index_table, lambda stored: stored.without_kinds(columns))

    @property
    def name(self) -> str:
        """`namespace.table` of the data table."""
        return ".".join(self.data_table.name())

    @property
    def columns(self) -> tuple[ResolvedColumn, ...]:
        """The definition from `create` and from table properties, bound to the data table's schema."""
        created, properties = self._bound
        return index_definition.unite(created.columns, properties.columns)

    @property
    def names(self) -> tuple[NamedIndex, ...]:
        """The names of the indexes: those that statements gave, then `<column>_<kind>` for each index without one."""
        return stored_definition(self.data_table, self.index_table).all_names

    def remove(self, name: str) -> frozenset[FieldKind]:
        """Take a named index out of the definition, as far as no other name stands for it; return what is gone.

        No query uses it any more; `expire` deletes the bytes. Raises NotFoundError if no index has the name,
        DefinitionError if properties of the data table define it.
        """
        self.refresh()
        return change_definition(self.data_table, self.index_table, lambda stored: stored.without_index(name))

    @property
    def warnings(self) -> tuple[str, ...]:
        """The unusable parts of the definition and of the table properties, with the reasons."""
        return tuple(warning for part in self._bound for warning in part.warnings)

    @property
    def _stored(self) -> str:
        return self.index_table.properties[catalogue.PROPERTY_DEFINITION]

    @property
    def _bound(self) -> tuple[index_definition.BoundDefinition, index_definition.BoundDefinition]:
        """The definition from `create`, and that from table properties."""
        schema = self.data_table.schema()
        return index_definition.from_json(self._stored, schema), index_definition.read_properties(
            self.data_table.properties, schema
        )

    def refresh(self) -> None:
        """Load the newest state of both tables, or raise NotFoundError if one of the tables is gone."""
        refresh_table(self.data_table)
        catalogue.refresh_index_table(self.index_table)

    def build(
        self,
        spark: SparkSession | None = None,
        progress: ProgressListener | None = None,
        *,
        workers: int | None = None,
        scope: BuildScope = WHOLE_TABLE,
        commit_timeout_seconds: float = LOCK_SECONDS,
    ) -> BuildReport:
        """Index the data files that have no index yet; by default those of the current snapshot.

        Args:
            spark: The session whose executors do the work; None for a pool of local processes.
            progress: Called after each commit. Without it, a notebook shows the progress.
            workers: The number of local processes; the number of cores by default.
            commit_timeout_seconds: How long the build waits for a catalog that another process has locked.

        Raises BuildError if the build cannot finish (committed segments stay), DBAPIError if the catalog stays locked,
        NotFoundError if the table lacks the snapshot, branch or tag.
        """
        while_locked(self.refresh, commit_timeout_seconds)
        listener = progress if progress is not None else show_live(BuildProgress(0, 0, 0, 0))
        return self._build(engine_for(spark, workers), listener, scope, commit_timeout_seconds)

    def build_async(
        self,
        spark: SparkSession | None = None,
        *,
        workers: int | None = None,
        scope: BuildScope = WHOLE_TABLE,
        beside_queries: bool = True,
        after: BuildHandle | None = None,
        commit_timeout_seconds: float = LOCK_SECONDS,
        refresh: bool = True,
    ) -> BuildHandle:
        """Start `build` in the background: of a live Spark application, or in local processes.

        Args:
            beside_queries: Whether to favour the application's queries: the build leaves them half of the task slots
                (all slots on a local master) and runs at low priority.
            after: A build to wait for first; both would index the same data files otherwise.
            refresh: Whether to load the newest state of both tables first.
        """
        engine = engine_for(spark, workers, in_background=beside_queries)
        # The handle's thread gets tables of its own, so that refreshing the tables here does not disturb the thread.
        if refresh:
            other = TableIndex.open(self.catalog, self.name)
        else:
            other = TableIndex(self.catalog, copy(self.data_table), copy(self.index_table))

        def run(listener: ProgressListener) -> BuildReport:
            if after is not None:
                after.join()
                other.refresh()
            return other._build(engine, listener, scope, commit_timeout_seconds)

        return BuildHandle(run, engine.cancel)

    def _build(
        self, engine: Engine, listener: ProgressListener | None, scope: BuildScope, commit_timeout_seconds: float
    ) -> BuildReport:
        warnings = self.warnings
        for warning in warnings:
            _log.warning("%s", warning)
        report = build(self.data_table, self.index_table, self.columns, engine, listener, scope, commit_timeout_seconds)
        return replace(report, warnings=warnings)

    def verify(self, sample: int | None = DEFAULT_SAMPLE, *, repair: bool = False) -> VerifyReport:
        """Check the index: coverage, checksums, directories, and a sample of row groups (None: all) against the data.

        With `repair`, bad entries are dropped and their data files indexed anew at once, by local processes.
        """
        self.refresh()
        report = verify(self.data_table, self.index_table, index_definition.indexes_of(self.columns), sample)
        if not repair or not report.findings:
            return report
        dropped = drop_bad_entries(self.index_table, report.findings)
        self.build()
        return replace(report, repaired_data_files=dropped)

    def compact(self, target_bytes: int = TARGET_SEGMENT_BYTES) -> CompactReport:
        """Rewrite small segments, and segments with few live bytes, as segments of about the target size."""
        self.refresh()
        return compact(self.data_table, self.index_table, self._kept, target_bytes)

    def compact_if_due(
        self, target_bytes: int = TARGET_SEGMENT_BYTES, *, fewest: int = FEWEST_SMALL
    ) -> CompactReport | None:
        """Compact if there are at least `fewest` small segments; return None if not.

        The check is cheap, so a service may call this after each build. New segments have about `target_bytes`.
        """
        catalogue.refresh_index_table(self.index_table)
        most_bytes = due_bytes(catalogue.read_entries(self.index_table), target_bytes, fewest)
        if most_bytes is None:
            return None
        return compact(self.data_table, self.index_table, self._kept, target_bytes, most_bytes=most_bytes)

    def expire(
        self, older_than: timedelta = DEFAULT_GRACE, *, dry_run: bool = False, for_readers: bool = False
    ) -> ExpireReport:
        """Drop entries, segments and files that nothing needs (`puffin_index.jobs.expire`), or only say which.

        Segments with few live bytes are rewritten first. Files that no commit names count as those of a running build
        up to the age `older_than`. With `for_readers`, segments that others replaced a moment ago stay.
        """
        self.refresh()
        return expire(
            self.data_table, self.index_table, self._kept, older_than, dry_run=dry_run, for_readers=for_readers
        )

    def drop(self) -> DropReport:
        """Drop the index table and all its segments; the data table stays unchanged."""
        return drop_index(self.catalog, ".".join(self.index_table.name()))

    def export_indexes(self, data_file: str, row_group: int | None = None) -> ExportedContainer:
        """Put the indexes of a data file into a container of Paimon's (`puffin_index.jobs.export`).

        `data_file` is a location or its last parts; a file of several row groups needs the place of one, from 0.
        """
        self.refresh()
        return export_indexes(self.data_table, self.index_table, self.columns, data_file, row_group)

    def _kept(self) -> dict[FieldKind, Options]:
        """The indexes to keep, with their options; also indexes of columns that only older snapshots have."""
        return index_definition.stored_kinds(self._stored) | index_definition.indexes_of(self.columns)

    def status(self) -> IndexStatus:
        """Return the coverage of the current snapshot and the size of the indexes."""
        self.refresh()
        return replace(read_status(self.data_table, self.index_table, self.columns), unusable=self.warnings)


def _resolve(definition: IndexDefinition, data_table: Table) -> tuple[ResolvedColumn, ...]:
    """Bind a definition to the schema, and warn of kinds that suit their columns badly."""
    columns = index_definition.resolve(definition, data_table.schema())
    for warning in (*index_definition.fit_warnings(columns), *_warnings_of_words(columns, data_table)):
        _log.warning("%s", warning)
    return columns


def _warnings_of_words(columns: Sequence[ResolvedColumn], data_table: Table) -> Iterator[str]:
    """Yield a sentence for each text column whose words are mostly unique."""
    for column in columns:
        # Whether the data can be read is for the build to say.
        with suppress(PuffinIndexError, OSError, pa.ArrowException):
            is_of_words = column.column_id == Contents(column.field_id, "words")
            share = share_of_unique_words(data_table, column.field_id) if is_of_words else 0.0
            if share > _MOSTLY:
                yield (
                    f"column {column.name!r}: {share:.0%} of its words, by length, occur once; an index of such words "
                    "may take as much as the texts"
                )
