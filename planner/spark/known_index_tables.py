"""Index tables that queries have used: kept, and looked up anew while no query waits."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from cachetools import LRUCache
from pyiceberg.table import Table

from planner.spark.background import Background
from planner.spark.left_behind import DataTable, LeftBehind
from puffin_index.catalogue.index_table import TableName, count_commits, index_table_name, is_bound_to, load_index_table
from puffin_index.errors import NotFoundError

_KEPT = 1_000
_LONGEST_WITHOUT_WAITING_SECONDS = 60.0
"""How long after its look-up a query may use a version without asking the catalog first."""


@dataclass(frozen=True, slots=True)
class _Known:
    """An index table as the catalog last had it.

    Attributes:
        table: The table.
        seen: When the catalog was asked, by the monotonic clock.
        commits: How many commits this process had made to the table by then.
    """

    table: Table
    seen: float
    commits: int


class KnownIndexTables:
    """The index tables of data tables."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: LRUCache[DataTable, _Known] = LRUCache(_KEPT)
        self._background = Background()
        self._left_behind = LeftBehind(self._background)

    def find(self, table: DataTable, refresh_seconds: float) -> Table | None:
        """Return the index table of a data table; None if the data table has none.

        Args:
            table: The data table.
            refresh_seconds: How old a version may be to be used without asking the catalog; 0: always ask.
        """
        with self._lock:
            known = self._known.get(table)
        if known is None or count_commits(table.uuid) != known.commits:
            return self.renew(table)
        age = time.monotonic() - known.seen
        if age < refresh_seconds:
            return known.table
        if refresh_seconds == 0 or age >= _LONGEST_WITHOUT_WAITING_SECONDS:
            return self.renew(table)
        self._background.run(table, lambda: self.renew(table))
        return known.table

    def renew(self, table: DataTable) -> Table | None:
        """Ask the catalog for the index table of a data table; None if the data table has none."""
        commits, seen = count_commits(table.uuid), time.monotonic()
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
            index_table = load_index_table(table.catalog, index_table_name(TableName.parse(table.name)))
        except NotFoundError:
            return self._left_behind.find(table)
        # Two tables may have swapped their names. Queries of the other table then find its index table here.
        self._left_behind.note(table.catalog, index_table)
        return index_table if is_bound_to(index_table, table.uuid) else self._left_behind.find(table)
