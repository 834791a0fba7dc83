"""The optimizer rules of a Spark session, reached from Python: which there are, and which are this project's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import SparkSession

RULE = "io.puffinindex.spark.PruneScans"
EVERY_SESSION = "io.puffinindex.spark.EverySession"


def session_conf(spark: SparkSession) -> dict[str, str]:
    """All that is set in the session's configuration, in one crossing."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    entries = spark._jsparkSession.sessionState().conf().settings()
    conf: dict[str, str] = json.loads(jvm.com.fasterxml.jackson.databind.ObjectMapper().writeValueAsString(entries))
    return conf


def session_uuid(spark: SparkSession) -> str:
    """Names a session; several Python objects may stand for one session of the JVM."""
    return str(spark._jsparkSession.sessionUUID())


def rules_of(spark: SparkSession) -> list[JavaObject]:
    """The rules that have been added to a session."""
    # A session asks for the rules that every session is to have whenever it asks what its optimizer does.
    spark._jsparkSession.sessionState().optimizer().batches()
    rules = spark._jsparkSession.experimental().extraOptimizations()
    return [rules.apply(at) for at in range(rules.size())]


def is_ours(rule: JavaObject) -> bool:
    """Whether a rule is the one that takes row groups out of scans."""
    return bool(rule.getClass().getName() == RULE)


def call_ours(spark: SparkSession, rule: JavaObject, method: str) -> Any:
    """Call a method of this project's rule.

    Each time the rule is compiled it is another class of the same name, and py4j keeps methods by the names of classes.
    """
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    return jvm.org.apache.commons.lang3.reflect.MethodUtils.invokeMethod(rule, method)


def set_rules(spark: SparkSession, rules: Sequence[JavaObject]) -> None:
    """Replace the rules that have been added to a session."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    as_list = jvm.java.util.ArrayList()
    for rule in rules:
        as_list.add(rule)
    # Scala 2.12 and 2.13 both have this way to a sequence.
    sequence = jvm.org.apache.spark.api.python.PythonUtils.toSeq(as_list)
    getattr(spark._jsparkSession.experimental(), "extraOptimizations_$eq")(sequence)


def compile_sources(spark: SparkSession, sources: Sequence[str]) -> JavaObject:
    """Compile Java files of this package with Janino, which Spark ships; return what has loaded the classes.

    Args:
        spark: The session.
        sources: Names of the files; each sees the ones before it.
    """
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for source in sources:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        compiler.cook(files("planner.spark").joinpath("java", source).read_text(encoding="utf-8"))
        loader = compiler.getClassLoader()
    return loader


def make(spark: SparkSession, loader: JavaObject, name: str, *arguments: object) -> JavaObject:
    """Make an object of a compiled class, which has one constructor."""
    # py4j cannot put a Python object into a Java array, but it can add one to a list.
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    as_list = jvm.java.util.ArrayList()
    for argument in arguments:
        as_list.add(argument)
    return loader.loadClass(name).getConstructors()[0].newInstance(as_list.toArray())
