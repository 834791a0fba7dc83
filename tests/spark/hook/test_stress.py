"""Threads that ask, write, build, compact and expire at once: no query fails, and no answer is wrong."""

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import planner
from puffin_index import TableIndex
from tests.conftest import amount, built
from tests.spark.agreement import row_groups_of

pytestmark = pytest.mark.spark

SECONDS = amount(4, 180)

LEAST_ROUNDS = 2
"""A slow machine takes longer than `SECONDS` for these; only rounds that overlap test anything."""

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


def repeat_at_once(works: dict[str, Callable[[int], None]]) -> None:
    """Repeat work in threads, until the time is over and each has done `LEAST_ROUNDS`; raise what a round raises."""
    rounds, end, failed = dict.fromkeys(works, 0), time.monotonic() + SECONDS, threading.Event()

    def repeat(name: str) -> None:
        try:
            while not failed.is_set() and (time.monotonic() < end or min(rounds.values()) < LEAST_ROUNDS):
                works[name](rounds[name])
                rounds[name] += 1
        except BaseException:
            failed.set()
            raise

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
    works = {f"ask {number}": ask(session) for number, session in enumerate(sessions)}
    try:
        repeat_at_once({**works, "write": write, "keep": keep})
        index.build(workers=1)
        before = planner.reports(home)
        ask(home)(0)
        after = planner.reports(home)
    finally:
        planner.disable(home)

    assert any(plan.dropped for plan in before)
    assert after[-1].dropped > 0
