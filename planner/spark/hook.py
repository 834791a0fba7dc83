"""The Spark hook: an optimizer rule in the driver asks the planner which row groups need not be read."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from pyiceberg.catalog import Catalog

from planner.report.scan_plan import ScanPlans
from planner.spark import rules
from planner.spark.callback import PlannerCallback
from planner.spark.read_index import Reports
from planner.spark.settings import read_settings
from planner.spark.statements.procedures import PROCEDURES, Value, procedure_named
from puffin_index.errors import MissingExtraError, PuffinIndexError
from puffin_index.jobs.engine import context_of

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject, PythonProxyPool
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

_WITHOUT_JVM = "give the server the settings that `puffin-index spark-conf` prints, and all of its sessions use indexes"

_MOST_WAITING = 128

_hooks: WeakValueDictionary[str, PlannerCallback] = WeakValueDictionary()
"""Callbacks by name. py4j holds a callback as long as a session has a rule that calls it."""


def enable(
    spark: SparkSession,
    *,
    catalogs: Mapping[str, Catalog] | None = None,
    strict: bool = False,
    all_sessions: bool = False,
) -> None:
    """Let a session's queries over indexed Iceberg tables skip row groups.

    This also enables the sessions that Spark copies from this one, as it does for each streaming query.

    Args:
        spark: A classic session (with a JVM of its own).
        catalogs: PyIceberg catalogs by Spark catalog name, where they cannot be opened from Spark's configuration.
        strict: Fail on trouble of ours instead of reading everything; for tests.
        all_sessions: Also enable every session of the application that is not enabled itself: the sessions that
            `spark.newSession()` has made and will make.

    Raises:
        PuffinIndexError: If there is no jar of the hook for the session's Spark, the session has no Iceberg that the
            hook knows, or its configuration has an unknown setting `spark.puffin-index.*`.
        UnsupportedError: If the session is one of Spark Connect.
        MissingExtraError: If PySpark is not installed.
    """
    callback, hook = _make_hook(spark, catalogs or {}, Reports(), strict=strict)
    # A hook of all sessions that came with another session goes on in the others.
    replaced = [name for name, known in _hooks.items() if known.session == callback.session]
    trouble = rules.call_ours(
        spark, hook, "enable", spark._jsparkSession, rules.java_list(spark, replaced), all_sessions
    )
    if trouble is not None:
        _log.warning("%s", trouble)
    _hooks[callback.name] = callback


def _make_hook(
    spark: SparkSession, catalogs: Mapping[str, Catalog], reports: Reports, *, strict: bool
) -> tuple[PlannerCallback, JavaObject]:
    """Make the planner's side of a hook, and the hook."""
    try:
        from py4j.protocol import Py4JError
        from pyspark.java_gateway import ensure_callback_server_started
    except ImportError as error:
        raise MissingExtraError("pyspark", "spark") from error

    context = context_of(spark, _WITHOUT_JVM)
    read_settings(rules.session_conf(spark))
    gateway = context._gateway
    assert gateway is not None
    # A server that is shut down takes all functions along. Ours are to answer when there is another server.
    gateway.gateway_property.pool.clear = partial(_keep_ours, gateway.gateway_property.pool)
    if gateway._callback_server is not None and gateway._callback_server.is_shutdown:
        gateway._callback_server = None
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call] # pyspark leaves it untyped
    # py4j lets five threads wait; the next ones would try again a second later.
    gateway._callback_server.server_socket.listen(_MOST_WAITING)
    session = str(spark._jsparkSession.sessionUUID())
    callback = PlannerCallback(catalogs, context, session, reports, strict=strict)
    described = json.dumps([procedure.describe() for procedure in PROCEDURES.values()])
    try:
        loader = rules.load_hook(spark)
        hook = rules.make(
            spark, loader, rules.HOOK, callback.name, session, callback, strict, callback.statements, described
        )
    except Py4JError as error:
        raise PuffinIndexError(f"the optimizer rule cannot be installed in this Spark session: {error}") from error
    return callback, hook


def _keep_ours(pool: PythonProxyPool) -> None:
    with pool.lock:
        pool.dict = {name: one for name, one in pool.dict.items() if isinstance(one, rules.JavaFunction)}


def every_session(spark: SparkSession) -> JavaObject:
    """Make what gives each session a hook that has none, for an application that another program drives.

    It is a Java function of a session, and `close` ends the hook in all of them. Raises PuffinIndexError as `enable`.
    """
    # Nobody can ask this process for the reports of sessions.
    return _make_hook(spark, {}, Reports(most_bytes=0), strict=False)[1]


def disable(spark: SparkSession) -> None:
    """Undo `enable`; do nothing in a session that is not enabled.

    A hook of all sessions ends in all of them. The setting `spark.puffin-index.enabled` switches off a single session.
    """
    context_of(spark, _WITHOUT_JVM)
    for ours in rules.our_rules(spark):
        _hooks.pop(rules.call_ours(spark, ours, "hook"), None)
        rules.call_ours(spark, ours, "disable", spark._jsparkSession)


def reports(spark: SparkSession) -> ScanPlans:
    """The latest scan plans of a session, oldest first; empty if the session is not enabled.

    The scan plans of copies that Spark makes of the session, for streaming queries and for caching, are among them.
    """
    found = _hook_of(spark)
    return ScanPlans() if found is None else ScanPlans(found[0].reports.of(found[1]))


def callback_of(spark: SparkSession) -> PlannerCallback:
    """The planner's side of a session's hook, or raise PuffinIndexError if the session is not enabled."""
    found = _hook_of(spark)
    if found is None:
        raise PuffinIndexError("the hook is not enabled in this session: call planner.enable(spark) first")
    return found[0]


def _hook_of(spark: SparkSession) -> tuple[PlannerCallback, str] | None:
    """The planner's side of a session's hook, and the UUID that the session's reports go by; None without a hook."""
    context_of(spark, _WITHOUT_JVM)
    for ours in rules.our_rules(spark):
        callback = _hooks.get(rules.call_ours(spark, ours, "hook"))
        if callback is not None:
            return callback, rules.call_ours(spark, ours, "home")
    return None


def call(spark: SparkSession, procedure: str, /, **arguments: Value) -> DataFrame:
    """Call a procedure, as `CALL puffin.system.<procedure>(<name> => <value>, ...)` does on Spark 4.

    Raises PuffinIndexError if the session is not enabled, there is no such procedure or parameter, or the procedure
    fails.
    """
    session, called = callback_of(spark).statements.session_of(spark), procedure_named(procedure)
    rows = called.call(session, arguments)
    return spark.createDataFrame([tuple(row) for row in rows], called.schema)


def explain(frame: DataFrame) -> str:
    """Plan a DataFrame anew and say what it reads of its indexed tables; nothing is executed.

    Raises PuffinIndexError if the session's hook is not enabled.
    """
    callback = callback_of(frame.sparkSession)
    thread = rules.jvm_of(frame.sparkSession).java.lang.Thread.currentThread().getId()
    with callback.reports.recorded(thread) as plans:
        # A DataFrame keeps its first plan. Spark plans an alias anew.
        spark_plan = frame.alias("explained")._jdf.queryExecution().executedPlan().toString()
    described = [plan.describe().as_text() for plan in plans] or ["no scan of an indexed table with filters"]
    return "\n".join([*described, spark_plan])
