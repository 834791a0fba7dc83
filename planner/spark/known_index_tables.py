"""Index tables that queries have used: kept, and looked up anew while no query waits.

One that a renamed data table has left behind is found by the data table's UUID, by a search of the namespace in the
background. Queries use no index until the search has ended.
"""

import logging
import threading
import time
from dataclasses import dataclass

from cachetools import LRUCache, TTLCache
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from planner.spark.background import BackgroundQueue
from puffin_index.errors import NotFoundError
from puffin_index.index_table import table as catalogue
from puffin_index.index_table.lookup import following_hint, list_index_tables, load_left_behind
from puffin_index.index_table.table import TableName
from puffin_index.jobs.log_lines import is_news

_log = logging.getLogger(__name__)

_KEPT = 1_000
_LONGEST_WITHOUT_WAITING_SECONDS = 60.0
"""How long after its look-up a query may use a version without asking the catalog first."""
_SEARCH_EVERY_SECONDS = 600.0
"""The least time between two searches of a namespace, because a search loads each index table."""


@dataclass(frozen=True, slots=True)
class DataTable:
    """A data table under one name of one catalog; under another, it may have another index."""

    catalog: Catalog
    name: str
    uuid: str


@dataclass(frozen=True, slots=True)
class _Known:
    """An index table as the catalog last had it, when it was asked, and the commits of this process by then."""

    table: Table
    seen: float
    commits: int


class KnownIndexTables:
    """The index tables of data tables, and the places of index tables by the UUIDs of their data tables."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: LRUCache[DataTable, _Known] = LRUCache(_KEPT)
        self._places: LRUCache[tuple[Catalog, str], TableName] = LRUCache(_KEPT)
        self._searched: TTLCache[tuple[Catalog, tuple[str, ...]], bool] = TTLCache(_KEPT, _SEARCH_EVERY_SECONDS)
        self._old: BackgroundQueue[tuple[DataTable, float]] = BackgroundQueue(
            self._renew_old, "looking up index tables anew", _KEPT, is_finished_at_exit=False
        )
        self._searches: BackgroundQueue[tuple[Catalog, tuple[str, ...]]] = BackgroundQueue(
            self._search, "searching for index tables", _KEPT, is_finished_at_exit=False
        )

    def find(self, table: DataTable, refresh_seconds: float) -> Table | None:
        """Return the index table of a data table, asking for one older than some seconds; None without one."""
        with self._lock:
            known = self._known.get(table)
        if known is None or catalogue.count_commits(table.uuid) != known.commits:
            return self.renew(table)
        age = time.monotonic() - known.seen
        if age < refresh_seconds:
            return known.table
        if refresh_seconds == 0 or age >= _LONGEST_WITHOUT_WAITING_SECONDS:
            return self.renew(table)
        self._old.put((table, known.seen))
        return known.table

    def _renew_old(self, items: list[tuple[DataTable, float]]) -> None:
        for table, seen in items:
            with self._lock:
                known = self._known.get(table)
            # Many queries may have found the same version too old.
            if known is not None and known.seen == seen:
                self.renew(table)

    def renew(self, table: DataTable) -> Table | None:
        """Ask the catalog for the index table of a data table; None if the data table has none."""
        commits, seen = catalogue.count_commits(table.uuid), time.monotonic()
        found = self._load(table)
        with self._lock:
            known = self._known.get(table)
            if known is not None and known.seen > seen:
                # Another thread has asked later and got its answer first.
                return known.table
            if found is not None:
                self._known[table] = _Known(found, seen, commits)
            else:
                self._known.pop(table, None)
        return found

    def _load(self, table: DataTable) -> Table | None:
        try:
            index_table = catalogue.load_index_table(
                table.catalog, catalogue.index_table_name(TableName.parse(table.name))
            )
        except NotFoundError:
            return self._left_behind(table)
        # Two tables may have swapped their names. Queries of the other table then find its index table here.
        uuid = index_table.properties.get(catalogue.PROPERTY_DATA_TABLE_UUID, "")
        with self._lock:
            self._places[table.catalog, uuid] = TableName(index_table.name())
        return index_table if catalogue.is_bound_to(index_table, table.uuid) else self._left_behind(table)

    def _left_behind(self, table: DataTable) -> Table | None:
        """Return the index table that a renamed data table has left behind; None if none is known (yet)."""
        with self._lock:
            index_name = self._places.get((table.catalog, table.uuid))
        index_table = load_left_behind(table.catalog, index_name, table.uuid) if index_name is not None else None
        if index_table is None:
            place = (table.catalog, TableName.parse(table.name).namespace)
            with self._lock:
                was_searched = place in self._searched
            if not was_searched:
                self._searches.put(place)
            return None
        hint = following_hint(table.catalog, TableName.parse(table.name), TableName(index_table.name()))
        if is_news(f"{table.uuid}: {hint}"):
            _log.warning("%s", hint)
        return index_table

    def _search(self, places: list[tuple[Catalog, tuple[str, ...]]]) -> None:
        for place in places:
            with self._lock:
                # Many queries may have asked for the same search.
                if place in self._searched:
                    continue
                # A failed search loses the places behind it, so a place counts as searched only now.
                self._searched[place] = True
            catalog, namespace = place
            found = list_index_tables(catalog, namespace, only_left_behind=True)
            with self._lock:
                self._places.update({(catalog, uuid): name for uuid, name in found.items()})
