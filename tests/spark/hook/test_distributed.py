"""Executors plan like the driver, for Python and in a job inside Spark's optimizer: the same verdicts and answers."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark import InheritableThread
from pyspark.sql import SparkSession

import planner
from planner.view.views import view_of
from puffin_index import IndexDefinition, TableIndex
from puffin_index.data.column_source import reading_of
from puffin_index.errors import PuffinIndexError
from ssb_bench.spark_runs.measure import measure
from tests.spark.agreement import settings
from tests.spark.hook.items import append_items, create_items

pytestmark = pytest.mark.spark

PREDICATES = (
    "k = 4711",
    "k BETWEEN 10 AND 12 AND city = 'city-3'",
    "price IS NULL OR k = 77",
    "note = 'nowhere'",
    "city IN ('city-1', 'city-2') AND price > 999000",
    "true",
)


MODE = "spark.puffin-index.planning-mode"
QUERIES = (
    "SELECT * FROM lake.ns.items WHERE k = 4711",
    "SELECT COUNT(*) FROM lake.ns.items WHERE price IS NULL AND city = 'city-3' AND k < 300",
    "SELECT id FROM lake.ns.items WHERE k = (SELECT MAX(k) FROM lake.ns.items WHERE price = 104729)",
    "SELECT a.id, b.id FROM lake.ns.items a JOIN lake.ns.items b ON a.id = b.k WHERE a.k = 17 AND b.k IN (5, 17)",
)


@pytest.fixture(autouse=True)
def many_row_groups(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """For most tests here, a few row groups stand for many."""
    if "small" not in request.node.name:
        monkeypatch.setattr("planner.prune.distributed.FEW_ROW_GROUPS", 0)


@pytest.fixture(scope="module")
def index(spark: SparkSession, catalog: SqlCatalog) -> Iterator[TableIndex]:
    """Five files, indexed by three builds, and one that is not."""
    create_items(spark, "spread")
    definition = IndexDefinition.of(bitmap=["city", "k"], bsi=["k", "price"], bloom=["note"])
    table_index = TableIndex.create(catalog, "ns.spread", definition)
    table_index.build(spark)
    for start in (20_000, 22_000):
        append_items(spark, "spread", start, start + 2_000)
        table_index.build(spark)
    append_items(spark, "spread", 24_000, 25_000)
    assert planner.plan(table_index, "k = 4711").unindexed == 1
    yield table_index
    spark.sql("DROP TABLE lake.ns.spread PURGE")


@pytest.mark.one_of(3)
@pytest.mark.parametrize("where", PREDICATES)
def test_executors_come_to_the_drivers_verdicts(spark: SparkSession, index: TableIndex, where: str) -> None:
    local = planner.plan(index, where)
    spark.sparkContext.setJobDescription("the caller's")
    distributed = planner.plan(index, where, spark=spark, planning_mode="distributed")
    assert spark.sparkContext.getLocalProperty("spark.job.description") == "the caller's"
    spark.sparkContext.setLocalProperty("spark.job.description", "")
    assert distributed.data_files == local.data_files
    assert np.array_equal(distributed.reasons, local.reasons)
    assert np.array_equal(distributed.matches, local.matches)
    assert [(s.name, s.entered, s.dropped) for s in distributed.funnel] == [
        (s.name, s.entered, s.dropped) for s in local.funnel
    ]


def test_the_driver_plans_small_scans(spark: SparkSession, index: TableIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("executors were asked")

    monkeypatch.setattr("planner.prune.distributed.run_on_executors", refuse)
    planner.plan(index, "k = 4711", spark=spark, planning_mode="distributed")
    for few in ("FEW_ROW_GROUPS", "FEW_ROWS"):
        with monkeypatch.context() as fewer:
            fewer.setattr(f"planner.prune.distributed.{few}", 3)
            with pytest.raises(AssertionError, match="executors were asked"):
                planner.plan(index, "k = 4711", spark=spark, planning_mode="distributed")


def test_trouble_on_executors_keeps_rows_and_is_said(
    spark: SparkSession, catalog: SqlCatalog, index: TableIndex
) -> None:
    """On an index that no executor has read yet."""
    create_items(spark, "spoilt")
    spoilt = TableIndex.create(catalog, "ns.spoilt", IndexDefinition.of(bsi=["k"]))
    spoilt.build(spark)
    spoilt.refresh()
    for location, size in view_of(spoilt.index_table, reading_of(spoilt.data_table)).segments:
        Path(location.removeprefix("file://")).write_bytes(bytes(size))
    with pytest.raises(PuffinIndexError, match="checksum"):
        planner.plan(spoilt, "k = 4711", spark=spark, planning_mode="distributed", strict=True)
    plan = planner.plan(spoilt, "k = 4711", spark=spark, planning_mode="distributed")
    assert plan.kept == plan.row_groups
    assert "checksum" in plan.warnings[0]
    assert planner.plan(index, "k = 4711", spark=spark, planning_mode="distributed").kept == 2


@pytest.fixture
def distributed(hook: SparkSession) -> Iterator[SparkSession]:
    """A session whose hook has executors plan."""
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


def test_executors_plan_for_queries_on_threads_of_sparks(distributed: SparkSession) -> None:
    """Threads with local properties of their own, planning while this one waits."""
    found: list[int] = []
    threads = [InheritableThread(lambda: found.append(distributed.sql(QUERIES[0]).count())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert found == [1] * 3


def test_a_broadcast_side_is_planned_by_executors_too(distributed: SparkSession) -> None:
    """Spark plans both sides on the query's thread, and broadcasts one from a thread of the JVM."""
    sql = (
        "SELECT /*+ BROADCAST(b) */ COUNT(*) FROM lake.ns.items a JOIN lake.ns.items b ON a.k = b.k "
        "WHERE b.k IN (3, 4) AND a.k < 9"
    )
    assert distributed.sql(sql).collect() == [(2,)]
