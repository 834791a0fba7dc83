"""Spark on a table in a store, with the hook and without."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from typing import Final

from pyspark.sql import SparkSession

from puffin_index.storage.caches import clear_caches
from ssb_bench.results.stores import Side
from ssb_bench.spark_runs.arms import hooked
from ssb_bench.stores.measured import Meter
from ssb_bench.stores.server import KEY, REGION, SECRET, StoreServer

S3_SUPPORT: Final = "org.apache.iceberg:iceberg-aws-bundle:1.12.0"
"""What Iceberg reads S3 with; Spark's session needs it from the begin."""

_SIDES: Final[tuple[Side, ...]] = ("none", "index")
_QUERIES: Final = ("q1", "q6")


def session_of(spark: SparkSession, server: StoreServer, name: str, uri: str, warehouse: str) -> SparkSession:
    """Open a session with a catalog of tables in a store.

    Args:
        spark: A session that was started with `S3_SUPPORT`.
        server: The store.
        name: The name of the catalog, here and in PyIceberg.
        uri: The address of its database in SQLite, as PyIceberg has it.
        warehouse: Where its tables are.
    """
    session = spark.newSession()
    for key, value in {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "jdbc",
        ".uri": f"jdbc:{uri.replace(':///', ':')}",
        ".jdbc.schema-version": "V1",
        ".warehouse": warehouse,
        ".io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        ".s3.endpoint": server.endpoint,
        ".s3.access-key-id": KEY,
        ".s3.secret-access-key": SECRET,
        ".s3.path-style-access": "true",
        ".client.region": REGION,
    }.items():
        session.conf.set(f"spark.sql.catalog.{name}{key}", value)
    return session


def measure_spark(meter: Meter, session: SparkSession, table: str, wheres: Mapping[str, str], repeats: int) -> None:
    """Read all columns of the rows of some queries, without the hook and with it, first and again.

    Args:
        meter: Of the store.
        session: From `session_of`.
        table: The table, with its catalog.
        wheres: The queries' predicates.
        repeats: Executions of each query after the first.
    """
    for side in _SIDES:
        clear_caches()
        with hooked(session, aggregates=False) if side == "index" else nullcontext():
            for name in (name for name in _QUERIES if name in wheres):
                work = partial(_count_rows, session, f"SELECT * FROM {table} WHERE {wheres[name]}")
                meter.measure(f"{name}: rows in Spark, first", work, side=side)
                meter.measure(f"{name}: rows in Spark", work, side=side, repeats=repeats)


def _count_rows(session: SparkSession, sql: str) -> int:
    return len(session.sql(sql).toArrow())
