"""Builds beside the queries of a Spark application: on executors with half of the slots, and cancelled half-way."""

import time

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from puffin_index import BuildHandle, BuildReport, IndexDefinition, TableIndex
from puffin_index.jobs.build_job import ProgressListener, build
from puffin_index.jobs.engine import LocalEngine, SparkEngine, engine_for
from tests.conftest import amount

pytestmark = pytest.mark.spark

ROWS = amount(120_000, 1_500_000)


@pytest.fixture
def index(spark: SparkSession, catalog: SqlCatalog) -> TableIndex:
    spark.sql("DROP TABLE IF EXISTS lake.ns.beside PURGE")
    spark.sql("CREATE TABLE lake.ns.beside (id BIGINT, note STRING) USING iceberg")
    spark.range(0, ROWS, 1, 2).selectExpr("id", "SHA2(CAST(id AS STRING), 256) AS note").writeTo(
        "lake.ns.beside"
    ).append()
    definition = IndexDefinition.of(bitmap=["id", "note"], bsi=["id", "note"])
    index = TableIndex.create(catalog, "ns.beside", definition)
    index.refresh()
    return index


def start(index: TableIndex, engine: SparkEngine) -> BuildHandle:
    def run(listener: ProgressListener) -> BuildReport:
        return build(index.data_table, index.index_table, index.columns, engine, listener)

    return BuildHandle(run, engine.cancel)


def test_executors_build_in_the_background_with_half_of_the_slots(spark: SparkSession, index: TableIndex) -> None:
    engine = SparkEngine(spark, in_background=True)

    report = start(index, engine).wait(120)

    assert engine.parallelism == max(1, spark.sparkContext.defaultParallelism // 2)
    assert (report.rows, report.skipped) == (ROWS, ())
    assert index.status().snapshots_behind == 0


def test_a_cancelled_build_ends_soon_and_another_one_finishes(spark: SparkSession, index: TableIndex) -> None:
    engine = SparkEngine(spark, in_background=True)
    handle = start(index, engine)
    while handle.status() == "running" and not spark.sparkContext.statusTracker().getActiveJobsIds():
        time.sleep(0.01)

    handle.cancel()
    handle.join()

    # On a fast machine a segment may have been finished before.
    assert handle.status() in ("cancelled", "done")
    index.build(spark)
    assert index.status().snapshots_behind == 0


def test_a_local_master_leaves_all_slots_to_queries(spark: SparkSession) -> None:
    assert isinstance(engine_for(spark, None, in_background=True), LocalEngine)
