"""Aggregates where an answer from the index could go wrong: the rows are those of Spark without the index."""

from collections.abc import Callable
from pathlib import Path

import pytest
from py4j.protocol import Py4JError
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions as f

import planner
from puffin_index import IndexDefinition, TableIndex
from ssb_bench.spark_runs.jars import SPARK_RELEASE
from tests.conftest import amount, built
from tests.spark.agreement import ENABLED, rows_of, settings
from tests.spark.corpus_tables import statements
from tests.spark.shapes import shapes
from tests.spark.shapes.test_answered_aggregates import check

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("tables", "answering")]

_PLAIN = f"lake.{shapes.NAMESPACE}.plain"
_DELETED = f"lake.{shapes.NAMESPACE}.deleted"


@pytest.mark.one_of(9)
@pytest.mark.parametrize("table", [_PLAIN, _DELETED])
@pytest.mark.parametrize(
    "sql", [one.sql for one in (*statements("odd_aggregates"), *statements("existing")) if not one.shrinks]
)
def test_rows_are_those_without_the_index(hooked: SparkSession, sql: str, table: str) -> None:
    check(hooked, sql.format(t=table, few=f"lake.{shapes.NAMESPACE}.few"))


def test_strings_of_other_collations_are_left_to_spark(hooked: SparkSession) -> None:
    if hooked.version < "4":
        pytest.skip("Spark 3.5 has no collations")
    for text in (
        "s COLLATE UTF8_LCASE",
        "NAMED_STRUCT('a', s COLLATE UTF8_LCASE)",
        "CONCAT(s, '!') COLLATE UNICODE_CI",
    ):
        assert not check(hooked, f"SELECT {text}, COUNT(*) FROM {_PLAIN} WHERE i < 90 GROUP BY {text}")
        assert not check(hooked, f"SELECT COUNT(DISTINCT {text}), COUNT(*) FROM {_PLAIN} WHERE i < 90")
    assert not check(hooked, f"SELECT MAX(s COLLATE UTF8_LCASE) FROM {_PLAIN} WHERE i < 90")


@pytest.mark.one_of(5)
@pytest.mark.parametrize(
    "make",
    [
        lambda frame: frame.agg({"*": "count", "l": "sum", "i": "max"}),
        lambda frame: frame.select("i", "l", "d", "s").describe().where("summary <> 'stddev'"),
        lambda frame: frame.select("i", "part").summary("count", "min", "max", "mean"),
        lambda frame: frame.where("i < 900").crosstab("part", "t"),
        lambda frame: frame.groupBy("part").agg(f.approx_count_distinct("s"), f.sum_distinct("d"), f.count("*")),
        lambda frame: frame.groupBy("t").pivot("part").agg(f.sum("l"), f.max("i")),
        lambda frame: frame.where("i < 900").dropDuplicates(["part", "t"]).select("part", "t"),
        lambda frame: frame.select("part", "s").distinct().groupBy().count(),
        lambda frame: frame.rollup("part").agg(f.expr("SUM(l + 1)"), f.grouping("part")),
        lambda frame: frame.alias("a").groupBy((f.col("a.i") % 5).alias("i")).agg(f.min("a.i").alias("l")),
        lambda frame: frame.where("i > 4").groupBy("part").agg(f.sum("l").alias("part2")).where("part2 > 5"),
        lambda frame: frame.limit(100).groupBy().count(),
        lambda frame: frame.limit(1).select(
            *(
                f.lit(frame.where(text).isEmpty())
                for text in ("x = 5", "x = 0 OR s LIKE 'k1%'", "1 = 0", "i = NULL", "i = -1", "id = 6020", "i > id")
            )
        ),
        lambda frame: frame.repartition(3).groupBy("part").count(),
        lambda frame: frame.withColumn("l", f.col("l") * 2).groupBy("part").agg(f.sum("l"), f.max("l")),
        lambda frame: frame.hint("broadcast").groupBy("part").count(),
        lambda frame: frame.observe("seen", f.count("*").alias("n")).groupBy("part").count(),
        lambda frame: frame.cache().where("i > 5").groupBy("part").agg(f.sum("l")),
    ],
)
def test_frames_have_the_rows_without_the_index(hooked: SparkSession, make: Callable[[DataFrame], DataFrame]) -> None:
    found = []
    for enabled in ("false", "true"):
        with settings(hooked, {ENABLED: enabled}):
            found.append(sorted(map(str, make(hooked.table(_DELETED)).collect())))
            hooked.catalog.clearCache()

    assert found[0] == found[1]


@pytest.mark.one_of(2)
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_overflow_of_expressions_is_left_to_spark(hooked: SparkSession, catalog: SqlCatalog, ansi: str) -> None:
    name = f"wide_{ansi}"
    digits = "9" * 38
    hooked.sql(
        f"CREATE TABLE lake.answered.{name} USING iceberg AS SELECT id % 4 AS k, CAST(id % 3 AS DECIMAL(38, 0)) AS d, "
        "CAST(id % 5 AS DOUBLE) / 8 AS x, id % 6 AS b FROM RANGE(60)"
    )
    built(catalog, f"answered.{name}", bitmap=["k", "d", "x", "b"])
    big = 2**61
    with settings(hooked, {"spark.sql.ansi.enabled": ansi}):
        answered = [
            f"SUM(k * {big // 100})",
            "SUM(d * 2), AVG(d)",
            "SUM(x), AVG(x), SUM(x * 0.5D)",
            "SUM(CAST(x AS FLOAT)), SUM(x - 1)",
            "AVG(k * 1000), MAX(k - 10), SUM(-k)",
            "SUM(1D / b) FILTER (WHERE b IN (1, 2, 4))",
        ]
        for text in answered:
            assert check(hooked, f"SELECT {text} FROM lake.answered.{name} WHERE b < 5"), text
        others = [
            "SUM(x / 3)",
            "SUM(1D / b) FILTER (WHERE b > 0)",
            f"AVG(k * {big}D + 1)",
            "SUM(IF(b = 1, DOUBLE('Infinity'), 0D))",
        ]
        for text in others:
            assert not check(hooked, f"SELECT {text} FROM lake.answered.{name} WHERE b < 5"), text
        for text in (f"SUM(k * {big})", f"SUM(k + {2**63 - 2})", f"SUM(d * {digits}BD)", f"SUM(d + {digits}BD)"):
            sql = f"SELECT {text} FROM lake.answered.{name} WHERE b < 5"
            try:
                expected = rows_of(hooked, sql, enabled=False)
            except (PySparkException, Py4JError):
                with pytest.raises((PySparkException, Py4JError)):
                    rows_of(hooked, sql, enabled=True)
                continue
            assert rows_of(hooked, sql, enabled=True) == expected, sql


def test_values_of_expressions_follow_the_session(hooked: SparkSession, catalog: SqlCatalog) -> None:
    hooked.sql(
        "CREATE TABLE lake.answered.moments USING iceberg AS SELECT id AS k, TIMESTAMP '2024-03-09 20:00:00' "
        "+ MAKE_INTERVAL(0, 0, 0, 0, CAST(id % 40 AS INT)) AS ts FROM RANGE(200)"
    )
    built(catalog, "answered.moments", bitmap=["ts"], bsi=["k"])
    for zone in ("UTC", "America/New_York", "Asia/Kolkata", "Pacific/Apia")[: amount(2, 4)]:
        with settings(hooked, {"spark.sql.session.timeZone": zone}):
            sql = (
                "SELECT DATE(ts), COUNT(*), MAX(HOUR(ts)), SUM(DAY(ts)) FROM lake.answered.moments WHERE {w} GROUP BY 1"
            )
            assert check(hooked, sql.format(w="k > 5"))
            assert check(hooked, sql.format(w="DAY(ts) = 10"))
            assert check(hooked, "SELECT MAX(ts), DATE(MIN(ts)) FROM lake.answered.moments WHERE HOUR(ts) > 3")


@pytest.mark.skipif(SPARK_RELEASE == "4.0", reason="Iceberg 1.10 gives up where PyIceberg writes the same SQLite file")
def test_tables_of_one_name_in_two_catalogs(hooked: SparkSession, catalog: SqlCatalog, tmp_path: Path) -> None:
    other = SqlCatalog("other", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
    other.create_namespace("answered")
    conf = {
        "spark.sql.catalog.other": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.other.type": "jdbc",
        "spark.sql.catalog.other.uri": f"jdbc:sqlite:{tmp_path}/catalog.db",
        "spark.sql.catalog.other.jdbc.schema-version": "V1",
        "spark.sql.catalog.other.warehouse": tmp_path.as_uri(),
    }
    for name, value in conf.items():
        hooked.conf.set(name, value)
    for place, own, rows in (("lake", catalog, 300), ("other", other, 700)):
        hooked.sql(
            f"CREATE TABLE {place}.answered.same USING iceberg AS SELECT id AS k, id % 5 AS g FROM RANGE({rows})"
        )
        built(own, "answered.same", bitmap=["g"], bsi=["k"])

    for place in ("lake", "other"):
        assert check(
            hooked, f"SELECT g, COUNT(*), SUM(k), MAX(k + 1) FROM {place}.answered.same WHERE g > 1 GROUP BY g"
        )
    assert check(
        hooked,
        "SELECT COUNT(*), SUM(k) FROM lake.answered.same WHERE k > 9 UNION ALL "
        "SELECT COUNT(*), SUM(k) FROM other.answered.same WHERE k > 9",
    )


def test_tables_without_rows(hooked: SparkSession, catalog: SqlCatalog) -> None:
    rows = "SELECT COUNT(*), SUM(k), MAX(k + 1), COUNT(DISTINCT g) FROM lake.answered.{t} {w}"
    groups = "SELECT g, COUNT(*), SUM(k + 1) FROM lake.answered.{t} {w} GROUP BY g"
    for name in ("empty", "emptied", "emptied_later"):
        hooked.sql(f"CREATE TABLE lake.answered.{name} (k BIGINT, g INT) USING iceberg TBLPROPERTIES ({shapes.LAYOUT})")
        if name != "empty":
            hooked.sql(f"INSERT INTO lake.answered.{name} SELECT id, id % 3 FROM RANGE(500)")
        index = TableIndex.create(catalog, f"answered.{name}", IndexDefinition.of(bsi=["k"], bitmap=["g"]))
        if name == "emptied_later":
            index.build(workers=1)
        # Iceberg drops a data file as a whole unless one of its rows stays.
        if name != "empty":
            hooked.sql(f"DELETE FROM lake.answered.{name} WHERE k <> 7")
            hooked.sql(f"DELETE FROM lake.answered.{name} WHERE k + 0 = 7")
        for _ in range(amount(1, 2) if name == "empty" else 2):
            for where in ("", "WHERE k % 7 = 2 AND g = 1", "WHERE k > 5", "WHERE k IS NULL")[: amount(2, 4)]:
                check(hooked, rows.format(t=name, w=where))
                check(hooked, groups.format(t=name, w=where))
            index.build(workers=1)


def test_columns_that_differ_by_case(hooked: SparkSession, catalog: SqlCatalog) -> None:
    with settings(hooked, {"spark.sql.caseSensitive": "true"}):
        hooked.sql("CREATE TABLE lake.answered.cases (a INT, A INT, b INT) USING iceberg")
        hooked.sql("INSERT INTO lake.answered.cases SELECT id, -id, id % 3 FROM RANGE(100)")
        built(catalog, "answered.cases", bsi=["A"], bitmap=["b"])
        assert check(hooked, "SELECT SUM(A), MIN(A + 1) FROM lake.answered.cases WHERE b = 1")
        for text in ("SUM(a), SUM(A)", "MAX(a + 1), MIN(A)", "COUNT(a) FILTER (WHERE A < -5)"):
            check(hooked, f"SELECT {text} FROM lake.answered.cases WHERE b = 1")
            check(hooked, f"SELECT {text} FROM lake.answered.cases WHERE a > 7 AND A > -50")
            check(hooked, f"SELECT A % 3, {text} FROM lake.answered.cases GROUP BY A % 3")


def test_statements_that_write_what_they_count(hooked: SparkSession, catalog: SqlCatalog) -> None:
    """The rows that a statement leaves are those that the same statement leaves without the index."""
    found = []
    for enabled in ("false", "true"):
        name = f"lake.answered.written_{enabled}"
        with settings(hooked, {ENABLED: enabled}):
            hooked.sql(
                f"CREATE TABLE {name} USING iceberg TBLPROPERTIES ({shapes.LAYOUT}) "
                "AS SELECT id AS k, id % 7 AS g FROM RANGE(700)"
            )
            index = built(catalog, f"answered.written_{enabled}", bsi=["k"], bitmap=["g"])
            for statement in (
                f"MERGE INTO {name} t USING (SELECT g, MAX(k) AS m, COUNT(*) AS n FROM {name} WHERE k > 5 GROUP BY g) "
                "s ON t.k = s.m WHEN MATCHED THEN UPDATE SET t.k = t.k + s.n * 1000",
                f"DELETE FROM {name} WHERE k < (SELECT AVG(k) FROM {name} WHERE g = 3) AND g = 2",
                f"UPDATE {name} SET g = 99 WHERE k = (SELECT MIN(k + 0) FROM {name} WHERE g = 5)",
                f"INSERT INTO {name} SELECT SUM(k), g FROM {name} WHERE k > 9 GROUP BY g",
                f"INSERT OVERWRITE {name} SELECT k + (SELECT COUNT(*) FROM {name} WHERE g = 1), g FROM {name}",
            )[amount(3, 0) :]:
                hooked.sql(statement)
                hooked.sql(f"REFRESH TABLE {name}")
                found.append(rows_of(hooked, f"SELECT g, COUNT(*), SUM(k) FROM {name} GROUP BY g", enabled=False))
                assert rows_of(hooked, f"SELECT g, COUNT(*), SUM(k) FROM {name} GROUP BY g", enabled=True) == found[-1]
                index.build(workers=1)

    assert found[: len(found) // 2] == found[len(found) // 2 :]


def test_scans_of_changes_and_streams_have_own_rows(hooked: SparkSession, catalog: SqlCatalog, tmp_path: Path) -> None:
    name = "lake.answered.growing"
    hooked.sql(f"CREATE TABLE {name} USING iceberg AS SELECT id AS k, id % 7 AS g FROM RANGE(100)")
    index = built(catalog, "answered.growing", bsi=["k"], bitmap=["g"])
    hooked.sql(f"INSERT INTO {name} SELECT id, 3 FROM RANGE(1000, 1050)")
    index.build(workers=1)
    first, second = [one.snapshot_id for one in index.data_table.refresh().history()]
    appended = hooked.read.option("start-snapshot-id", first).option("end-snapshot-id", second).format("iceberg")
    assert appended.load(name).where("k > 5").agg(f.count("*"), f.sum("k")).collect()[0][0] == 50
    assert planner.reports(hooked) == []
    then = hooked.sql(f"SELECT * FROM {name} VERSION AS OF {first}")
    assert then.where("k > 5").agg(f.count("*"), f.sum(f.expr("k + 1"))).collect()[0][0] == 94

    batches: list[int] = []

    def count(batch: DataFrame, _: int) -> None:
        own = batch.where("g >= 0").groupBy().agg(f.count("*"), f.max("k")).collect()
        whole = batch.sparkSession.table(name).where("g >= 0").groupBy().count().collect()
        batches.extend((own[0][0], whole[0][0]))

    stream = hooked.readStream.format("iceberg").option("streaming-max-files-per-micro-batch", "1").load(name)
    writer = stream.writeStream.foreachBatch(count).option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()

    assert sum(batches[0::2]) == 150
    assert set(batches[1::2]) == {150}
