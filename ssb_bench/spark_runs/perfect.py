"""Perfect pruning in Spark: a session whose scans are told for free which row groups hold a match."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from pyspark.sql import SparkSession

from planner.spark.rules import compile_java, hook_source, jvm_of, make, rules_of, set_rules
from ssb_bench.spark_runs.survivors import Survivors

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject

_RULE: Final = "io.puffinindex.bench.KeepRowGroups"


@contextmanager
def perfect_pruning(spark: SparkSession) -> Iterator[Callable[[Survivors], None]]:
    """Install the rule in a session and take it out at the end.

    Yields:
        What lets the next queries read the surviving row groups only. No query's time includes this call.
    """
    source = files("ssb_bench.spark_runs").joinpath("KeepRowGroups.java").read_text(encoding="utf-8")
    rule = make(spark, compile_java(spark, [hook_source("ScanTasks.java"), source]), _RULE)
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
