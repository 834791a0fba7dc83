"""Systems on the same rows and the same machine: cold first, then warm and in turns.

Cold is the first execution of a query in a process that has just started, after `drop_caches`; Spark has run one query
on another table. Answers are those of DuckDB. A system that cannot be run is noted with the reason.
"""

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

from ssb_bench.data.dataset import open_duckdb
from ssb_bench.data.layout import BenchError, local_path
from ssb_bench.data.workload import ROWS_QUERIES, VOLCANO_QUERIES
from ssb_bench.spark_runs.bench import Bench, Repeats, Seen, Task
from ssb_bench.spark_runs.load import RANGED_COLUMNS, TABLE, make_bloom_table, note_table, open_index
from ssb_bench.stores.server import tell
from ssb_bench.studies.run import fit_queries

TITLE = "Other systems"
QUERIES = (*VOLCANO_QUERIES, *ROWS_QUERIES[:-1])
"""All but the rows of Q7, which are most of the table."""
_log = logging.getLogger(__name__)
_ERROR: Final = re.compile(r"\S*\w*(Error|Exception|Killed)\b|\S+: \S|.*: Error")


@dataclass(frozen=True, slots=True)
class System:
    """One system, its worker (systems with one share a process), and packages of its own, if any."""

    title: str
    worker: str
    packages: tuple[str, ...] = ()


SYSTEMS: Final = {
    "iceberg": System("Spark, Iceberg without index", "spark"),
    "iceberg-bloom": System("Spark, Iceberg with Parquet bloom filters", "spark"),
    "index": System("Spark, Iceberg with this index", "spark"),
    "arrow": System("this index without a JVM (Arrow scan)", "arrow"),
    "duckdb-index": System("DuckDB on the dataset of this index", "duckdb-index"),
    "duckdb": System("DuckDB on the same Parquet files", "duckdb"),
    "datafusion": System("DataFusion on the same Parquet files", "datafusion", ("datafusion==54.*", "pyarrow")),
    "lance": System("Lance, its own format, BTREE indexes", "lance", ("pylance==14.0.2", "pyarrow")),
}


class WorkerProcess:
    """The process of a worker of `ssb_bench.systems.workers`."""

    def __init__(self, worker: str, log: Path, packages: Sequence[str] = ()) -> None:
        package_root = str(Path(__file__).resolve().parents[2])
        python = [sys.executable]
        if packages:
            python += ["-m", "uv", "run", "--quiet", "--no-project", "--isolated", "--python", sys.executable]
            python += [*(f"--with={one}" for one in packages), "python"]
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
        """Send a request and give the reply, or raise BenchError if the worker reports a failure, or has ended."""
        try:
            line = tell(self._process, json.dumps(request)).readline()
        except BrokenPipeError:
            line = ""
        if not line:
            ended = f"the worker ended with exit code {self._process.wait()}"
            lines = map(str.strip, self._log.read_text(encoding="utf-8", errors="replace").splitlines())
            # The last line that names an error says more.
            raise BenchError([ended, *filter(_ERROR.match, lines)][-1])
        reply: Mapping[str, Any] = json.loads(line)
        if "error" in reply:
            raise BenchError(str(reply["error"]))
        return reply

    def close(self) -> None:
        """Let the worker end."""
        try:
            self._process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


def measure(
    bench: Bench,
    *,
    repeats: Repeats = 5,
    system: Annotated[tuple[str, ...], "A system.", SYSTEMS] = (),
    query: Annotated[tuple[str, ...], "A query.", QUERIES] = (),
) -> None:
    """Compare systems on the same rows, cold and warm; one that cannot be run is listed with the reason."""
    note_table(bench)
    chosen, folder = system or tuple(SYSTEMS), bench.layout.root / "systems"
    if "iceberg-bloom" in chosen:
        with bench.session() as spark:
            bench.note("bloom filters", **make_bloom_table(spark, bench.layout))
    with open_systems(bench, chosen) as workers, open_duckdb(bench.layout) as connection:
        tasks = []
        for one in fit_queries(bench.layout, query or QUERIES):
            sql = f"SELECT count(*), coalesce(sum(lo_revenue), 0)::BIGINT FROM lineorder WHERE {one.where}"
            [(count, revenue)] = connection.execute(sql).fetchall()
            is_rows = one.workload == "rows"
            request = {"kind": "rows" if is_rows else "count", "where": one.where}
            works = {
                SYSTEMS[own].title: partial(_ask, worker, {**request, "system": own}, [folder, bench.layout.warehouse])
                for own, worker in workers.items()
            }
            due, heading = ([count, revenue], "select *") if is_rows else (count, "count(*)")
            tasks.append(Task(one.name, works, due, heading))
        bench.compare(tasks, repeats=repeats)


def _ask(worker: WorkerProcess, query: Mapping[str, object], cached: list[Path]) -> Seen:
    """Ask a system; the first time, the operating system has forgotten some folders."""
    drop_caches(cached)
    cached.clear()
    reply = worker.ask({"query": query})
    return Seen(reply["answer"], seconds=float(reply["seconds"]))


@contextmanager
def open_systems(bench: Bench, systems: Sequence[str], table: str = TABLE) -> Iterator[dict[str, WorkerProcess]]:
    """Start the workers of systems, one for those that share it; note facts, and why one could not be opened."""
    folder = bench.layout.root / "systems"
    folder.mkdir(parents=True, exist_ok=True)
    config: dict[str, object] = {
        # A load writes the table anew, so that nothing else is in its folder.
        "files": str(local_path(open_index(bench.layout.warehouse, table).data_table.location()) / "data"),
        "table": table,
        "warehouse": str(bench.layout.warehouse),
        "columns": list(RANGED_COLUMNS),
        "cores": bench.cores,
        "memory": bench.memory,
    }
    opened: dict[str, WorkerProcess] = {}
    workers: dict[str, WorkerProcess] = {}
    with ExitStack() as stack:
        for name in systems:
            system = SYSTEMS[name]
            _log.info("opening %s", system.title)
            if system.worker not in opened:
                worker = WorkerProcess(system.worker, folder / f"{name}.log", system.packages)
                stack.callback(worker.close)
                try:
                    facts = worker.ask({"open": config | {"folder": str(folder / name)}})["facts"]
                except BenchError as error:
                    bench.note(system.title, not_run=str(error))
                    continue
                bench.note(system.title, **facts)
                opened[system.worker] = worker
            workers[name] = opened[system.worker]
        yield workers


def drop_caches(folders: Iterable[Path]) -> None:
    """Ask the system to forget the cached pages of all files under some folders, as far as a user may ask."""
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    for file in files if hasattr(os, "posix_fadvise") else ():
        with file.open("rb") as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
