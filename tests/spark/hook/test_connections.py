"""Queries in many threads of the JVM leave no connection and no thread of Python behind."""

import threading
import time
from collections.abc import Callable

import pytest
from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

import planner
from puffin_index import TableIndex
from tests.spark.hook.test_hook import ROWS, hook, index

__all__ = ["hook", "index"]

pytestmark = pytest.mark.spark

_THREADS = 12
_PATIENCE_SECONDS = 30.0


def count_elsewhere(spark: SparkSession, sql: str) -> Callable[[], JavaObject]:
    """A count that another thread of the JVM plans and executes; returns what submits it to an executor."""
    assert spark._jvm is not None
    java = spark._jvm.java
    frame = spark._jsparkSession.sql(sql)
    count = (
        java.lang.invoke.MethodHandles.publicLookup()
        .findVirtual(frame.getClass(), "count", java.lang.invoke.MethodType.methodType(java.lang.Long.TYPE))
        .bindTo(frame)
    )
    callable_class = java.lang.Class.forName("java.util.concurrent.Callable")
    action = java.lang.invoke.MethodHandleProxies.asInterfaceInstance(callable_class, count)

    def submit() -> JavaObject:
        pool = java.util.concurrent.Executors.newSingleThreadExecutor()
        future = pool.submit(action)
        pool.shutdown()
        return future

    return submit


def test_threads_of_the_jvm_leave_no_threads_of_python(hook: SparkSession, index: TableIndex) -> None:
    queries = [f"SELECT * FROM lake.{index.name} WHERE k = {k}" for k in range(0, ROWS, ROWS // _THREADS)]
    before, asked = threading.active_count(), len(planner.reports(hook))

    futures = [count_elsewhere(hook, sql)() for sql in queries]
    assert [future.get() for future in futures] == [1] * len(queries)

    assert len(planner.reports(hook)) == asked + len(queries), "each thread has asked the planner"
    end = time.monotonic() + _PATIENCE_SECONDS
    while threading.active_count() > before and time.monotonic() < end:
        time.sleep(0.05)
    assert threading.active_count() <= before
