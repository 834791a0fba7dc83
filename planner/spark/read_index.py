"""The index of a query's table, read for planning; and the scan plans of a hook's sessions, for reports and the log."""

import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyiceberg.table import Table

from planner.report.scan_plan import ScanPlan
from planner.spark.catalogs import SparkCatalogs
from planner.spark.known_index_tables import DataTable, KnownIndexTables
from planner.spark.requests.hook_filters import schema_of
from planner.spark.requests.wire import Request
from planner.view.index_view import IndexView
from planner.view.views import view_of
from puffin_index.data.column_source import Reading, parse_name_mapping
from puffin_index.errors import PuffinIndexError
from puffin_index.jobs.log_lines import is_news


@dataclass(frozen=True, slots=True, eq=False)
class ReadIndex:
    """One version of the index of a data table, and how a scan finds columns."""

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
        catalog_name, _, name = request.table.partition(".")
        catalog = self._catalogs.find(catalog_name, request.catalog)
        # A table that was loaded by its location is of no catalog.
        if catalog is None or "." not in name:
            return None
        table = DataTable(catalog, name, request.uuid)
        index_table = self._index_tables.find(table, refresh_seconds)
        if index_table is None:
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
        """A newer version of an index in trouble; None if the known version is the newest."""
        newer = self._newer_table(index.table, index.index_table)
        return None if newer is None else replace(index, index_table=newer, view=view_of(newer, index.reading))

    def _newer_table(self, table: DataTable, index_table: Table) -> Table | None:
        # A query may be planned with a version that the hook saw shortly before and whose files have expired since.
        newer = self._index_tables.renew(table)
        return None if newer is None or newer.current_snapshot() == index_table.current_snapshot() else newer


_log = logging.getLogger(__name__)

_KEPT_REPORTS = 100
_KEPT_BYTES = 64 << 20
"""Of all sessions: a server has many of them, and a plan of 10^6 row groups takes 33 MB. The session that planned last
keeps its plans longest."""


class Reports:
    """The latest scan plans of each session, within some bytes; at least the very latest."""

    def __init__(self, most_bytes: int = _KEPT_BYTES) -> None:
        self._most_bytes = most_bytes
        self._recordings: dict[int, list[ScanPlan]] = {}
        self._reports: OrderedDict[str, deque[ScanPlan]] = OrderedDict()
        self._kept_bytes = 0
        # How many kept plans share a tuple of locations, by its identity.
        self._sharing: dict[int, int] = {}
        self._lock = threading.Lock()

    @contextmanager
    def recorded(self, thread: int) -> Iterator[list[ScanPlan]]:
        """Collect the scan plans of a thread of the JVM from now to the end of the context."""
        self._recordings[thread] = []
        try:
            yield self._recordings[thread]
        finally:
            del self._recordings[thread]

    def is_explained(self, request: Request) -> bool:
        """Whether a request is of a query that is explained only, which reads nothing."""
        return request.thread in self._recordings

    def of(self, session: str) -> list[ScanPlan]:
        """The latest scan plans of a session, by its UUID, and of copies that Spark made of it, oldest first."""
        with self._lock:
            return list(self._reports.get(session, ()))

    def add(self, plan: ScanPlan, request: Request) -> None:
        """Report a scan plan."""
        with self._lock:
            own = self._reports.setdefault(request.session, deque())
            self._reports.move_to_end(request.session)
            own.append(plan)
            self._count(plan, 1)
            if len(own) > _KEPT_REPORTS:
                self._count(own.popleft(), -1)
            while self._kept_bytes > self._most_bytes and (len(self._reports) > 1 or len(own) > 1):
                session, oldest = next(iter(self._reports.items()))
                self._count(oldest.popleft(), -1)
                if not oldest:
                    del self._reports[session]
        if request.thread in self._recordings:
            self._recordings[request.thread].append(plan)
        _log.info(
            "%s: %s, %d bytes of index read, %.0f ms",
            plan.table,
            plan.summary,
            plan.index_bytes_read,
            plan.planning_seconds * 1000,
        )
        # A build is due: that is said of each version, and once more if then no file is indexed any more.
        is_useless = plan.unlisted == plan.row_groups
        if plan.staleness and is_news(f"{request.uuid} {request.version} {is_useless}"):
            _log.log(logging.WARNING if is_useless else logging.INFO, "%s: %s", plan.table, plan.staleness)

    def _count(self, plan: ScanPlan, sign: int) -> None:
        """Add a plan to the kept bytes (1), or take it away (-1); plans of one version of an index share locations."""
        before = self._sharing.pop(id(plan.data_files), 0)
        after = before + sign
        if after:
            self._sharing[id(plan.data_files)] = after
        self._kept_bytes += sign * plan.nbytes + (bool(after) - bool(before)) * plan.location_bytes

    def withdraw(self, answered: str, request: Request) -> None:
        """Take back the latest report of an answer."""
        with self._lock:
            own = self._reports.get(request.session, deque())
            for plans in (own, self._recordings.get(request.thread, [])):
                for place in reversed(range(len(plans))):
                    plan = plans[place]
                    if plan.table == request.table and plan.answered.startswith(f"{answered}: "):
                        if plans is own:
                            self._count(plan, -1)
                        del plans[place]
                        break
            if not own:
                self._reports.pop(request.session, None)
