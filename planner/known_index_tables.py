"""Index tables that queries have seen: kept, and looked up anew where no query waits for it."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass

from cachetools import LRUCache
from pyiceberg.table import Table

from planner.spark_catalogs import SparkCatalogs
from puffin_index.errors import NotFoundError
from puffin_index.index_table import TableName, count_commits, index_table_name, is_bound_to, load_index_table

_log = logging.getLogger(__name__)

_KEPT = 1_000
_LONGEST_WITHOUT_WAITING_SECONDS = 60.0
"""A version that was seen longer ago is not used before the catalog has been asked."""
_REFRESH_DELAY_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class _Known:
    """An index table as it was.

    Attributes:
        table: The table.
        seen: When it was, by the monotonic clock.
        commits: How many commits this process had made to it.
    """

    table: Table
    seen: float
    commits: int


class KnownIndexTables:
    """The index tables of data tables, by the UUID of the data table.

    Args:
        catalogs: Where they are looked up.
    """

    def __init__(self, catalogs: SparkCatalogs) -> None:
        self._catalogs = catalogs
        self._lock = threading.Lock()
        self._known: LRUCache[str, _Known] = LRUCache(_KEPT)
        self._being_refreshed: set[str] = set()

    def find(self, table: str, uuid: str, refresh_seconds: float) -> Table | None:
        """Return the index table of a data table; None if it has none.

        Args:
            table: Catalog and name of the data table, as Spark says it.
            uuid: Its UUID.
            refresh_seconds: How old a version may be that is used without the catalog being asked; 0: it is asked.
        """
        with self._lock:
            known = self._known.get(uuid)
        if known is None or count_commits(uuid) != known.commits:
            return self._refresh(table, uuid)
        age = time.monotonic() - known.seen
        if age < refresh_seconds:
            return known.table
        if refresh_seconds == 0 or age >= _LONGEST_WITHOUT_WAITING_SECONDS:
            return self._refresh(table, uuid)
        self._refresh_later(table, uuid)
        return known.table

    def _refresh(self, table: str, uuid: str) -> Table | None:
        commits, seen = count_commits(uuid), time.monotonic()
        found = self._load(table, uuid)
        with self._lock:
            if found is not None:
                self._known[uuid] = _Known(found, seen, commits)
            else:
                self._known.pop(uuid, None)
        return found

    def _refresh_later(self, table: str, uuid: str) -> None:
        """Ask the catalog once this query is planned, so that the next one finds what is new and none has waited."""
        with self._lock:
            if uuid in self._being_refreshed:
                return
            self._being_refreshed.add(uuid)

        def refresh() -> None:
            try:
                self._refresh(table, uuid)
            except Exception as error:  # noqa: BLE001 - nobody waits for it, and the next query tries again
                _log.warning("the index of %s was not looked up anew: %s", table, error)
            finally:
                with self._lock:
                    self._being_refreshed.discard(uuid)

        timer = threading.Timer(_REFRESH_DELAY_SECONDS, refresh)
        timer.daemon = True
        timer.start()

    def _load(self, table: str, uuid: str) -> Table | None:
        catalog_name, _, name = table.partition(".")
        catalog = self._catalogs.find(catalog_name) if "." in name else None
        if catalog is None:
            return None
        try:
            index_table = load_index_table(catalog, index_table_name(TableName.parse(name)))
        except NotFoundError:
            return None
        return index_table if is_bound_to(index_table, uuid) else None
