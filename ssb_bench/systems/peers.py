"""The systems that are compared, and their processes; uv gives a system with packages of its own an environment."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ssb_bench.data.layout import BenchError

_ERROR: Final = re.compile(r"\S*\w*(Error|Exception|Killed)\b|\S+: \S|.*: Error")


@dataclass(frozen=True, slots=True)
class System:
    """One system, its worker (systems with one share a process), and packages of its own, if any."""

    name: str
    title: str
    worker: str
    packages: tuple[str, ...] = ()


SYSTEMS: Final = (
    System("iceberg", "Spark, Iceberg without index", "spark"),
    System("iceberg-bloom", "Spark, Iceberg with Parquet bloom filters", "spark"),
    System("index", "Spark, Iceberg with this index", "spark"),
    System("arrow", "this index without a JVM (Arrow scan)", "arrow"),
    System("duckdb-index", "DuckDB on the dataset of this index", "duckdb-index"),
    System("duckdb", "DuckDB on the same Parquet files", "duckdb"),
    System("datafusion", "DataFusion on the same Parquet files", "datafusion", ("datafusion==54.*", "pyarrow")),
    System("lance", "Lance, its own format, BTREE indexes", "lance", ("pylance==14.0.2", "pyarrow")),
)
SYSTEM_NAMES: Final = tuple(system.name for system in SYSTEMS)


class PeerError(BenchError):
    """A system could not be opened or asked; the text says why."""


class WorkerProcess:
    """The process of a worker of `ssb_bench.systems.workers`."""

    def __init__(self, worker: str, log: Path, packages: Sequence[str] = ()) -> None:
        package_root = str(Path(__file__).resolve().parents[2])
        python = [sys.executable]
        if packages:
            options = ("--quiet", "--no-project", "--isolated", "--python", sys.executable)
            python = [sys.executable, "-m", "uv", "run", *options, *(f"--with={one}" for one in packages), "python"]
        self._log = log
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                [*python, "-m", "ssb_bench.systems.workers", worker],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env=dict(os.environ) | {"PYTHONPATH": package_root},
            )

    def ask(self, request: Mapping[str, object]) -> Mapping[str, Any]:
        """Send a request and give the reply, or raise PeerError if the worker reports a failure, or has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self._process.wait()
            raise PeerError(self._reason())
        reply: Mapping[str, Any] = json.loads(line)
        if "error" in reply:
            raise PeerError(str(reply["error"]))
        return reply

    def _reason(self) -> str:
        """Give the last line that names an error, or else the exit code."""
        lines = (line.strip() for line in self._log.read_text(encoding="utf-8", errors="replace").splitlines())
        named = [line for line in lines if _ERROR.match(line)]
        return named[-1] if named else f"the worker ended with exit code {self._process.returncode}"

    def close(self) -> None:
        """Let the worker end."""
        for stream in (self._process.stdin, self._process.stdout):
            # Closing sends what a worker that has ended did not take.
            with suppress(BrokenPipeError):
                if stream is not None:
                    stream.close()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
