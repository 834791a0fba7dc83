"""What happens to a hook's scans after they were planned, in the background: the query log, and audits of a share.

A file of the log on this machine gets lines at its end. Other stores cannot add to a file, so each flush writes a new
one.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import defaultdict
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import unquote, urlparse

from cachetools import LRUCache
from pyiceberg.io import load_file_io

from planner.query_log import AUDITS_FOLDER, SUFFIX, AuditRecord
from planner.spark.audit import audited
from planner.spark.background import BackgroundQueue
from planner.spark.observed_query import PlannedQuery, record_of
from puffin_index.jobs.log_lines import is_news

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark import SparkContext

_log = logging.getLogger(__name__)

LogEntry: TypeAlias = tuple[PlannedQuery, AuditRecord | None]
"""A line of the log to come: that of a scan, or that of an audit of the scan."""

_MOST_RECORDS: Final = 1_000
"""At most this many records wait to be written. Further records are lost, with a warning."""

_MOST_AUDITS: Final = 16
"""At most this many scans wait for their audit; the rest are not audited."""

_KEPT_VERDICTS = 10_000
_FLUSH_SECONDS = 1.0
_REMOTE_FLUSH_SECONDS = 30.0
_FILES = count(1)


def local_path(location: str) -> Path | None:
    """The path of a location on this machine; None for any other."""
    if "://" not in location and not location.startswith("file:"):
        return Path(location)
    return Path(unquote(urlparse(location).path)) if location.startswith("file:") else None


def _open_log(location: str) -> BackgroundQueue[LogEntry]:
    """Open a query log, whose queue is written now and then."""
    delay = _FLUSH_SECONDS if local_path(location) is not None else _REMOTE_FLUSH_SECONDS
    write = partial(_write, location.rstrip("/") or "/")
    return BackgroundQueue(write, f"writing the query log {location}", _MOST_RECORDS, delay_seconds=delay)


def _write(location: str, entries: list[LogEntry]) -> None:
    lines: dict[str, list[str]] = defaultdict(list)
    for query, audit in entries:
        folder, record = ("", record_of(query)) if audit is None else (f"{AUDITS_FOLDER}/", audit)
        name = f"{folder}{record.day.isoformat()}-{query.request.session}"
        lines[name].append(f"{record.model_dump_json()}\n")
    path = local_path(location)
    for name, own in lines.items():
        text = "".join(own).encode()
        if path is not None:
            file = path / f"{name}{SUFFIX}"
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("ab") as stream:
                stream.write(text)
            continue
        target = f"{location}/{name}-{next(_FILES):06}{SUFFIX}"
        io = load_file_io(dict(entries[0][0].table.catalog.properties), target)
        with io.new_output(target).create(overwrite=True) as stream:
            stream.write(text)


class Observers:
    """Logs scans and audits some of them; knows which indexes an audit found wrong."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._logs: dict[str, BackgroundQueue[LogEntry]] = {}
        self._wrong: LRUCache[tuple[str, str], str] = LRUCache(_KEPT_VERDICTS)
        self._queue: BackgroundQueue[tuple[PlannedQuery, JavaObject]] = BackgroundQueue(
            self._audit, "auditing queries", _MOST_AUDITS
        )

    def objection(self, session: str, table_uuid: str) -> str | None:
        """Why a session must not use the index of a table; None if it may."""
        with self._lock:
            return self._wrong.get((session, table_uuid))

    def planned(self, query: PlannedQuery) -> None:
        """Log a scan, and audit it later if it is one of the share that is audited."""
        self._log(query)
        share, answer = query.settings.audit, query.answer
        if share and random.random() < share and (answer.few.rows or (~answer.plan.kept_mask).any()):
            # The thread of the query has its session.
            self._queue.put((query, _active_session(self._context)))

    def wait(self, seconds: float) -> bool:
        """Wait until all audits and all lines of the log are done; False if that takes longer."""
        end = time.monotonic() + seconds
        return all(queue.wait(max(0.0, end - time.monotonic())) for queue in (self._queue, *self._logs.values()))

    def _log(self, query: PlannedQuery, audit: AuditRecord | None = None) -> None:
        folder = query.settings.query_log
        if not folder:
            return
        log = self._logs.get(folder) or self._logs.setdefault(folder, _open_log(folder))
        if not log.put((query, audit)) and is_news(f"slow: {folder}"):
            _log.warning("the query log %s is too slow: records are lost, which is said once an hour", folder)

    def _audit(self, queries: list[tuple[PlannedQuery, JavaObject]]) -> None:
        for query, session in queries:
            record = audited(query, self._context, session)
            for miss in record.misses:
                _log.error("audit: %s; the session no longer uses this index", miss)
            if record.misses:
                with self._lock:
                    self._wrong[query.request.session, query.table.uuid] = str(record.misses[0])
            self._log(query, record)


def _active_session(context: SparkContext) -> JavaObject:
    """The session of the thread of the JVM that called."""
    jvm = context._jvm
    assert jvm is not None
    sql = jvm.org.apache.spark.sql
    # Spark 4 has moved the class of classic sessions.
    return sql.SparkSession.active() if context.version.startswith("3.") else sql.classic.SparkSession.active()
