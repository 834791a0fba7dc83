"""Index tables that renamed data tables have left behind, found by the UUID of the data table.

A search of the data table's namespace runs in the background. Queries use no index until the search has ended.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass

from cachetools import LRUCache
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from planner.spark.background import Background
from puffin_index.catalogue.index_table import PROPERTY_DATA_TABLE_UUID, TableName
from puffin_index.catalogue.lookup import following_hint, list_index_tables, load_left_behind

_log = logging.getLogger(__name__)

_KEPT = 1_000
_SEARCH_EVERY_SECONDS = 600.0
"""The least time between two searches of a namespace, because a search loads each index table."""


@dataclass(frozen=True, slots=True)
class DataTable:
    """A data table under one name in one catalog; the same table may have another index under another name or catalog.

    Attributes:
        catalog: The catalog.
        name: The table's name there, without the catalog's.
        uuid: The table's UUID.
    """

    catalog: Catalog
    name: str
    uuid: str


class LeftBehind:
    """The places of index tables by the UUIDs of their data tables, to find an index table after a renaming."""

    def __init__(self, background: Background) -> None:
        self._background = background
        self._lock = threading.Lock()
        self._seen: LRUCache[tuple[Catalog, str], TableName] = LRUCache(_KEPT)
        self._told: LRUCache[DataTable, bool] = LRUCache(_KEPT)
        self._searched: LRUCache[tuple[Catalog, tuple[str, ...]], float] = LRUCache(_KEPT)

    def note(self, catalog: Catalog, index_table: Table) -> None:
        """Remember where an index table is."""
        uuid = index_table.properties.get(PROPERTY_DATA_TABLE_UUID, "")
        with self._lock:
            self._seen[catalog, uuid] = TableName.of(index_table)

    def find(self, table: DataTable) -> Table | None:
        """Return the index table that a data table has left behind; None if none is known (yet)."""
        with self._lock:
            index_name = self._seen.get((table.catalog, table.uuid))
        index_table = load_left_behind(table.catalog, index_name, table.uuid) if index_name is not None else None
        if index_table is None:
            self._search_later(table)
            return None
        with self._lock:
            is_told, self._told[table] = table in self._told, True
        if not is_told:
            hint = following_hint(table.catalog, TableName.parse(table.name), TableName.of(index_table))
            _log.warning("%s", hint)
        return index_table

    def _search_later(self, table: DataTable) -> None:
        catalog, namespace = table.catalog, TableName.parse(table.name).namespace
        place, now = (catalog, namespace), time.monotonic()
        with self._lock:
            if now - self._searched.get(place, -_SEARCH_EVERY_SECONDS) < _SEARCH_EVERY_SECONDS:
                return
            self._searched[place] = now

        def search() -> None:
            found = list_index_tables(catalog, namespace, only_left_behind=True)
            with self._lock:
                self._seen.update({(catalog, uuid): name for uuid, name in found.items()})

        self._background.run(place, search)
