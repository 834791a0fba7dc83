"""Few rows of a table as Iceberg writes it by default: row groups of 128 MB, pages of 20,000 rows.

The table has the rows of lineorder, an id of each (a hash of its key), and visits: keys whose rows come in bursts of
about a dozen. `load` writes it. Other systems read its Parquet files. Where pages cannot help, the
queries of `run` are asked of this table.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from operator import mul
from typing import Annotated, Final

from pyspark.sql import SparkSession

from ssb_bench.data.layout import NAMESPACE, BenchError
from ssb_bench.data.workload import SSB_QUERIES
from ssb_bench.spark_runs import load
from ssb_bench.spark_runs.bench import Bench, Repeats, Seen, Task
from ssb_bench.spark_runs.measure import both_sides, tasks_of
from ssb_bench.spark_runs.session import CATALOG
from ssb_bench.studies.run import answer_due, fit_queries, task_of
from ssb_bench.studies.systems import SYSTEMS, WorkerProcess, open_systems

TITLE = "Few rows of default row groups"
_SPARK_TABLE: Final = f"{CATALOG}.{load.DEFAULT_TABLE}"
_SOURCE: Final = f"{CATALOG}.{NAMESPACE}.pages_source"
_OTHERS: Final = ("arrow", "duckdb", "datafusion")
_BESIDE: Final = ("q5-rows", "q7-rows", *SSB_QUERIES)
_LEAST_RATIO: Final = 0.98
_FEW: Final = "Few rows"
_MERGE: Final = (
    f"MERGE INTO {_SPARK_TABLE} t USING {_SOURCE} s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)


def measure(
    bench: Bench,
    *,
    repeats: Repeats = 5,
    system: Annotated[tuple[str, ...], "Another system that reads the same files; all by default.", _OTHERS] = (),
) -> None:
    """Read few rows of a table with default row groups; exit 1 if an answer is wrong."""
    load.require_load(bench.layout)
    queries = fit_queries(bench.layout, _BESIDE)
    with bench.session() as spark:
        loaded = load.load_default(spark, bench.layout)
        bench.note("table", write_seconds=loaded.write_seconds)
        load.index_table(bench, spark, load.DEFAULT_TABLE, load.DEFAULT_DEFINITION)
        with both_sides(spark) as sides, open_systems(bench, system or _OTHERS, load.DEFAULT_TABLE) as workers:
            chosen = f"SELECT lo_custkey FROM {_SPARK_TABLE} WHERE lo_linenumber = 5 ORDER BY xxhash64(id) LIMIT 3"
            customers = [(row.lo_custkey,) for row in spark.sql(chosen).collect()]
            # The queries of the benchmark ask this table.
            for session in sides.values():
                session.table(_SPARK_TABLE).createOrReplaceTempView("lineorder")
                session.createDataFrame(customers, "lo_custkey INT").createOrReplaceTempView("listed")
            bench.compare(_few_rows(sides, workers), repeats=repeats)
            due = {query.name: answer_due(bench.layout, query) for query in queries}
            limit = partial(mul, 1 / _LEAST_RATIO)
            beside = [replace(task_of(one, sides, loaded.rows, due[one.name]), limit=limit) for one in queries]
            bench.compare(beside, repeats=repeats)
            _merge(bench, spark, sides, repeats)


def _few_rows(sides: Mapping[str, SparkSession], workers: Mapping[str, WorkerProcess]) -> Iterator[Task]:
    """Ask Spark, and the other systems for whole rows."""
    for query, task in tasks_of("pages", sides, _FEW):
        others = {}
        if query.sql.startswith("SELECT * FROM lineorder WHERE"):
            totals = f"SELECT count(*), sum(lo_revenue) FROM lineorder WHERE {query.where}"
            ask = partial(_ask_worker, query.where, [*sides["without"].sql(totals).collect()[0]])
            others = {SYSTEMS[own].title: partial(ask, worker) for own, worker in workers.items()}
        yield replace(task, works={**task.works, **others})


def _ask_worker(where: str, due: list[int], worker: WorkerProcess) -> Seen:
    reply = worker.ask({"query": {"kind": "rows", "where": where}})
    if reply["answer"] != due:
        raise BenchError(f"answers {reply['answer']}, {due} is due")
    return Seen(None, seconds=float(reply["seconds"]))


def _merge(bench: Bench, spark: SparkSession, sides: Mapping[str, SparkSession], repeats: int) -> None:
    """Merge 1,000 recent rows, rolled back each time; what that wrote is deleted at the end."""
    load.write_source(spark, _SPARK_TABLE, _SOURCE, load.RECENT)
    before = load.newest_snapshot(spark, _SPARK_TABLE)

    def merge(session: SparkSession) -> Seen:
        started = time.perf_counter()
        session.sql(_MERGE)
        seconds = time.perf_counter() - started
        summary = load.newest_snapshot(session, _SPARK_TABLE).summary
        load.roll_back(session, load.DEFAULT_TABLE, before.snapshot_id)
        return Seen([summary.get(name) for name in ("added-records", "added-position-deletes")], seconds=seconds)

    try:
        works = {side: partial(merge, session) for side, session in sides.items()}
        task = Task("MERGE merge-on-read of 1,000", works, heading=_FEW, limit=partial(mul, 1 / 5))
        bench.compare([task], repeats=repeats)
    finally:
        load.drop_changes(spark, load.DEFAULT_TABLE, [_SOURCE])
