"""Scans of one table in the hook's own query log."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from pyiceberg.io import FileIO

from planner.advice.queries.workload import Query, Workload, is_named
from planner.query_log.records import read_log
from puffin_index.errors import PuffinIndexError

_TEXT_OR_PLACEHOLDER = re.compile(r"'(?:[^'\\]|\\.|'')*'|(\?)")

_BESIDE_WHERE: Final = frozenset({"join", "subquery", "join or subquery", "top-k", "limit", "aggregates"})
"""Sources of a record by which an index serves a query though its WHERE may not name the column."""


def read_query_log(io: FileIO, folder: str, table: Sequence[str]) -> Workload:
    """Read a query log. A scan that keys of a join narrowed once more counts once.

    Args:
        io: The FileIO of the folder.
        folder: The folder of the log.
        table: Namespace and name of the table.

    Raises:
        PuffinIndexError: If the folder has no query.
    """
    records = read_log(io, folder).queries
    if not records:
        raise PuffinIndexError(f"{folder} has no query log, or an empty one: there is no query to learn from")
    queries: list[Query] = []
    others = hidden = 0
    used: Counter[str] = Counter()
    for record in records:
        if not is_named(record.table.split("."), table):
            others += 1
            continue
        if _BESIDE_WHERE & set(record.sources):
            used.update(".".join(pair) for pair in record.columns)
        if record.continues:
            continue
        if any(_TEXT_OR_PLACEHOLDER.findall(record.where)):
            hidden += 1
        else:
            queries.append(Query(record.where or None, bytes_read=record.bytes_without_index))
    skipped = []
    if hidden:
        setting = "spark.puffin-index.query-log-literals"
        skipped.append(f"{folder}: {hidden} queries without their literals (`{setting}` = true logs these)")
    return Workload.of(queries, skipped, others, used)
