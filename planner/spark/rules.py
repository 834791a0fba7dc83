"""A Spark session's JVM from Python: its configuration and rules, and the classes of the hook."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

from planner.spark.build_jar import SOURCES_DIGEST, JarError, built_jar, digest_of
from puffin_index.errors import PuffinIndexError

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway, JavaObject, JVMView
    from pyspark.sql import SparkSession

RULE = "io.puffinindex.spark.PruneScans"
HOOK = "io.puffinindex.spark.Hook"
_OF_ICEBERG = "io.puffinindex.spark.scans.IcebergScans"

_loaders: WeakKeyDictionary[JavaGateway, list[tuple[JavaObject, JavaObject]]] = WeakKeyDictionary()
"""For each JVM: a class loader, and the loader that has the hook as well."""


class JavaFunction:
    """A Java function of two arguments that py4j calls in Python, as `apply`."""

    def toString(self) -> str:  # noqa: N802 - Java's name
        """Java's `toString`."""
        return "puffin-index"

    class Java:
        """Tells py4j which Java interface this is."""

        implements: ClassVar[list[str]] = ["java.util.function.BiFunction"]


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


def our_rules(spark: SparkSession) -> list[JavaObject]:
    """The hook's rules in a session."""
    # A session asks its extensions for rules when it lists its batches, and `Hook` adds a rule then.
    spark._jsparkSession.sessionState().optimizer().batches()
    added = spark._jsparkSession.experimental().extraOptimizations()
    rules = [added.apply(at) for at in range(added.size())]
    return [rule for rule in rules if rule.getClass().getName() == RULE]


def call_ours(spark: SparkSession, ours: JavaObject, method: str, *arguments: object) -> Any:
    """Call a method of an object of the hook's.

    Another Python process of the JVM has classes of the same names. py4j keeps methods by the name of their class, so
    only reflection finds the method of the right class.
    """
    invoke = jvm_of(spark).org.apache.commons.lang3.reflect.MethodUtils.invokeMethod
    return invoke(ours, method, java_list(spark, arguments).toArray())


def load_hook(spark: SparkSession) -> JavaObject:
    """The class loader that has the classes of the hook for a session's release of Spark; one for each JVM.

    Raises PuffinIndexError if there is no jar for the release, or the session has another jar of the hook by itself;
    Py4JError if its Iceberg is not one that the hook knows.
    """
    beneath = _own_loader(spark)
    known = _loaders.setdefault(_gateway_of(spark), [])
    for other, found in known:
        if other == beneath:
            return found
    scala_package = getattr(jvm_of(spark).org.apache.spark, "package$")
    versions = (
        getattr(scala_package, "MODULE$").SPARK_VERSION(),
        jvm_of(spark).scala.util.Properties.versionNumberString(),
    )
    release = "_".join(".".join(version.split(".")[:2]) for version in versions)
    try:
        jar = built_jar(release, lambda _: class_path(spark))
    except JarError as error:
        raise PuffinIndexError(str(error)) from error
    loader = load_jar(spark, jar)
    # A class of the application's own jars comes before one of this jar.
    if bytes(loader.getResourceAsStream(SOURCES_DIGEST).readAllBytes()).decode() != digest_of(release):
        raise PuffinIndexError(f"the application has another version of the hook's jar: let its spark.jars name {jar}")
    # A session without Iceberg, or with a release that lacks what the hook needs, is told now.
    jvm_of(spark).java.lang.Class.forName(_OF_ICEBERG, True, loader)
    if loader.loadClass(HOOK).getClassLoader() == loader:
        # Executors read pages by classes of the jar.
        spark.sparkContext._jsc.addJar(str(jar))
    known.append((beneath, loader))
    return loader


def load_jar(spark: SparkSession, jar: Path) -> JavaObject:
    """A class loader that has the classes of a jar, and those of the thread."""
    jvm = jvm_of(spark)
    urls = _gateway_of(spark).new_array(jvm.java.net.URL, 1)
    urls[0] = jvm.java.net.URL(jar.as_uri())
    return jvm.java.net.URLClassLoader(urls, _own_loader(spark))


def _gateway_of(spark: SparkSession) -> JavaGateway:
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    return gateway


def _own_loader(spark: SparkSession) -> JavaObject:
    return jvm_of(spark).java.lang.Thread.currentThread().getContextClassLoader()


def class_path(spark: SparkSession) -> list[str | Path]:
    """The jars that a session has Spark and Iceberg from."""
    iceberg, core = (
        Path(_own_loader(spark).loadClass(name).getProtectionDomain().getCodeSource().getLocation().toURI().getPath())
        for name in ("org.apache.iceberg.Table", "org.apache.spark.SparkContext")
    )
    return [iceberg, core.parent / "*"]


def make(spark: SparkSession, loader: JavaObject, name: str, *arguments: object) -> JavaObject:
    """Make an object of a compiled class with one public constructor."""
    return loader.loadClass(name).getConstructors()[0].newInstance(java_list(spark, arguments).toArray())


def java_list(spark: SparkSession, items: Iterable[object]) -> JavaObject:
    """A Java list; py4j can add a Python object to a list, but cannot put one into an array."""
    as_list = jvm_of(spark).java.util.ArrayList()
    for item in items:
        as_list.add(item)
    return as_list
