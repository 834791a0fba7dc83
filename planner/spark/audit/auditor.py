"""The audits of a hook: a share of its queries is checked in the background. A wrong index is no longer used."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from typing import Final

from cachetools import LRUCache

from planner.query_log.records import AuditRecord
from planner.spark.audit.check import Check
from planner.spark.background import BackgroundQueue
from planner.spark.observe.planned_query import PlannedQuery

_log = logging.getLogger(__name__)

MOST_WAITING: Final = 16
"""So many queries wait for their audit; any more are not audited."""

_KEPT_VERDICTS = 10_000


class Auditor:
    """Audits queries, and knows which indexes an audit found wrong.

    Args:
        report: Is told of each audit, with the query.
    """

    def __init__(self, report: Callable[[PlannedQuery, AuditRecord], object]) -> None:
        self._report = report
        self._lock = threading.Lock()
        self._wrong: LRUCache[tuple[str, str], str] = LRUCache(_KEPT_VERDICTS)
        self._queue: BackgroundQueue[PlannedQuery] = BackgroundQueue(
            self._audit, "auditing queries", MOST_WAITING, is_finished_at_exit=False
        )

    def objection(self, session: str, table_uuid: str) -> str | None:
        """Why a session must not use the index of a table; None if it may."""
        with self._lock:
            return self._wrong.get((session, table_uuid))

    def put(self, query: PlannedQuery) -> None:
        """Audit a query later, if it is one of the share that is audited."""
        share = query.settings.audit
        if share and random.random() < share and Check(query).is_of_use:
            self._queue.put(query)

    def wait(self, seconds: float) -> bool:
        """Wait for the audits of all queries so far; False if that takes longer."""
        return self._queue.wait(seconds)

    def _audit(self, queries: list[PlannedQuery]) -> None:
        for query in queries:
            if self._queue.is_ending:
                return
            record = Check(query, lambda: self._queue.is_ending).run()
            for miss in record.misses:
                _log.error("audit: %s; the session no longer uses this index", miss)
            if record.misses:
                with self._lock:
                    self._wrong[query.request.session, query.table.uuid] = str(record.misses[0])
            self._report(query, record)
