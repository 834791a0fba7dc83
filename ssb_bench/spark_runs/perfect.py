"""Perfect pruning in Spark: a session whose scans are told for free which row groups hold a match."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from ssb_bench.spark_runs.survivors import Survivors

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway, JavaObject

_constructors: WeakKeyDictionary[JavaGateway, JavaObject] = WeakKeyDictionary()
_RULE: Final = "io.puffinindex.bench.KeepRowGroups"


class PerfectPruning:
    """The rule in one session; made by `perfect_pruning`."""

    def __init__(self, spark: SparkSession, rule: JavaObject) -> None:
        self._spark = spark
        self._rule = rule

    def keep(self, survivors: Survivors) -> None:
        """Let the queries that follow read these row groups only. Not a part of any query's time."""
        jvm = self._spark.sparkContext._jvm
        assert jvm is not None
        ordinals = jvm.java.util.HashMap()
        for location, kept in survivors.items():
            ordinals.put(location, ",".join(map(str, kept)))
        self._rule.keep(ordinals)


def _constructor(spark: SparkSession) -> JavaObject:
    """Compile the rule once a JVM: py4j remembers methods by the name of their class, whichever class has it."""
    gateway, jvm = spark.sparkContext._gateway, spark.sparkContext._jvm
    assert gateway is not None
    assert jvm is not None
    if gateway not in _constructors:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
        compiler.cook(files("ssb_bench.spark_runs").joinpath("KeepRowGroups.java").read_text(encoding="utf-8"))
        _constructors[gateway] = compiler.getClassLoader().loadClass(_RULE).getConstructors()[0]
    return _constructors[gateway]


@contextmanager
def perfect_pruning(spark: SparkSession) -> Iterator[PerfectPruning]:
    """Install the rule in a session and take it out at the end."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    rule = _constructor(spark).newInstance(jvm.java.util.ArrayList().toArray())
    experimental = spark._jsparkSession.experimental()
    before = experimental.extraOptimizations()
    set_rules = getattr(experimental, "extraOptimizations_$eq")
    set_rules(before.appended(rule))
    try:
        yield PerfectPruning(spark, rule)
    finally:
        set_rules(before)
