"""How fresh an index is: a stream commits small files, and `puffin-index build --watch` follows in a process of its own.

Rows of Spark's rate source go into an Iceberg table with default properties, partitioned by hour. A snapshot counts as
indexed when the first build that saw it, or a later one, has ended: the service's log tells both. Meanwhile one row
after the other is looked up by its key, which is a hash: without Spark, and in Spark with the hook and without it.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import Annotated, Final

import xxhash
from pyiceberg.table.snapshots import Operation
from pyspark.sql import SparkSession
from pyspark.sql.functions import partitioning

import planner
from puffin_index import IndexDefinition, TableIndex
from puffin_index.index_table.entries import segment_sizes
from puffin_index.index_table.table import read_entries
from ssb_bench.data.layout import NAMESPACE, BenchError
from ssb_bench.results.record import Number, Step
from ssb_bench.spark_runs.bench import EXPECTED, Bench
from ssb_bench.spark_runs.measure import hooked
from ssb_bench.spark_runs.session import CATALOG, open_catalog

TITLE = "Freshness under a stream"
_TABLE: Final = f"{NAMESPACE}.fresh"
_SPARK_TABLE: Final = f"{CATALOG}.{_TABLE}"
_DEFINITION: Final = IndexDefinition.of(bitmap=["key", "user"], bsi=["amount"])
_COLUMNS: Final = "id BIGINT, at TIMESTAMP, key BIGINT, user INT, amount INT, note STRING"
_ROWS: Final = (
    "value AS id",
    "timestamp AS at",
    "xxhash64(value) AS key",
    "int(exp(pmod(xxhash64(value, 1), 1000000) / 1e6 * ln(100000))) AS user",
    "int(pmod(xxhash64(value, 2), 100000)) AS amount",
    "concat('order ', hex(xxhash64(value, 3)), ' was paid') AS note",
)
_SEED: Final = 42
"""Spark's hash has this seed."""
_PARTS: Final = 10
_REST_SECONDS: Final = 0.5
_WITHOUT_EVERY: Final = 5
"""One of so many look-ups is done without the index as well, which reads all rows."""
_PATIENCE_SECONDS: Final = 60.0
_P99: Final = "99th of 100 seconds"
_FRESH: Final = {"seconds": 1.0, _P99: 2.0}
_MOST_SLOWER: Final = 1.2
_MOST_SEGMENTS: Final = 64
_MOST_OF_REWRITE: Final = 0.1
_INTERVAL_SECONDS: Final = 0.2


def measure(
    bench: Bench,
    *,
    seconds: Annotated[int, "How long the stream commits."] = 3600,
    rows: Annotated[int, "Rows of a second."] = 5000,
    every: Annotated[float, "Seconds between two commits."] = 1.0,
    rewrite_every: Annotated[float, "Seconds between two calls of rewrite_data_files."] = 600.0,
    before: Annotated[int, "Commits that the table has, and that are indexed, before the stream begins."] = 1,
) -> None:
    """Follow a stream of small commits with `build --watch`; exit 1 if a look-up finds another row than it should."""
    home = bench.layout.root / "fresh"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    with bench.session() as spark, hooked(spark):
        index = _make_table(spark, bench.layout.warehouse)
        _commit_before(spark, before, rows)
        index.build(workers=bench.cores)
        with _service(bench.layout.warehouse, home / "service.log") as used_seconds:
            stream = spark.readStream.format("rate").options(rowsPerSecond=rows, numPartitions=1).load()
            numbered = stream.selectExpr(f"value + {before * rows} AS value", "timestamp").selectExpr(*_ROWS)
            writer = numbered.writeStream.format("iceberg").option("fanout-enabled", "true")
            writer = writer.trigger(processingTime=f"{round(1000 * every)} milliseconds")
            query = writer.option("checkpointLocation", str(home / "checkpoint")).toTable(_SPARK_TABLE)
            looks, rewrites, bounds = _Looks(spark, index, bench), list[float](), [time.time()]
            for part in range(_PARTS):
                used, name = used_seconds(), _name_of(part, seconds)
                while time.time() < bounds[0] + seconds * (part + 1) / _PARTS and query.isActive:
                    if time.time() > bounds[0] + rewrite_every * (len(rewrites) + 1):
                        rewrites.append(_rewrite(spark))
                    looks.look()
                    time.sleep(_REST_SECONDS)
                looks.end(name)
                bounds.append(time.time())
                share = (used_seconds() - used) / (bounds[-1] - bounds[-2])
                bench.steps.append(_index_step(index, name, share))
            if not query.isActive:
                bench.troubles.append(f"the stream ended: {query.exception()}")
            query.stop()
            index.refresh()
            passes = _wait_for_last(index, home / "service.log")
        names = [_name_of(part, seconds) for part in range(_PARTS)]
        bench.steps += _freshness_steps(index, passes, bounds, names, rewrites)


def _name_of(part: int, seconds: int) -> str:
    start, end = (seconds * edge // _PARTS for edge in (part, part + 1))
    return f"{start} to {end} s"


def _make_table(spark: SparkSession, warehouse: Path) -> TableIndex:
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{NAMESPACE}")
    for table in (f"{_SPARK_TABLE}__puffin_index", _SPARK_TABLE):
        spark.sql(f"DROP TABLE IF EXISTS {table}")
    spark.sql(f"CREATE TABLE {_SPARK_TABLE} ({_COLUMNS}) USING iceberg PARTITIONED BY (hours(at))")
    return TableIndex.create(open_catalog(warehouse), _TABLE, _DEFINITION)


def _commit_before(spark: SparkSession, commits: int, rows: int) -> None:
    """Write a data file for each second before now, and commit each of them by itself."""
    staged = f"{_SPARK_TABLE}_staged"
    spark.sql(f"DROP TABLE IF EXISTS {staged}")
    at = f"timestamp_seconds({int(time.time()) - commits} + id div {rows}) AS timestamp"
    written = spark.range(0, commits * rows, 1, commits).selectExpr("id AS value", at).selectExpr(*_ROWS)
    writer = written.writeTo(staged).using("iceberg").tableProperty("write.distribution-mode", "none")
    writer.partitionedBy(partitioning.hours("at")).create()
    jvm = spark._jvm
    assert jvm is not None
    load = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable
    staging, table = (load(spark._jsparkSession, name) for name in (staged, _SPARK_TABLE))
    transaction, tasks = table.newTransaction(), staging.newScan().planFiles()
    for task in [*jvm.org.apache.iceberg.relocated.com.google.common.collect.Lists.newArrayList(tasks)]:
        transaction.newFastAppend().appendFile(task.file()).commit()
    transaction.commitTransaction()
    # Without PURGE, the files stay.
    spark.sql(f"DROP TABLE {staged}")


@contextmanager
def _service(warehouse: Path, log: Path) -> Iterator[Callable[[], float]]:
    """Run the service; give what tells the processor seconds that it has taken so far."""
    properties = {"type": "sql", "uri": f"sqlite:///{warehouse / 'catalog.db'}", "warehouse": warehouse.as_uri()}
    options = [f"--catalog-property={key}={value}" for key, value in properties.items()]
    options += ["--engine=local", "--workers=1", "--watch", f"--interval={_INTERVAL_SECONDS}"]
    program = [sys.executable, "-m", "puffin_index", "--log-format=json", "build", _SPARK_TABLE, *options]
    with log.open("w") as stream, subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=stream) as process:

        def used_seconds() -> float:
            fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
            return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

        try:
            yield used_seconds
        finally:
            process.terminate()


def _rewrite(spark: SparkSession) -> float:
    started = time.perf_counter()
    spark.sql(f"CALL {CATALOG}.system.rewrite_data_files(table => '{_TABLE}')").collect()
    return time.perf_counter() - started


class _Looks:
    """Look-ups of one row each, by a key that the table has had for a while, and what they took by side."""

    def __init__(self, spark: SparkSession, index: TableIndex, bench: Bench) -> None:
        self._spark, self._index, self._bench = spark, index, bench
        self._count = 0
        self._seconds: dict[str, list[float]] = {}
        self._most: dict[str, dict[str, Number]] = {}

    def look(self) -> None:
        """Look a row up on each side, unless the table is empty."""
        self._index.refresh()
        snapshot = self._index.data_table.current_snapshot()
        total = int(snapshot.summary["total-records"] or 0) if snapshot is not None and snapshot.summary else 0
        if not total:
            return
        wanted = random.randrange(total)
        digest = xxhash.xxh64_digest(wanted.to_bytes(8, "little"), _SEED)
        where = f"key = {int.from_bytes(digest, 'big', signed=True)}"
        self._count += 1
        sides = ["planner.scan", "with", "without"] if self._count % _WITHOUT_EVERY == 0 else ["planner.scan", "with"]
        for side in sides:
            self._spark.conf.set("spark.puffin-index.enabled", str(side == "with").lower())
            work = self._scan if side == "planner.scan" else self._ask
            started = time.perf_counter()
            try:
                found = work(where)
            except EXPECTED as error:
                found = [str(error)]
            self._seconds.setdefault(side, []).append(time.perf_counter() - started)
            if found != [wanted]:
                self._bench.troubles.append(f"{side}: {where} gave {found}, {wanted} is due")

    def _scan(self, where: str) -> list[object]:
        return list(planner.scan(self._index, where, ["id"]).read_all()["id"].to_pylist())

    def _ask(self, where: str) -> list[object]:
        return [row.id for row in self._spark.sql(f"SELECT id FROM {_SPARK_TABLE} WHERE {where}").collect()]

    def end(self, name: str) -> None:
        """Add the steps of a part; later parts are held against the first one."""
        for side, seconds in self._seconds.items():
            step = _timed("a row by its key", name, side, seconds, self._most.get(side, {}))
            self._most.setdefault(side, {_P99: _MOST_SLOWER * step.counts[_P99]})
            self._bench.steps.append(step)
        self._seconds = {}


def _timed(heading: str, name: str, side: str, seconds: Sequence[float], most: dict[str, Number]) -> Step:
    slowest = quantiles(seconds, n=100, method="inclusive")[-1] if len(seconds) > 1 else max(seconds)
    return Step(name, side, tuple(seconds), counts={_P99: slowest}, heading=heading, most=most)


def _index_step(index: TableIndex, name: str, share: float) -> Step:
    index.refresh()
    sizes = segment_sizes(read_entries(index.index_table))
    snapshot = index.data_table.current_snapshot()
    files = 0 if snapshot is None or snapshot.summary is None else int(snapshot.summary["total-data-files"] or 0)
    counts = {"segments": len(sizes), "index bytes": sum(sizes.values()), "data files": files}
    counts["snapshots of the index table"] = len(index.index_table.snapshots())
    counts["percent of a core"] = round(100 * share)
    return Step(name, "service", counts=counts, heading="index", most={"segments": _MOST_SEGMENTS})


def _wait_for_last(index: TableIndex, log: Path) -> list[tuple[int, float]]:
    """Give the sequence number and the end of each build, once the last snapshot is indexed."""
    numbers = {one.snapshot_id: one.sequence_number or 0 for one in index.data_table.snapshots()}
    for _ in range(round(_PATIENCE_SECONDS)):
        lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines() if line.startswith("{")]
        builds = [line for line in lines if line["message"].startswith(("build started", "build finished"))]
        passes = [
            (numbers[first["snapshot"]], datetime.fromisoformat(last["time"]).timestamp())
            for first, last in zip(builds[::2], builds[1::2], strict=False)
        ]
        if passes and passes[-1][0] == max(numbers.values()):
            return passes
        time.sleep(1)
    raise BenchError(f"the service has not indexed the last snapshot: see {log}")


def _freshness_steps(
    index: TableIndex,
    passes: Sequence[tuple[int, float]],
    bounds: Sequence[float],
    names: Sequence[str],
    rewrites: Sequence[float],
) -> Iterator[Step]:
    lags: dict[str, list[float]] = {}
    again: list[float] = []
    for one in index.data_table.snapshots():
        _, indexed = passes[bisect_left(passes, (one.sequence_number or 0, 0.0))]
        committed = one.timestamp_ms / 1000
        if one.summary is not None and one.summary.operation == Operation.REPLACE:
            again.append(indexed - committed)
        else:
            name = names[min(max(0, bisect_left(bounds, committed) - 1), len(names) - 1)]
            lags.setdefault(name, []).append(indexed - committed)
    for name, own in lags.items():
        yield _timed("commit to indexed", name, "service", own, {})
    yield _timed("commit to indexed", "all", "service", [lag for own in lags.values() for lag in own], dict(_FRESH))
    for number, (rewrite, lag) in enumerate(zip(rewrites, again, strict=True)):
        name, most = f"{number + 1}", {"seconds": _MOST_OF_REWRITE * rewrite}
        yield Step(name, "rewrite_data_files", (rewrite,), heading="rewritten files")
        yield Step(name, "until indexed again", (lag,), heading="rewritten files", most=most)
