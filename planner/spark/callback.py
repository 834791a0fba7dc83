"""The planner's side of a hook: each request of the optimizer rule is answered here."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar
from uuid import uuid4

import numpy as np
from cachetools import LRUCache
from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyroaring import BitMap

from planner.first_rows.search import Enough, FirstRows, prune_first_rows
from planner.predicate.nodes import UNKNOWN, Predicate, leaves
from planner.prune.distributed import Executors
from planner.prune.gate import Limits
from planner.prune.pruned import Pruned, Reason, kept_mask
from planner.prune.row_groups import prune_row_groups
from planner.scans.plan import view_of, warnings_of
from planner.scans.scan_plan import ScanPlan
from planner.scans.whole_files import keep_whole_files
from planner.spark.aggregates import answer_aggregates
from planner.spark.catalogs import SparkCatalogs
from planner.spark.known_index_tables import KnownIndexTables
from planner.spark.left_behind import DataTable
from planner.spark.observe.planned_query import AskedScan, PlannedQuery
from planner.spark.observers import Observers, unused_plan
from planner.spark.requests.aggregates import serialize_answer
from planner.spark.requests.functions import ColumnFunctions
from planner.spark.requests.hook_filters import bind_filters, first_rows, schema_of, without_deletes
from planner.spark.requests.implied import pieces_of, weigh
from planner.spark.requests.runtime_keys import wanted_runtime_fields
from planner.spark.requests.where_text import where_of
from planner.spark.requests.wire import (
    KEEP_ALL,
    Request,
    WantedAggregates,
    serialize_absence,
    serialize_dropped,
    serialize_view,
)
from planner.spark.settings import Settings, read_settings
from planner.spark.statements.callback import Statements
from planner.view.directories import selection_of
from planner.view.index_view import IndexView
from puffin_index.catalogue.open_catalog import PASSING_ERRORS
from puffin_index.data.column_source import Reading, parse_name_mapping
from puffin_index.errors import PuffinIndexError
from puffin_index.jobs.log_lines import reason_of
from puffin_index.keys.leaf import NullTest
from puffin_index.roaring.read import row_set_of
from puffin_index.storage.arrays import Bytes, Flags, Ints

if TYPE_CHECKING:
    from pyspark import SparkContext

_log = logging.getLogger(__name__)

_KEPT_REPORTS = 100
_KEPT_SESSIONS = 1_000
_ONE_LEFT = "the rest of the condition leaves one row group at most"


class PlannerCallback:
    """The planner's side of a hook: the rule calls `apply` over py4j, once a scan."""

    def __init__(self, catalogs: Mapping[str, Catalog], context: SparkContext, session: str, *, strict: bool) -> None:
        self.name = uuid4().hex
        self.session = session
        self._context = context
        self._catalogs = SparkCatalogs(catalogs)
        self.statements = Statements(self._catalogs, context)
        self._index_tables = KnownIndexTables()
        self._strict = strict
        self.observers = Observers()
        self._recordings: dict[int, list[ScanPlan]] = {}
        self._reports: LRUCache[str, deque[ScanPlan]] = LRUCache(_KEPT_SESSIONS)
        self._told_stale: LRUCache[tuple[str, str, bool], bool] = LRUCache(_KEPT_SESSIONS)
        self._lock = threading.Lock()

    def apply(self, request_text: str, candidates: bytes) -> bytearray:
        """Answer a request (see `planner.spark.requests.wire`); after any failure the scan stays as it is.

        Args:
            request_text: The `Request` as JSON.
            candidates: The scan's row groups, a roaring bitmap of numbers in the request's view.
        """
        strict = self._strict
        try:
            request = Request.model_validate_json(request_text)
            settings = read_settings(request.settings, strict=strict)
            strict = settings.strict
            # py4j makes Java's byte[] of a bytearray.
            return bytearray(self._answer(request, settings, BitMap.deserialize(candidates)))
        except Exception as error:  # the one place that catches everything: no trouble of ours may stop a query
            if strict:
                raise
            is_passing = isinstance(error, PASSING_ERRORS)
            _log.warning("index not used, the scan stays as it was: %s", reason_of(error), exc_info=not is_passing)
            return bytearray(KEEP_ALL)

    @contextmanager
    def recorded(self, thread: int) -> Iterator[list[ScanPlan]]:
        """Collect the scan plans of a thread of the JVM from now to the end of the context."""
        self._recordings[thread] = []
        try:
            yield self._recordings[thread]
        finally:
            del self._recordings[thread]

    def _answer(self, request: Request, settings: Settings, candidates: BitMap) -> bytes:
        started = time.perf_counter()
        if not settings.enabled:
            return KEEP_ALL
        table = self._data_table(request)
        index_table = self._index_tables.find(table, settings.refresh_seconds) if table is not None else None
        if table is None or index_table is None:
            return serialize_absence(settings.absence_seconds)
        reading = Reading(schema_of(request.columns), parse_name_mapping(request.name_mapping))
        index_table, view = self._readable(table, index_table, reading)
        if request.version != view.version:
            return serialize_view(view)
        numbers = np.frombuffer(candidates.to_array(), np.uint32).astype(np.int64)
        if not len(numbers):
            return self._nothing_indexed(unused_plan(view, numbers, request), request, settings)
        objection = self.observers.objection(request, table)
        if objection is not None:
            unasked = AskedScan(request, settings, table, reading, view, numbers, UNKNOWN, None)
            return self._without_index(unasked, objection)
        # Not strict yet: what an older version of the index lacks, a newer one may have.
        schema, limits = reading.schema, settings.limits(strict=False)
        executors = Executors(self._context, index_table, settings.planning_mode)
        asked_functions = request.functions if settings.functions else ()
        is_left = bool(asked_functions) and _leaves_one(request, view, numbers, limits, executors)
        functions = ColumnFunctions(asked_functions, schema, view, numbers, limits, _ONE_LEFT if is_left else "")
        if functions.missing:
            return functions.wanted_values()
        predicate = bind_filters(request, functions.predicate)
        waits = settings.join_pruning and bool(request.runtime_fields)
        runtime_fields = wanted_runtime_fields(request.runtime_fields, predicate, schema, view) if waits else []
        asked = AskedScan(request, settings, table, reading, view, numbers, predicate, functions)
        if request.aggregates is not None:
            return self._aggregates(asked, request.aggregates, functions, index_table.io, executors, started)
        is_explained = request.thread in self._recordings
        if not request.asks_for_rows and not (runtime_fields and is_explained):
            return serialize_dropped(BitMap(), "", runtime_fields) if runtime_fields else KEEP_ALL
        wanted = first_rows(request.wanted, schema, settings)
        is_countable = without_deletes(request.wanted, numbers)
        judge = partial(
            prune_first_rows, view, row_groups=numbers, is_countable=is_countable, limits=limits, executors=executors
        )
        enough = judge(predicate, wanted=wanted)
        pruned = enough.pruned
        if pruned.troubles:
            newer = self._newer(table, index_table)
            if newer is not None:
                return serialize_view(view_of(newer, reading))
            if settings.strict:
                raise PuffinIndexError(f"{pruned.troubles[0].segment}: {pruned.troubles[0].reason}")
        plan = _scan_plan(view, pruned, numbers, request, started)
        pieces = pieces_of(request, schema, functions, runtime_fields, enough, plan.kept_mask)
        read = partial(_kept, view, numbers, judge) if is_explained or settings.weigh_implied else None
        plan = replace(plan, implied=weigh(pieces, plan.kept_mask, read, wanted))
        self._report(plan, request)
        self._observe(PlannedQuery.of(asked, plan, pruned.used, enough=enough, wanted=wanted))
        dropped = row_set_of(numbers[~plan.kept_mask], view.row_group_count)
        return serialize_dropped(dropped, _note(plan, settings), runtime_fields)

    def _nothing_indexed(self, plan: ScanPlan, request: Request, settings: Settings) -> bytes:
        """Read everything, and say that a build is due."""
        # What asks for aggregates and for rows is reported once, with its rows.
        if not plan.unlisted or (request.aggregates is not None and request.asks_for_rows):
            return KEEP_ALL
        self._report(plan, request)
        return KEEP_ALL if request.aggregates is not None else serialize_dropped(BitMap(), _note(plan, settings))

    def _readable(self, table: DataTable, index_table: Table, reading: Reading) -> tuple[Table, IndexView]:
        """The version of the index table that can be read: this one, else a newer one."""
        try:
            return index_table, view_of(index_table, reading)
        except (PuffinIndexError, OSError):
            newer = self._newer(table, index_table)
            if newer is None:
                raise
            return newer, view_of(newer, reading)

    def _aggregates(
        self,
        asked: AskedScan,
        wanted: WantedAggregates,
        functions: ColumnFunctions,
        io: FileIO,
        executors: Executors,
        started: float,
    ) -> bytes:
        request, settings, view, numbers = asked.request, asked.settings, asked.view, asked.numbers
        if wanted.declined:
            self._withdraw(wanted.text, request)
            return KEEP_ALL
        if not settings.aggregates:
            return KEEP_ALL
        limits, schema = settings.limits(strict=settings.strict), asked.reading.schema
        answered = answer_aggregates(view, asked.predicate, numbers, wanted, schema, io, limits, executors)
        if answered is None:
            return KEEP_ALL
        if answered.warnings and settings.strict:
            raise PuffinIndexError(answered.warnings[0])
        found = answered.answer
        text = (
            f"{wanted.text}: {found.row_groups_settled} row groups from statistics, "
            f"{found.row_groups_indexed} from indexes, {len(found.unread) + request.unindexed} to be read"
        )
        row_groups = row_set_of(np.setdiff1d(numbers, answered.unread), view.row_group_count)
        note = f"puffin-index: {text} of {request.table}" if settings.job_description else ""
        serialized = serialize_answer(wanted, found.partial, row_groups, note, settings.planning_milliseconds)
        if serialized is None:
            return KEEP_ALL
        is_answered = answered.pruned.kept & ~np.isin(numbers, answered.unread)
        reasons = np.where(is_answered, np.uint8(Reason.ANSWERED), answered.pruned.reasons)
        plan = _scan_plan(view, replace(answered.pruned, reasons=reasons), numbers, request, started)
        reads = found.reads.count
        plan = replace(
            plan,
            answered=text,
            implied=tuple(implied for _, implied in functions.found.values()),
            index_reads=plan.index_reads + reads.requests,
            index_bytes_read=plan.index_bytes_read + reads.bytes,
            warnings=tuple(dict.fromkeys((*plan.warnings, *answered.warnings))),
        )
        self._report(plan, request)
        self._observe(PlannedQuery.of(asked, plan, answered.pruned.used, answered=answered))
        return serialized

    def _without_index(self, asked: AskedScan, objection: str) -> bytes:
        """Read everything, because an audit found the index wrong, and say so."""
        if asked.settings.strict:
            raise PuffinIndexError(objection)
        # What asked for aggregates in vain asks for rows next.
        if asked.request.aggregates is None:
            plan = unused_plan(asked.view, asked.numbers, asked.request, objection)
            self._report(plan, asked.request)
            self._observe(PlannedQuery.of(asked, plan))
        return KEEP_ALL

    def _data_table(self, request: Request) -> DataTable | None:
        """The table of a request; None if Spark has no such catalog, as for a table that was loaded by its location."""
        catalog_name, _, name = request.table.partition(".")
        catalog = self._catalogs.find(catalog_name, request.catalog)
        return None if catalog is None or "." not in name else DataTable(catalog, name, request.uuid)

    def _newer(self, table: DataTable, index_table: Table) -> Table | None:
        """A newer version of an unreadable index table; None if there is none.

        A query may be planned with a version that the hook saw shortly before and whose files have expired since.
        """
        newer = self._index_tables.renew(table)
        return None if newer is None or newer.current_snapshot() == index_table.current_snapshot() else newer

    def reports(self, session: str) -> list[ScanPlan]:
        """The latest scan plans of a session, by its UUID, and of copies that Spark made of it, oldest first."""
        with self._lock:
            return list(self._reports.get(session, ()))

    def _observe(self, query: PlannedQuery) -> None:
        # What is only explained reads nothing.
        if query.request.thread not in self._recordings:
            self.observers.planned(query)

    def _report(self, plan: ScanPlan, request: Request) -> None:
        with self._lock:
            self._reports.setdefault(request.session, deque(maxlen=_KEPT_REPORTS)).append(plan)
        if request.thread in self._recordings:
            self._recordings[request.thread].append(plan)
        _log.info(
            "%s: %d of %d row groups kept (%d not indexed), %d bytes of index read, %.0f ms",
            plan.table,
            plan.kept,
            plan.row_groups,
            plan.unindexed,
            plan.index_bytes_read,
            plan.planning_seconds * 1000,
        )
        self._tell_stale(plan, request)

    def _tell_stale(self, plan: ScanPlan, request: Request) -> None:
        """Log that a build is due, once a version of the index, and once more if then no file is indexed any more."""
        is_useless = plan.unlisted == plan.row_groups
        with self._lock:
            is_told = (request.uuid, request.version, is_useless) in self._told_stale
            if plan.staleness:
                self._told_stale[request.uuid, request.version, is_useless] = True
        if plan.staleness and not is_told:
            _log.log(logging.WARNING if is_useless else logging.INFO, "%s: %s", plan.table, plan.staleness)

    def _withdraw(self, answered: str, request: Request) -> None:
        """Take back the latest report of an answer."""
        with self._lock:
            for plans in (self._reports.get(request.session, deque()), self._recordings.get(request.thread, [])):
                for place in reversed(range(len(plans))):
                    if plans[place].table == request.table and plans[place].answered.startswith(f"{answered}: "):
                        del plans[place]
                        break

    def toString(self) -> str:  # noqa: N802 - Java's name
        """Java's `toString`."""
        return "puffin-index planner"

    class Java:
        """Tells py4j which Java interface this is."""

        implements: ClassVar[list[str]] = ["java.util.function.BiFunction"]


def _leaves_one(request: Request, view: IndexView, numbers: Ints, limits: Limits, executors: Executors | None) -> bool:
    """Whether a request leaves one row group at most without functions that are still to be evaluated.

    A function is evaluated for the values of all row groups, some of which may take long. Counts need functions anyway.
    """
    if request.aggregates is not None or request.wanted is not None:
        return False
    if all(function.values is not None for function in request.functions):
        return False
    rest = bind_filters(request)
    if all(isinstance(leaf.test, NullTest) for leaf in leaves(rest)):
        return False
    return int(np.count_nonzero(prune_row_groups(view, rest, numbers, limits, executors).kept)) <= 1


def _scan_plan(view: IndexView, pruned: Pruned, numbers: Ints, request: Request, started: float) -> ScanPlan:
    chosen = selection_of(numbers)
    return ScanPlan(
        table=request.table,
        snapshot_id=request.snapshot,
        where=where_of(request, literals=True, for_people=True),
        data_files=view.paths,
        file_of=view.file_of[chosen],
        ordinals=view.ordinals_in_file[chosen],
        row_counts=view.row_counts[chosen],
        reasons=_reasons(view, pruned, numbers),
        # Spark's tasks hold the delete files, so a count here is no exact count.
        matches=np.where(pruned.matches > 0, -1, pruned.matches),
        funnel=pruned.stages,
        index_reads=sum(stage.reads for stage in pruned.stages),
        index_bytes_read=sum(stage.bytes_read for stage in pruned.stages),
        planning_seconds=time.perf_counter() - started,
        warnings=warnings_of(view, pruned),
        unlisted=request.unindexed,
        unlisted_files=request.unindexed_files,
    )


def _note(plan: ScanPlan, settings: Settings) -> str:
    """What the descriptions of a query's jobs say of a scan."""
    if not settings.job_description:
        return ""
    note = f"puffin-index: {plan.kept} of {plan.row_groups} row groups of {plan.table}"
    return f"{note}, {plan.staleness}" if plan.staleness else note


def _kept(
    view: IndexView, numbers: Ints, judge: Callable[..., Enough], predicate: Predicate, wanted: FirstRows | None
) -> Flags:
    """Which row groups would be read for a predicate."""
    return kept_mask(_reasons(view, judge(predicate, wanted=wanted).pruned, numbers))


def _reasons(view: IndexView, pruned: Pruned, numbers: Ints) -> Bytes:
    chosen = selection_of(numbers)
    return keep_whole_files(pruned.reasons, view.file_of[chosen], view.is_read_whole[chosen])
