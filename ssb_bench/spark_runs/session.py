"""A local Spark session with the stock Iceberg runtime and an embedded SQLite catalog that PyIceberg shares."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pyspark
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from puffin_index.jobs.processor import settings_of_executors

CATALOG = "lake"
_ICEBERG_RUNTIMES = {
    "4.1": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    "4.0": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.1",
    "3.5": "org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.12.0",
}
_ONE_FILE_A_TASK_BYTES = 1 << 40
SPARK_RELEASE = ".".join(pyspark.__version__.split(".")[:2])
ICEBERG_RUNTIME = _ICEBERG_RUNTIMES[SPARK_RELEASE]
"""The newest one for the Spark that is installed."""

SQLITE_DRIVER = "org.xerial:sqlite-jdbc:3.51.0.0"


def create_session(
    warehouse: Path,
    *,
    cores: int = 2,
    memory: str = "3g",
    name: str = "puffin-index",
    packages: Sequence[str] = (),
    conf: Mapping[str, str] = MappingProxyType({}),
) -> SparkSession:
    """Start (or get) a local Spark session whose catalog `lake` lives in `warehouse`.

    Args:
        warehouse: Directory of the catalog's SQLite file and of the tables; made if missing.
        cores: Threads of the local master.
        memory: JVM heap, in Spark's notation.
        name: The application's name.
        packages: Maven coordinates of further jars.
        conf: Further settings.
    """
    warehouse.mkdir(parents=True, exist_ok=True)
    # Executors must see the packages of this very environment, whatever `python3` is on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName(name)
        .config("spark.driver.memory", memory)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        # What a query read is asked of Spark's status store, which forgets stages beyond a thousand.
        .config("spark.ui.retainedStages", "100000")
        .config("spark.ui.retainedJobs", "100000")
        .config("spark.scheduler.mode", "FAIR")
        # Each file that Spark itself reads is one task. Iceberg does not ask these settings.
        .config("spark.sql.files.maxPartitionBytes", _ONE_FILE_A_TASK_BYTES)
        .config("spark.sql.files.openCostInBytes", _ONE_FILE_A_TASK_BYTES)
        .config("spark.sql.shuffle.partitions", str(cores))
        .config("spark.jars.packages", ",".join((ICEBERG_RUNTIME, SQLITE_DRIVER, *packages)))
        .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
        .config(f"spark.sql.catalog.{CATALOG}", "org.apache.iceberg.spark.SparkCatalog")
        .config(f"spark.sql.catalog.{CATALOG}.type", "jdbc")
        .config(f"spark.sql.catalog.{CATALOG}.uri", f"jdbc:sqlite:{warehouse / 'catalog.db'}")
        .config(f"spark.sql.catalog.{CATALOG}.jdbc.schema-version", "V1")
        .config(f"spark.sql.catalog.{CATALOG}.warehouse", warehouse.as_uri())
    )
    for key, value in (settings_of_executors() | dict(conf)).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def open_catalog(warehouse: Path) -> SqlCatalog:
    """Open the same catalog from PyIceberg."""
    warehouse.mkdir(parents=True, exist_ok=True)
    return SqlCatalog(
        CATALOG,
        uri=f"sqlite:///{warehouse / 'catalog.db'}",
        warehouse=warehouse.as_uri(),
    )
