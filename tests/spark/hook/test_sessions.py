"""Sessions of one application: new ones, copies, wrappers of the same one, and threads that each have their own."""

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from zipfile import ZipFile

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import DataFrame, SparkSession

import planner
from planner.spark.build_jar import SOURCES_DIGEST
from planner.spark.rules import jvm_of, load_jar, our_rules
from puffin_index import TableIndex
from puffin_index.errors import NotFoundError, PuffinIndexError
from tests.conftest import built
from tests.spark import corpus_tables
from tests.spark.agreement import row_groups_of

pytestmark = pytest.mark.spark

TABLE = f"lake.{corpus_tables.NAMESPACE}.lineorder"
SQL = f"SELECT COUNT(*) FROM {TABLE} WHERE orderkey = 7"


@pytest.fixture
def first(spark: SparkSession, corpus: dict[str, dict[str, str]]) -> Iterator[SparkSession]:
    """A session whose hook is taken away in the end."""
    assert corpus
    session = spark.newSession()
    yield session
    planner.disable(session)


def kept(session: SparkSession) -> list[int]:
    """Query, and say what all queries of the session so far have kept."""
    assert session.sql(SQL).collect() == [(1,)]
    return [plan.kept for plan in planner.reports(session)]


def test_all_sessions_are_those_that_are_there_and_those_that_come(spark: SparkSession, first: SparkSession) -> None:
    earlier = spark.newSession()
    assert kept(earlier) == []
    planner.enable(first, strict=True, all_sessions=True)
    later = first.newSession()

    assert [kept(session) for session in (first, earlier, later, later)] == [[1], [1], [1], [1, 1]]

    later.conf.set("spark.puffin-index.enabled", "false")
    assert kept(later) == [1, 1]
    assert kept(first) == [1, 1]

    planner.disable(first.newSession())
    assert [kept(session) for session in (first, earlier, later, first.newSession())] == [[], [], [], []]


def test_the_hook_is_loaded_once_for_all_sessions(first: SparkSession) -> None:
    other = first.newSession()
    for session in (first, other, other):
        planner.enable(session, strict=True)

    mine, theirs = ([rule.getClass() for rule in our_rules(session)] for session in (first, other))
    assert len(mine) == 1
    assert mine == theirs
    assert [kept(session) for session in (first, other)] == [[1], [1]]
    planner.disable(other)


def test_jars_of_the_application_that_misfit_are_told(spark: SparkSession, first: SparkSession, tmp_path: Path) -> None:
    with ZipFile(tmp_path / "other.jar", "w") as jar:
        jar.writestr(SOURCES_DIGEST, "4.1_2.13 of other sources")
    thread = jvm_of(spark).java.lang.Thread.currentThread()
    own = thread.getContextClassLoader()
    try:
        thread.setContextClassLoader(load_jar(spark, tmp_path / "other.jar"))
        with pytest.raises(PuffinIndexError, match=r"another version of the hook's jar: let its spark.jars name /"):
            planner.enable(first)
        thread.setContextClassLoader(own.getParent())
        with pytest.raises(PuffinIndexError, match=r"cannot be installed in this Spark session: (?s:.)*iceberg"):
            planner.enable(first)
    finally:
        thread.setContextClassLoader(own)
    planner.enable(first, strict=True)
    assert kept(first) == [1]


def test_a_session_with_a_hook_of_its_own_keeps_it_among_all_sessions(first: SparkSession) -> None:
    own = first.newSession()
    planner.enable(own, strict=True)
    planner.enable(first, strict=True, all_sessions=True)
    other = first.newSession()
    planner.enable(other, strict=True)

    assert [kept(session) for session in (first, own, other)] == [[1], [1], [1]]

    planner.disable(first)
    assert [kept(session) for session in (first, own, other)] == [[], [1, 1], [1, 1]]
    planner.disable(own)
    planner.disable(other)
    assert [kept(session) for session in (own, other)] == [[], []]


def test_a_session_whose_own_hook_ends_gets_all_of_the_one_of_all_sessions(first: SparkSession) -> None:
    own = first.newSession()
    planner.enable(own, strict=True)
    planner.enable(first, strict=True, all_sessions=True)

    planner.disable(own)

    assert kept(own) == [1]
    # Without the hook's strategies, Spark says that the table has no indexes.
    own.sql(f"DROP INDEX IF EXISTS nothing ON {TABLE}")


def test_all_sessions_can_be_enabled_again_and_again(first: SparkSession) -> None:
    for _ in range(3):
        planner.enable(first, strict=True, all_sessions=True)
        assert kept(first.newSession()) == [1]
        assert kept(first) == [1]
    planner.enable(first, strict=True)
    assert kept(first) == [1]
    assert kept(first.newSession()) == []


def test_what_python_calls_the_session_does_not_matter(first: SparkSession) -> None:
    """Such as `SparkSession.getActiveSession()`, which is a new object each time."""

    def another() -> SparkSession:
        return SparkSession(first.sparkContext, first._jsparkSession)

    planner.enable(another(), strict=True)
    gc.collect()

    assert kept(first) == [1]
    assert [plan.kept for plan in planner.reports(another())] == [1]
    assert "1 of 24 row groups kept" in planner.explain(another().sql(SQL))
    planner.disable(another())
    assert kept(first) == []


def test_batches_of_a_stream_run_in_a_copy_that_is_enabled_too(first: SparkSession, tmp_path: Path) -> None:
    planner.enable(first, strict=True)
    seen: list[tuple[list[int], int]] = []

    def look_up(batch: DataFrame, _: int) -> None:
        seen.append((kept(batch.sparkSession), len(planner.reports(first))))

    stream = first.readStream.format("rate").load().writeStream.option("checkpointLocation", str(tmp_path))
    query = stream.trigger(availableNow=True).foreachBatch(look_up).start()
    query.awaitTermination(60)

    assert query.exception() is None
    # What the copy asks counts to the session.
    assert seen[0] == ([1], 1)
    planner.disable(first)
    assert kept(first) == []


def test_batches_that_are_joined_with_an_indexed_table_use_the_index(first: SparkSession, tmp_path: Path) -> None:
    planner.enable(first, strict=True)
    source = tmp_path / "source"
    first.range(3).write.parquet(str(source))
    looked_up = first.table(TABLE).where("orderkey = 7")
    joined = first.readStream.schema("id BIGINT").parquet(str(source)).crossJoin(looked_up.select("orderkey"))
    stream = joined.writeStream.format("memory").queryName("joined").option("checkpointLocation", str(tmp_path / "c"))
    query = stream.trigger(availableNow=True).start()
    query.awaitTermination(60)

    assert query.exception() is None
    assert first.table("joined").count() == 3
    assert [plan.kept for plan in planner.reports(first)][:1] == [1]


def test_the_catalog_api_and_cached_tables_go_through_the_hook(first: SparkSession) -> None:
    planner.enable(first, strict=True)
    first.sql(f"SELECT * FROM {TABLE} WHERE orderkey IN (7, 8)").createOrReplaceTempView("few")
    assert first.catalog.tableExists(TABLE)
    before = len(planner.reports(first))
    first.catalog.cacheTable("few")
    try:
        # What is cached is all of the view, whatever is asked first.
        assert first.sql("SELECT orderkey FROM few WHERE orderkey = 8").collect() == [(8,)]
        assert first.table("few").count() == 2
        assert len(planner.reports(first)) > before
        assert all(plan.kept <= 2 for plan in planner.reports(first)[before:])
    finally:
        first.catalog.uncacheTable("few")


def test_threads_with_sessions_of_their_own_have_reports_of_their_own(first: SparkSession) -> None:
    planner.enable(first, strict=True, all_sessions=True)
    sessions = [first.newSession() for _ in range(4)]

    def ask(number: int) -> None:
        for _ in range(number + 1):
            kept(sessions[number])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(ask, range(4)))

    assert [len(planner.reports(session)) for session in sessions] == [1, 2, 3, 4]
    assert planner.reports(first) == []


def test_a_table_loaded_by_its_location_does_not_hide_its_index(first: SparkSession, catalog: SqlCatalog) -> None:
    planner.enable(first, strict=True)
    metadata = catalog.load_table(TABLE.removeprefix("lake.")).metadata_location

    assert first.read.format("iceberg").load(metadata).where("orderkey = 7").count() == 1
    # No catalog says which index belongs to it.
    assert planner.reports(first) == []
    assert kept(first) == [1]
    assert first.read.format("iceberg").load(metadata).where("orderkey = 7").count() == 1
    assert kept(first) == [1, 1]


def test_a_table_with_two_names_has_the_index_under_one_of_them(first: SparkSession, catalog: SqlCatalog) -> None:
    """Registered twice, both have the UUID, but what has happened since may differ."""
    planner.enable(first, strict=True)
    other = f"{corpus_tables.NAMESPACE}.twin"
    catalog.register_table(other, catalog.load_table(TABLE.removeprefix("lake.")).metadata_location)
    try:
        with pytest.raises(NotFoundError):
            TableIndex.open(catalog, other)
        for number in (1, 2):
            assert first.sql(SQL.replace(TABLE, f"lake.{other}")).collect() == [(1,)]
            assert kept(first) == [1] * number
    finally:
        catalog.drop_table(other)


@pytest.mark.one_of(4)
@pytest.mark.parametrize(("old_type", "old", "new_type", "new"), [
    ("BIGINT", "7", "STRING", "'x7'"),
    ("STRING", "'x7'", "INT", "7"),
    ("DOUBLE", "7.0D", "DATE", "DATE'2026-01-08'"),
    ("DECIMAL(9, 2)", "7.00", "DECIMAL(30, 2)", "7.00"),
])  # fmt: skip
def test_a_tag_of_a_table_that_was_replaced_by_other_types_keeps_its_index(
    first: SparkSession, catalog: SqlCatalog, old_type: str, old: str, new_type: str, new: str
) -> None:
    values = {"STRING": "CONCAT('x', k)", "DATE": "DATE_ADD(DATE'2026-01-01', CAST(k AS INT))"}
    name = f"{corpus_tables.NAMESPACE}.retyped"

    def create(statement: str, of_type: str) -> None:
        value = values.get(of_type, f"CAST(k AS {of_type})")
        first.sql(
            f"{statement} TABLE lake.{name} USING iceberg TBLPROPERTIES ({row_groups_of(100)}) "
            f"AS SELECT {value} AS k FROM (SELECT (id * 7919) % 1000 AS k FROM RANGE(0, 1000, 1, 1))"
        )

    def ask(version: str, value: str) -> tuple[int, int, int]:
        count = first.sql(f"SELECT COUNT(*) FROM lake.{name} {version} WHERE k = {value}").collect()[0][0]
        report = planner.reports(first)[-1]
        return count, report.kept, report.unindexed

    create("CREATE", old_type)
    index = built(catalog, name, bitmap=["k"], bsi=["k"], bloom=["k"])
    first.sql(f"ALTER TABLE lake.{name} CREATE TAG old")
    create("CREATE OR REPLACE", new_type)
    planner.enable(first, strict=True)
    try:
        assert ask("VERSION AS OF 'old'", old) == (1, 1, 0)
        assert first.sql(f"SELECT COUNT(*) FROM lake.{name} WHERE k = {new}").collect() == [(1,)]
        assert index.build(workers=1).rows == 1000
        assert ask("VERSION AS OF 'old'", old) == (1, 1, 0)
        assert ask("", new) == (1, 1, 0)
        index.compact()
        index.expire()
        assert ask("VERSION AS OF 'old'", old) == (1, 1, 0)
        assert ask("", new) == (1, 1, 0)
        assert index.verify(None).findings == ()
    finally:
        first.sql(f"DROP TABLE lake.{name} PURGE")
        catalog.drop_table(f"{name}__puffin_index")
