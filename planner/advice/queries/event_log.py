"""Scans of one table in Spark's event logs: the filters that Spark pushed into its scans of Iceberg tables."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import zstandard
from pyiceberg.schema import Schema

from planner.advice.queries.pushed_filters import where_of
from planner.advice.queries.workload import Query, Workload, is_named
from puffin_index.errors import PuffinIndexError, UnsupportedError

_START = "SparkListenerSQLExecutionStart"
_SCAN = re.compile(
    r"BatchScan (?P<table>[^\[]+?)\s?\[(?P<columns>.*?)\] .*?(?<!runtime)filters=(?P<rest>.*)", re.DOTALL
)
_END_OF_FILTERS = re.compile(r", (?:runtimeFilters=|groupedBy=)")
_COLUMN = re.compile(r"(?P<name>.+?)#\d+L?(?:, |$)", re.DOTALL)
_UNREADABLE = (".lz4", ".lzf", ".snappy")
_UNFINISHED = ".inprogress"


def read_event_log(path: Path, table: Sequence[str], schema: Schema) -> Workload:
    """Read event logs, of one application or of many.

    Args:
        path: A log, or a folder with logs; logs that Spark rolls are folders, too.
        table: Namespace and name of the table.
        schema: The schema of the table.

    Raises:
        UnsupportedError: If a log is compressed in a way that this release does not read.
        PuffinIndexError: If there is no event log.
        OSError: If a file cannot be read.
    """
    queries: list[Query] = []
    skipped: list[str] = []
    others = events = 0
    for log in _logs(path):
        with _opened(log) as lines:
            for event in _events(lines, log):
                events += 1
                if not str(event["Event"]).endswith(_START):
                    continue
                for scan in _scans(event.get("sparkPlanInfo")):
                    if not is_named(scan["table"].split("."), table):
                        others += 1
                        continue
                    own = where_of(scan["filters"], schema)
                    queries.append(Query(own.where, _columns(scan["columns"])))
                    skipped += [f"{log.name}: {part}: not understood" for part in own.skipped]
    if not events:
        raise PuffinIndexError(f"{path} holds no events of Spark")
    return Workload.of(queries, skipped, others)


def _logs(path: Path) -> list[Path]:
    if not path.exists():
        raise PuffinIndexError(f"there is no event log {path}")
    if path.is_file():
        return [path]
    # Spark keeps empty marks of an application's state beside rolled logs.
    logs = sorted(file for file in path.rglob("*") if file.is_file() and not file.name.startswith((".", "appstatus_")))
    if not logs:
        raise PuffinIndexError(f"folder {path} has no event log")
    return logs


@contextmanager
def _opened(log: Path) -> Iterator[TextIO]:
    ending = Path(log.name.removesuffix(_UNFINISHED)).suffix
    if ending in _UNREADABLE:
        raise UnsupportedError(
            f"event log {log} is compressed as {ending[1:]}: decompress it, or let Spark write logs with "
            "spark.eventLog.compression.codec=zstd"
        )
    with log.open("rb") as stream:
        if ending in (".zstd", ".zst"):
            # The log of a running application ends in the midst of a frame.
            reader = zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True)
            yield io.TextIOWrapper(reader, encoding="utf-8", errors="replace")
        else:
            yield io.TextIOWrapper(stream, encoding="utf-8", errors="replace")


def _events(lines: TextIO, log: Path) -> Iterator[Mapping[str, Any]]:
    try:
        for number, line in enumerate(lines, 1):
            try:
                event = json.loads(line)
            except ValueError:
                event = None
            if isinstance(event, dict) and "Event" in event:
                yield event
            elif number == 1:
                raise PuffinIndexError(f"{log} is no event log of Spark: its first line is no event")
    except zstandard.ZstdError as error:
        raise PuffinIndexError(f"event log {log} cannot be decompressed: {error}") from error


def _scans(plan: object) -> Iterator[dict[str, str]]:
    pending = [plan]
    while pending:
        node = pending.pop()
        if not isinstance(node, dict):
            continue
        pending += node.get("children") or []
        match = _SCAN.match(str(node.get("simpleString", "")))
        if match is not None:
            filters = _END_OF_FILTERS.split(match["rest"])[0].removesuffix("]")
            yield {"table": match["table"], "columns": match["columns"], "filters": filters}


def _columns(text: str) -> frozenset[str] | None:
    """Return the columns that a scan reads; None where Spark shortened the list."""
    found = [match["name"] for match in _COLUMN.finditer(text)]
    if not text or re.search(r"\.\.\. \d+ more fields", text):
        return None
    return frozenset(name.casefold() for name in found)
