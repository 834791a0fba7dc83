"""An executor is killed while it works: Spark runs its tasks again elsewhere, and nothing is lost, doubled or left."""

import sys
from datetime import timedelta
from pathlib import Path

import pytest

from puffin_index import TableIndex
from ssb_bench.spark_runs.session import open_catalog
from tests.processes import run_python
from tests.puffin_index.indexed_table import named_segments, segment_files

pytestmark = pytest.mark.spark

FILES, ROWS = 4, 400_000

# A cluster of two executors in processes of their own, as `local[n]` has none.
_CLUSTER = f"""
import os, signal, sys, threading, time
from pathlib import Path

import planner
from puffin_index import IndexDefinition, TableIndex
from ssb_bench.spark_runs.session import create_session, open_catalog


def executors(application):
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\\0")
        except OSError:
            continue
        if application in words and any(word.endswith(b"CoarseGrainedExecutorBackend") for word in words):
            yield int(folder.name)


def known(tracker, stages):
    # It hears of them a little later than of their jobs.
    return [info for info in map(tracker.getStageInfo, stages) if info is not None]


def writers():
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if str(warehouse) in (opened := os.readlink(descriptor)) and opened.endswith(".puffin"):
                yield int(descriptor.parts[2])
        except OSError:
            continue


def parent(process):
    return int(Path(f"/proc/{{process}}/stat").read_text().rpartition(")")[2].split()[1])


def failed_tasks(tracker, before):
    stages = [stage for job in set(tracker.getJobIdsForGroup()) - before for stage in tracker.getJobInfo(job).stageIds]
    failed, end = 0, time.monotonic() + 10
    while not failed and time.monotonic() < end:
        failed = sum(info.numFailedTasks for info in known(tracker, stages))
        time.sleep(0.1)
    return failed


warehouse = Path(sys.argv[1])
cluster = {{"spark.master": "local-cluster[2,1,1024]", "spark.executor.memory": "1g"}}
spark = create_session(warehouse, memory="1g", conf=cluster)
spark.sql("CREATE NAMESPACE lake.ns")
spark.sql("CREATE TABLE lake.ns.t (k BIGINT, s STRING) USING iceberg")
rows = spark.range(0, {ROWS}, 1, {FILES}).selectExpr("(id * 7919) % {ROWS}", "SHA2(CAST(id AS STRING), 256)")
rows.toDF("k", "s").writeTo("lake.ns.t").append()
application = spark.sparkContext.applicationId.encode()
tracker = spark.sparkContext.statusTracker()
"""

_BUILD = """
def kill_one():
    # One that has begun to write a segment, whose file it leaves behind.
    while not (found := next(writers(), None)):
        time.sleep(0.01)
    while found not in executors(application):
        found = parent(found)
    os.kill(found, signal.SIGKILL)


index = TableIndex.create(open_catalog(warehouse), "ns.t", IndexDefinition.of(bitmap=["k", "s"], bsi=["k", "s"]))
before = set(tracker.getJobIdsForGroup())
killer = threading.Thread(target=kill_one)
killer.start()
report = index.build(spark)
killer.join()
print("built", report.files, report.rows, failed_tasks(tracker, before), flush=True)
spark.stop()
"""

_QUERY = """
def slowly(rows):
    time.sleep(3)
    return list(rows)


def kill_one():
    while not ended.is_set() and not any(info.numActiveTasks for info in known(tracker, tracker.getActiveStageIds())):
        time.sleep(0.01)
    os.kill(next(executors(application)), signal.SIGKILL)


query = "SELECT * FROM lake.ns.t WHERE k IN (5, 4711, 123456, 399999)"
ended = threading.Event()
# A task for each file.
spark.sql("ALTER TABLE lake.ns.t SET TBLPROPERTIES ('read.split.target-size'='1', 'read.split.open-file-cost'='1')")
expected = sorted(spark.sql(query).collect())
TableIndex.create(open_catalog(warehouse), "ns.t", IndexDefinition.of(bitmap=["k"])).build(workers=1)
planner.enable(spark, strict=True)
rows = spark.sql(query).rdd.mapPartitions(slowly)
before = set(tracker.getJobIdsForGroup())
killer = threading.Thread(target=kill_one)
killer.start()
found = sorted(rows.collect())
ended.set()
killer.join()
pages = planner.reports(spark)[-1].by_pages
print("read", len(found), found == expected, pages.row_groups, failed_tasks(tracker, before), flush=True)
spark.stop()
"""


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="finds the executors' processes in /proc")
def test_a_build_outlives_one_of_its_executors(tmp_path: Path) -> None:
    word, files, rows, failed = run_python(_CLUSTER + _BUILD, tmp_path / "warehouse").stdout.split()
    assert (word, int(files), int(rows)) == ("built", FILES, ROWS)
    assert int(failed) > 0

    index = TableIndex.open(open_catalog(tmp_path / "warehouse"), "ns.t")
    report = index.verify(None)
    assert report.findings == ()
    assert (report.indexed_data_files, report.data_files) == (FILES, FILES)
    index.expire(timedelta(0))
    assert named_segments(index) == segment_files(index)


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="finds the executors' processes in /proc")
def test_wanted_rows_travel_to_another_executor(tmp_path: Path) -> None:
    word, rows, are_right, row_groups, failed = run_python(_CLUSTER + _QUERY, tmp_path / "warehouse").stdout.split()
    assert (word, int(rows), are_right) == ("read", 4, "True")
    assert int(row_groups) > 0
    assert int(failed) > 0
