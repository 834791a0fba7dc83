"""Threads that ask, write, build, compact and expire at once: no query fails, and no answer is wrong."""

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import count, takewhile

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import planner
from puffin_index import TableIndex
from tests.conftest import built
from tests.spark.agreement import row_groups_of

pytestmark = pytest.mark.spark

SECONDS = 180
ROWS = 5_000
FULL = "lake.stress.t"


@pytest.fixture
def index(spark: SparkSession, catalog: SqlCatalog) -> TableIndex:
    """A table with an index of all its rows; rows with even `k` below `ROWS` never change."""
    spark.sql(f"DROP TABLE IF EXISTS {FULL} PURGE")
    spark.sql(
        f"CREATE TABLE {FULL} USING iceberg TBLPROPERTIES ({row_groups_of(100)}) "
        f"AS SELECT (id * 7919) % {ROWS} AS k, id AS v FROM RANGE(0, {ROWS}, 1, 2)"
    )
    return built(catalog, "stress.t", bitmap=["v"], bsi=["k"], bloom=["k"])


def repeat_at_once(works: list[Callable[[int], None]]) -> None:
    """Repeat each work in a thread of its own until the time is over; raise what a round raises."""
    end = time.monotonic() + SECONDS

    def repeat(work: Callable[[int], None]) -> None:
        for number in takewhile(lambda _: time.monotonic() < end, count()):
            work(number)

    with ThreadPoolExecutor(len(works)) as threads:
        list(threads.map(repeat, works))


@pytest.mark.nightly
def test_everything_at_once(spark: SparkSession, index: TableIndex) -> None:
    chooser = random.Random(10)
    home = spark.newSession()
    home.conf.set("spark.puffin-index.refresh-seconds", "0.2")
    planner.enable(home, strict=True, all_sessions=True)
    sessions = [home, home, home.newSession()]
    sessions[2].conf.set("spark.puffin-index.refresh-seconds", "5")
    writer = home.newSession()

    def ask(session: SparkSession) -> Callable[[int], None]:
        def once(_: int) -> None:
            keys = [2 * chooser.randrange(ROWS // 2) for _ in range(3)]
            found = session.sql(f"SELECT k FROM {FULL} WHERE k IN ({', '.join(map(str, keys))})").collect()
            assert sorted(row[0] for row in found) == sorted(set(keys))
            low = 2 * chooser.randrange(ROWS // 2 - 10)
            rows = session.sql(f"SELECT COUNT(*) FROM {FULL} WHERE k BETWEEN {low} AND {low + 9} AND k % 2 = 0")
            assert rows.collect() == [(5,)]

        return once

    def write(number: int) -> None:
        start = ROWS + number * 300
        writer.sql(f"INSERT INTO {FULL} SELECT id + {start}, id FROM RANGE(0, 300, 1, 1)")
        writer.sql(f"DELETE FROM {FULL} WHERE k = {2 * chooser.randrange(ROWS // 2) + 1}")

    def keep(number: int) -> None:
        mine = TableIndex.open(index.catalog, "stress.t")
        mine.build(spark if number % 3 == 0 else None, workers=1)
        if number % 2:
            mine.compact()
        mine.expire(timedelta(0))

    for session in sessions:
        ask(session)(0)
    try:
        repeat_at_once([*map(ask, sessions), write, keep])
        index.build(workers=1)
        before = planner.reports(home)
        ask(home)(0)
        after = planner.reports(home)
    finally:
        planner.disable(home)

    assert any(plan.dropped for plan in before)
    assert after[-1].dropped > 0
