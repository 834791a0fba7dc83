"""Queries while data arrive: batches are appended at an even pace, a watch indexes them, queries run all the while.

All in one Spark application: a thread appends, a thread runs `puffin_index.watch.Watch` with builds in the background,
and the queries run one after the other with the hook. Lag is from the commit of a batch to the commit of its index,
both as the tables' own snapshots say. An answer must be that of the batches that were there when its query ran.
"""

from __future__ import annotations

import itertools
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table
from pyspark.sql import SparkSession

import planner
from planner.scans.scan_plan import ScanPlan
from puffin_index import IndexDefinition, TableIndex
from puffin_index.catalogue.status import read_lag
from puffin_index.watch import Watch
from ssb_bench.data.dataset import Step
from ssb_bench.data.layout import NAMESPACE, Layout
from ssb_bench.data.workload import FittedQuery
from ssb_bench.errors import BenchError
from ssb_bench.results.append_results import Appended, AppendRun, Execution
from ssb_bench.spark_runs.arms import newest_report
from ssb_bench.spark_runs.indexing import IndexColumns
from ssb_bench.spark_runs.load import DEFAULT_ROW_GROUP_ROWS, lineorder_properties
from ssb_bench.spark_runs.machine import describe_machine
from ssb_bench.spark_runs.session import CATALOG, open_catalog

DEFAULT_BATCH_ROWS: Final = 250_000
DEFAULT_EVERY_SECONDS: Final = 4.0
SETTLED_ROUNDS: Final = 3
_TABLE: Final = f"{NAMESPACE}.lineorder_appended"
_SPARK_TABLE: Final = f"{CATALOG}.{_TABLE}"
_WATCH_INTERVAL_SECONDS: Final = 0.5
_LONGEST_LAG_SECONDS: Final = 120.0


@dataclass(slots=True)
class _Writing:
    """How far the appending thread is: batches whose append has begun, batches that are there, their write times."""

    begun: int
    seconds: list[float]

    @property
    def there(self) -> int:
        return len(self.seconds)


def measure_appends(
    spark: SparkSession,
    layout: Layout,
    queries: Sequence[FittedQuery],
    *,
    batches: int,
    batch_rows: int = DEFAULT_BATCH_ROWS,
    every_seconds: float = DEFAULT_EVERY_SECONDS,
    row_group_rows: int = DEFAULT_ROW_GROUP_ROWS,
    settled_rounds: int = SETTLED_ROUNDS,
    on_step: Callable[[Step], None] = lambda _: None,
) -> AppendRun:
    """Append batches of lineorder to a table of their own while a watch indexes it and queries run.

    Args:
        spark: A session over the layout's warehouse.
        layout: The data.
        queries: Counts of lineorder alone.
        batches: How many batches.
        batch_rows: Rows of each.
        every_seconds: Pace.
        row_group_rows: Rows of a row group.
        settled_rounds: Executions of each query on each side after all is indexed.
        on_step: Called while it goes on.

    Raises:
        BenchError: If there are not so many rows, or a query is no count of lineorder.
    """
    wheres = {query.query.name: _where(query) for query in queries}
    folder = layout.root / "appends"
    try:
        files = _cut_batches(layout, folder, batches, batch_rows)
        due = _due_answers(files, wheres)
        index = _make_table(spark, layout, files[0], row_group_rows)
        began = time.time()
        failures: list[str] = []
        with _hook(spark), ThreadPoolExecutor(1, "append") as pool, _watching(spark, layout):
            writing = _Writing(0, [])
            appending = pool.submit(_append_all, spark, files, every_seconds, writing)
            executions = _query_until_indexed(spark, index, wheres, due, writing, appending, began, failures, on_step)
        index.refresh()
        appended = _appended(index, files, writing, began)
        without, with_index = _settle(spark, wheres, due, settled_rounds, failures)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    failures += [f"batch {n} was never indexed" for n, batch in enumerate(appended) if batch.lag_seconds is None]
    machine = describe_machine(spark)
    return AppendRun(
        *(layout.scale_factor, every_seconds, row_group_rows, machine, tuple(appended), tuple(executions)),
        *(without, with_index, tuple(failures)),
    )


def _where(query: FittedQuery) -> str:
    if query.where is None or query.query.workload != "count":
        raise BenchError(f"appends are measured with counts of lineorder, not with {query.query.name}")
    return query.where


def _cut_batches(layout: Layout, folder: Path, batches: int, batch_rows: int) -> list[Path]:
    """Write the first rows of lineorder into files of one batch each."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    files: list[Path] = []
    # Source files end batches, too: a batch that one of them cannot fill is left out.
    for source in layout.files("lineorder"):
        for batch in pq.ParquetFile(source).iter_batches(batch_rows):
            if batch.num_rows == batch_rows and len(files) < batches:
                files.append(folder / f"{len(files):05d}.parquet")
                pq.write_table(pa.Table.from_batches([batch]), files[-1], row_group_size=batch_rows)
    if len(files) < batches:
        raise BenchError(f"lineorder has {len(files)} batches of {batch_rows:,} rows, not {batches}: append fewer")
    return files


def _due_answers(files: Sequence[Path], wheres: Mapping[str, str]) -> dict[str, list[int]]:
    """Give what each query answers after so many batches, from none to all."""
    due = {}
    with duckdb.connect() as connection:
        for name, where in wheres.items():
            counts = [0]
            for file in files:
                row = connection.execute(f"SELECT count(*) FROM '{file}' WHERE {where}").fetchone()
                counts.append(counts[-1] + (0 if row is None else int(row[0])))
            due[name] = counts
    return due


def _make_table(spark: SparkSession, layout: Layout, example: Path, row_group_rows: int) -> TableIndex:
    """Make the table with no row, and define its index."""
    catalog = open_catalog(layout.warehouse)
    catalog.create_namespace_if_not_exists(NAMESPACE)
    if catalog.table_exists(_TABLE):
        with_index = TableIndex.open_or_define(catalog, _TABLE)
        with_index.drop()
    spark.sql(f"DROP TABLE IF EXISTS {_SPARK_TABLE} PURGE")
    writer = spark.read.parquet(example.as_uri()).limit(0).writeTo(_SPARK_TABLE).using("iceberg")
    for key, value in lineorder_properties(row_group_rows).items():
        writer = writer.tableProperty(key, value)
    writer.create()
    columns = IndexColumns()
    definition = IndexDefinition.of(bitmap=columns.bitmap, bsi=columns.bsi, bloom=columns.bloom)
    return TableIndex.create(catalog, _TABLE, definition)


@contextmanager
def _hook(spark: SparkSession) -> Iterator[None]:
    planner.enable(spark)
    try:
        yield
    finally:
        planner.disable(spark)


@contextmanager
def _watching(spark: SparkSession, layout: Layout) -> Iterator[None]:
    """Run a watch in a thread of its own."""
    catalog = open_catalog(layout.warehouse)
    watch = Watch(
        lambda: TableIndex.open(catalog, _TABLE), lambda index: index.build_async(spark), _WATCH_INTERVAL_SECONDS
    )
    thread = threading.Thread(target=watch.run, name="watch")
    thread.start()
    try:
        yield
    finally:
        watch.stop()
        thread.join()


def _append_all(spark: SparkSession, files: Sequence[Path], every_seconds: float, writing: _Writing) -> None:
    began = time.perf_counter()
    for number, file in enumerate(files):
        time.sleep(max(0.0, began + number * every_seconds - time.perf_counter()))
        writing.begun = number + 1
        started = time.perf_counter()
        spark.read.parquet(file.as_uri()).writeTo(_SPARK_TABLE).append()
        writing.seconds.append(time.perf_counter() - started)


def _query_until_indexed(
    spark: SparkSession,
    index: TableIndex,
    wheres: Mapping[str, str],
    due: Mapping[str, Sequence[int]],
    writing: _Writing,
    appending: Future[None],
    began: float,
    failures: list[str],
    on_step: Callable[[Step], None],
) -> list[Execution]:
    """Run the queries in turn until everything is there and indexed, or that takes too long."""
    executions: list[Execution] = []
    done_at: float | None = None
    batches = len(next(iter(due.values()))) - 1
    for name in itertools.cycle(wheres):
        there = writing.there
        on_step(Step(there, batches, f"{there} batches, {len(executions)} queries"))
        before = newest_report(spark)
        started, seconds, answer = _count(spark, wheres[name])
        if answer not in due[name][there : writing.begun + 1]:
            failures.append(f"{name}: answers {answer} after {there} to {writing.begun} batches")
        executions.append(Execution(name, started - began, seconds, *_planned(spark, before)))
        if not appending.done():
            continue
        appending.result()
        done_at = done_at or time.monotonic()
        index.refresh()
        if not read_lag(index.data_table, index.index_table, index.columns).files:
            break
        if time.monotonic() - done_at > _LONGEST_LAG_SECONDS:
            break
    return executions


def _planned(spark: SparkSession, before: ScanPlan | None) -> tuple[int | None, int | None, int | None]:
    report = newest_report(spark)
    if report is None or report is before:
        return None, None, None
    return report.row_groups, report.kept, report.unindexed


def _count(spark: SparkSession, where: str) -> tuple[float, float, int]:
    """Give when a count began, how long it took, and its answer."""
    now, started = time.time(), time.perf_counter()
    answer = int(spark.sql(f"SELECT count(*) FROM {_SPARK_TABLE} WHERE {where}").collect()[0][0])
    return now, time.perf_counter() - started, answer


def _settle(
    spark: SparkSession,
    wheres: Mapping[str, str],
    due: Mapping[str, Sequence[int]],
    rounds: int,
    failures: list[str],
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Measure the queries without the hook and with it, in turns, after a round that warms up."""
    plain, hooked = spark.newSession(), spark.newSession()
    seconds: dict[str, dict[str, list[float]]] = {"without": {}, "with": {}}
    with _hook(hooked):
        for number, (name, where) in itertools.product(range(rounds + 1), wheres.items()):
            sides = (("without", plain), ("with", hooked))
            for side, session in sides if number % 2 else sides[::-1]:
                _, took, answer = _count(session, where)
                if answer != due[name][-1]:
                    failures.append(f"{name}, {side} the index: answers {answer}, {due[name][-1]} is due")
                if number:
                    seconds[side].setdefault(name, []).append(took)
    return seconds["without"], seconds["with"]


def _appended(index: TableIndex, files: Sequence[Path], writing: _Writing, began: float) -> list[Appended]:
    """Say of each batch when it was committed and how long its index took, from the snapshots of both tables."""
    arrived = _first_seen(index.data_table, _data_files)
    indexed = _first_seen(index.index_table, _indexed_files)
    # One file a batch; in the order of their commits they are the batches.
    ordered = sorted(arrived.items(), key=lambda item: item[1])
    rows = pq.read_metadata(files[0]).num_rows
    return [
        Appended(rows, seconds, at - began, indexed[path] - at if path in indexed else None)
        for (path, at), seconds in zip(ordered, writing.seconds, strict=True)
    ]


def _first_seen(table: Table, list_paths: Callable[[Table, int], set[str]]) -> dict[str, float]:
    """Give the time of the first snapshot that has a path, by path, in seconds since 1970."""
    seen: dict[str, float] = {}
    for snapshot in sorted(table.snapshots(), key=lambda snapshot: snapshot.sequence_number or 0):
        for path in list_paths(table, snapshot.snapshot_id):
            seen.setdefault(path, snapshot.timestamp_ms / 1000)
    return seen


def _data_files(table: Table, snapshot_id: int) -> set[str]:
    return {task.file.file_path for task in table.scan(snapshot_id=snapshot_id).plan_files()}


def _indexed_files(table: Table, snapshot_id: int) -> set[str]:
    return set(table.scan(selected_fields=("data_file",), snapshot_id=snapshot_id).to_arrow()["data_file"].to_pylist())
