"""Threads that ask, write, build, compact and expire at once: no query fails, and no answer is wrong."""

import logging
import random
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import planner
from puffin_index import IndexDefinition, TableIndex
from tests.conftest import amount
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
    index = TableIndex.create(catalog, "stress.t", IndexDefinition.of(bitmap=["v"], bsi=["k"], bloom=["k"]))
    index.build(workers=1)
    return index


class Stress:
    """Runs work in threads, until the time is over and each has done `LEAST_ROUNDS`, or until one of them fails."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self._failed = threading.Event()
        self.failures: list[str] = []
        self.rounds: dict[str, int] = {}

    def run(self, works: dict[str, Callable[[int], None]]) -> None:
        self.rounds = dict.fromkeys(works, 0)
        with ThreadPoolExecutor(len(works)) as threads:
            for name, work in works.items():
                threads.submit(self._repeat, name, work)

    def _repeat(self, name: str, work: Callable[[int], None]) -> None:
        while not self._failed.is_set() and not self._over():
            number = self.rounds[name]
            try:
                work(number)
            except Exception:  # noqa: BLE001 - the test tells of it
                self.failures.append(f"{name}, round {number}:\n{traceback.format_exc()}")
                self._failed.set()
            self.rounds[name] = number + 1

    def _over(self) -> bool:
        return time.monotonic() >= self._until and min(self.rounds.values()) >= LEAST_ROUNDS


@pytest.mark.nightly
def test_everything_at_once(spark: SparkSession, index: TableIndex, caplog: pytest.LogCaptureFixture) -> None:
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
            row = session.sql(f"SELECT COUNT(*) FROM {FULL} WHERE k BETWEEN {low} AND {low + 9} AND k % 2 = 0").first()
            assert row is not None
            assert row[0] == 5

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
    stress = Stress(SECONDS)
    try:
        with caplog.at_level(logging.WARNING):
            stress.run({
                **{f"ask {number}": ask(session) for number, session in enumerate(sessions)},
                "write": write,
                "keep": keep,
            })  # fmt: skip
        index.build(workers=1)
        before = planner.reports(home)
        ask(home)(0)
        after = planner.reports(home)
    finally:
        planner.disable(home)

    assert not stress.failures, "\n".join(stress.failures)
    assert all(rounds >= LEAST_ROUNDS for rounds in stress.rounds.values())
    assert any(plan.dropped for plan in before)
    assert after[-1].dropped > 0
