"""Queries while data arrive: batches are appended at an even pace, a watch indexes them, queries run all the while.

One Spark application does all three. A thread appends, a thread runs `puffin_index.watch.Watch` with builds in the
background, and the queries run one after the other with the hook. The lag of a batch is the time from its commit to
the commit of its index, by the snapshots of both tables. An answer must be that of a number of batches that was there
while its query ran.
"""

import itertools
import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from puffin_index import TableIndex
from puffin_index.index_table.status import read_lag
from puffin_index.watch import Watch
from ssb_bench.data.dataset import FEWEST_FILES, require_dataset
from ssb_bench.data.layout import NAMESPACE, BenchError, Layout
from ssb_bench.data.workload import FittedQuery, count_predicates
from ssb_bench.results.studies import Appended, AppendRun, Execution
from ssb_bench.spark_runs.load import DEFAULT_ROW_GROUP_ROWS, DEFINITION, row_group_properties, write_table
from ssb_bench.spark_runs.run import hooked, with_report
from ssb_bench.spark_runs.session import CATALOG, describe_machine, open_catalog

DEFAULT_BATCH_ROWS: Final = 250_000
DEFAULT_EVERY_SECONDS: Final = 4.0
_TABLE: Final = f"{NAMESPACE}.lineorder_appended"
_SPARK_TABLE: Final = f"{CATALOG}.{_TABLE}"
_WATCH_INTERVAL_SECONDS: Final = 0.5
_LONGEST_LAG_SECONDS: Final = 120.0
_log = logging.getLogger(__name__)


def fitting_batch_rows(layout: Layout, batches: int) -> int:
    """Give the rows of a batch, so that lineorder has as many batches."""
    return min(DEFAULT_BATCH_ROWS, require_dataset(layout).rows["lineorder"] // (batches + FEWEST_FILES))


@dataclass(slots=True)
class _Writing:
    """How far the appending thread is."""

    begun: int = 0
    seconds: list[float] = field(default_factory=list)

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
) -> AppendRun:
    """Append batches of lineorder to a table of their own while a watch indexes it and counts of lineorder run.

    Raises BenchError if lineorder has too few rows, or a query is no count of lineorder.
    """
    wheres = count_predicates(queries)
    folder = layout.root / "appends"
    try:
        files = _cut_batches(layout, folder, batches, batch_rows)
        due = _due_answers(files, wheres)
        index = _make_table(spark, layout, files[0], row_group_rows)
        began = time.time()
        failures: list[str] = []
        with hooked(spark, aggregates=False), ThreadPoolExecutor(1, "append") as pool, _watching(spark, layout):
            writing = _Writing()
            appending = pool.submit(_append_all, spark, files, every_seconds, writing)
            executions = _query_until_indexed(spark, index, wheres, due, writing, appending, began, failures)
        index.refresh()
        appended = _appended(index, files, writing, began)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    failures += [f"batch {n} was never indexed" for n, batch in enumerate(appended) if batch.lag_seconds is None]
    machine = describe_machine(spark)
    measured = (tuple(appended), tuple(executions), tuple(failures))
    return AppendRun(layout.scale_factor, every_seconds, row_group_rows, machine, *measured)


def _cut_batches(layout: Layout, folder: Path, batches: int, batch_rows: int) -> list[Path]:
    """Write the first rows of lineorder into files of one batch each."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    files: list[Path] = []
    # A batch never spans two source files, so the last batch of a file may be too small: it is left out.
    for source in layout.files("lineorder"):
        for batch in pq.ParquetFile(source).iter_batches(batch_rows):
            if batch.num_rows == batch_rows and len(files) < batches:
                files.append(folder / f"{len(files):05d}.parquet")
                pq.write_table(pa.Table.from_batches([batch]), files[-1], row_group_size=batch_rows)
    if len(files) < batches:
        raise BenchError(f"lineorder has {len(files)} batches of {batch_rows:,} rows, not {batches}: append fewer")
    return files


def _due_answers(files: Sequence[Path], wheres: Mapping[str, str]) -> dict[str, list[int]]:
    """Give what each query answers after each number of batches, from 0 to all."""
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
        TableIndex.open_or_define(catalog, _TABLE).drop()
    rows = spark.read.parquet(example.as_uri())
    write_table(rows.limit(0), _SPARK_TABLE, row_group_properties(rows, row_group_rows))
    return TableIndex.create(catalog, _TABLE, DEFINITION)


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
) -> list[Execution]:
    """Run the queries in turn until all batches are there and indexed, or until indexing takes too long."""
    executions: list[Execution] = []
    done_at: float | None = None
    for name in itertools.cycle(wheres):
        there = writing.there
        _log.info("%d batches are there, %d queries have run", there, len(executions))
        started = time.time() - began
        (seconds, answer), report = with_report(spark, partial(_count, spark, wheres[name]))
        if answer not in due[name][there : writing.begun + 1]:
            failures.append(f"{name}: answers {answer} after {there} to {writing.begun} batches")
        planned = (None,) * 3 if report is None else (report.row_groups, report.kept, report.unindexed)
        executions.append(Execution(name, started, seconds, *planned))
        if not appending.done():
            continue
        appending.result()
        done_at = done_at or time.monotonic()
        index.refresh()
        is_late = time.monotonic() - done_at > _LONGEST_LAG_SECONDS
        if is_late or not read_lag(index.data_table, index.index_table, index.columns).files:
            break
    return executions


def _count(spark: SparkSession, where: str) -> tuple[float, int]:
    """Give how long a count took, and its answer."""
    started = time.perf_counter()
    answer = int(spark.sql(f"SELECT count(*) FROM {_SPARK_TABLE} WHERE {where}").collect()[0][0])
    return time.perf_counter() - started, answer


def _appended(index: TableIndex, files: Sequence[Path], writing: _Writing, began: float) -> list[Appended]:
    """Tell when each batch was committed and how long its index took, from the snapshots of both tables."""
    arrived = _first_seen(index.data_table, _data_files)
    indexed = _first_seen(index.index_table, _indexed_files)
    # Each batch is one data file, so files in the order of their commits are the batches.
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
