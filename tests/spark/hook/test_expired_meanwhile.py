"""Another process compacts and expires an index between two steps of planning: the query uses what is there now."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import planner
import planner.snapshot.judge
import planner.spark.read_index
from puffin_index import IndexDefinition, TableIndex
from tests.spark import corpus_tables
from tests.spark.agreement import row_groups_of
from tests.spark.hook.items import elsewhere

pytestmark = pytest.mark.spark

NAME = f"{corpus_tables.NAMESPACE}.expired"
SQL = f"SELECT COUNT(*) FROM lake.{NAME} WHERE k = 7"


@pytest.fixture
def index(spark: SparkSession, catalog: SqlCatalog) -> Iterator[TableIndex]:
    """An index of two segments, which a compaction makes one."""
    spark.sql(f"CREATE TABLE lake.{NAME} (k BIGINT, v BIGINT) USING iceberg TBLPROPERTIES ({row_groups_of(100)})")
    index = TableIndex.create(catalog, NAME, IndexDefinition.of(bsi=["k"]))
    for part in range(2):
        spark.sql(f"INSERT INTO lake.{NAME} SELECT (id * 7919) % 1000 + {1000 * part}, id FROM RANGE(0, 1000, 1, 1)")
        index.build(workers=1)
    yield index
    spark.sql(f"DROP TABLE lake.{NAME} PURGE")
    catalog.drop_table(f"{NAME}__puffin_index")


@pytest.fixture
def session(spark: SparkSession, index: TableIndex) -> Iterator[SparkSession]:
    """A session that has seen the index, but read nothing of its segments, and does not ask the catalog again."""
    assert index.name == NAME
    session = spark.newSession()
    session.conf.set("spark.puffin-index.refresh-seconds", "60")
    planner.enable(session, strict=True)
    assert session.sql(f"SELECT COUNT(*) FROM lake.{NAME} WHERE v = 7").collect() == [(2,)]
    yield session
    planner.disable(session)


def upkeep_elsewhere(index: TableIndex) -> None:
    elsewhere(index, "index.compact(); index.expire(timedelta(0))")


def files_of(index: TableIndex, pattern: str) -> set[Path]:
    return set(Path(index.index_table.location().removeprefix("file://")).glob(pattern))


def remove_after_upkeep(index: TableIndex, pattern: str) -> None:
    """Do upkeep, and delete files that were there before, as an expiration does once they are old enough."""
    before = files_of(index, pattern)
    upkeep_elsewhere(index)
    for file in before & files_of(index, pattern):
        file.unlink()


def meanwhile(monkeypatch: pytest.MonkeyPatch, where: ModuleType, step: str, happens: Callable[[], None]) -> list[int]:
    """Let something happen once, right before a step of the planner; return where the steps are counted."""
    original, count = getattr(where, step), [0]

    def wrapped(*args: object, **named: object) -> object:
        count[0] += 1
        if count[0] == 1:
            happens()
        return original(*args, **named)

    monkeypatch.setattr(where, step, wrapped)
    return count


def test_segments_that_are_gone_are_looked_for_in_the_newest_version(session: SparkSession, index: TableIndex) -> None:
    old = files_of(index, "_segments/*.puffin")
    upkeep_elsewhere(index)
    assert not old & files_of(index, "_segments/*.puffin")

    assert session.sql(SQL).collect() == [(1,)]

    assert [plan.kept for plan in planner.reports(session)[-1:]] == [1]
    assert planner.reports(session)[-1].warnings == ()


def test_gone_entries_are_read_anew(session: SparkSession, index: TableIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    # Another version than the one that is known must be read.
    session.conf.set("spark.puffin-index.refresh-seconds", "0")
    session.sql(f"INSERT INTO lake.{NAME} VALUES (5000, 5000)")
    index.build(workers=1)
    count = meanwhile(
        monkeypatch, planner.spark.read_index, "view_of", lambda: remove_after_upkeep(index, "data/**/*.parquet")
    )

    assert session.sql(SQL).collect() == [(1,)]

    assert count[0] > 1
    assert [plan.kept for plan in planner.reports(session)[-1:]] == [1]


def test_executors_that_miss_the_index_tables_metadata_are_trouble_that_is_mended(
    session: SparkSession, index: TableIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.conf.set("spark.puffin-index.planning-mode", "distributed")
    count = meanwhile(
        monkeypatch,
        planner.snapshot.judge,
        "prune_first_rows",
        lambda: remove_after_upkeep(index, "metadata/*.metadata.json"),
    )
    monkeypatch.setattr("planner.prune.distributed._TASKS_A_CORE", 1)
    monkeypatch.setattr("planner.prune.distributed.FEW_ROW_GROUPS", 0)

    assert session.sql(SQL).collect() == [(1,)]

    assert count[0] == 2
    assert [plan.kept for plan in planner.reports(session)[-1:]] == [1]
