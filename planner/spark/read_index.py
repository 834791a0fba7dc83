"""The index of a query's table, read for planning."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyiceberg.table import Table

from planner.scans.plan import view_of
from planner.spark.catalogs import SparkCatalogs
from planner.spark.known_index_tables import KnownIndexTables
from planner.spark.left_behind import DataTable
from planner.spark.requests.hook_filters import schema_of
from planner.spark.requests.wire import Request
from planner.view.index_view import IndexView
from puffin_index.data.column_source import Reading, parse_name_mapping
from puffin_index.errors import PuffinIndexError


@dataclass(frozen=True, slots=True, eq=False)
class ReadIndex:
    """One version of the index of a data table.

    Attributes:
        table: The data table.
        index_table: The index table.
        reading: How a scan finds columns.
        view: The index.
    """

    table: DataTable
    index_table: Table
    reading: Reading
    view: IndexView


class ReadIndexes:
    """The indexes of the tables of a hook's queries."""

    def __init__(self, catalogs: SparkCatalogs) -> None:
        self._catalogs = catalogs
        self._index_tables = KnownIndexTables()

    def of(self, request: Request, refresh_seconds: float) -> ReadIndex | None:
        """The version of the index that can be read: the one that is known, else a newer one; None without an index."""
        table = self._data_table(request)
        index_table = None if table is None else self._index_tables.find(table, refresh_seconds)
        if table is None or index_table is None:
            return None
        reading = Reading(schema_of(request.columns), parse_name_mapping(request.name_mapping))
        try:
            return ReadIndex(table, index_table, reading, view_of(index_table, reading))
        except (PuffinIndexError, OSError):
            newer = self._newer_table(table, index_table)
            if newer is None:
                raise
            return ReadIndex(table, newer, reading, view_of(newer, reading))

    def newer(self, index: ReadIndex) -> ReadIndex | None:
        """A newer version of an index in trouble; None if there is none."""
        newer = self._newer_table(index.table, index.index_table)
        return None if newer is None else replace(index, index_table=newer, view=view_of(newer, index.reading))

    def _newer_table(self, table: DataTable, index_table: Table) -> Table | None:
        # A query may be planned with a version that the hook saw shortly before and whose files have expired since.
        newer = self._index_tables.renew(table)
        return None if newer is None or newer.current_snapshot() == index_table.current_snapshot() else newer

    def _data_table(self, request: Request) -> DataTable | None:
        """The table of a request; None if Spark has no such catalog, as for a table that was loaded by its location."""
        catalog_name, _, name = request.table.partition(".")
        catalog = self._catalogs.find(catalog_name, request.catalog)
        return None if catalog is None or "." not in name else DataTable(catalog, name, request.uuid)
