"""A scan as it was planned, and its record for the query log.

The query waits for the scan as it was planned, so that only refers. The record takes a pass over statistics.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
from pyiceberg.schema import Schema

from planner.condition.tree.nodes import UNKNOWN, Predicate, leaves
from planner.condition.tree.tree import PredicateTree
from planner.prune.verdicts import Reason, Used
from planner.prune.zone_map import JoinedVerdicts, judge_by_zone_map
from planner.query import QueryAnswer
from planner.query_log import QueryRecord
from planner.snapshot.scan import Scan
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
