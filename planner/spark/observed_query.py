"""A scan as it was planned, and the writer of the query log: records become lines of files, in the background.

The query waits for the scan as it was planned, so that only refers; its record takes a pass over statistics. A file of
this machine gets lines at its end. Other stores cannot add to a file, so each flush writes a new one.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import unquote, urlparse

import numpy as np
from pyiceberg.io import load_file_io
from pyiceberg.schema import Schema

from planner.condition.tree.nodes import UNKNOWN, Predicate, leaves
from planner.condition.tree.tree import PredicateTree
from planner.prune.verdicts import Reason, Used
from planner.prune.zone_map import JoinedVerdicts, judge_by_zone_map
from planner.query import QueryAnswer
from planner.query_log import AUDITS_FOLDER, SUFFIX, AuditRecord, QueryRecord
from planner.snapshot.scan import Scan
from planner.spark.background import BackgroundQueue
from planner.spark.known_index_tables import DataTable
from planner.spark.requests.hook_filters import bind_filters, where_of
from planner.spark.requests.wire import Request
from planner.spark.settings import Settings
from planner.view.directories import IndexReads
from puffin_index.data.column_source import Reading
from puffin_index.keys.map_key import ColumnId, Contents, field_of, suffix_of
from puffin_index.kinds.kind import Answer
from puffin_index.kinds.registry import kinds_answering, kinds_holding_keys
from puffin_index.storage.arrays import Flags


@dataclass(frozen=True, slots=True, eq=False)
class PlannedQuery:
    """One scan that the hook was asked about, how it finds columns, and when it was planned, in UTC."""

    request: Request
    settings: Settings
    table: DataTable
    reading: Reading
    answer: QueryAnswer
    time: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def dropped_for_first_rows(self) -> Flags:
        """Which row groups were dropped because others have all the rows that the query wants."""
        first = self.answer.pruned.first
        return np.isin(self.answer.scan.numbers, () if first is None else first.dropped)


def record_of(query: PlannedQuery) -> QueryRecord:
    """Return the record of a scan."""
    plan, request, schema = query.answer.plan, query.request, query.reading.schema
    sizes = query.answer.scan.row_group_bytes
    without_index, kept = _kept_by_statistics(query), plan.kept_mask
    is_not_trusted = bool((plan.reasons == Reason.NOT_TRUSTED).any())
    if is_not_trusted:
        # Spark's own readers still go by statistics.
        kept = without_index
    answered = int(np.count_nonzero(plan.reasons == Reason.ANSWERED))
    return QueryRecord(
        time=query.time,
        table=plan.table,
        where=where_of(request, literals=query.settings.query_log_literals),
        row_groups=plan.row_groups,
        kept_without_index=int(without_index.sum()) + plan.unlisted,
        kept=int(kept.sum()) + plan.unlisted,
        bytes_without_index=int(sizes[without_index].sum()),
        bytes_read=plan.by_pages.bytes_read if plan.by_pages else int(sizes[kept].sum()),
        index_bytes=plan.index_bytes_read,
        planning_seconds=round(plan.planning_seconds, 6),
        sources=_sources(query, answered),
        columns=tuple(sorted((column_text(column, schema), kind) for column, kind in deciding(query))),
        answered=answered,
        # Without its keys, such a scan was planned before.
        continues=bool(request.runtime_keys) and request.model_copy(update={"runtime_keys": ()}).asks_for_rows,
        not_trusted=is_not_trusted,
    )


def column_text(column: ColumnId, schema: Schema) -> str:
    """The name of a column, or of a key of a map, as users give it to `puffin-index create`."""
    field_id = field_of(column)
    return f"{schema.find_column_name(field_id) or f'field {field_id}'}{suffix_of(column)}"


def deciding(query: PlannedQuery) -> frozenset[Used]:
    """The columns and kinds that decided something. Those that may have counted or answered are among them."""
    pruned, request = query.answer.pruned, query.answer.request
    scan, question = request.scan, request.question
    used = set(pruned.used)
    if query.answer.few.rows or query.dropped_for_first_rows.any():
        used |= _exact(scan, request.predicate) | _exact(scan, pruned.threshold or UNKNOWN)
    if query.answer.aggregates is not None and question is not None:
        used |= _exact(scan, request.predicate)
        for asked in question.every_column:
            used |= {
                (asked.column, kind.name)
                for kind in kinds_holding_keys()
                if scan.view.has(asked.column, kind.name, scan.numbers).any()
            }
    return frozenset(used)


def _exact(scan: Scan, predicate: Predicate) -> set[Used]:
    """The indexes that answer leaves exactly."""
    return {
        (leaf.field_id, kind.name)
        for leaf in leaves(predicate)
        for kind in kinds_answering(leaf.test, Answer.EXACT)
        if scan.view.has(leaf.field_id, kind.name, scan.numbers).any()
    }


def _sources(query: PlannedQuery, answered: int) -> tuple[str, ...]:
    request, plan = query.request, query.answer.plan
    dropped = ~plan.kept_mask
    sources: list[str] = []
    first = query.dropped_for_first_rows
    if (dropped & first).any():
        sources.append("limit" if query.answer.pruned.threshold is None else "top-k")
    dropped = dropped & ~first
    if answered:
        sources.append("aggregates")
        dropped = dropped & (plan.reasons != Reason.ANSWERED)
    if not dropped.any():
        return tuple(sources)
    if request.runtime_keys:
        return (*dict.fromkeys(keys.source for keys in request.runtime_keys), *sources)
    functions = ("function",) if request.functions else ()
    others = len(request.filters) + len(request.conditions) > len(request.functions)
    return (*(("predicate",) if others else ()), *functions, *sources)


def _kept_by_statistics(query: PlannedQuery) -> Flags:
    """Which row groups statistics leave of the scan, by the filters that Iceberg is given."""
    filters = query.request.model_copy(update={"conditions": (), "runtime_keys": ()})
    tree = PredicateTree(bind_filters(filters))
    scan = query.answer.scan
    verdicts = JoinedVerdicts(tree, len(scan.numbers))
    reads = IndexReads()
    for number, leaf in enumerate(tree.leaves):
        statistics = scan.view.statistics(leaf.field_id, leaf.value_type, reads)
        if statistics is not None:
            verdicts.put(
                number,
                judge_by_zone_map(
                    leaf.test, statistics, scan.numbers, is_of_contents=isinstance(leaf.field_id, Contents)
                ),
            )
    return verdicts.root.possible


MOST_WAITING: Final = 1_000
"""At most this many records wait to be written. Further records are lost, with a warning."""

_FLUSH_SECONDS = 1.0
_REMOTE_FLUSH_SECONDS = 30.0
_FILES = count(1)


def local_path(location: str) -> Path | None:
    """The path of a location on this machine; None for any other."""
    if "://" not in location and not location.startswith("file:"):
        return Path(location)
    return Path(unquote(urlparse(location).path)) if location.startswith("file:") else None


LogEntry: TypeAlias = tuple[PlannedQuery, AuditRecord | None]
"""A line of the log to come: that of a scan, or that of an audit of the scan."""


def open_log(location: str) -> BackgroundQueue[LogEntry]:
    """Open a query log, whose queue is written now and then."""
    delay = _FLUSH_SECONDS if local_path(location) is not None else _REMOTE_FLUSH_SECONDS
    write = partial(_write, location.rstrip("/") or "/")
    return BackgroundQueue(write, f"writing the query log {location}", MOST_WAITING, delay_seconds=delay)


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
