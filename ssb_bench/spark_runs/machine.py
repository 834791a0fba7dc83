"""The machine and the versions that a run was made with; runs on different ones do not compare."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from ssb_bench.spark_runs.session import ICEBERG_RUNTIME

_PACKAGES: Final = ("puffin-index", "pyspark", "pyiceberg", "pyarrow", "pyroaring", "numpy", "duckdb", "tpchgen-cli")


def describe_machine(spark: SparkSession) -> dict[str, str | int]:
    """Say what the run runs on: processor, memory, system, Java, and the versions that matter."""
    return describe_host() | {
        "java": _java_version(spark),
        "spark_master": spark.sparkContext.master or "",
        "spark_driver_memory": spark.conf.get("spark.driver.memory") or "",
        "spark_broadcast_threshold": spark.conf.get("spark.sql.autoBroadcastJoinThreshold") or "",
        "iceberg_runtime": ICEBERG_RUNTIME,
    }


def describe_host() -> dict[str, str | int]:
    """Say what a run without Spark runs on."""
    facts: dict[str, str | int] = {
        "processor": _processor(),
        "cores": os.cpu_count() or 0,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.platform(),
        "python": platform.python_version(),
    }
    return facts | {package: metadata.version(package) for package in _PACKAGES}


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def _java_version(spark: SparkSession) -> str:
    jvm = spark.sparkContext._jvm
    return "" if jvm is None else str(jvm.java.lang.System.getProperty("java.version"))
