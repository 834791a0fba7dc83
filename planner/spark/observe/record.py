"""The record of a planned scan for the query log; made in the background, as it takes a pass over statistics."""

from __future__ import annotations

import numpy as np
from pyiceberg.schema import Schema

from planner.condition.tree.nodes import UNKNOWN, Predicate, leaves
from planner.condition.tree.tree import PredicateTree
from planner.prune.pruned import Reason, Used
from planner.prune.zone_map import JoinedVerdicts, judge_by_zone_map
from planner.query_log.records import QueryRecord
from planner.spark.observe.planned_query import PlannedQuery
from planner.spark.requests.hook_filters import bind_filters, where_of
from planner.spark.requests.wire import Request
from planner.view.directories import IndexReads
from planner.view.index_view import IndexView
from puffin_index.keys.map_key import SEPARATOR, ColumnId, column_and_key
from puffin_index.kinds.kind import Answer
from puffin_index.kinds.registry import kinds_answering, kinds_holding_keys
from puffin_index.storage.arrays import Flags, Ints


def record_of(query: PlannedQuery) -> QueryRecord:
    """Return the record of a scan."""
    plan, schema = query.plan, query.reading.schema
    sizes = query.view.row_group_bytes[query.numbers]
    without_index, kept = _kept_by_statistics(query), plan.kept_mask
    is_not_trusted = bool((plan.reasons == Reason.NOT_TRUSTED).any())
    if is_not_trusted:
        # Spark's own readers still go by statistics.
        kept = without_index
    answered = int(np.count_nonzero(plan.reasons == Reason.ANSWERED))
    return QueryRecord(
        time=query.time,
        table=plan.table,
        where=where_of(query.request, literals=query.settings.query_log_literals),
        row_groups=plan.row_groups,
        kept_without_index=int(without_index.sum()) + plan.unlisted,
        kept=int(kept.sum()) + plan.unlisted,
        bytes_without_index=int(sizes[without_index].sum()),
        bytes_read=int(sizes[kept].sum()),
        index_bytes=plan.index_bytes_read,
        planning_seconds=round(plan.planning_seconds, 6),
        sources=_sources(query, answered),
        columns=tuple(sorted((column_text(column, schema), kind) for column, kind in deciding(query))),
        answered=answered,
        continues=bool(query.request.runtime_keys) and _is_planned_without_keys(query.request),
        not_trusted=is_not_trusted,
    )


def _is_planned_without_keys(request: Request) -> bool:
    """Whether the scan of a request was planned before, when its keys were not known."""
    return request.model_copy(update={"runtime_keys": ()}).asks_for_rows


def column_text(column: ColumnId, schema: Schema) -> str:
    """The name of a column, or of a key of a map, as users give it to `puffin-index create`."""
    field_id, key = column_and_key(column)
    name = schema.find_column_name(field_id) or f"field {field_id}"
    return name if key is None else f"{name}{SEPARATOR}{key}"


def deciding(query: PlannedQuery) -> frozenset[Used]:
    """The columns and kinds that decided something. Those that may have counted or answered are among them."""
    enough, question = query.answer.enough, query.answer.request.question
    used = set(enough.pruned.used)
    if query.dropped_for_first_rows.any():
        used |= _exact(query.view, query.predicate, query.numbers)
        used |= _exact(query.view, enough.threshold or UNKNOWN, query.numbers)
    if query.answer.aggregates is not None and question is not None:
        used |= _exact(query.view, query.predicate, query.numbers)
        for asked in question.every_column:
            used |= {
                (asked.column, kind.name)
                for kind in kinds_holding_keys()
                if query.view.has(asked.column, kind.name, query.numbers).any()
            }
    return frozenset(used)


def _exact(view: IndexView, predicate: Predicate, numbers: Ints) -> set[Used]:
    """The indexes that answer leaves exactly."""
    return {
        (leaf.field_id, kind.name)
        for leaf in leaves(predicate)
        for kind in kinds_answering(leaf.test, Answer.EXACT)
        if view.has(leaf.field_id, kind.name, numbers).any()
    }


def _sources(query: PlannedQuery, answered: int) -> tuple[str, ...]:
    request, dropped = query.request, ~query.plan.kept_mask
    sources: list[str] = []
    first = query.dropped_for_first_rows
    if (dropped & first).any():
        sources.append("limit" if query.answer.enough.threshold is None else "top-k")
    dropped = dropped & ~first
    if answered:
        sources.append("aggregates")
        dropped = dropped & (query.plan.reasons != Reason.ANSWERED)
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
    verdicts = JoinedVerdicts(tree, len(query.numbers))
    reads = IndexReads()
    for number, leaf in enumerate(tree.leaves):
        statistics = query.view.statistics(leaf, reads)
        if statistics is not None:
            verdicts.put(number, judge_by_zone_map(leaf.test, statistics, query.numbers))
    return verdicts.root.possible
