"""What the hook costs: the time of planning a query over a table of very many data files, without and with it.

Spark makes all data files of a table anew for each query, so that garbage collections, of 50 to 250 ms each, fall into
some of the plans by chance: the heap is collected before each, and the collections in one are taken off its time. Plans
without and with the index come in pairs, in turn the one or the other first; what the hook costs is the median of the
differences.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession
from rich.table import Table as RichTable

import planner
from puffin_index import IndexDefinition, TableIndex
from puffin_index.catalogue.index_table import read_entries
from ssb_bench.spark_runs.session import CATALOG, open_catalog

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

_ADD_FILES = """
import java.util.Arrays;
import org.apache.iceberg.*;

public class AddFiles {
  public static void add(Table table, int count) throws Exception {
    DataFile one = (DataFile) ((FileScanTask) table.newScan().planFiles().iterator().next()).file();
    AppendFiles append = table.newFastAppend();
    for (int i = 0; i < count; i++) {
      append.appendFile(
          DataFiles.builder(table.spec())
              .withPath(table.location() + "/data/" + name(i))
              .withFormat("PARQUET")
              .withFileSizeInBytes(one.fileSizeInBytes())
              .withRecordCount(one.recordCount())
              .withSplitOffsets(one.splitOffsets())
              .build());
    }
    append.commit();
  }

  private static String name(int i) {
    String pattern = "%06d-17-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9-00001.parquet";
    return String.format(pattern, new Object[] {Integer.valueOf(i)});
  }
}
"""


@dataclass(frozen=True, slots=True)
class HookCost:
    """What planning one query takes, in milliseconds: the median of several.

    Attributes:
        query: What kind of query.
        without_ms: With the hook installed and disabled.
        with_ms: With it.
        differences_ms: First quartile, median and third quartile of the differences of pairs.
        python_ms: The part of it that the planner reports, 0 where it was not asked.
    """

    query: str
    without_ms: float
    with_ms: float
    differences_ms: tuple[float, float, float]
    python_ms: float


def measure_hook(spark: SparkSession, warehouse: Path, files: int, repeats: int) -> list[HookCost]:
    """Make a table of that many data files, of which one exists, and plan queries of it; nothing is read."""
    catalog = open_catalog(warehouse)
    for table in ("many", "bare"):
        spark.sql(f"DROP TABLE IF EXISTS {CATALOG}.{_NAMESPACE}.{table}")
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{_NAMESPACE}")
    spark.range(0, _ROWS, 1, 1).selectExpr("id", "(id * 7919) % 1000 AS k").createOrReplaceTempView("hook_cost_rows")
    for table in ("many", "bare"):
        spark.sql(f"CREATE TABLE {CATALOG}.{_NAMESPACE}.{table} USING iceberg AS SELECT * FROM hook_cost_rows")
    _multiply(spark, catalog, files)
    start = f"SELECT COUNT(*) FROM {CATALOG}.{_NAMESPACE}."
    try:
        return [_cost(spark, name, start + rest, repeats) for name, rest in _QUERIES.items()]
    finally:
        planner.disable(spark)
        spark.conf.unset(_ENABLED)


def _multiply(spark: SparkSession, catalog: SqlCatalog, files: int) -> None:
    """Add data files that are not there to the table, and entries of the index for them."""
    index = TableIndex.create(catalog, f"{_NAMESPACE}.many", IndexDefinition.of(bsi=["k"]))
    index.build()
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    full = f"{CATALOG}.{_NAMESPACE}.many"
    table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, full)
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(_ADD_FILES)
    arguments = jvm.java.util.ArrayList()
    arguments.add(table)
    arguments.add(files)
    [add] = (m for m in compiler.getClassLoader().loadClass("AddFiles").getMethods() if m.getName() == "add")
    add.invoke(None, arguments.toArray())
    spark.sql(f"REFRESH TABLE {full}")
    index.refresh()
    entry = read_entries(index.index_table).slice(0, 1)
    tasks = index.data_table.scan().plan_files()
    paths = pa.array([task.file.file_path for task in tasks])
    entries = entry.take(pa.array([0] * len(paths)))
    index.index_table.append(entries.set_column(0, entry.schema.field(0), paths).cast(entry.schema))


def _cost(spark: SparkSession, name: str, sql: str, repeats: int) -> HookCost:
    planner.enable(spark, strict=True)
    times: dict[str, list[float]] = {"false": [], "true": []}
    for number in range(_WARM_UP + repeats):
        for enabled in sorted(times, reverse=number % 2 == 1):
            spark.conf.set(_ENABLED, enabled)
            times[enabled].append(_plan_once(spark, sql))
    without, with_index = times["false"][_WARM_UP:], times["true"][_WARM_UP:]
    first, middle, third = quantiles((b - a for a, b in zip(without, with_index, strict=True)), n=4, method="inclusive")
    reports = planner.reports(spark)[-repeats:]
    python_ms = median(report.planning_seconds for report in reports) * 1000 if reports else 0.0
    return HookCost(name, median(without), median(with_index), (first, middle, third), python_ms)


def _plan_once(spark: SparkSession, sql: str) -> float:
    """Milliseconds of planning, without those of garbage collections."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    jvm.java.lang.System.gc()
    collectors = list(jvm.java.lang.management.ManagementFactory.getGarbageCollectorMXBeans())
    collected = sum(collector.getCollectionTime() for collector in collectors)
    frame = spark.sql(sql)
    started = time.perf_counter()
    frame._jdf.queryExecution().executedPlan()
    taken = (time.perf_counter() - started) * 1000
    return float(taken - (sum(collector.getCollectionTime() for collector in collectors) - collected))


def render_costs(costs: list[HookCost], files: int) -> RichTable:
    """A table of costs."""
    table = RichTable(title=f"planning a query over {files:,} data files, ms")
    for column in ("query", "without", "with the hook", "more (quartiles)", "of that in Python"):
        table.add_column(column, justify="left" if column == "query" else "right")
    for cost in costs:
        first, middle, third = cost.differences_ms
        table.add_row(
            cost.query,
            f"{cost.without_ms:.1f}",
            f"{cost.with_ms:.1f}",
            f"{middle:.1f} ({first:.1f} to {third:.1f})",
            f"{cost.python_ms:.1f}",
        )
    return table
