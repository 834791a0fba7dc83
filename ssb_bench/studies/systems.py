"""Systems on the same rows and the same machine: cold first, then warm and in turns.

Cold is the first execution of a query in a process that has just started. Before it, the files of the data and the
index are dropped from the page cache as far as a user can (`posix_fadvise`). Spark has run one query on another table.
Then the processes stay. Answers are those of DuckDB (`count`: the count; `rows`: how many, and the sum of lo_revenue).
A system that cannot be run at all is noted with the reason, which is no failure.
"""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

from ssb_bench.data.dataset import open_duckdb
from ssb_bench.data.layout import BenchError, Layout, local_path
from ssb_bench.data.workload import ROWS_QUERIES, VOLCANO_QUERIES, FittedQuery
from ssb_bench.spark_runs.bench import Bench, Repeats, Seen, Task
from ssb_bench.spark_runs.index import describe_index, open_index
from ssb_bench.spark_runs.load import RANGED_COLUMNS, make_bloom_table, require_load
from ssb_bench.studies.run import fit_queries
from ssb_bench.systems.peers import SYSTEM_NAMES, SYSTEMS, PeerError, System, WorkerProcess

TITLE = "Other systems"
QUERIES = (*VOLCANO_QUERIES, *ROWS_QUERIES[:-1])
"""All but the rows of Q7, which are most of the table."""
_log = logging.getLogger(__name__)


def measure(
    bench: Bench,
    *,
    repeats: Repeats = 5,
    system: Annotated[tuple[str, ...], "A system.", SYSTEM_NAMES] = (),
    query: Annotated[tuple[str, ...], "A query.", QUERIES] = (),
) -> None:
    """Compare systems on the same rows, cold and warm; one that cannot be run is listed with the reason."""
    loaded = require_load(bench.layout)
    chosen = [one for one in SYSTEMS if not system or one.name in system]
    index = describe_index(bench.layout, open_index(bench.layout))
    bench.note("table", **loaded.facts)
    bench.note("index", **index)
    if any(one.name == "iceberg-bloom" for one in chosen):
        with bench.session() as spark:
            bloom = make_bloom_table(spark, bench.layout)
        bench.note("bloom filters", index_bytes=bloom.data_bytes - loaded.data_bytes, write_seconds=bloom.write_seconds)
    asked = [
        (query.query.name, *_request(bench.layout, query)) for query in fit_queries(bench.layout, query or QUERIES)
    ]
    with open_systems(bench, chosen) as workers:
        tasks = []
        for name, request, due in asked:
            works = {
                one.title: _Asked(bench.layout, worker, {**request, "system": one.name})
                for one, worker in workers.items()
            }
            tasks.append(Task(name, works, due, "select *" if request["kind"] == "rows" else "count(*)"))
        bench.compare(tasks, repeats=repeats)


class _Asked:
    """A query of a system; its first execution is cold."""

    def __init__(self, layout: Layout, worker: WorkerProcess, request: Mapping[str, object]) -> None:
        self._layout, self._worker, self._request, self._is_cold = layout, worker, request, True

    def __call__(self) -> Seen:
        if self._is_cold:
            drop_caches([self._layout.root / "systems", self._layout.warehouse])
            self._is_cold = False
        reply = self._worker.ask({"query": self._request})
        return Seen(reply["answer"], seconds=float(reply["seconds"]))


def _request(layout: Layout, query: FittedQuery) -> tuple[dict[str, object], object]:
    """Give a query as workers get it, and the answer of DuckDB; BenchError if it is no count or rows of lineorder."""
    name, where, workload = query.query.name, query.where, query.query.workload
    if where is None or workload == "aggregate":
        raise BenchError(f"systems are compared on counts and rows of lineorder, not on {name}")
    with open_duckdb(layout) as connection:
        sql = f"SELECT count(*), coalesce(sum(lo_revenue), 0) FROM lineorder WHERE {where}"
        [(count, revenue)] = connection.execute(sql).fetchall()
    is_rows = workload == "rows"
    return {"kind": "rows" if is_rows else "count", "where": where}, [int(count), int(revenue)] if is_rows else int(
        count
    )


@contextmanager
def open_systems(bench: Bench, systems: Sequence[System]) -> Iterator[dict[System, WorkerProcess]]:
    """Start the workers of systems, one for those that share it; note facts, and why one could not be opened."""
    folder = bench.layout.root / "systems"
    config: dict[str, object] = {
        "files": str(link_files(bench.layout)),
        "warehouse": str(bench.layout.warehouse),
        "columns": list(RANGED_COLUMNS),
        "cores": bench.cores,
        "memory": bench.memory,
    }
    opened: dict[str, WorkerProcess] = {}
    workers: dict[System, WorkerProcess] = {}
    with ExitStack() as stack:
        for system in systems:
            _log.info("opening %s", system.title)
            if system.worker not in opened:
                worker = WorkerProcess(system.worker, folder / f"{system.name}.log", system.packages)
                stack.callback(worker.close)
                try:
                    facts = worker.ask({"open": config | {"folder": str(folder / system.name)}})["facts"]
                except PeerError as error:
                    bench.note(system.title, not_run=str(error))
                    continue
                bench.note(system.title, **facts)
                opened[system.worker] = worker
            workers[system] = opened[system.worker]
        yield workers


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
