"""The Spark hook: an optimizer rule, compiled in the driver, that asks the planner which row groups to read."""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from importlib.resources import files
from typing import TYPE_CHECKING, ClassVar
from weakref import WeakKeyDictionary, proxy

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema
from pyroaring import BitMap

from planner.bind import bind
from planner.directories import selection_of
from planner.distributed import Executors
from planner.gate import Limits
from planner.known_index_tables import KnownIndexTables
from planner.parser import parse_where
from planner.plan import prune_row_groups, view_of
from planner.predicate import UNKNOWN, Predicate, conjunction
from planner.pruned import Pruned
from planner.scan_plan import ScanPlan
from planner.settings import PREFIX, Settings, read_settings
from planner.spark_catalogs import SparkCatalogs
from planner.view import IndexView
from planner.wire import serialize_kept, serialize_view
from puffin_index.errors import NotFoundError, PuffinIndexError, WhereSyntaxError
from puffin_index.kinds.roaring_read import row_set_of

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_RULE = "io.puffinindex.spark.PruneScans"
_SOURCES = ("JobNotes.java", "View.java", "PruneScans.java")
"""Each sees the ones before it."""

_KEPT_REPORTS = 100
_LEAVE_AS_IT_WAS = bytearray()
_ABSENT = bytearray(b"A")
"""There is no index; the rule remembers that for a while."""


class _PlannerCallback:
    """What the rule calls: `(request as JSON, candidate row groups) -> answer`, over py4j, once a scan."""

    def __init__(self, catalogs: Mapping[str, Catalog], spark: SparkSession, *, strict: bool) -> None:
        self._spark = proxy(spark)
        self._index_tables = KnownIndexTables(SparkCatalogs(catalogs, partial(session_conf, self._spark)))
        self._strict = strict
        self._recordings: dict[int, list[ScanPlan]] = {}
        self.reports: deque[ScanPlan] = deque(maxlen=_KEPT_REPORTS)

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
        index_table = self._index_tables.find(str(request["table"]), str(request["uuid"]), settings.refresh_seconds)
        if index_table is None:
            return _ABSENT
        view = view_of(index_table)
        if view.row_group_count == 0:
            return _LEAVE_AS_IT_WAS
        if request["version"] != view.version:
            return bytearray(b"V" + serialize_view(view))
        predicate = bind_filters(request)
        if not candidates:
            return _LEAVE_AS_IT_WAS
        numbers = np.frombuffer(candidates.to_array(), np.uint32).astype(np.int64)
        executors = Executors(self._spark.sparkContext, index_table, settings.planning_mode)
        limits = Limits(settings.strict, settings.byte_budget)
        pruned = prune_row_groups(view, predicate, numbers, limits, executors)
        plan = _scan_plan(view, pruned, numbers, request)
        plan = replace(plan, planning_seconds=time.perf_counter() - started)
        self._report(plan, request["thread"])
        note = f"puffin-index: {plan.kept} of {plan.row_groups} row groups of {plan.table}"
        kept = row_set_of(numbers[plan.kept_mask], view.row_group_count)
        return bytearray(b"K" + serialize_kept(kept, note if settings.job_description else ""))

    def _report(self, plan: ScanPlan, thread: object) -> None:
        self.reports.append(plan)
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


_hooks: WeakKeyDictionary[SparkSession, _PlannerCallback] = WeakKeyDictionary()


def _texts(request: Mapping[str, object], name: str) -> list[str]:
    texts = request[name]
    assert isinstance(texts, list)
    return texts


def _scan_plan(
    view: IndexView, pruned: Pruned, numbers: npt.NDArray[np.int64], request: Mapping[str, object]
) -> ScanPlan:
    snapshot, unindexed = request["snapshot"], request["unindexed"]
    assert isinstance(unindexed, int)
    chosen = selection_of(numbers)
    return ScanPlan(
        table=str(request["table"]),
        snapshot_id=snapshot if isinstance(snapshot, int) else None,
        where=" AND ".join(str(text) for text in [*_texts(request, "filters"), *_texts(request, "conditions")]),
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
        warnings=tuple(f"{trouble.segment}: {trouble.reason}" for trouble in pruned.troubles),
        unlisted=unindexed,
    )


def bind_filters(request: Mapping[str, object]) -> Predicate:
    """Bind the filters of a request, and the conditions above its scan; one that cannot be read keeps all rows."""
    schema = _schema_of(str(request["schema"]))
    children: list[Predicate] = []
    for text in _texts(request, "filters"):
        try:
            children.append(bind(BooleanExpression.model_validate_json(text), schema, "iceberg"))
        except (ValidationError, NotFoundError, ValueError, TypeError) as error:
            _log.debug("filter not understood, all its rows are kept: %s (%s)", text, error)
            children.append(UNKNOWN)
    for text in _texts(request, "conditions"):
        try:
            children.append(bind(parse_where(text), schema))
        except (WhereSyntaxError, NotFoundError) as error:
            _log.debug("condition not understood, all its rows are kept: %s (%s)", text, error)
            children.append(UNKNOWN)
    return conjunction(children)


@lru_cache(maxsize=256)
def _schema_of(text: str) -> Schema:
    """The schema that a text is; scans of a table's same columns have the same."""
    return Schema.model_validate_json(text)


def session_conf(spark: SparkSession) -> dict[str, str]:
    """All that is set in the session's configuration, in one crossing."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    entries = spark._jsparkSession.sessionState().conf().settings()
    conf: dict[str, str] = json.loads(jvm.com.fasterxml.jackson.databind.ObjectMapper().writeValueAsString(entries))
    return conf


def _rules(spark: SparkSession) -> list[JavaObject]:
    rules = spark._jsparkSession.experimental().extraOptimizations()
    return [rules.apply(at) for at in range(rules.size())]


def _set_rules(spark: SparkSession, rules: list[JavaObject]) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    as_list = jvm.java.util.ArrayList()
    for rule in rules:
        as_list.add(rule)
    # Scala 2.12 and 2.13 both have this way to a sequence.
    sequence = jvm.org.apache.spark.api.python.PythonUtils.toSeq(as_list)
    getattr(spark._jsparkSession.experimental(), "extraOptimizations_$eq")(sequence)


def _compile_rule(spark: SparkSession) -> JavaObject:
    """Compile the rule and what it is made of with Janino, which Spark ships; return its constructor."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for source in _SOURCES:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        compiler.cook(files("planner").joinpath(source).read_text(encoding="utf-8"))
        loader = compiler.getClassLoader()
    return loader.loadClass(_RULE).getConstructors()[0]


def _constructor_arguments(spark: SparkSession, callback: _PlannerCallback, strict: bool) -> JavaObject:
    # py4j cannot put a Python object into a Java array, but it can add one to a list.
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    arguments = jvm.java.util.ArrayList()
    arguments.add(callback)
    arguments.add(strict)
    arguments.add(Settings().absence_seconds)
    return arguments.toArray()


def enable(spark: SparkSession, *, catalogs: Mapping[str, Catalog] | None = None, strict: bool = False) -> None:
    """Make a session's queries over indexed Iceberg tables skip row groups.

    Args:
        spark: A classic session (with a JVM of its own).
        catalogs: PyIceberg catalogs by Spark catalog name, where they cannot be opened from Spark's configuration.
        strict: Fail on trouble of ours instead of reading everything; for tests.

    Raises:
        PuffinIndexError: If the rule cannot be compiled in this session, or the session's configuration has a setting
            `spark.puffin-index.*` that there is not.
    """
    from py4j.protocol import Py4JError
    from pyspark.java_gateway import ensure_callback_server_started

    conf = session_conf(spark)
    read_settings({key.removeprefix(PREFIX): value for key, value in conf.items() if key.startswith(PREFIX)})
    disable(spark)
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call] # pyspark leaves it untyped
    callback = _PlannerCallback(catalogs or {}, spark, strict=strict)
    try:
        rule = _compile_rule(spark).newInstance(_constructor_arguments(spark, callback, strict))
    except Py4JError as error:
        raise PuffinIndexError(f"the optimizer rule cannot be installed in this Spark session: {error}") from error
    _set_rules(spark, [*_rules(spark), rule])
    _hooks[spark] = callback


def disable(spark: SparkSession) -> None:
    """Undo `enable`; does nothing if it was not enabled."""
    _hooks.pop(spark, None)
    _set_rules(spark, [rule for rule in _rules(spark) if rule.getClass().getName() != _RULE])


def reports(spark: SparkSession) -> list[ScanPlan]:
    """The latest scan plans of a session, oldest first; empty if it is not enabled."""
    callback = _hooks.get(spark)
    return list(callback.reports) if callback is not None else []


def callback_of(spark: SparkSession) -> _PlannerCallback:
    """What answers a session's scans.

    Raises:
        PuffinIndexError: If it is not enabled.
    """
    callback = _hooks.get(spark)
    if callback is None:
        raise PuffinIndexError("the hook is not enabled in this session: call planner.enable(spark) first")
    return callback
