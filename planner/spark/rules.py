"""A Spark session's JVM from Python: its configuration, its optimizer rules, and the compilation of Java sources."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary
from zipfile import is_zipfile

from planner.spark.class_cache import keep, place_of

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway, JavaObject, JVMView
    from pyspark.sql import SparkSession

RULE = "io.puffinindex.spark.PruneScans"
STRATEGY = "io.puffinindex.spark.AnswerAggregates"
STATEMENTS = "io.puffinindex.spark.IndexStatements"
EVERY_SESSION = "io.puffinindex.spark.EverySession"

_SOURCES = (
    "commands/SessionCatalogs.java",
    "JobNotes.java",
    "PartitionConstants.java",
    "SessionSettings.java",
    "ScanTasks.java",
    "View.java",
    "functions/ColumnValues.java",
    "functions/MonotoneFunction.java",
    "functions/Evaluation.java",
    "functions/ColumnFunction.java",
    "PythonCalls.java",
    "Conditions.java",
    "Lists.java",
    "aggregates/Replace.java",
    "aggregates/AggregateAnswer.java",
    "aggregates/ComputedValues.java",
    "aggregates/AggregateQuestion.java",
    "FilterText.java",
    "ScanQuestion.java",
    "IndexPlanner.java",
    "joins/RuntimeScan.java",
    "joins/RuntimeFilters.java",
    "joins/JoinPruning.java",
    "joins/ScalarPruning.java",
    "WantedRows.java",
    "Subqueries.java",
    "PruneScans.java",
    "aggregates/ExistingRows.java",
    "aggregates/AnswerAggregates.java",
    "commands/PythonStatements.java",
    "commands/IndexStatements.java",
    "EverySession.java",
)
"""Each file uses the files before it."""

_compiled: WeakKeyDictionary[JavaGateway, list[tuple[JavaObject, tuple[str, ...], JavaObject]]] = WeakKeyDictionary()
"""For each JVM: a loader, the files that were compiled on top of it, and the loader of their classes."""


def jvm_of(spark: SparkSession) -> JVMView:
    """The JVM of a classic session."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    return jvm


def session_conf(spark: SparkSession) -> dict[str, str]:
    """The whole configuration of a session, in one crossing."""
    entries = spark._jsparkSession.sessionState().conf().settings()
    mapper = jvm_of(spark).com.fasterxml.jackson.databind.ObjectMapper()
    conf: dict[str, str] = json.loads(mapper.writeValueAsString(entries))
    return conf


def session_uuid(spark: SparkSession) -> str:
    """The UUID of a session of the JVM, for which several Python objects may stand."""
    return str(spark._jsparkSession.sessionUUID())


def rules_of(spark: SparkSession) -> list[JavaObject]:
    """The rules that were added to a session."""
    # A session asks its extensions for rules when it lists its batches, and `EverySession` adds a rule then.
    spark._jsparkSession.sessionState().optimizer().batches()
    rules = spark._jsparkSession.experimental().extraOptimizations()
    return [rules.apply(at) for at in range(rules.size())]


def strategies_of(spark: SparkSession) -> list[JavaObject]:
    """The planning strategies that were added to a session."""
    strategies = spark._jsparkSession.experimental().extraStrategies()
    return [strategies.apply(at) for at in range(strategies.size())]


def is_ours(rule: JavaObject) -> bool:
    """Whether a rule or a strategy is the hook's."""
    return rule.getClass().getName() in (RULE, STRATEGY, STATEMENTS)


def call_ours(spark: SparkSession, rule: JavaObject, method: str) -> Any:
    """Call a method of the hook's rule.

    Another Python process of the JVM has classes of the same names. py4j keeps methods by the name of their class, so
    only reflection finds the method of the right class.
    """
    return jvm_of(spark).org.apache.commons.lang3.reflect.MethodUtils.invokeMethod(rule, method)


def set_rules(spark: SparkSession, rules: Iterable[JavaObject]) -> None:
    """Replace the rules that were added to a session."""
    getattr(spark._jsparkSession.experimental(), "extraOptimizations_$eq")(_sequence(spark, rules))


def set_strategies(spark: SparkSession, strategies: Iterable[JavaObject]) -> None:
    """Replace the planning strategies that were added to a session."""
    getattr(spark._jsparkSession.experimental(), "extraStrategies_$eq")(_sequence(spark, strategies))


def _sequence(spark: SparkSession, items: Iterable[JavaObject]) -> JavaObject:
    # Both Scala 2.12 and 2.13 have this method.
    return jvm_of(spark).org.apache.spark.api.python.PythonUtils.toSeq(java_list(spark, items))


def hook_source(name: str) -> str:
    """The text of one of the hook's Java files."""
    return files("planner.spark").joinpath("java", name).read_text(encoding="utf-8")


def compile_java(
    spark: SparkSession, sources: Iterable[str], parent: JavaObject | None = None, target: int | None = None
) -> JavaObject:
    """Compile Java files with Janino, which Spark ships, once a JVM; return the class loader that has the classes.

    Args:
        spark: The session.
        sources: The texts of the files. Each file sees the files before it.
        parent: The loader of classes that the files see; by default that of the thread.
        target: The version of Java to compile for; 8 if the files call static methods of interfaces.
    """
    jvm = jvm_of(spark)
    beneath = parent or jvm.java.lang.Thread.currentThread().getContextClassLoader()
    texts = tuple(sources)
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    known = _compiled.setdefault(gateway, [])
    for other, compiled, found in known:
        if compiled == texts and other == beneath:
            return found
    kept = place_of(jvm, texts)
    if kept is not None and is_zipfile(kept):
        urls = gateway.new_array(jvm.java.net.URL, 1)
        urls[0] = jvm.java.net.URL(kept.as_uri())
        loader = jvm.java.net.URLClassLoader(urls, beneath)
    else:
        loader, classes = _compile(jvm, texts, beneath, target)
        if kept is not None:
            keep(kept, classes)
    known.append((beneath, texts, loader))
    return loader


def compile_hook(spark: SparkSession) -> JavaObject:
    """Compile the hook; return the class loader that has its classes."""
    return compile_java(spark, map(hook_source, _SOURCES))


def _compile(
    jvm: JVMView, texts: Iterable[str], loader: JavaObject, target: int | None
) -> tuple[JavaObject, dict[str, bytes]]:
    classes: dict[str, bytes] = {}
    for text in texts:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        if target is not None:
            compiler.setTargetVersion(target)
        compiler.cook(text)
        loader = compiler.getClassLoader()
        classes |= {entry.getKey(): bytes(entry.getValue()) for entry in compiler.getBytecodes().entrySet()}
    return loader, classes


def make(spark: SparkSession, loader: JavaObject, name: str, *arguments: object) -> JavaObject:
    """Make an object of a compiled class with one public constructor."""
    return loader.loadClass(name).getConstructors()[0].newInstance(java_list(spark, arguments).toArray())


def java_list(spark: SparkSession, items: Iterable[object]) -> JavaObject:
    """A Java list; py4j can add a Python object to a list, but cannot put one into an array."""
    as_list = jvm_of(spark).java.util.ArrayList()
    for item in items:
        as_list.add(item)
    return as_list
