"""Tables of items, whose columns have their values all over the files; and queries on threads of the JVM."""

import json
import subprocess
import sys
from collections.abc import Callable

from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

from puffin_index import TableIndex
from tests.spark.agreement import row_groups_of

ROWS = 20_000
ROW_GROUP_ROWS = 1_000
_SPREAD = 7_919
"""A prime: `(id * _SPREAD) % n` spreads neighbouring ids over the whole range."""


def create_items(spark: SparkSession, name: str, files: int = 2) -> None:
    spark.sql(f"DROP TABLE IF EXISTS lake.ns.{name} PURGE")
    spark.sql(
        f"CREATE TABLE lake.ns.{name} (id BIGINT, k INT, price BIGINT, city STRING, note STRING) USING iceberg "
        f"TBLPROPERTIES ({row_groups_of(ROW_GROUP_ROWS)})"
    )
    append_items(spark, name, 0, ROWS, files)


def append_items(spark: SparkSession, name: str, start: int, end: int, files: int = 1) -> None:
    spark.range(start, end, 1, files).selectExpr(
        "id",
        f"CAST((id * {_SPREAD}) % {ROWS} AS INT) AS k",
        "IF(id % 11 = 0, NULL, (id * 104729) % 1000003) AS price",
        "CONCAT('city-', CAST(id % 97 AS STRING)) AS city",
        "IF(id % 5 = 0, NULL, SUBSTR(SHA2(CAST(id AS STRING), 256), 1, 6)) AS note",
    ).writeTo(f"lake.ns.{name}").append()


def elsewhere(index: TableIndex, statement: str) -> None:
    """Execute a statement about `index` in another process, which this one does not hear of."""
    program = (
        "import json, sys\nfrom datetime import timedelta\nfrom pyiceberg.catalog.sql import SqlCatalog\n"
        "from puffin_index import TableIndex\n"
        "index = TableIndex.open(SqlCatalog('lake', **json.loads(sys.argv[1])), sys.argv[2])\n"
    )
    arguments = [json.dumps(dict(index.catalog.properties)), index.name]
    subprocess.run([sys.executable, "-c", program + statement, *arguments], check=True)


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
