"""Scans of one table in the hook's own query log: one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from planner.advice.queries.workload import Query, Workload, is_named
from puffin_index.errors import PuffinIndexError

_MOST_BAD_LINES = 5


def read_query_log(path: Path, table: Sequence[str]) -> Workload:
    """Read a query log.

    Args:
        path: The file. A line has at least `table` and `where` (NULL where literals are left out of the log), and may
            have `bytes_without_index`.
        table: Namespace and name of the table.

    Raises:
        PuffinIndexError: If the file has no line of a query log.
        OSError: If the file cannot be read.
    """
    queries: list[Query] = []
    bad: list[str] = []
    others = hidden = 0
    for number, entry in _entries(path):
        match entry:
            case {"table": str(name), "where": str() | None as where, **more}:
                if not is_named(name.split("."), table):
                    others += 1
                elif where is None:
                    hidden += 1
                else:
                    bytes_read = more.get("bytes_without_index")
                    queries.append(Query(where, bytes_read=bytes_read if isinstance(bytes_read, int) else None))
            case _:
                bad.append(f"{path}, line {number}: no JSON object with the texts `table` and `where`")
    if not queries and not others and not hidden:
        raise PuffinIndexError(bad[0] if bad else f"{path} is empty: there is no query to learn from")
    skipped = bad[:_MOST_BAD_LINES]
    if len(bad) > _MOST_BAD_LINES:
        skipped.append(f"{path}: {len(bad) - _MOST_BAD_LINES} more lines that are no queries")
    if hidden:
        skipped.append(f"{path}: {hidden} queries without the text of their WHERE")
    return Workload.of(queries, skipped, others)


def _entries(path: Path) -> Iterator[tuple[int, dict[str, object] | None]]:
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                entry = json.loads(line)
            except ValueError:
                entry = None
            yield number, entry if isinstance(entry, dict) else None
