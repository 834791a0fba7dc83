"""The writer of the query log: records become lines of files, in the background.

A file of this machine gets lines at its end. Other stores cannot add to a file, so each flush writes a new one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlparse

from pyiceberg.io import load_file_io

from planner.query_log.records import AUDITS_FOLDER, SUFFIX, AuditRecord
from planner.spark.background import BackgroundQueue
from planner.spark.observe.planned_query import PlannedQuery
from planner.spark.observe.record import record_of

_log = logging.getLogger(__name__)

MOST_WAITING: Final = 1_000
"""So many records wait to be written; any more are lost, with one warning."""

_FLUSH_SECONDS = 1.0
_REMOTE_FLUSH_SECONDS = 30.0


@dataclass(frozen=True, slots=True, eq=False)
class _Entry:
    """What becomes a line: a scan, or an audit, with the session's UUID and what opens the store."""

    content: PlannedQuery | AuditRecord
    session: str
    properties: Mapping[str, str]

    def line(self) -> tuple[str, str]:
        """The file's name without its number and suffix, and the line."""
        record = self.content if isinstance(self.content, AuditRecord) else record_of(self.content)
        folder = f"{AUDITS_FOLDER}/" if isinstance(record, AuditRecord) else ""
        return f"{folder}{record.day.isoformat()}-{self.session}", record.model_dump_json()


def local_path(location: str) -> Path | None:
    """The path of a location on this machine; None for any other."""
    if "://" not in location and not location.startswith("file:"):
        return Path(location)
    return Path(unquote(urlparse(location).path)) if location.startswith("file:") else None


class LogWriter:
    """Writes one query log.

    Args:
        location: The folder: a path, or any URL that PyIceberg writes.
    """

    def __init__(self, location: str) -> None:
        self._location = location.rstrip("/") or "/"
        self._path = local_path(self._location)
        self._flushes = 0
        self._has_lost = False
        delay = _FLUSH_SECONDS if self._path is not None else _REMOTE_FLUSH_SECONDS
        what = f"writing the query log {self._location}"
        self._queue: BackgroundQueue[_Entry] = BackgroundQueue(self._write, what, MOST_WAITING, delay_seconds=delay)

    def put(self, content: PlannedQuery | AuditRecord, session: str, properties: Mapping[str, str]) -> None:
        """Have a line written.

        Args:
            content: What becomes a line.
            session: The UUID of the session.
            properties: Open the store, as those of the table's catalog do.
        """
        if not self._queue.put(_Entry(content, session, properties)) and not self._has_lost:
            self._has_lost = True
            _log.warning("the query log %s is too slow: records are lost, which is said once", self._location)

    def flush(self, seconds: float) -> bool:
        """Write what waits, soon; False if that takes longer."""
        return self._queue.wait(seconds)

    def _write(self, entries: list[_Entry]) -> None:
        lines: dict[str, list[str]] = defaultdict(list)
        for entry in entries:
            name, line = entry.line()
            lines[name].append(line)
        for name, own in lines.items():
            text = "".join(f"{line}\n" for line in own).encode()
            if self._path is not None:
                file = self._path / f"{name}{SUFFIX}"
                file.parent.mkdir(parents=True, exist_ok=True)
                with file.open("ab") as stream:
                    stream.write(text)
                continue
            self._flushes += 1
            location = f"{self._location}/{name}-{self._flushes:06}{SUFFIX}"
            io = load_file_io(dict(entries[0].properties), location)
            with io.new_output(location).create(overwrite=True) as stream:
                stream.write(text)


class LogWriters:
    """The writers of this process, one a folder."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._writers: dict[str, LogWriter] = {}

    def of(self, location: str) -> LogWriter:
        """The writer of a folder."""
        with self._lock:
            if location not in self._writers:
                self._writers[location] = LogWriter(location)
            return self._writers[location]

    def flush(self, seconds: float) -> bool:
        """Wait until all is written; False if that takes longer."""
        with self._lock:
            writers = list(self._writers.values())
        end = time.monotonic() + seconds
        return all(writer.flush(max(0.0, end - time.monotonic())) for writer in writers)
