"""The hook may have the executors plan: a Spark job inside the optimizer, with the answers that the driver comes to."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from pyspark import InheritableThread
from pyspark.sql import SparkSession

import planner
from ssb_bench.spark_runs.measure import measure
from tests.conftest import amount
from tests.spark.agreement import settings

pytestmark = pytest.mark.spark

MODE = "spark.puffin-index.planning-mode"
QUERIES = (
    "SELECT * FROM lake.ns.items WHERE k = 4711",
    "SELECT COUNT(*) FROM lake.ns.items WHERE price IS NULL AND city = 'city-3' AND k < 300",
    "SELECT id FROM lake.ns.items WHERE k = (SELECT MAX(k) FROM lake.ns.items WHERE price = 104729)",
    "SELECT a.id, b.id FROM lake.ns.items a JOIN lake.ns.items b ON a.id = b.k WHERE a.k = 17 AND b.k IN (5, 17)",
)


@pytest.fixture
def distributed(hook: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    monkeypatch.setattr("planner.prune.distributed.FEW_ROW_GROUPS", 0)
    with settings(hook, {MODE: "distributed"}):
        yield hook


@pytest.mark.one_of(2)
@pytest.mark.parametrize("sql", QUERIES)
def test_executors_plan_for_a_query_and_its_answer_stays(distributed: SparkSession, sql: str) -> None:
    by_executors = measure(distributed, sql)
    reports = planner.reports(distributed)
    distributed.conf.set(MODE, "local")
    by_driver = measure(distributed, sql)

    assert by_executors.answer == by_driver.answer
    assert by_executors.rows_read == by_driver.rows_read
    assert len(reports) * 2 == len(planner.reports(distributed))
    for ours, drivers in zip(reports, planner.reports(distributed)[len(reports) :], strict=True):
        assert np.array_equal(ours.reasons, drivers.reasons)


@pytest.mark.nightly
def test_executors_plan_for_queries_of_several_threads(distributed: SparkSession) -> None:
    queries = QUERIES[: amount(2, 4)]
    expected = {sql: sorted(map(str, distributed.sql(sql).collect())) for sql in queries}

    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda sql: sorted(map(str, distributed.sql(sql).collect())), queries * 2))

    assert found == [expected[sql] for sql in queries * 2]


def test_executors_plan_for_a_query_on_a_thread_of_sparks(distributed: SparkSession) -> None:
    """A thread with local properties of its own, planning while this one waits."""
    found: list[int] = []
    thread = InheritableThread(lambda: found.append(distributed.sql(QUERIES[0]).count()))
    thread.start()
    thread.join(120)
    assert found == [1]


def test_a_broadcast_side_is_planned_by_executors_too(distributed: SparkSession) -> None:
    """Spark plans both sides on the query's thread, and broadcasts one from a thread of the JVM."""
    sql = (
        "SELECT /*+ BROADCAST(b) */ COUNT(*) FROM lake.ns.items a JOIN lake.ns.items b ON a.k = b.k "
        "WHERE b.k IN (3, 4) AND a.k < 9"
    )
    assert distributed.sql(sql).collect() == [(2,)]


def test_a_mode_that_there_is_not_is_refused(hook: SparkSession) -> None:
    refused = pytest.raises(Exception, match=r"planning-mode cannot be 'remote'.*'auto', 'local' or 'distributed'")
    with settings(hook, {MODE: "remote"}), refused:
        hook.sql(QUERIES[0]).collect()
