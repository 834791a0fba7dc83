"""Spark's own programs with the plugin, started as users start them: with the settings that `spark-conf` prints."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pyspark
from click.testing import CliRunner

from planner.commands.main import main
from ssb_bench.spark_runs.jars import SERVICES
from ssb_bench.spark_runs.session import LOG_OPTION, with_jars
from tests.processes import Process, descendants, is_alive, wait_for
from tests.spark.agreement import row_groups_of

SPARK_HOME = Path(pyspark.__file__).parent
READY = "ready .* ms after its start"
NO_SETTINGS: Mapping[str, str] = MappingProxyType({})
_PATIENCE_SECONDS = 120.0

SETUP = (
    "CREATE NAMESPACE IF NOT EXISTS lake.ns",
    "CREATE TABLE lake.ns.t (id BIGINT, k BIGINT, s STRING) USING iceberg "
    f"TBLPROPERTIES ('write.merge.mode'='merge-on-read', {row_groups_of(500)})",
    "INSERT INTO lake.ns.t SELECT id, (id * 7919) % 2000, concat('n', id % 50) FROM RANGE(0, 2000, 1, 1)",
)
"""A table of 4 row groups, each of which has keys from the whole range."""


def printed_settings() -> dict[str, str]:
    """The settings that `spark-conf` prints."""
    printed = CliRunner().invoke(main, ["spark-conf"], catch_exceptions=False).stdout
    return dict(line.split(" ", 1) for line in printed.splitlines())


def spark_settings(home: Path, others: Mapping[str, str] = NO_SETTINGS) -> dict[str, str]:
    """The settings of an application whose catalog `lake` is in a folder, with those that `spark-conf` prints."""
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": LOG_OPTION,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": str(home / "hive"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "jdbc",
        "spark.sql.catalog.lake.uri": f"jdbc:sqlite:{home / 'catalog.db'}",
        "spark.sql.catalog.lake.jdbc.schema-version": "V1",
        "spark.sql.catalog.lake.warehouse": home.as_uri(),
        "spark.puffin-index.refresh-seconds": "0",
        **with_jars(printed_settings(), *SERVICES),
        **others,
    }


@dataclass(frozen=True, slots=True)
class Program:
    """A program of Spark's that runs, and the folder that it writes to."""

    process: subprocess.Popen[str]
    folder: Path

    def said(self) -> str:
        """Everything that it has written to its standard error."""
        return (self.folder / "stderr").read_text(encoding="utf-8")

    def printed(self) -> str:
        """Everything that it has written to its standard output."""
        return (self.folder / "stdout").read_text(encoding="utf-8")

    def wait_until_said(self, pattern: str, times: int = 1) -> None:
        """Wait until its log matches, or fail."""
        end = time.monotonic() + _PATIENCE_SECONDS
        while len(re.findall(pattern, self.said())) < times:
            assert time.monotonic() < end, self.said()[-5_000:]
            assert self.process.poll() is None, self.said()[-5_000:]
            time.sleep(0.05)

    def sidecar(self) -> Process:
        """The Python process that plans for it now."""
        (found,) = (one for one in descendants(self.process.pid) if "planner.spark.sidecar" in one.command)
        return found


@contextmanager
def running(program: str, home: Path, settings: Mapping[str, str], *arguments: str) -> Iterator[Program]:
    """Run a program of Spark's `bin` folder; it is killed in the end, and what it has started must end with it."""
    options = [text for key, value in settings.items() for text in ("--conf", f"{key}={value}")]
    folder = home / f"run-{time.monotonic_ns()}"
    folder.mkdir()
    with (folder / "stdout").open("w") as stdout, (folder / "stderr").open("w") as stderr:
        process = subprocess.Popen(
            [SPARK_HOME / "bin" / program, *options, *arguments],
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=stderr,
            cwd=folder,
            # A shell in the background of a terminal would be stopped when it looks at it.
            start_new_session=True,
            env={**os.environ, "SPARK_HOME": str(SPARK_HOME), "PYSPARK_PYTHON": sys.executable},
            text=True,
        )
    children: list[Process] = []
    try:
        yield Program(process, folder)
        children = descendants(process.pid)
    finally:
        process.kill()
        process.wait(60)
        assert process.stdin is not None
        process.stdin.close()
    assert wait_for(lambda: not any(map(is_alive, children)), 10), "what the program started outlives it"


@dataclass(slots=True)
class SqlShell:
    """A `spark-sql` that runs statements one after another."""

    program: Program
    _statements: int = 0

    def __call__(self, statement: str) -> list[str]:
        """Run a statement; return the lines that it prints."""
        self._statements += 1
        before, end = len(self.program.printed()), time.monotonic() + _PATIENCE_SECONDS
        mark = f"done {self._statements}"
        stdin = self.program.process.stdin
        assert stdin is not None
        stdin.write(f"{statement};\nSELECT concat('done', ' ', {self._statements});\n")
        stdin.flush()
        while mark not in (lines := self.program.printed()[before:].split("\n")):
            assert time.monotonic() < end, (statement, self.program.said()[-5_000:])
            time.sleep(0.02)
        # The shell prints what it is told as well, on lines of 80 characters.
        printed = lines[: lines.index(mark) - 1]
        return printed[next(number for number, line in enumerate(printed) if line.endswith(";")) + 1 :]
