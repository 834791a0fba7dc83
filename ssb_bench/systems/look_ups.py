"""Looking rows up by one key at a time: this index, held against Lance on the same rows, warm and in turns.

The loaded table has no index of `lo_orderkey`. Nearest to it is `lo_ordtotalprice`: the rows of an order share it and
lie together, and few orders have the same one.
"""

import statistics
from collections.abc import Mapping
from typing import Final

from ssb_bench.data.dataset import open_duckdb
from ssb_bench.data.layout import BenchError, Layout
from ssb_bench.results.studies import DoorStep, SystemResult
from ssb_bench.spark_runs.load import RANGED_COLUMNS
from ssb_bench.spark_runs.measure import in_turns
from ssb_bench.systems.peers import SYSTEMS, WorkerProcess
from ssb_bench.systems.run import link_files, open_system

_COLUMN: Final = RANGED_COLUMNS[0]
_KEYS: Final = 300
_TARGETS: Final = {"look-up": 0.003, "look-up, 99th of 100": 0.010, "look-up, two threads": 1 / 300}


def measure_look_ups(layout: Layout, *, rounds: int = 5) -> tuple[list[DoorStep], list[str]]:
    """Look random keys up, some rounds after one to warm up; give what that took, and which answers are wrong.

    Raises BenchError if the table is not loaded or a look-up fails, NotFoundError without an index.
    """
    config = {"files": str(link_files(layout)), "warehouse": str(layout.warehouse), "columns": list(RANGED_COLUMNS)}
    sql = f"SELECT {_COLUMN}, count(*), sum(lo_revenue)::BIGINT FROM lineorder GROUP BY 1 ORDER BY hash(1, {_COLUMN})"
    with open_duckdb(layout) as connection:
        due = {key: rows for key, *rows in connection.execute(f"{sql} LIMIT {_KEYS}").fetchall()}
    systems = {one: SystemResult(one.name, one.title) for one in SYSTEMS if one.name in ("arrow", "lance")}
    ours, other = systems.values()
    taken: dict[str, list[tuple[float, ...]]] = {"arrow": [], "lance": []}
    processes: dict[str, WorkerProcess] = {}
    failures: list[str] = []
    try:
        running = [one for system in systems.items() for one in open_system(layout, *system, dict(config), processes)]
        if ours.failure is not None:
            raise BenchError(ours.failure)
        for one in in_turns(running, 1 + rounds):
            times, answers = _look_up(one.process, [*due])
            taken[one.system.name].append(times)
            if answers != [*due.values()] * 2:
                failures.append(f"{one.system.title}: rows of keys are not those of DuckDB")
    finally:
        for process in processes.values():
            process.close()
    against = other.title if other.failure is None else f"not run: {other.title}: {other.failure}"
    steps = []
    for number, (name, most) in enumerate(_TARGETS.items()):
        own, others = (tuple(times[number] for times in taken[system][1:]) for system in taken)
        steps.append(DoorStep(name, against, others, own, most))
    return steps, failures


def _look_up(worker: WorkerProcess, keys: list[int]) -> tuple[tuple[float, ...], list[object]]:
    """Look keys up one after another, then in two threads; give the seconds of the targets, and the answers."""
    query: Mapping[str, object] = {"kind": "get", "column": _COLUMN}
    *each, together = (worker.ask({"query": {**query, "keys": asked}}) for asked in (*([key] for key in keys), keys))
    seconds = [float(reply["seconds"]) for reply in each]
    slowest = statistics.quantiles(seconds, n=100, method="inclusive")[-1]
    answers = [answer for reply in (*each, together) for answer in reply["answer"]]
    return (statistics.median(seconds), slowest, float(together["seconds"]) / len(keys)), answers
