"""The scan plans of a hook's sessions, for `planner.reports` and `planner.explain`, and in the log."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from cachetools import LRUCache

from planner.report.scan_plan import ScanPlan
from planner.spark.requests.wire import Request

_log = logging.getLogger(__name__)

_KEPT_REPORTS = 100
_KEPT_SESSIONS = 1_000


class Reports:
    """The latest scan plans of each session."""

    def __init__(self) -> None:
        self._recordings: dict[int, list[ScanPlan]] = {}
        self._reports: LRUCache[str, deque[ScanPlan]] = LRUCache(_KEPT_SESSIONS)
        self._told_stale: LRUCache[tuple[str, str, bool], bool] = LRUCache(_KEPT_SESSIONS)
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
            self._reports.setdefault(request.session, deque(maxlen=_KEPT_REPORTS)).append(plan)
        if request.thread in self._recordings:
            self._recordings[request.thread].append(plan)
        _log.info(
            "%s: %s, %d bytes of index read, %.0f ms",
            plan.table,
            plan.summary,
            plan.index_bytes_read,
            plan.planning_seconds * 1000,
        )
        self._tell_stale(plan, request)

    def _tell_stale(self, plan: ScanPlan, request: Request) -> None:
        """Log that a build is due, once a version of the index, and once more if then no file is indexed any more."""
        is_useless = plan.unlisted == plan.row_groups
        with self._lock:
            is_told = (request.uuid, request.version, is_useless) in self._told_stale
            if plan.staleness:
                self._told_stale[request.uuid, request.version, is_useless] = True
        if plan.staleness and not is_told:
            _log.log(logging.WARNING if is_useless else logging.INFO, "%s: %s", plan.table, plan.staleness)

    def withdraw(self, answered: str, request: Request) -> None:
        """Take back the latest report of an answer."""
        with self._lock:
            for plans in (self._reports.get(request.session, deque()), self._recordings.get(request.thread, [])):
                for place in reversed(range(len(plans))):
                    if plans[place].table == request.table and plans[place].answered.startswith(f"{answered}: "):
                        del plans[place]
                        break
