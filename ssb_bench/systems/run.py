"""The comparison of systems: the same rows, the same machine, one run; cold first, then warm and interleaved.

Cold is the first execution of a query in a process that has just started. Before it, the files of the data and the
index are dropped from the page cache as far as a user can (`posix_fadvise`). Spark has run one query on another table.
Then the processes stay, and the rounds go through the systems forwards and backwards. Answers are compared by value
(`count`: the count; `rows`: how many rows, and the sum of lo_revenue). A failure is null and listed.
"""

import datetime
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from ssb_bench.data.dataset import open_duckdb
from ssb_bench.data.layout import BenchError, Layout, local_path
from ssb_bench.data.workload import FittedQuery
from ssb_bench.results.studies import SystemResult, SystemsRun
from ssb_bench.spark_runs.index import describe_index, open_index
from ssb_bench.spark_runs.load import RANGED_COLUMNS, BloomTable, Load, require_load
from ssb_bench.spark_runs.session import describe_host
from ssb_bench.systems.peers import PeerError, System, WorkerProcess

_log = logging.getLogger(__name__)

SECONDS_A_QUERY: Final = 5.0
"""A system whose cold execution took longer than this gets one warm execution."""


@dataclass(frozen=True, slots=True)
class _Query:
    """A query as workers get it, and the answer that is due."""

    name: str
    kind: str
    where: str
    due: object


@dataclass(frozen=True, slots=True)
class _Running:
    """A system with its worker's process."""

    system: System
    process: WorkerProcess
    result: SystemResult

    def execute(self, query: _Query) -> float | None:
        """Execute a query and give its seconds; a failure is noted, and the query is not executed again."""
        if query.name in self.result.failures:
            return None
        request = {"kind": query.kind, "where": query.where, "system": self.system.name}
        try:
            reply = self.process.ask({"query": request})
        except PeerError as error:
            self.result.failures[query.name] = str(error)
            return None
        if reply["answer"] != query.due:
            self.result.failures[query.name] = f"answers {reply['answer']}, {query.due} is due"
            return None
        return float(reply["seconds"])

    def execute_warm(self, query: _Query) -> None:
        """Execute a query again; a slow one only once."""
        cold, warm = self.result.cold.get(query.name), self.result.warm.get(query.name, [])
        if cold is None or (cold > SECONDS_A_QUERY and warm):
            return
        if (seconds := self.execute(query)) is not None:
            self.result.warm[query.name] = [*warm, seconds]


def run_systems(
    layout: Layout,
    systems: Sequence[System],
    queries: Sequence[FittedQuery],
    *,
    repeats: int = 5,
    resources: Mapping[str, object] = MappingProxyType({"cores": 2, "memory": "2g"}),
    bloom: BloomTable | None = None,
) -> SystemsRun:
    """Compare systems on counts and rows of lineorder, which is loaded and indexed, also with bloom filters if asked.

    Raises BenchError if the table is not loaded, or a query is a join.
    """
    loaded = require_load(layout)
    files = link_files(layout)
    asked = _due(layout, queries)
    config = {"files": str(files), "warehouse": str(layout.warehouse), "columns": list(RANGED_COLUMNS), **resources}
    results = [SystemResult(system.name, system.title) for system in systems]
    processes: dict[str, WorkerProcess] = {}
    running: list[_Running] = []
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    try:
        for system, result in zip(systems, results, strict=True):
            _log.info("opening %s", system.title)
            running += open_system(layout, system, result, config, processes)
        for query in asked:
            _log.info("%s, cold", query.name)
            for one in running:
                drop_caches([files, layout.warehouse, layout.root / "systems"])
                one.result.cold[query.name] = one.execute(query)
        for number in range(repeats):
            for query in asked:
                _log.info("%s, warm, %d of %d", query.name, number + 1, repeats)
                for one in running if number % 2 == 0 else reversed(running):
                    one.execute_warm(query)
    finally:
        for process in processes.values():
            process.close()
    _add_facts(layout, loaded, bloom, results)
    return SystemsRun(
        started,
        layout.scale_factor,
        loaded.rows,
        loaded.row_groups,
        loaded.data_bytes,
        describe_host(),
        {query.name: query.where for query in asked},
        tuple(results),
    )


def _add_facts(layout: Layout, loaded: Load, bloom: BloomTable | None, results: Sequence[SystemResult]) -> None:
    """Add what the Iceberg tables and the whole present index took."""
    index = describe_index(layout, open_index(layout))
    written: dict[str, str | float] = {"write_seconds": loaded.write_seconds, "data_bytes": loaded.data_bytes}
    for result in results:
        if result.name in ("iceberg", "index"):
            result.facts |= written
        if result.name in ("index", "arrow"):
            result.facts["index_bytes"] = index.index_bytes
            if index.build_seconds is not None:
                result.facts["build_seconds"] = index.build_seconds
        if result.name == "iceberg-bloom" and bloom is not None:
            result.facts |= {"write_seconds": bloom.write_seconds, "data_bytes": bloom.data_bytes}
            result.facts["index_bytes"] = bloom.data_bytes - loaded.data_bytes


def open_system(
    layout: Layout,
    system: System,
    result: SystemResult,
    config: dict[str, object],
    processes: dict[str, WorkerProcess],
) -> list[_Running]:
    """Start the worker of a system, unless another system has started it; a failure goes into the result."""
    own = layout.root / "systems"
    try:
        if system.worker not in processes:
            own.mkdir(parents=True, exist_ok=True)
            process = WorkerProcess(system.worker, own / f"{system.name}.log", system.packages)
            processes[system.worker] = process
            result.facts = dict(process.ask({"open": config | {"folder": str(own / system.name)}})["facts"])
        return [_Running(system, processes[system.worker], result)]
    except PeerError as error:
        result.failure = str(error)
    return []


def _due(layout: Layout, queries: Sequence[FittedQuery]) -> list[_Query]:
    """Ask DuckDB for the answers."""
    asked = []
    with open_duckdb(layout) as connection:
        for query in queries:
            name, where, workload = query.query.name, query.where, query.query.workload
            if where is None or workload == "aggregate":
                raise BenchError(f"systems are compared on counts and rows of lineorder, not on {name}")
            sql = f"SELECT count(*), coalesce(sum(lo_revenue), 0) FROM lineorder WHERE {where}"
            [(count, revenue)] = connection.execute(sql).fetchall()
            due = [int(count), int(revenue)] if workload == "rows" else int(count)
            asked.append(_Query(name, "rows" if workload == "rows" else "count", where, due))
    return asked


def link_files(layout: Layout) -> Path:
    """Put links to the present data files of lineorder into one directory, which other systems read."""
    folder = layout.root / "systems" / "files"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for task in open_index(layout).data_table.scan().plan_files():
        path = local_path(task.file.file_path)
        (folder / path.name).symlink_to(path)
    return folder


def drop_caches(folders: Sequence[Path]) -> None:
    """Ask the system to forget the cached pages of all files under some folders, as far as a user may ask."""
    if not hasattr(os, "posix_fadvise"):
        return
    for file in (file for folder in folders for file in folder.rglob("*") if file.is_file()):
        with file.open("rb") as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
