"""An index that is broken, at every level, changes no answer; nor do threads, sessions and restarts."""

import logging
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from py4j.java_gateway import JavaGateway, quiet_shutdown
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyspark.errors import IllegalArgumentException
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession
from sqlalchemy.exc import OperationalError

import planner
import planner.spark.callback
from puffin_index import TableIndex
from puffin_index.errors import PuffinIndexError
from tests.conftest import built
from tests.spark import corpus_tables
from tests.spark.java_source import log_of_java

pytestmark = pytest.mark.spark

FULL = f"lake.{corpus_tables.NAMESPACE}.v2"
SQL = f"SELECT COUNT(*), SUM(price) FROM {FULL} WHERE orderkey IN (5, 18, 4711)"


@pytest.fixture
def broken(spark: SparkSession, catalog: SqlCatalog, corpus: dict[str, dict[str, str]]) -> Iterator[TableIndex]:
    """A table whose index may be broken, and a hook that is quiet about it."""
    full = f"lake.{corpus_tables.NAMESPACE}.broken"
    spark.sql(f"CREATE TABLE {full} USING iceberg AS SELECT * FROM {corpus['v2']['t']}")
    index = built(catalog, f"{corpus_tables.NAMESPACE}.broken", bsi=["orderkey"])
    planner.enable(spark)
    yield index
    planner.disable(spark)
    spark.sql(f"DROP TABLE {full} PURGE")
    with suppress(NoSuchTableError):
        catalog.drop_table(f"{corpus_tables.NAMESPACE}.broken__puffin_index")


def changed(pattern: str, change: Callable[[bytes], bytes | None]) -> Callable[[TableIndex], None]:
    """Damage that gives files of the index table other contents, or removes them."""

    def damage(index: TableIndex) -> None:
        for file in Path(index.index_table.location().removeprefix("file://")).glob(pattern):
            data = change(file.read_bytes())
            if data is None:
                file.unlink()
            else:
                file.write_bytes(data)

    return damage


def later_version(index: TableIndex) -> None:
    index.index_table.transaction().set_properties({"puffin-index.version": "99"}).commit_transaction()


DAMAGES = {
    "segments removed": changed("_segments/*.puffin", lambda _: None),
    "directories spoilt": changed(
        "_segments/*.puffin", lambda data: data[: len(data) // 3] + b"\xa5" * (len(data) - len(data) // 3)
    ),
    "segments cut": changed("_segments/*.puffin", lambda data: data[:100]),
    "index table dropped": lambda index: index.catalog.drop_table(f"{index.name}__puffin_index"),
    "metadata removed": changed("metadata/*", lambda _: None),
    "entries spoilt": changed("data/**/*.parquet", lambda _: b"garbage"),
    "later version": later_version,
}


@pytest.mark.one_of(2)
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damage_changes_nothing(spark: SparkSession, broken: TableIndex, damage: Callable[[TableIndex], None]) -> None:
    sql = SQL.replace(FULL, f"lake.{corpus_tables.NAMESPACE}.broken")
    expected = spark.newSession().sql(sql).collect()
    damage(broken)

    assert spark.sql(sql).collect() == expected
    assert sum(report.dropped for report in planner.reports(spark)) == 0


@pytest.mark.parametrize(
    ("error", "is_ours"),
    [(RuntimeError("out of order"), True), (OperationalError("SELECT 1", (), OSError("out of order")), False)],
)
def test_a_planner_that_raises_changes_no_answer(
    spark: SparkSession,
    broken: TableIndex,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    error: Exception,
    is_ours: bool,
) -> None:
    def fail(*_: object) -> None:
        raise error

    sql = SQL.replace(FULL, f"lake.{broken.name}")
    expected = spark.newSession().sql(sql).collect()
    monkeypatch.setattr(planner.spark.callback, "bind_filters", fail)

    with caplog.at_level(logging.WARNING):
        assert spark.sql(sql).collect() == expected
    assert "out of order" in caplog.text
    assert any(record.exc_info for record in caplog.records) == is_ours
    assert "SELECT 1" not in caplog.text


def shut_down_callback_server(gateway: JavaGateway) -> None:
    server = gateway._callback_server
    server.is_shutdown = True
    quiet_shutdown(server.server_socket)
    server.thread.join()
    # py4j closes a connection only after its last read has ended, and Java's garbage collector keeps some open.
    for connection in list(server.connections):
        quiet_shutdown(connection.socket)
    gateway.shutdown_callback_server()


def test_a_callback_server_that_is_gone_fails_no_query(spark: SparkSession, corpus: dict[str, dict[str, str]]) -> None:
    session, plain, gateway = spark.newSession(), spark.newSession(), spark.sparkContext._gateway
    assert corpus
    assert gateway is not None
    planner.enable(session)
    queries = [
        SQL,
        f"SELECT price FROM {FULL} WHERE orderkey = 18",
        f"SELECT custkey FROM {FULL} WHERE orderkey < 99 LIMIT 5000",
        f"SELECT price FROM {FULL} ORDER BY price DESC LIMIT 3",
        f"SELECT t.price FROM {FULL} t JOIN (SELECT /*+ BROADCAST */ 5 + id AS k FROM range(2)) r ON t.orderkey = r.k",
        f"SELECT price FROM {FULL} WHERE orderkey = (SELECT max(orderkey) FROM {FULL} WHERE price > 5000)",
    ]

    def answers(of: SparkSession = session) -> list[list[str]]:
        return [sorted(map(str, of.sql(sql).collect())) for sql in queries]

    def planned() -> int:
        before = len(planner.reports(session))
        assert thread.submit(answers).result() == expected
        return len(planner.reports(session)) - before

    expected = answers(plain)
    # Each thread of Python has a connection of its own to Java, by which py4j might call it back.
    with ThreadPoolExecutor(1) as thread, log_of_java(spark) as log:
        shut_down_callback_server(gateway)
        try:
            assert answers() == expected
            assert [planned() for _ in range(2)] == [0, 0]
            with pytest.raises(IllegalArgumentException, match=r"planner\.enable\(spark\) starts it again"):
                session.sql(f"CREATE INDEX late ON {FULL} USING bloom (price)")
            assert len(log()) == 1
            assert "no index is used: Python does not answer" in log()[0]
        finally:
            gateway._callback_server = None
            ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call] # pyspark leaves it untyped
        assert planned() >= len(queries)
        shut_down_callback_server(gateway)
        planner.enable(session)
        assert planned() >= len(queries)


def test_an_unknown_setting_leaves_queries_as_they_are_and_warns(
    spark: SparkSession, corpus: dict[str, dict[str, str]], caplog: pytest.LogCaptureFixture
) -> None:
    assert corpus
    session = spark.newSession()
    planner.enable(session)
    expected = session.sql(SQL).collect()
    session.conf.set("spark.puffin-index.byte-bugdet", "5")
    with caplog.at_level(logging.WARNING):
        assert session.sql(SQL).collect() == expected
    assert "spark.puffin-index.byte-bugdet" in caplog.text
    assert len(planner.reports(session)) == 1


def test_strict_is_read_when_a_query_is_planned(spark: SparkSession, broken: TableIndex) -> None:
    DAMAGES["segments removed"](broken)
    sql = SQL.replace(FULL, f"lake.{broken.name}")
    session = spark.newSession()
    planner.enable(session)
    assert session.sql(sql).collect()
    assert planner.reports(session)[-1].warnings
    session.conf.set("spark.puffin-index.strict", "true")
    with pytest.raises(Exception, match="puffin-index"):
        session.sql(sql).collect()


def test_absence_is_remembered_a_while(
    spark: SparkSession, catalog: SqlCatalog, corpus: dict[str, dict[str, str]]
) -> None:
    full = f"lake.{corpus_tables.NAMESPACE}.late"
    spark.sql(f"CREATE TABLE {full} USING iceberg AS SELECT * FROM {corpus['lineorder']['t']}")
    session = spark.newSession()
    planner.enable(session, strict=True)
    sql = f"SELECT COUNT(*) FROM {full} WHERE orderkey = 5"
    assert session.sql(sql).collect() == [(1,)]
    built(catalog, f"{corpus_tables.NAMESPACE}.late", bsi=["orderkey"])
    assert session.sql(sql).collect() == [(1,)]
    assert planner.reports(session) == []
    session.conf.set("spark.puffin-index.absence-seconds", "0")
    assert session.sql(sql).collect() == [(1,)]
    assert len(planner.reports(session)) == 1


def test_explain_says_what_is_read_without_reading(hooked: SparkSession, corpus: dict[str, dict[str, str]]) -> None:
    table = corpus["lineorder"]["t"]
    frame = hooked.sql(f"SELECT COUNT(*) FROM {table} WHERE orderkey = 7")
    frame.collect()

    text = planner.explain(frame)

    assert f"{table}: 1 of 24 row groups kept" in text
    assert re.search(r"zone-map +\d+ +\d+", text)
    assert "BatchScan" in text
    assert "no scan of an indexed table" in planner.explain(hooked.range(5))
    with pytest.raises(PuffinIndexError, match=r"planner\.enable"):
        planner.explain(hooked.newSession().range(5))


def test_jobs_say_what_was_kept_of_their_own_query(hooked: SparkSession, corpus: dict[str, dict[str, str]]) -> None:
    context = hooked.sparkContext
    table = corpus["lineorder"]["t"]
    context.setJobDescription("mine")
    try:
        hooked.sql(f"SELECT COUNT(*) FROM {table} WHERE orderkey = 7").collect()
        assert context.getLocalProperty("spark.job.description") == f"mine; puffin-index: 1 of 24 row groups of {table}"
        hooked.range(5).selectExpr("SUM(id)").collect()
        assert context.getLocalProperty("spark.job.description") == "mine"
        hooked.conf.set("spark.puffin-index.job-description", "false")
        hooked.sql(f"SELECT COUNT(*) FROM {table} WHERE orderkey = 7").collect()
        assert context.getLocalProperty("spark.job.description") == "mine"
    finally:
        hooked.conf.unset("spark.puffin-index.job-description")
        context.setLocalProperty("spark.job.description", None)
