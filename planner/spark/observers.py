"""What happens to a scan after it was planned: it is logged and audited, as its settings say. No query waits."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from planner.query_log.records import AuditRecord
from planner.spark.audit import Auditor
from planner.spark.known_index_tables import DataTable
from planner.spark.observed_query import LogWriters, PlannedQuery
from planner.spark.requests.wire import Request

if TYPE_CHECKING:
    from pyspark import SparkContext


class Observers:
    """The log and the audits of one hook."""

    def __init__(self, context: SparkContext) -> None:
        self._logs = LogWriters()
        self._auditor = Auditor(context, self._audited)

    def planned(self, query: PlannedQuery) -> None:
        """Log a scan, and audit it."""
        self._log(query, query)
        self._auditor.put(query)

    def objection(self, request: Request, table: DataTable) -> str | None:
        """Why a request must not use the index of its table; None if it may."""
        return self._auditor.objection(request.session, table.uuid)

    def wait(self, seconds: float) -> bool:
        """Wait until all audits and all lines of the log are done; False if that takes longer."""
        end = time.monotonic() + seconds
        return self._auditor.wait(seconds) and self._logs.flush(max(0.0, end - time.monotonic()))

    def _audited(self, query: PlannedQuery, record: AuditRecord) -> None:
        self._log(query, record)

    def _log(self, query: PlannedQuery, content: PlannedQuery | AuditRecord) -> None:
        if query.settings.query_log:
            properties = query.table.catalog.properties
            self._logs.of(query.settings.query_log).put(content, query.request.session, properties)
