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
_SETTINGS: Final = Path(__file__).with_name("session.conf")
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
    """Start (or get) a local Spark session whose catalog `lake` lives in `warehouse`, with archives of `jars.txt`.

    Archives of the `spark.jars` of `conf` are brought as well. Raises BenchError if an archive cannot be fetched.
    """
    warehouse.mkdir(parents=True, exist_ok=True)
    # Executors must see the packages of this very environment, whatever `python3` is on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    lines = _SETTINGS.read_text(encoding="utf-8").splitlines()
    settings = {
        **dict(line.split(maxsplit=1) for line in lines if not line.startswith("#")),
        "spark.driver.memory": memory,
        "spark.sql.shuffle.partitions": str(cores),
        **catalog_settings(CATALOG, warehouse / "catalog.db", warehouse.as_uri()),
        **settings_of_executors(),
        **with_jars(conf, *jars),
    }
    builder = SparkSession.builder.master(f"local[{cores}]").appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def catalog_settings(
    name: str, database: Path, warehouse: str, others: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Give Spark's settings of a catalog in an SQLite file."""
    settings = {"type": "jdbc", "uri": f"jdbc:sqlite:{database}", "jdbc.schema-version": "V1", "warehouse": warehouse}
    own = {f"spark.sql.catalog.{name}.{key}": value for key, value in {**settings, **others}.items()}
    return {f"spark.sql.catalog.{name}": "org.apache.iceberg.spark.SparkCatalog", **own}


def with_jars(conf: Mapping[str, str], *jars: str) -> dict[str, str]:
    """Add what a session needs, and other archives of `jars.txt`, to the `spark.jars` of some settings."""
    own = filter(None, [conf.get("spark.jars")])
    return {**conf, "spark.jars": ",".join((*map(str, session_jars(*jars)), *own))}


def open_catalog(warehouse: Path) -> SqlCatalog:
    """Open the same catalog from PyIceberg."""
    warehouse.mkdir(parents=True, exist_ok=True)
    return SqlCatalog(CATALOG, uri=f"sqlite:///{warehouse / 'catalog.db'}", warehouse=warehouse.as_uri())


OLDEST_JAVA: Final = 17
_VERSION: Final = re.compile(r'version "(\d+)')


def require_java() -> int:
    """Give the major version of the Java that Spark will start; raise BenchError if there is none, or an old one."""
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
    """Send stderr into a file, that of processes which are started inside the block until they end."""
    file.parent.mkdir(parents=True, exist_ok=True)
    terminal = os.dup(2)
    try:
        with file.open("ab") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)


_PACKAGES: Final = ("puffin-index", "pyspark", "pyiceberg", "pyarrow", "pyroaring", "numpy", "duckdb", "tpchgen-cli")


def describe_machine(spark: SparkSession | None = None) -> dict[str, str | int]:
    """Say what a study runs on: processor, memory, system, the versions that matter, and Spark's settings."""
    cpu_info = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.*)", cpu_info.read_text(encoding="utf-8") if cpu_info.exists() else "")
    facts: dict[str, str | int] = {
        "processor": model[1] if model else platform.processor() or platform.machine(),
        "cores": os.cpu_count() or 0,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.platform(),
        "python": platform.python_version(),
        **{package: metadata.version(package) for package in _PACKAGES},
    }
    if spark is not None:
        java = spark.sql("SELECT java_method('java.lang.System', 'getProperty', 'java.version')")
        facts["java"] = str(java.collect()[0][0])
        facts["spark_master"] = spark.sparkContext.master or ""
        facts["spark_driver_memory"] = spark.conf.get("spark.driver.memory") or ""
        facts["spark_broadcast_threshold"] = spark.conf.get("spark.sql.autoBroadcastJoinThreshold") or ""
        facts["iceberg_runtime"] = iceberg_runtime().coordinate
    return facts
