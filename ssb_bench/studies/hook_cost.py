"""What the hook costs: the time of planning a query over a table of very many data files, without and with it.

Spark makes all data files of a table anew for each query, so that garbage collections, of 50 to 250 ms each, fall into
some of the plans by chance. So the heap is collected before each plan, and collections in a plan are taken off its
time. Plans without and with the index come in pairs; what the hook costs is the median of the differences.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from statistics import median

import pyarrow as pa
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.table import Table
from pyspark.sql import SparkSession

import planner
from puffin_index import IndexDefinition, TableIndex
from puffin_index.catalogue.index_table import read_entries
from ssb_bench.results.statistics import Paired
from ssb_bench.spark_runs.arms import hooked
from ssb_bench.spark_runs.session import CATALOG, open_catalog
from ssb_bench.spark_runs.turns import seconds_of, time_in_turns

_NAMESPACE = "hook_cost"
_ROWS = 1_000
_WARM_UP = 8
_ENABLED = "spark.puffin-index.enabled"
_QUERIES = {
    "all row groups dropped": "many WHERE k = 5000",
    "all row groups kept, range": "many WHERE k > 5",
    "all row groups kept, equality": "many WHERE k = 500",
    "no index": "bare WHERE k = 5",
}


def measure_hook(spark: SparkSession, warehouse: Path, files: int, repeats: int) -> list[Paired]:
    """Make a table of that many data files, of which one exists, and plan queries of it; nothing is read."""
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{_NAMESPACE}")
    spark.range(0, _ROWS, 1, 1).selectExpr("id", "(id * 7919) % 1000 AS k").createOrReplaceTempView("hook_cost_rows")
    for table in ("many", "bare"):
        spark.sql(f"DROP TABLE IF EXISTS {CATALOG}.{_NAMESPACE}.{table}")
        spark.sql(f"CREATE TABLE {CATALOG}.{_NAMESPACE}.{table} USING iceberg AS SELECT * FROM hook_cost_rows")
    index = TableIndex.create(open_catalog(warehouse), f"{_NAMESPACE}.many", IndexDefinition.of(bsi=["k"]))
    index.build()
    _add_files(index.data_table, files)
    _add_entries(index)
    spark.sql(f"REFRESH TABLE {CATALOG}.{_NAMESPACE}.many")
    try:
        return [_cost(spark, name, f"{CATALOG}.{_NAMESPACE}.{rest}", repeats) for name, rest in _QUERIES.items()]
    finally:
        spark.conf.unset(_ENABLED)


def _add_files(table: Table, count: int) -> None:
    """Add data files that do not exist to a table: copies of its only one, without column statistics."""
    one = next(iter(table.scan().plan_files())).file
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for number in range(count):
            name = f"{number:06d}-17-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9-00001.parquet"
            file = DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=f"{table.location()}/data/{name}",
                file_format=one.file_format,
                partition=one.partition,
                record_count=one.record_count,
                file_size_in_bytes=one.file_size_in_bytes,
                split_offsets=one.split_offsets,
            )
            file.spec_id = table.spec().spec_id
            append.append_data_file(file)


def _add_entries(index: TableIndex) -> None:
    """Give each data file the index entry of the only one that exists."""
    index.refresh()
    entry = read_entries(index.index_table).slice(0, 1)
    paths = pa.array([task.file.file_path for task in index.data_table.scan().plan_files()])
    entries = entry.take(pa.array([0] * len(paths)))
    index.index_table.append(entries.set_column(0, entry.schema.field(0), paths).cast(entry.schema))


def _cost(spark: SparkSession, name: str, source: str, repeats: int) -> Paired:
    arms = {enabled: partial(_plan_once, spark, source, enabled) for enabled in ("false", "true")}
    with hooked(spark, strict=True, aggregates=False):
        times = time_in_turns(arms, repeats, warm_up=_WARM_UP)
        reports = planner.reports(spark)[-repeats:]
    planning = median(report.planning_seconds for report in reports) if reports else None
    return Paired(name, tuple(times["false"]), tuple(times["true"]), planning)


def _plan_once(spark: SparkSession, source: str, enabled: str) -> float:
    """Seconds of planning, without those of garbage collections."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    spark.conf.set(_ENABLED, enabled)
    jvm.java.lang.System.gc()
    collectors = list(jvm.java.lang.management.ManagementFactory.getGarbageCollectorMXBeans())
    collected = sum(collector.getCollectionTime() for collector in collectors)
    frame = spark.sql(f"SELECT COUNT(*) FROM {source}")
    taken = seconds_of(lambda: frame._jdf.queryExecution().executedPlan())
    return float(taken - (sum(collector.getCollectionTime() for collector in collectors) - collected) / 1000)
