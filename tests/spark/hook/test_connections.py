"""Queries in many threads of the JVM leave no connection and no thread of Python behind."""

import threading
import time

import pytest
from pyspark.sql import SparkSession

import planner
from tests.spark.hook.items import ROWS, count_elsewhere

pytestmark = pytest.mark.spark

_THREADS = 12
_PATIENCE_SECONDS = 30.0


def test_threads_of_the_jvm_leave_no_threads_of_python(hook: SparkSession) -> None:
    queries = [f"SELECT * FROM lake.ns.items WHERE k = {k}" for k in range(0, ROWS, ROWS // _THREADS)]
    before, asked = threading.active_count(), len(planner.reports(hook))

    futures = [count_elsewhere(hook, sql)() for sql in queries]
    assert [future.get() for future in futures] == [1] * len(queries)

    assert len(planner.reports(hook)) == asked + len(queries), "each thread has asked the planner"
    end = time.monotonic() + _PATIENCE_SECONDS
    while threading.active_count() > before and time.monotonic() < end:
        time.sleep(0.05)
    assert threading.active_count() <= before
