"""Perfect pruning in Spark: a session whose scans are told for free which row groups hold a match."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from planner.spark.rules import compile_java, hook_source, jvm_of, make, rules_of, set_rules
from ssb_bench.spark_runs.survivors import Survivors

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway, JavaObject

_loaders: WeakKeyDictionary[JavaGateway, JavaObject] = WeakKeyDictionary()
_RULE: Final = "io.puffinindex.bench.KeepRowGroups"


def _loader(spark: SparkSession) -> JavaObject:
    """Compile the rule once a JVM, because py4j keeps methods by the name of their class, not by the class."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    if gateway not in _loaders:
        rule = files("ssb_bench.spark_runs").joinpath("KeepRowGroups.java").read_text(encoding="utf-8")
        _loaders[gateway] = compile_java(spark, [hook_source("ScanTasks.java"), rule])
    return _loaders[gateway]


@contextmanager
def perfect_pruning(spark: SparkSession) -> Iterator[Callable[[Survivors], None]]:
    """Install the rule in a session and take it out at the end.

    Yields:
        What lets the next queries read the surviving row groups only. No query's time includes this call.
    """
    rule = make(spark, _loader(spark), _RULE)
    before = rules_of(spark)
    set_rules(spark, [*before, rule])
    try:
        yield partial(_keep, spark, rule)
    finally:
        set_rules(spark, before)


def _keep(spark: SparkSession, rule: JavaObject, survivors: Survivors) -> None:
    ordinals = jvm_of(spark).java.util.HashMap()
    for location, kept in survivors.items():
        ordinals.put(location, ",".join(map(str, kept)))
    rule.keep(ordinals)
