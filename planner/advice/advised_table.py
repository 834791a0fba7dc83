"""The table that a question is about: its files, row groups and index, and what a WHERE reads under some index."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from planner.advice.candidates import names_of
from planner.arrow.plan import snapshot_of
from planner.clock import Clock
from planner.condition.tree.nodes import EVERY_ROW, Predicate
from planner.condition.tree.simplify import simplified
from planner.prune.gate import Limits
from planner.query import QueryRequest, answer_query
from planner.report.scan_plan import ScanPlan
from planner.snapshot.files import ScanFile, list_scan_files
from planner.snapshot.scan import Scan
from planner.view.column_values import TriedValues
from planner.view.index_view import IndexView
from planner.view.views import view_of
from puffin_index.data.column_source import reading_of
from puffin_index.data.data_table import DataFile
from puffin_index.definition.index_definition import ResolvedColumn
from puffin_index.errors import NotFoundError
from puffin_index.index_table.table import entries_of
from puffin_index.keys.map_key import FieldKind
from puffin_index.storage.arrays import Floats, Ints
from puffin_index.table_index import TableIndex


@dataclass(frozen=True)
class Scanned:
    """The row groups that Iceberg's pruning leaves, by data file and ordinal; a file that lists none counts as one."""

    files: tuple[ScanFile, ...]
    file_of: Ints
    ordinals: Ints

    def __len__(self) -> int:
        return len(self.file_of)

    @cached_property
    def data_files(self) -> tuple[DataFile, ...]:
        """The data files, which list the row groups that they count here, so that plans by any index have as many."""
        return tuple(
            replace(one.file, split_offsets=(0,) * count) for one, count in zip(self.files, self._counts, strict=True)
        )

    @cached_property
    def row_group_bytes(self) -> Floats:
        """The bytes of each row group: from one start of a row group to the next, or an equal share of the file."""
        parts = [_bytes_of_row_groups(one.file, count) for one, count in zip(self.files, self._counts, strict=True)]
        return np.concatenate(parts) if parts else np.zeros(0)

    @cached_property
    def _counts(self) -> list[int]:
        """How many row groups each data file has."""
        counts: list[int] = np.bincount(self.file_of, minlength=len(self.files)).tolist()
        return counts

    def column_bytes(self, field_ids: Collection[int] | None) -> Floats:
        """The bytes of some columns in each row group; of all columns where the manifests do not say, or for None."""
        if field_ids is None:
            return self.row_group_bytes
        shares = np.array([_share_of_columns(scanned, field_ids) for scanned in self.files], np.float64)
        return self.row_group_bytes * shares[self.file_of]


def _bytes_of_row_groups(file: DataFile, count: int) -> Floats:
    offsets = np.sort(np.array(file.split_offsets, np.float64))
    if len(offsets) != count or not count:
        return np.full(count, file.file_size / max(1, count))
    return np.diff(np.append(offsets, file.file_size))


def _share_of_columns(scanned: ScanFile, field_ids: Collection[int]) -> float:
    sizes = scanned.entry.column_sizes or {}
    total = sum(sizes.values())
    known = sizes.keys() & set(field_ids)
    return sum(sizes[field_id] for field_id in known) / total if known else 1.0


LIMITS: Final = Limits(seconds=60.0, regret_share=1.0, pages=True)
"""Nobody waits for a query here, so planning may take longer than a query's planning may. First look-ups in a sample
must not end what look-ups in the whole table would pay for. Queries are Spark's, which reads pages."""


@dataclass(frozen=True)
class AdvisedTable:
    """One snapshot of a table, with what is built of the index that the table has today."""

    table: Table
    index: TableIndex | None
    snapshot: Snapshot | None
    schema: Schema
    view: IndexView

    @classmethod
    def of(cls, index_or_table: TableIndex | Table, snapshot_id: int | None = None) -> AdvisedTable:
        """Look up the newest state of a table and its index, or raise NotFoundError if there is no such snapshot."""
        index = index_or_table if isinstance(index_or_table, TableIndex) else _index_of(index_or_table)
        table = index_or_table if isinstance(index_or_table, Table) else index_or_table.data_table
        if index is not None:
            index.refresh()
            table = index.data_table
        snapshot, schema = snapshot_of(table, snapshot_id)
        if index is None:
            view = IndexView("empty", entries_of(()), table.io)
        else:
            view = view_of(index.index_table, reading_of(table, schema))
        return cls(table, index, snapshot, schema, view)

    @property
    def name(self) -> str:
        """`namespace.table`."""
        return ".".join(self.table.name())

    @property
    def columns(self) -> tuple[ResolvedColumn, ...]:
        """The definition of today's index."""
        return () if self.index is None else self.index.columns

    @cached_property
    def defined(self) -> frozenset[FieldKind]:
        """The indexes of the definition."""
        return frozenset(names_of(self.columns))

    def index_bytes(self) -> dict[FieldKind, int]:
        """The bytes of each existing index that belong to the current snapshot."""
        columns = () if self.index is None else self.index.status().columns
        sizes = {f"{column.name}.{kind}": size for column in columns for kind, size in column.live_kinds.items()}
        return {key: sizes[name] for key, name in names_of(self.columns).items()}

    @cached_property
    def files(self) -> tuple[ScanFile, ...]:
        """All data files of the snapshot."""
        return self._files(EVERY_ROW)

    @property
    def data_bytes(self) -> int:
        """The bytes of all data files."""
        return sum(scanned.file.file_size for scanned in self.files)

    def scanned(self, condition: Predicate) -> Scanned:
        """Find the row groups that Iceberg's own pruning leaves."""
        files = self._files(condition)
        scan = Scan.of_files(self.view, [scanned.file for scanned in files])
        return Scanned(files, scan.file_of, scan.ordinals)

    def _files(self, condition: Predicate) -> tuple[ScanFile, ...]:
        if self.snapshot is None:
            return ()
        return list_scan_files(self.table, self.snapshot, self.schema, simplified(condition), Clock(LIMITS.seconds))

    def plan(self, view: IndexView, condition: Predicate, files: tuple[DataFile, ...]) -> ScanPlan:
        """Plan a scan of some data files by an index; deletes are not looked at."""
        scan, clock = Scan.of_files(view, files), Clock(LIMITS.seconds)
        tried = TriedValues(self.schema, view, scan.numbers[scan.is_indexed], LIMITS.byte_budget, clock)
        predicate = tried.decided(condition)
        return answer_query(QueryRequest(scan=scan, predicate=predicate, limits=LIMITS)).plan


def _index_of(table: Table) -> TableIndex | None:
    try:
        return TableIndex.open(table.catalog, ".".join(table.name()))
    except NotFoundError:
        return None
