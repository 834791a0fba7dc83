"""The Spark hook: an optimizer rule, compiled in the driver, that asks the planner which row groups to read."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar
from uuid import uuid4
from weakref import WeakValueDictionary

import numpy as np
from cachetools import LRUCache
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyroaring import BitMap

from planner.prune.distributed import Executors
from planner.prune.gate import Limits
from planner.prune.pruned import Pruned
from planner.scans.plan import prune_row_groups, view_of, warnings_of
from planner.scans.scan_plan import ScanPlan
from planner.scans.whole_files import keep_whole_files
from planner.spark.catalogs import SparkCatalogs
from planner.spark.hook_filters import bind_filters, describe_filters, schema_of
from planner.spark.known_index_tables import KnownIndexTables
from planner.spark.left_behind import DataTable
from planner.spark.rules import (
    EVERY_SESSION,
    RULE,
    call_ours,
    compile_sources,
    is_ours,
    make,
    rules_of,
    session_conf,
    session_uuid,
    set_rules,
)
from planner.spark.settings import PREFIX, Settings, read_settings
from planner.spark.wire import serialize_kept, serialize_view
from planner.view.directories import selection_of
from planner.view.index_view import IndexView
from puffin_index.data.column_source import Reading, parse_name_mapping
from puffin_index.errors import PuffinIndexError
from puffin_index.roaring.read import row_set_of
from puffin_index.storage.arrays import Ints

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_SOURCES = (
    "JobNotes.java",
    "PartitionConstants.java",
    "View.java",
    "Conditions.java",
    "PruneScans.java",
    "EverySession.java",
)
"""Each sees the ones before it."""

_KEPT_REPORTS = 100
_KEPT_SESSIONS = 1_000
_LEAVE_AS_IT_WAS = bytearray()
_ABSENT = bytearray(b"A")
"""There is no index; the rule remembers that for a while."""


class _PlannerCallback:
    """What the rule calls: `(request as JSON, candidate row groups) -> answer`, over py4j, once a scan."""

    def __init__(self, catalogs: Mapping[str, Catalog], context: SparkContext, session: str, *, strict: bool) -> None:
        self.name = uuid4().hex
        self.session = session
        self._context = context
        self._catalogs = SparkCatalogs(catalogs)
        self._index_tables = KnownIndexTables()
        self._strict = strict
        self._recordings: dict[int, list[ScanPlan]] = {}
        self._reports: LRUCache[str, deque[ScanPlan]] = LRUCache(_KEPT_SESSIONS)
        self._lock = threading.Lock()

    def apply(self, request_text: str, candidates: bytes) -> bytearray:
        """Answer a scan; whatever fails leaves it as it was."""
        strict = self._strict
        try:
            request = json.loads(request_text)
            settings = read_settings(request["settings"], strict=strict)
            strict = settings.strict
            return self._answer(request, settings, BitMap.deserialize(candidates))
        except Exception as error:  # the one place where everything is caught: no trouble of ours may stop a query
            if strict:
                raise
            if isinstance(error, PuffinIndexError):
                _log.warning("index not used, the scan stays as it was: %s", error)
            else:
                _log.warning("index not used, the scan stays as it was: %s", error, exc_info=True)
            return _LEAVE_AS_IT_WAS

    @contextmanager
    def recorded(self, thread: int) -> Iterator[list[ScanPlan]]:
        """Collect the scan plans that are made meanwhile for a thread of the JVM."""
        self._recordings[thread] = []
        try:
            yield self._recordings[thread]
        finally:
            del self._recordings[thread]

    def _answer(self, request: Mapping[str, object], settings: Settings, candidates: BitMap) -> bytearray:
        started = time.perf_counter()
        if not settings.enabled:
            return _LEAVE_AS_IT_WAS
        table = self._data_table(request)
        index_table = self._index_tables.find(table, settings.refresh_seconds) if table is not None else None
        if table is None or index_table is None:
            return _ABSENT
        reading = _reading_of(request)
        try:
            view = view_of(index_table, reading)
        except (PuffinIndexError, OSError):
            index_table = self._newer(table, index_table)
            if index_table is None:
                raise
            view = view_of(index_table, reading)
        if view.row_group_count == 0:
            return _LEAVE_AS_IT_WAS
        if request["version"] != view.version:
            return bytearray(b"V" + serialize_view(view))
        predicate = bind_filters(request)
        if not candidates:
            return _LEAVE_AS_IT_WAS
        numbers = np.frombuffer(candidates.to_array(), np.uint32).astype(np.int64)
        executors = Executors(self._context, index_table, settings.planning_mode)
        limits = Limits(byte_budget=settings.byte_budget, seconds=settings.planning_milliseconds / 1000)
        pruned = prune_row_groups(view, predicate, numbers, limits, executors)
        if pruned.troubles:
            newer = self._newer(table, index_table)
            if newer is not None:
                return bytearray(b"V" + serialize_view(view_of(newer, reading)))
            if settings.strict:
                raise PuffinIndexError(f"{pruned.troubles[0].segment}: {pruned.troubles[0].reason}")
        chosen = selection_of(numbers)
        reasons = keep_whole_files(pruned.reasons, view.file_of[chosen], view.is_read_whole[chosen])
        pruned = replace(pruned, reasons=reasons)
        plan = _scan_plan(view, pruned, numbers, request)
        plan = replace(plan, planning_seconds=time.perf_counter() - started)
        self._report(plan, request)
        note = f"puffin-index: {plan.kept} of {plan.row_groups} row groups of {plan.table}"
        kept = row_set_of(numbers[plan.kept_mask], view.row_group_count)
        return bytearray(b"K" + serialize_kept(kept, note if settings.job_description else ""))

    def _data_table(self, request: Mapping[str, object]) -> DataTable | None:
        """The table of a request; None if no catalog of Spark's has it, such as one that was loaded by its location."""
        catalog_name, _, name = str(request["table"]).partition(".")
        settings = request["catalog"]
        assert isinstance(settings, dict)
        prefix = f"spark.sql.catalog.{catalog_name}"
        catalog = self._catalogs.find(catalog_name, {prefix + key: value for key, value in settings.items()})
        return None if catalog is None or "." not in name else DataTable(catalog, name, str(request["uuid"]))

    def _newer(self, table: DataTable, index_table: Table) -> Table | None:
        """A newer version of an index table that could not be read; None if it is the newest.

        What an expiration deletes, a query may still be planned with that has seen the index shortly before.
        """
        newer = self._index_tables.renew(table)
        return None if newer is None or newer.current_snapshot() == index_table.current_snapshot() else newer

    def reports(self, session: str) -> list[ScanPlan]:
        """The latest scan plans of a session, by its UUID, and of those that Spark has copied from it, oldest first."""
        with self._lock:
            return list(self._reports.get(session, ()))

    def _report(self, plan: ScanPlan, request: Mapping[str, object]) -> None:
        thread = request["thread"]
        with self._lock:
            self._reports.setdefault(str(request["session"]), deque(maxlen=_KEPT_REPORTS)).append(plan)
        if isinstance(thread, int) and thread in self._recordings:
            self._recordings[thread].append(plan)
        _log.info(
            "%s: %d of %d row groups kept (%d not indexed), %d bytes of index read, %.0f ms",
            plan.table,
            plan.kept,
            plan.row_groups,
            plan.unindexed,
            plan.index_bytes_read,
            plan.planning_seconds * 1000,
        )

    def toString(self) -> str:  # noqa: N802 - Java's name
        """Java's `toString`."""
        return "puffin-index planner"

    class Java:
        """Tells py4j which Java interface this is."""

        implements: ClassVar[list[str]] = ["java.util.function.BiFunction"]


_hooks: WeakValueDictionary[str, _PlannerCallback] = WeakValueDictionary()
"""By name; py4j keeps them as long as there are sessions with a rule that calls them."""


def _scan_plan(view: IndexView, pruned: Pruned, numbers: Ints, request: Mapping[str, object]) -> ScanPlan:
    snapshot, unindexed = request["snapshot"], request["unindexed"]
    assert isinstance(unindexed, int)
    chosen = selection_of(numbers)
    return ScanPlan(
        table=str(request["table"]),
        snapshot_id=snapshot if isinstance(snapshot, int) else None,
        where=describe_filters(request),
        data_files=view.paths,
        file_of=view.file_of[chosen],
        ordinals=view.ordinals_in_file[chosen],
        row_counts=view.row_counts[chosen],
        reasons=pruned.reasons,
        # Delete files stay with the scan's tasks; their rows are not subtracted here.
        matches=np.where(pruned.matches > 0, -1, pruned.matches),
        funnel=pruned.stages,
        index_reads=sum(stage.reads for stage in pruned.stages),
        index_bytes_read=sum(stage.bytes_read for stage in pruned.stages),
        planning_seconds=0.0,
        warnings=warnings_of(view, pruned),
        unlisted=unindexed,
    )


def _reading_of(request: Mapping[str, object]) -> Reading:
    text = request["name-mapping"]
    mapping = parse_name_mapping(text if isinstance(text, str) else None)
    return Reading(schema_of(str(request["schema"])), mapping)


def enable(
    spark: SparkSession,
    *,
    catalogs: Mapping[str, Catalog] | None = None,
    strict: bool = False,
    all_sessions: bool = False,
) -> None:
    """Make a session's queries over indexed Iceberg tables skip row groups.

    Sessions that Spark copies from this one, as it does for each streaming query, are enabled with it.

    Args:
        spark: A classic session (with a JVM of its own).
        catalogs: PyIceberg catalogs by Spark catalog name, where they cannot be opened from Spark's configuration.
        strict: Fail on trouble of ours instead of reading everything; for tests.
        all_sessions: Enable all sessions of the application that are not enabled themselves: those that
            `spark.newSession()` has made, and will make.

    Raises:
        PuffinIndexError: If the rule cannot be compiled in this session, or the session's configuration has a setting
            `spark.puffin-index.*` that there is not.
    """
    from py4j.protocol import Py4JError
    from pyspark.java_gateway import ensure_callback_server_started

    conf = session_conf(spark)
    read_settings({key.removeprefix(PREFIX): value for key, value in conf.items() if key.startswith(PREFIX)})
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call] # pyspark leaves it untyped
    callback = _PlannerCallback(catalogs or {}, spark.sparkContext, session_uuid(spark), strict=strict)
    try:
        loader = compile_sources(spark, _SOURCES)
        arguments = (callback.name, callback.session, callback, strict, Settings().absence_seconds)
        rule = make(spark, loader, RULE, *arguments)
        everywhere = make(spark, loader, EVERY_SESSION, rule) if all_sessions else None
    except Py4JError as error:
        raise PuffinIndexError(f"the optimizer rule cannot be installed in this Spark session: {error}") from error
    before = rules_of(spark)
    for ours in filter(is_ours, before):
        replaced = _hooks.get(call_ours(spark, ours, "hook"))
        # That of all sessions, which another one was enabled with, goes on in the others.
        if replaced is not None and replaced.session == callback.session:
            call_ours(spark, ours, "end")
    set_rules(spark, [*(other for other in before if not is_ours(other)), rule])
    if everywhere is not None:
        spark._jsparkSession.extensions().injectOptimizerRule(everywhere)
    _hooks[callback.name] = callback


def disable(spark: SparkSession) -> None:
    """Undo `enable`; does nothing if it was not enabled.

    The hook of all sessions ends in all of them. `spark.puffin-index.enabled` is for a single one.
    """
    before = rules_of(spark)
    for ours in filter(is_ours, before):
        _hooks.pop(call_ours(spark, ours, "hook"), None)
        call_ours(spark, ours, "end")
    set_rules(spark, [rule for rule in before if not is_ours(rule)])


def reports(spark: SparkSession) -> list[ScanPlan]:
    """The latest scan plans of a session, oldest first; empty if it is not enabled.

    Sessions that Spark copies from it count to it: those of streaming queries, and of what is cached.
    """
    ours = _rule_of(spark)
    callback = None if ours is None else _hooks.get(call_ours(spark, ours, "hook"))
    return [] if callback is None else callback.reports(call_ours(spark, ours, "home"))


def callback_of(spark: SparkSession) -> _PlannerCallback:
    """What answers a session's scans.

    Raises:
        PuffinIndexError: If it is not enabled.
    """
    ours = _rule_of(spark)
    callback = None if ours is None else _hooks.get(call_ours(spark, ours, "hook"))
    if callback is None:
        raise PuffinIndexError("the hook is not enabled in this session: call planner.enable(spark) first")
    return callback


def _rule_of(spark: SparkSession) -> JavaObject | None:
    return next(filter(is_ours, rules_of(spark)), None)
