"""How fresh an index is: a stream commits a file each second, and `puffin-index build --watch` follows in a process.

A snapshot is indexed at the end of the first build that knew it or a later one, by the service's log.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final, TypeAlias

import numpy as np
import xxhash
from pyiceberg.table.snapshots import Operation, Snapshot
from pyspark.sql import SparkSession

import planner
from puffin_index import IndexDefinition, TableIndex
from puffin_index.index_table.entries import segment_sizes
from puffin_index.index_table.table import read_entries
from ssb_bench.data.layout import NAMESPACE, BenchError
from ssb_bench.results.record import Number, Step
from ssb_bench.spark_runs.bench import Bench
from ssb_bench.spark_runs.load import write_table
from ssb_bench.spark_runs.measure import hooked
from ssb_bench.spark_runs.session import CATALOG, open_catalog

TITLE = "Freshness under a stream"
_TABLE: Final = f"{NAMESPACE}.fresh"
_SPARK_TABLE: Final = f"{CATALOG}.{_TABLE}"
_ROWS: Final = ("value AS id", "timestamp AS at", "xxhash64(value) AS key", "value % 99991 AS amount")
_PARTS: Final = 6
_P99: Final = "99th of 100 seconds"
Counts: TypeAlias = dict[str, Number]
_GOALS: Final[Counts] = {"seconds": 1.0, _P99: 2.0, "segments": 64}


def measure(
    bench: Bench,
    *,
    seconds: Annotated[int, "How long the stream commits."] = 3600,
    rows: Annotated[int, "Rows of a commit."] = 5000,
    before: Annotated[int, "Commits that the table has before the stream begins."] = 1,
    maintain: Annotated[bool, "Rewrite files, and expire older snapshots, after each sixth of the time."] = True,
) -> None:
    """Follow a stream of small commits with `build --watch`; exit 1 if a look-up finds another row than it should."""
    names = [f"{seconds * part // _PARTS} to {seconds * (part + 1) // _PARTS} s" for part in range(_PARTS)]
    states, rewrites, most, commits = list[Counts](), list[float](), dict[str, Counts](), dict[int, Snapshot]()
    with TemporaryDirectory() as folder, bench.session() as spark, hooked(spark), ExitStack() as stack:
        index = _make_table(spark, bench.layout.warehouse, before, rows)
        process = stack.enter_context(_start_service(bench.layout.warehouse, Path(folder, "service.log")))
        stack.callback(process.terminate)
        stream = spark.readStream.format("rate").options(rowsPerSecond=rows, numPartitions=1).load()
        numbered = stream.selectExpr(f"value + {before * rows} AS value", "timestamp").selectExpr(*_ROWS)
        writer = numbered.writeStream.trigger(processingTime="1 second").option("fanout-enabled", "true")
        query, begin = writer.option("checkpointLocation", f"{folder}/checkpoint").toTable(_SPARK_TABLE), time.time()
        for part, name in enumerate(names):
            began, used, looks = time.time(), _used_seconds(process), dict[str, list[float]]()
            while not looks or time.time() < begin + seconds * (part + 1) / _PARTS:
                _look_up(bench, spark, index, before * rows, looks)
            share = (_used_seconds(process) - used) / (time.time() - began)
            for side, taken in looks.items():
                step = _step(name, side, taken, {}, most.get(side, {}), "a row by its key")
                most.setdefault(side, {_P99: 1.2 * step.counts[_P99]})
                bench.steps.append(step)
            if maintain:
                started = time.perf_counter()
                spark.sql(f"CALL {CATALOG}.system.rewrite_data_files(table => '{_TABLE}')").collect()
                rewrites.append(time.perf_counter() - started)
                until = f"{datetime.fromtimestamp(began, UTC):%Y-%m-%d %H:%M:%S}Z"
                spark.sql(f"CALL {CATALOG}.system.expire_snapshots('{_TABLE}', TIMESTAMP '{until}')").collect()
            index.refresh()
            commits |= {one.snapshot_id: one for one in index.data_table.snapshots()}
            entries, snapshots = read_entries(index.index_table), index.index_table.snapshots()
            sizes = segment_sizes(entries)
            state: Counts = {"data files": len(entries), "segments": len(sizes), "index bytes": sum(sizes.values())}
            states.append({"percent of a core": round(100 * share), **state, "index snapshots": len(snapshots)})
        query.stop()
        lags, again = _lags([*commits.values()], Path(folder, "service.log"))
    for part, (name, state) in enumerate(zip(names, states, strict=True)):
        if own := [lag for at, lag in lags if part == min((at - begin) * _PARTS // seconds, _PARTS - 1)]:
            bench.steps.append(_step(name, "service", own, state, _GOALS, "commit to indexed"))
    for name, took, (_, lag) in zip(names, rewrites, reversed(again), strict=False):
        limit = {"indexed seconds": 0.1 * took}
        bench.steps.append(_step(name, "Spark", [took], {"indexed seconds": lag}, limit, "rewrite_data_files"))


def _make_table(spark: SparkSession, warehouse: Path, commits: int, rows: int) -> TableIndex:
    """Write a data file for each second before now, commit each of them by itself, and index them."""
    catalog = open_catalog(warehouse)
    catalog.create_namespace_if_not_exists(NAMESPACE)
    at = f"timestamp_seconds({int(time.time()) - commits} + id div {rows}) AS timestamp"
    written = spark.range(0, commits * rows, 1, commits).selectExpr("id AS value", at).selectExpr(*_ROWS)
    jvm = spark._jvm
    assert jvm is not None
    tables = []
    for name, own in ((_SPARK_TABLE, written.limit(0)), (f"{_SPARK_TABLE}_staged", written)):
        write_table(own, name, {"write.distribution-mode": "none"}, "at")
        tables.append(jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name))
    transaction = tables[0].newTransaction()
    for task in tables[1].newScan().planFiles().iterator():
        transaction.newFastAppend().appendFile(task.file()).commit()
    transaction.commitTransaction()
    index = TableIndex.create(catalog, _TABLE, IndexDefinition.of(bitmap=["key"], bsi=["amount"]))
    index.build(workers=2)
    return index


def _start_service(warehouse: Path, log: Path) -> subprocess.Popen[bytes]:
    properties = {"type": "sql", "uri": f"sqlite:///{warehouse / 'catalog.db'}", "warehouse": warehouse.as_uri()}
    options = [f"--catalog-property={key}={value}" for key, value in properties.items()]
    options += ["--engine=local", "--workers=1", "--watch", "--interval=0.2"]
    program = [sys.executable, "-m", "puffin_index", "--log-format=json", "build", _SPARK_TABLE, *options]
    with log.open("w") as stream:
        return subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=stream)


def _used_seconds(process: subprocess.Popen[bytes]) -> float:
    """Give the processor seconds that the process and those it waited for have taken so far."""
    fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _look_up(bench: Bench, spark: SparkSession, index: TableIndex, total: int, looks: dict[str, list[float]]) -> None:
    """Look one row up without Spark and in Spark, add what that took, and rest."""
    wanted = random.randrange(total)
    # Spark's hash has this seed.
    digest = xxhash.xxh64_digest(wanted.to_bytes(8, "little"), 42)
    where = f"key = {int.from_bytes(digest, 'big', signed=True)}"
    for side in ("planner.scan", "Spark"):
        started = time.perf_counter()
        if side == "Spark":
            found = [row.id for row in spark.sql(f"SELECT id FROM {_SPARK_TABLE} WHERE {where}").collect()]
        else:
            found = planner.scan(index, where, ["id"]).read_all()["id"].to_pylist()
        looks.setdefault(side, []).append(time.perf_counter() - started)
        if found != [wanted]:
            bench.troubles.append(f"{side}: {where} gave {found}, {wanted} is due")
    time.sleep(0.5)


def _step(name: str, side: str, seconds: Sequence[float], counts: Counts, most: Counts, heading: str) -> Step:
    slowest = {_P99: float(np.quantile(seconds, 0.99))}
    return Step(name, side, tuple(seconds), counts=slowest | counts, most=most, heading=heading)


def _lags(snapshots: Sequence[Snapshot], log: Path) -> tuple[list[tuple[float, float]], ...]:
    """Give the time of each commit and the seconds until it was indexed: of the stream, and of rewritten files."""
    ends = dict[int, float]()
    for _ in range(60):
        told = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines() if '"build finished"' in line]
        ends = {one["snapshot"]: datetime.fromisoformat(one["time"]).timestamp() for one in told}
        if snapshots[-1].snapshot_id in ends:
            break
        time.sleep(1)
    else:
        raise BenchError("the service has not indexed the last snapshot")
    lags, end = (list[tuple[float, float]](), list[tuple[float, float]]()), 0.0
    for one in reversed(snapshots):
        end, at = ends.get(one.snapshot_id, end), one.timestamp_ms / 1000
        is_rewritten = one.summary is not None and one.summary.operation == Operation.REPLACE
        lags[is_rewritten].append((at, end - at))
    return lags
