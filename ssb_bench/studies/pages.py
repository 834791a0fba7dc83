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

from planner.report.scan_plan import ScanPlan
from ssb_bench.data.layout import NAMESPACE, BenchError
from ssb_bench.data.workload import SSB_QUERIES
from ssb_bench.results.record import Number
from ssb_bench.spark_runs.bench import Bench, Repeats, Seen, Task
from ssb_bench.spark_runs.load import (
    DEFAULT_TABLE,
    MERGE,
    expire_snapshots,
    index_default,
    load_default,
    note_indexed,
    require_load,
    write_table,
)
from ssb_bench.spark_runs.measure import both_sides, measure as measure_query
from ssb_bench.spark_runs.session import CATALOG
from ssb_bench.studies.run import answer_due, fit_queries, task_of
from ssb_bench.studies.systems import SYSTEMS, WorkerProcess, open_systems

TITLE = "Few rows of default row groups"
_SPARK_TABLE: Final = f"{CATALOG}.{DEFAULT_TABLE}"
_NEW_KEYS: Final = f"{CATALOG}.{NAMESPACE}.pages_source"
_OTHERS: Final = ("arrow", "duckdb", "datafusion")
_BESIDE: Final = ("q5-rows", "q7-rows", *SSB_QUERIES)
_LEAST_RATIO: Final = 0.98


def measure(
    bench: Bench,
    *,
    repeats: Repeats = 5,
    system: Annotated[tuple[str, ...], "Another system that reads the same files; all by default.", _OTHERS] = (),
) -> None:
    """Read few rows of a table with default row groups; exit 1 if an answer is wrong."""
    require_load(bench.layout)
    queries = fit_queries(bench.layout, _BESIDE)
    with bench.session() as spark:
        bench.note("table", write_seconds=load_default(spark, bench.layout).write_seconds)
        index, report = index_default(spark, bench.layout)
        rows = note_indexed(bench, index)
        if report.rows:
            bench.note("index", build_seconds=report.seconds)
        with both_sides(spark) as sides, open_systems(bench, system or _OTHERS, DEFAULT_TABLE) as workers:
            # The queries of the benchmark ask this table.
            for session in sides.values():
                session.table(_SPARK_TABLE).createOrReplaceTempView("lineorder")
            tasks = [_few_rows(sides, workers, *one) for one in _questions(spark)]
            bench.compare([*tasks, *_of_spark(spark, sides)], repeats=repeats)
            due = {query.name: answer_due(bench.layout, query) for query in queries}
            limit = partial(mul, 1 / _LEAST_RATIO)
            beside = [replace(task_of(one, sides, rows, due[one.name]), limit=limit) for one in queries]
            bench.compare(beside, repeats=repeats)
            _merge(bench, spark, sides, repeats)


def _questions(spark: SparkSession) -> Iterator[tuple[str, str, str, float]]:
    """Ask for the keys of a row that a hash has chosen: name, columns, condition, and how many times as fast to be."""
    chosen = "max_by(struct(lo_ordtotalprice, lo_custkey, visit), xxhash64(id))"
    [((price, customer, visit),)] = spark.sql(f"SELECT {chosen} FROM {_SPARK_TABLE} WHERE lo_linenumber = 5").collect()
    yield "a price", "*", f"lo_ordtotalprice = {price}", 12
    yield "a customer", "*", f"lo_custkey = {customer}", 5
    yield "a customer, 3 columns", "lo_orderkey, lo_quantity, lo_revenue", f"lo_custkey = {customer}", 3
    yield "a visitor, in bursts", "*", f"visit = {visit}", 10


def _few_rows(
    sides: Mapping[str, SparkSession],
    workers: Mapping[str, WorkerProcess],
    name: str,
    columns: str,
    where: str,
    times_as_fast: float,
) -> Task:
    task = _asked(sides, name, f"SELECT {columns} FROM lineorder WHERE {where}", times_as_fast)
    totals = f"SELECT count(*), sum(lo_revenue) FROM lineorder WHERE {where}"
    due = [*sides["without"].sql(totals).collect()[0]]
    others = {SYSTEMS[own].title: partial(_ask_worker, worker, where, due) for own, worker in workers.items()}
    return replace(task, works={**task.works, **others}) if columns == "*" else task


def _asked(sides: Mapping[str, SparkSession], name: str, sql: str, times_as_fast: float) -> Task:
    works = {side: partial(ask, session, sql) for side, session in sides.items()}
    return Task(name, works, heading="Few rows", limit=partial(mul, 1 / times_as_fast))


def ask(spark: SparkSession, sql: str) -> Seen:
    """Ask Spark, and say what it has read."""
    measured = measure_query(spark, sql)
    return Seen(measured.answer, measured.counts | _kept(measured.plan), measured.seconds)


def _kept(plan: ScanPlan | None) -> dict[str, Number]:
    if plan is None:
        return {}
    pages = {} if plan.by_pages is None else {"pages": plan.by_pages.pages_read}
    return {"row groups": plan.kept, **pages, "plan seconds": plan.planning_seconds}


def _ask_worker(worker: WorkerProcess, where: str, due: list[int]) -> Seen:
    reply = worker.ask({"query": {"kind": "rows", "where": where}})
    if reply["answer"] != due:
        raise BenchError(f"answers {reply['answer']}, {due} is due")
    return Seen(None, seconds=float(reply["seconds"]))


def _of_spark(spark: SparkSession, sides: Mapping[str, SparkSession]) -> Iterator[Task]:
    """Ask what only Spark can: a join with a list made in Python, and the first rows of an order."""
    chosen = f"SELECT lo_custkey FROM {_SPARK_TABLE} WHERE lo_linenumber = 5 ORDER BY xxhash64(id) LIMIT 3"
    customers = spark.sql(chosen).collect()
    for session in sides.values():
        listed = session.createDataFrame([(one.lo_custkey,) for one in customers], "lo_custkey INT")
        listed.createOrReplaceTempView("listed")
    yield _asked(sides, "join with a list of 3", "SELECT * FROM lineorder JOIN listed USING (lo_custkey)", 4)
    yield _asked(sides, "top 10 by revenue", "SELECT * FROM lineorder ORDER BY lo_revenue DESC, id LIMIT 10", 5)


def _merge(bench: Bench, spark: SparkSession, sides: Mapping[str, SparkSession], repeats: int) -> None:
    """Merge 1,000 recent rows, rolled back each time; what that wrote is deleted at the end."""
    recent = f"SELECT id FROM {_SPARK_TABLE} ORDER BY lo_orderkey DESC, lo_linenumber DESC LIMIT 100000"
    ids = [row.id for row in spark.sql(f"SELECT id FROM ({recent}) ORDER BY xxhash64(id, 7) LIMIT 1000").collect()]
    rows = spark.sql(f"SELECT * FROM {_SPARK_TABLE} WHERE id IN {(*ids,)}")
    changed = rows.selectExpr("* EXCEPT (lo_quantity)", "lo_quantity + 1 AS lo_quantity").select(*rows.columns)
    write_table(changed.coalesce(1), _NEW_KEYS, {})
    newest = f"SELECT snapshot_id, summary FROM {_SPARK_TABLE}.snapshots ORDER BY committed_at DESC LIMIT 1"
    snapshot = spark.sql(newest).collect()[0].snapshot_id

    def merge(session: SparkSession) -> Seen:
        started = time.perf_counter()
        session.sql(MERGE.format(table=_SPARK_TABLE, source=_NEW_KEYS))
        seconds = time.perf_counter() - started
        summary = session.sql(newest).collect()[0].summary
        session.sql(f"CALL {CATALOG}.system.rollback_to_snapshot('{DEFAULT_TABLE}', {snapshot})")
        return Seen([summary.get(name) for name in ("added-records", "added-position-deletes")], seconds=seconds)

    try:
        works = {side: partial(merge, session) for side, session in sides.items()}
        task = Task("MERGE merge-on-read of 1,000", works, heading="Few rows", limit=partial(mul, 1 / 5))
        bench.compare([task], repeats=repeats)
    finally:
        spark.sql(f"DROP TABLE {_NEW_KEYS} PURGE")
        expire_snapshots(spark, DEFAULT_TABLE)
