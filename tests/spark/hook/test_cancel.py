"""A cancel that meets a job of ours ends the query or statement, as it ends a query without the hook."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from uuid import uuid4

import pytest
from py4j.java_gateway import JavaObject
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import planner
from puffin_index import TableIndex

pytestmark = pytest.mark.spark

CORES = 2

PLANNED = {
    "join": "SELECT i.id FROM lake.ns.items i JOIN listed l ON i.k = l.k",
    "limit": "SELECT i.id FROM lake.ns.items i JOIN (SELECT k FROM listed LIMIT 2) l ON i.k = l.k",
    "subquery": "SELECT id FROM lake.ns.items WHERE k = (SELECT max(k) FROM listed)",
    "shuffle": "SELECT i.id FROM lake.ns.items i JOIN (SELECT k, first(k) FROM listed GROUP BY k) l ON i.k = l.k",
    "executors": "SELECT id FROM lake.ns.items WHERE k = 4711",
    "aggregate on executors": "SELECT city, count(*) FROM lake.ns.items WHERE k < 4711 GROUP BY city",
}
SETTINGS = {
    "spark.puffin-index.side-milliseconds": "60000",
    "spark.puffin-index.planning-mode": "distributed",
    "spark.puffin-index.aggregates": "true",
}


class Statement:
    """A statement that runs in a thread whose jobs have a group and a tag of this name."""

    def __init__(self, spark: SparkSession, sql: str) -> None:
        self.name = uuid4().hex
        self.java_thread: JavaObject
        self.error = ""
        self._spark = spark
        self._sql = sql
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        context = self._spark.sparkContext
        context.setJobGroup(self.name, "what the user waits for")
        context.addJobTag(self.name)
        assert context._jvm is not None
        self.java_thread = context._jvm.java.lang.Thread.currentThread()
        try:
            self._spark.sql(self._sql).collect()
        except Exception as error:  # noqa: BLE001 - tests look at it
            self.error = str(error)

    def job(self) -> int:
        tracker, end = self._spark.sparkContext.statusTracker(), time.monotonic() + 30
        while time.monotonic() < end and self._thread.is_alive():
            of_group = set(tracker.getJobIdsForGroup(self.name))
            for job in tracker.getActiveJobsIds():
                if job in of_group:
                    return job
            time.sleep(0.02)
        raise AssertionError(self.error)

    def wait(self) -> str:
        """Wait for the error that ends the statement."""
        self._thread.join(10)
        assert not self._thread.is_alive()
        return self.error


WAYS: dict[str, Callable[[SparkSession, Statement, int], object]] = {
    "group": lambda spark, statement, _: spark.sparkContext.cancelJobGroup(statement.name),
    "tag": lambda spark, statement, _: spark.sparkContext.cancelJobsWithTag(statement.name),
    "job": lambda spark, _, job: spark.sparkContext._jsc.sc().cancelJob(job),
    "interrupt": lambda _, statement, __: statement.java_thread.interrupt(),
    "all": lambda spark, _, __: spark.sparkContext.cancelAllJobs(),
}
PAIRS = [*((name, "group") for name in PLANNED), ("executors", "interrupt"), *(("join", way) for way in WAYS)]


@pytest.fixture(scope="module")
def busy_cores(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], None]]:
    """Makes all cores busy, so that every other job waits."""
    place = tmp_path_factory.mktemp("busy")
    threads: list[threading.Thread] = []

    def wait(number: int) -> None:
        (place / str(number)).touch()
        while not (place / "free").exists():
            time.sleep(0.02)

    def occupy() -> None:
        with suppress(Exception):
            spark.sparkContext.parallelize(range(CORES), CORES).foreach(wait)

    def make_busy() -> None:
        if threads and threads[-1].is_alive():
            return
        for file in place.iterdir():
            file.unlink()
        threads.append(threading.Thread(target=occupy))
        threads[-1].start()
        while len(list(place.iterdir())) < CORES:
            time.sleep(0.02)

    yield make_busy
    (place / "free").touch()
    for thread in threads:
        thread.join()


@pytest.fixture(scope="module")
def hook(spark: SparkSession, items: TableIndex, catalog: SqlCatalog) -> Iterator[SparkSession]:
    """A session whose queries go on after trouble, and tables."""
    assert items.name == "ns.items"
    session = spark.newSession()
    for name, value in SETTINGS.items():
        session.conf.set(name, value)
    planner.enable(session)
    session.createDataFrame([(3,), (4,), (77,)], "k INT").createOrReplaceTempView("listed")
    session.sql("CREATE TABLE lake.ns.built USING iceberg AS SELECT id AS k FROM range(10)")
    yield session
    session.sql("DROP TABLE lake.ns.built PURGE")
    catalog.drop_table("ns.built__puffin_index")


@pytest.fixture
def busy(hook: SparkSession, busy_cores: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """The session with the hook; every job that it starts waits."""
    # For tests here, a few row groups stand for many.
    monkeypatch.setattr("planner.prune.distributed.FEW_ROW_GROUPS", 0)
    busy_cores()
    return hook


def test_a_cancelled_statement_builds_no_longer(busy: SparkSession) -> None:
    statement = Statement(busy, "CREATE INDEX of_k ON lake.ns.built USING bsi (k) OPTIONS (build 'sync')")

    statement.job()
    busy.sparkContext.cancelJobGroup(statement.name)

    assert "was not built" in statement.wait()


@pytest.mark.parametrize(("name", "way"), PAIRS)
def test_a_cancelled_query_ends_while_it_is_planned(busy: SparkSession, name: str, way: str) -> None:
    query = Statement(busy, PLANNED[name])

    WAYS[way](busy, query, query.job())

    assert ("InterruptedException" if way == "interrupt" else "cancelled") in query.wait()
