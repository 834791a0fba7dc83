"""The systems that are compared, their environments and their processes; heavy systems have their own environments."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ssb_bench.data.layout import BenchError

_INSTALL_TIMEOUT_SECONDS: Final = 600
_ERROR: Final = re.compile(r"\S*\w*(Error|Exception|Killed)\b|\S+: \S|.*: Error")


@dataclass(frozen=True, slots=True)
class System:
    """One system, its worker (systems with one share a process), own packages if any, and why it is not run at all."""

    name: str
    title: str
    worker: str
    packages: tuple[str, ...] = ()
    unavailable: str | None = None


SYSTEMS: Final = (
    System("iceberg", "Spark, Iceberg without index", "spark"),
    System("iceberg-bloom", "Spark, Iceberg with Parquet bloom filters", "spark"),
    System("index", "Spark, Iceberg with this index", "spark"),
    System("arrow", "this index without a JVM (Arrow scan)", "arrow"),
    System("duckdb", "DuckDB on the same Parquet files", "duckdb"),
    System("datafusion", "DataFusion on the same Parquet files", "datafusion", ("datafusion==54.*", "pyarrow")),
    System("lance", "Lance, its own format, BTREE indexes", "lance", ("pylance==14.0.2", "pyarrow")),
    System("paimon", "Paimon", "", unavailable="its Java API writes row by row: a minute was too short for its table"),
    System("hudi", "Hudi", "", unavailable="runs on Spark 3.5 only: its times would also be those of another Spark"),
    System("hyperspace", "Hyperspace", "", unavailable="last built for Spark 2.4, not in the registry"),
    System("xskipper", "Xskipper", "", unavailable="its artifacts are not in the registry"),
)
SYSTEM_NAMES: Final = tuple(system.name for system in SYSTEMS)


class PeerError(BenchError):
    """A system could not be installed, opened or asked; the text says why."""


def environment_python(system: System, environments: Path) -> Path:
    """Give the interpreter of a system: the project's, or that of an environment of its own, which pip makes once.

    Raises PeerError if it cannot be installed.
    """
    if not system.packages:
        return Path(sys.executable)
    folder = environments / system.name
    python, marker = folder / "bin" / "python", folder / "installed.json"
    if marker.exists() and json.loads(marker.read_text(encoding="utf-8")) == list(system.packages):
        return python
    # No pip of its own and nothing compiled ahead: both take longer than the packages themselves.
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    install = [*pip, "install", "--quiet", "--no-compile", "--disable-pip-version-check", *system.packages]
    for command in ([sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder)], install):
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=_INSTALL_TIMEOUT_SECONDS
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise PeerError(f"cannot be installed: {error}") from error
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise PeerError(f"cannot be installed: {last}")
    marker.write_text(json.dumps(list(system.packages)), encoding="utf-8")
    return python


class WorkerProcess:
    """The process of a worker of `ssb_bench.systems.workers`."""

    def __init__(self, python: Path, worker: str, log: Path) -> None:
        package_root = str(Path(__file__).resolve().parents[2])
        self._log = log
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                [str(python), "-m", "ssb_bench.systems.workers", worker],
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
