"""A local Spark session with the stock Iceberg runtime and an SQLite catalog that PyIceberg shares; its machine."""

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Final

from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from puffin_index.jobs.worker_pool import settings_of_executors
from ssb_bench.data.layout import BenchError
from ssb_bench.spark_runs.jars import iceberg_runtime, session_jars

CATALOG = "lake"
_ONE_FILE_A_TASK_BYTES = 1 << 40
LOG_OPTION = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}"
"""Lets a Java program say on its standard error what the plugin does."""


def create_session(
    warehouse: Path,
    *,
    cores: int = 2,
    memory: str = "3g",
    name: str = "puffin-index",
    jars: Sequence[str] = (),
    conf: Mapping[str, str] = MappingProxyType({}),
) -> SparkSession:
    """Start (or get) a local Spark session whose catalog `lake` lives in `warehouse`.

    Args:
        warehouse: The folder of the catalog.
        cores: Spark's threads.
        memory: The heap of its process.
        name: The application's name.
        jars: Archives of `jars.txt` to bring, beside Iceberg's runtime and the catalog's driver.
        conf: Other settings; archives of its `spark.jars` are brought as well.

    Raises BenchError if an archive is missing and cannot be fetched.
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
        .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
        .config(f"spark.sql.catalog.{CATALOG}", "org.apache.iceberg.spark.SparkCatalog")
        .config(f"spark.sql.catalog.{CATALOG}.type", "jdbc")
        .config(f"spark.sql.catalog.{CATALOG}.uri", f"jdbc:sqlite:{warehouse / 'catalog.db'}")
        .config(f"spark.sql.catalog.{CATALOG}.jdbc.schema-version", "V1")
        .config(f"spark.sql.catalog.{CATALOG}.warehouse", warehouse.as_uri())
    )
    for key, value in (settings_of_executors() | with_jars(conf, *jars)).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def with_jars(conf: Mapping[str, str], *jars: str) -> dict[str, str]:
    """Add what a session needs, and other archives of `jars.txt`, to the `spark.jars` of some settings.

    Raises BenchError if an archive is missing and cannot be fetched.
    """
    own = filter(None, [conf.get("spark.jars")])
    return {**conf, "spark.jars": ",".join((*map(str, session_jars(*jars)), *own))}


def open_catalog(warehouse: Path) -> SqlCatalog:
    """Open the same catalog from PyIceberg."""
    warehouse.mkdir(parents=True, exist_ok=True)
    return SqlCatalog(CATALOG, uri=f"sqlite:///{warehouse / 'catalog.db'}", warehouse=warehouse.as_uri())


OLDEST_JAVA: Final = 17
_VERSION: Final = re.compile(r'version "(\d+)')


def require_java() -> int:
    """Give the major version of the Java that Spark will start.

    Raises BenchError if there is no Java, or the Java is too old.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    advice = f"install Java {OLDEST_JAVA} or newer (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
    if java is None:
        raise BenchError(f"Spark needs Java, which is missing: {advice}")
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    except OSError as error:
        raise BenchError(f"{java} does not start ({error}): {advice}") from error
    match = _VERSION.search(said)
    if match is None or int(match[1]) < OLDEST_JAVA:
        raise BenchError(f"{java} is Java {match[1] if match else 'of an unknown version'}: {advice}")
    return int(match[1])


@contextmanager
def stderr_to(file: Path) -> Iterator[None]:
    """Send stderr into a file: that of this process, and that of the processes started inside the block.

    A process that was started inside writes to the file until it ends, so only Spark's start has to be inside.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    terminal = os.dup(2)
    try:
        with file.open("ab") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(terminal, 2)
        os.close(terminal)


_PACKAGES: Final = ("puffin-index", "pyspark", "pyiceberg", "pyarrow", "pyroaring", "numpy", "duckdb", "tpchgen-cli")


def describe_machine(spark: SparkSession) -> dict[str, str | int]:
    """Say what the run runs on: processor, memory, system, Java, and the versions that matter."""
    return describe_host() | {
        "java": _java_version(spark),
        "spark_master": spark.sparkContext.master or "",
        "spark_driver_memory": spark.conf.get("spark.driver.memory") or "",
        "spark_broadcast_threshold": spark.conf.get("spark.sql.autoBroadcastJoinThreshold") or "",
        "iceberg_runtime": iceberg_runtime().coordinate,
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
