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
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import duckdb
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from puffin_index import TableIndex
from puffin_index.index_table.status import read_lag
from puffin_index.watch import Watch
from ssb_bench.data.dataset import open_duckdb, require_dataset
from ssb_bench.data.layout import NAMESPACE, BenchError, Layout
from ssb_bench.data.workload import VOLCANO_QUERIES, count_predicates
from ssb_bench.results.record import Step
from ssb_bench.spark_runs.bench import Bench
from ssb_bench.spark_runs.load import DEFAULT_ROW_GROUP_ROWS, DEFINITION, row_group_properties, write_table
from ssb_bench.spark_runs.measure import hooked, with_report
from ssb_bench.spark_runs.session import CATALOG, open_catalog
from ssb_bench.studies.run import fit_queries

TITLE = "While data arrive"
_BATCH_ROWS: Final = 250_000
_QUERIES: Final = VOLCANO_QUERIES[:-1]
"""All but Q7, which the index does not help."""
_TABLE: Final = f"{NAMESPACE}.lineorder_appended"
_SPARK_TABLE: Final = f"{CATALOG}.{_TABLE}"
_WATCH_INTERVAL_SECONDS: Final = 0.5
_LONGEST_LAG_SECONDS: Final = 120.0
_log = logging.getLogger(__name__)


def measure(
    bench: Bench,
    *,
    batches: Annotated[int, "Appends."] = 20,
    batch_rows: Annotated[int | None, "Rows of an append; 250,000 by default, fewer of small data."] = None,
    every: Annotated[float, "Seconds from one append to the next."] = 4.0,
    row_group_rows: Annotated[int, "Rows of a row group."] = DEFAULT_ROW_GROUP_ROWS,
) -> None:
    """Append batches while a watch indexes them and queries run: the lag of the index, the times of the queries."""
    layout, folder = bench.layout, bench.layout.root / "appends"
    rows = batch_rows or min(_BATCH_ROWS, require_dataset(layout).rows["lineorder"] // batches)
    wheres = count_predicates(fit_queries(layout, _QUERIES))
    bench.note("append", number=batches, rows=rows, every_seconds=every, row_group_rows=row_group_rows)
    try:
        files = _cut_batches(layout, folder, batches, rows)
        due = _due_answers(files, wheres)
        with bench.session() as spark:
            index = _make_table(spark, layout, files[0], row_group_rows)
            with hooked(spark, aggregates=False), ThreadPoolExecutor(1, "append") as pool, _watching(spark, layout):
                writing = _Writing()
                appending = pool.submit(_append_all, spark, files, every, writing)
                bench.steps += _query_until_indexed(spark, index, wheres, due, writing, appending, bench.troubles)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    index.refresh()
    bench.steps.append(Step("append of a batch", "Spark", tuple(writing.seconds)))
    lags = _lags(index)
    bench.troubles += [f"batch {number} was never indexed" for number, lag in enumerate(lags) if lag is None]
    bench.steps.append(Step("from commit to index", "with", tuple(lag for lag in lags if lag is not None)))


@dataclass(slots=True)
class _Writing:
    """How far the appending thread is."""

    begun: int = 0
    seconds: list[float] = field(default_factory=list)

    @property
    def there(self) -> int:
        return len(self.seconds)


def _cut_batches(layout: Layout, folder: Path, batches: int, batch_rows: int) -> list[Path]:
    """Write the first rows of lineorder into files of one batch each."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if (most := require_dataset(layout).rows["lineorder"] // batch_rows) < batches:
        raise BenchError(f"lineorder has {most} batches of {batch_rows:,} rows, not {batches}: append fewer")
    files = [folder / f"{number:05d}.parquet" for number in range(batches)]
    with open_duckdb(layout) as connection:
        for number, file in enumerate(files):
            batch = f"FROM lineorder LIMIT {batch_rows} OFFSET {number * batch_rows}"
            connection.execute(f"COPY ({batch}) TO '{file}' (FORMAT parquet)")
    return files


def _due_answers(files: Sequence[Path], wheres: Mapping[str, str]) -> dict[str, list[int]]:
    """Give what each query answers after each number of batches, from 0 to all."""
    with duckdb.connect() as connection:

        def counted(file: Path, where: str) -> int:
            [(count,)] = connection.execute(f"SELECT count(*) FROM '{file}' WHERE {where}").fetchall()
            return int(count)

        return {
            name: [*itertools.accumulate((counted(file, where) for file in files), initial=0)]
            for name, where in wheres.items()
        }


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
    troubles: list[str],
) -> list[Step]:
    """Run the queries in turn until all batches are there and indexed, or until indexing takes too long."""
    steps = {name: Step(name, "with", heading="queries while data arrive") for name in wheres}
    done_at: float | None = None
    for name in itertools.cycle(wheres):
        there = writing.there
        _log.info("%d batches are there", there)
        (seconds, answer), report = with_report(spark, partial(_count, spark, wheres[name]))
        if answer not in due[name][there : writing.begun + 1]:
            troubles.append(f"{name}: answers {answer} after {there} to {writing.begun} batches")
        counts = dict(steps[name].counts)
        if report is not None:
            counts = {"row groups": report.row_groups, "kept row groups": report.kept}
            counts["most unindexed row groups"] = max(
                steps[name].counts.get("most unindexed row groups", 0), report.unindexed
            )
        steps[name] = replace(steps[name], seconds=(*steps[name].seconds, seconds), counts=counts)
        if not appending.done():
            continue
        appending.result()
        done_at = done_at or time.monotonic()
        index.refresh()
        is_late = time.monotonic() - done_at > _LONGEST_LAG_SECONDS
        if is_late or not read_lag(index.data_table, index.index_table, index.columns).files:
            break
    return list(steps.values())


def _count(spark: SparkSession, where: str) -> tuple[float, int]:
    """Give how long a count took, and its answer."""
    started = time.perf_counter()
    answer = int(spark.sql(f"SELECT count(*) FROM {_SPARK_TABLE} WHERE {where}").collect()[0][0])
    return time.perf_counter() - started, answer


def _lags(index: TableIndex) -> list[float | None]:
    """Tell how long the index of each batch took from its commit, from the snapshots of both tables."""
    arrived = _first_seen(index.data_table, _data_files)
    indexed = _first_seen(index.index_table, _indexed_files)
    # Each batch is one data file, so files in the order of their commits are the batches.
    ordered = sorted(arrived.items(), key=lambda item: item[1])
    return [indexed[path] - at if path in indexed else None for path, at in ordered]


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
