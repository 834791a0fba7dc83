"""The procedures of `puffin.system`: by CALL on Spark 4, and from Python on every release."""

import logging
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import DataFrame, Row, SparkSession

import planner
from planner.spark.statements.procedures import PROCEDURES
from puffin_index import TableIndex
from puffin_index.errors import NotFoundError, PuffinIndexError
from ssb_bench.spark_runs.jars import SPARK_RELEASE
from tests.spark.agreement import settings

pytestmark = pytest.mark.spark

TABLE = "lake.calls.t"
HAS_CALL = SPARK_RELEASE != "3.5"
FILES = 3


@pytest.fixture(scope="module")
def sql(enabled: SparkSession) -> SparkSession:
    """The session with a table of 3 files, one of them without an index."""
    enabled.sql(f"CREATE TABLE {TABLE} (id BIGINT, city STRING, m MAP<STRING, STRING>) USING iceberg")
    append(enabled, 0)
    append(enabled, 1)
    enabled.sql(f"CREATE INDEX by_city ON {TABLE} USING bitmap (city, m OPTIONS (key = 'k')) OPTIONS (build = 'sync')")
    append(enabled, 2)
    return enabled


def append(spark: SparkSession, number: int) -> None:
    spark.range(number * 100, number * 100 + 100, 1, 1).selectExpr(
        "id", "CONCAT('c', id) AS city", "MAP('k', CAST(id AS STRING)) AS m"
    ).writeTo(TABLE).append()


@pytest.fixture(params=["CALL", "Python"])
def way(request: pytest.FixtureRequest) -> str:
    """How a procedure is called."""
    if request.param == "CALL" and not HAS_CALL:
        pytest.skip("this Spark has no CALL for catalogs")
    return str(request.param)


def call(spark: SparkSession, way: str, procedure: str, **arguments: object) -> DataFrame:
    if way == "Python":
        return planner.call(spark, procedure, **arguments)
    literals = {name: f'"{value}"' if isinstance(value, str) else str(value) for name, value in arguments.items()}
    return spark.sql(f"CALL puffin.system.{procedure}({', '.join(f'{n} => {v}' for n, v in literals.items())})")


def one(frame: DataFrame) -> Row:
    (row,) = frame.collect()
    return row


@pytest.mark.one_of(2)
def test_status_and_indexes(sql: SparkSession, way: str) -> None:
    row = one(call(sql, way, "status", table=TABLE))
    assert (row.table, row.index_table) == ("calls.t", "calls.t__puffin_index")
    assert (row.data_files, row.indexed_data_files, row.snapshots_behind) == (FILES, FILES - 1, 1)
    assert row.index_bytes > 0
    assert row.build is None

    frame = call(sql, way, "indexes", table=TABLE)
    assert [field.simpleString() for field in frame.schema.fields] == [
        "name:string",
        "kind:string",
        "column:string",
        "map_key:string",
        "field_id:bigint",
        "options:string",
        "bytes:bigint",
        "is_named:boolean",
    ]
    rows = frame.collect()
    assert [tuple(row)[:6] for row in rows] == [
        ("by_city", "bitmap", "city", None, 2, None),
        ("by_city", "bitmap", "m", "k", 3, None),
    ]
    assert all(row.bytes > 0 and row.is_named for row in rows)


def test_explain(sql: SparkSession, way: str) -> None:
    rows = {row.stage: row for row in call(sql, way, "explain", table=TABLE, where="city = 'c7' AND id >= 0").collect()}
    assert rows["row groups of the scan"].row_groups in (FILES, FILES - 1, 1)
    assert rows["kept"].row_groups >= 1
    assert rows["kept"].seconds > 0


@pytest.mark.one_of(2)
def test_upkeep(sql: SparkSession, way: str) -> None:
    row = one(call(sql, way, "verify", table=TABLE, every=True))
    assert (row.findings, row.what, row.row_groups) == (0, None, FILES - 1)
    assert one(call(sql, way, "verify", table=TABLE, sample=0)).row_groups == 0
    row = one(call(sql, way, "expire", table=TABLE, older_than="12h", dry_run=True))
    assert (row.dry_run, row.entries) == (True, 0)
    assert one(call(sql, way, "compact", table=TABLE, target_size="1MiB")).segments_after == 1


@pytest.mark.one_of(2)
def test_build_and_drop(sql: SparkSession, way: str) -> None:
    name = f"lake.calls.built_{way.lower()}"
    sql.sql(f"CREATE TABLE {name} USING iceberg AS SELECT id, CAST(id % 3 AS INT) AS k FROM range(30)")
    sql.sql(f"CREATE INDEX i ON {name} USING bsi (k) OPTIONS (build = 'none')")

    row = one(call(sql, way, "build", table=name, where="id > 1000"))
    assert (row.state, row.files) == ("done", 0)
    row = one(call(sql, way, "build", table=name, mode="async"))
    assert row.state in ("running", "done")
    row = one(call(sql, way, "build", table=name, mode="sync"))
    assert (row.state, row.files, row.files_left, row.warnings) == ("done", 0, 0, None)
    assert one(call(sql, way, "status", table=name)).build == "done"

    row = one(call(sql, way, "drop", table=name))
    assert (row.index_table, row.segments) == (name.removeprefix("lake.") + "__puffin_index", 1)
    assert sql.sql(f"SELECT COUNT(*) FROM {name} WHERE k = 1").collect() == [(10,)]


@pytest.mark.one_of(2)
def test_times_are_those_of_the_sessions_clock(sql: SparkSession, way: str) -> None:
    name = f"lake.calls.timed_{way.lower()}"
    sql.sql(
        f"CREATE TABLE {name} USING iceberg AS SELECT TIMESTAMP '2020-01-01 12:00:00Z' AS t FROM range(0, 10, 1, 1)"
    )
    sql.sql(f"CREATE INDEX i ON {name} USING bsi (t) OPTIONS (build = 'none')")
    with settings(sql, {"spark.sql.session.timeZone": "Asia/Tokyo"}):
        for hour, files in ((12, 0), (21, 1)):
            where = f"t = TIMESTAMP '2020-01-01 {hour}:00:00'"
            assert one(call(sql, way, "build", table=name, where=where)).files == files
            explained = {row.stage: row for row in call(sql, way, "explain", table=name, where=where).collect()}
            assert explained["kept"].row_groups == files
            today = call(sql, way, "what_if", table=name, where=where, without="t.bsi").collect()[1]
            assert today.row_groups == files


@pytest.mark.one_of(2)
def test_names_are_those_of_the_session(sql: SparkSession, way: str) -> None:
    sql.sql("USE lake.calls")
    try:
        for name in ("t", "calls.t", "`calls`.`t`", TABLE):
            assert one(call(sql, way, "status", table=name)).table == "calls.t"
    finally:
        sql.sql("USE spark_catalog.default")


@pytest.mark.one_of(2)
def test_a_current_namespace_with_an_odd_name(sql: SparkSession, way: str) -> None:
    sql.sql("CREATE NAMESPACE IF NOT EXISTS lake.`odd-calls`")
    sql.sql("USE lake.`odd-calls`")
    try:
        with pytest.raises(Exception, match=r"there is no table odd-calls\.nothing"):
            call(sql, way, "status", table="nothing").collect()
    finally:
        sql.sql("USE spark_catalog.default")
        sql.sql("DROP NAMESPACE lake.`odd-calls`")


@pytest.mark.parametrize(
    ("procedure", "arguments", "message"),
    [
        ("status", {"table": "lake.calls.nothing"}, "calls.nothing"),
        ("status", {"table": "lake..t"}, "is not a table name"),
        ("status", {"table": "no_catalog.calls.t"}, "spark_catalog"),
        ("status", {"table": "lake.`calls.t`"}, r"'calls\.t' .* has a dot"),
        ("build", {"table": TABLE, "mode": "soon"}, "there are: sync, async"),
        ("build", {"table": TABLE, "where": "nothing = 3"}, "nothing"),
        ("expire", {"table": TABLE, "older_than": "long"}, "is not a duration such as 3d"),
        ("compact", {"table": TABLE, "target_size": "big"}, "is not a size such as 256MiB"),
        ("explain", {"table": TABLE, "where": "id >"}, "expected"),
    ],
)
def test_errors(sql: SparkSession, way: str, procedure: str, arguments: dict[str, str], message: str) -> None:
    with pytest.raises(Exception, match=message) as raised:
        call(sql, way, procedure, **arguments).collect()
    assert "Traceback" not in str(raised.value)


def test_python_names_procedures_and_parameters(sql: SparkSession) -> None:
    with pytest.raises(NotFoundError, match=r"no procedure 'stat'; there are: build, status"):
        planner.call(sql, "stat")
    with pytest.raises(NotFoundError, match=r"no parameter 'tabel'; it has: table string"):
        planner.call(sql, "status", tabel=TABLE)
    with pytest.raises(PuffinIndexError, match="procedure status needs table"):
        planner.call(sql, "status")
    with pytest.raises(PuffinIndexError, match="sample should be a bigint, not True"):
        planner.call(sql, "verify", table=TABLE, sample=True)
    planner.disable(sql)
    with pytest.raises(PuffinIndexError, match="not enabled"):
        planner.call(sql, "status", table=TABLE)
    planner.enable(sql, strict=True)


@pytest.mark.skipif(not HAS_CALL, reason="this Spark has no CALL for catalogs")
def test_explained_calls_do_nothing(sql: SparkSession, catalog: SqlCatalog) -> None:
    sql.sql(f"EXPLAIN CALL puffin.system.drop(table => '{TABLE}')").collect()
    assert len(TableIndex.open(catalog, "calls.t").names) == 1


@pytest.mark.skipif(not HAS_CALL, reason="this Spark has no CALL for catalogs")
def test_calls_that_spark_refuses(sql: SparkSession) -> None:
    with pytest.raises(IllegalArgumentException, match=r"there are, in puffin\.system: build, status"):
        sql.sql("CALL puffin.system.nothing()")
    with pytest.raises(AnalysisException):
        sql.sql("CALL puffin.system.status()")
    with pytest.raises(AnalysisException):
        sql.sql(f"CALL puffin.system.status(tabel => '{TABLE}')")
    assert one(sql.sql(f"CALL puffin.SYSTEM.Status('{TABLE}')")).data_files == FILES


@pytest.mark.skipif(SPARK_RELEASE != "4.1", reason="SHOW PROCEDURES came with Spark 4.1")
def test_procedures_are_shown(sql: SparkSession) -> None:
    rows = sql.sql("SHOW PROCEDURES IN puffin.system").collect()
    assert [row.procedure_name for row in rows] == list(PROCEDURES)


@pytest.mark.skipif(not HAS_CALL, reason="this Spark has no CALL for catalogs")
def test_a_users_catalog_is_not_hidden(sql: SparkSession, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    session = sql.newSession()
    session.conf.set("spark.sql.catalog.puffin", "org.apache.iceberg.spark.SparkCatalog")
    session.conf.set("spark.sql.catalog.puffin.type", "hadoop")
    session.conf.set("spark.sql.catalog.puffin.warehouse", tmp_path.as_uri())
    for is_loaded in (False, True):
        if is_loaded:
            session.sql("SHOW NAMESPACES IN puffin")
        with caplog.at_level(logging.WARNING):
            planner.enable(session)
        assert "a catalog puffin of its own" in caplog.text
        caplog.clear()
        with pytest.raises(AnalysisException):
            session.sql(f"CALL puffin.system.status('{TABLE}')")
        assert one(planner.call(session, "status", table=TABLE)).data_files == FILES
        planner.disable(session)


@pytest.mark.skipif(not HAS_CALL, reason="this Spark has no CALL for catalogs")
def test_every_session_has_statements_and_procedures(sql: SparkSession) -> None:
    first = sql.newSession()
    earlier = sql.newSession()
    earlier.sql("SELECT 1").collect()
    planner.enable(first, all_sessions=True)
    later = first.newSession()
    earlier.sql("SELECT 1").collect()
    for session in (first, earlier, later):
        assert one(session.sql(f"CALL puffin.system.status('{TABLE}')")).data_files == FILES
    later.sql(f"DROP INDEX IF EXISTS nothing ON {TABLE}")
    planner.disable(first)
    for session in (first, earlier, later, first.newSession()):
        with pytest.raises((AnalysisException, IllegalArgumentException)):
            session.sql(f"CALL puffin.system.status('{TABLE}')")
