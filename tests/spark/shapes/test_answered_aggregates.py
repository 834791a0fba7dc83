"""Aggregates that the index answers: the values that Spark gets from the rows, and no scan where none is needed."""

from collections.abc import Callable
from random import Random

import pytest
from py4j.protocol import Py4JError
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import planner
from planner import ScanPlan
from planner.spark.hook import callback_of
from tests.conftest import amount, built
from tests.spark.agreement import check_rows, plan_text, rows_of, settings
from tests.spark.corpus_tables import statements
from tests.spark.shapes import shapes
from tests.spark.shapes.aggregate_queries import RandomAggregate

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("tables", "answering")]

RANDOM_QUERIES = amount(10, 1_000)
_PARTS = amount(1, 4)
_SPACE = "answered"
_PLAIN = f"lake.{shapes.NAMESPACE}.plain"
_DELETED = f"lake.{shapes.NAMESPACE}.deleted"
_FEW = f"lake.{shapes.NAMESPACE}.few"
_ALL = "COUNT(*), COUNT(l), SUM(l), AVG(i), MIN(l), MAX(l), SUM(d), AVG(d), MIN(s), MAX(s), MIN(t), MAX(x)"


def check(spark: SparkSession, sql: str) -> list[ScanPlan]:
    """Check that a query has the same rows with the index; return the scan plans of answered aggregates."""
    return [report for report in check_rows(spark, sql) if report.answered]


@pytest.mark.one_of(9)
@pytest.mark.parametrize("sql", [one.sql for one in statements("aggregates") if one.shrinks])
@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_no_row_is_read_where_the_index_knows_all(hooked: SparkSession, sql: str, adaptive: str) -> None:
    with settings(hooked, {"spark.sql.adaptive.enabled": adaptive}):
        reports = check(hooked, sql.format(t=_PLAIN))

        assert reports
        assert all(report.kept == 0 for report in reports)
        assert "BatchScan" not in plan_text(hooked.sql(sql.format(t=_PLAIN)))


@pytest.mark.one_of(3)
@pytest.mark.parametrize("adaptive", ["true", "false"])
@pytest.mark.parametrize("sql", [one.sql for one in statements("existing") if one.shrinks])
def test_whether_there_are_rows_is_answered_without_a_scan(hooked: SparkSession, sql: str, adaptive: str) -> None:
    sql = sql.format(t=_PLAIN, few=_FEW)
    with settings(hooked, {"spark.sql.adaptive.enabled": adaptive}):
        check(hooked, sql)

        assert f"BatchScan {_PLAIN}" not in plan_text(hooked.sql(sql))


@pytest.mark.one_of(3)
@pytest.mark.parametrize("form", ["deleted", "vectors"])
@pytest.mark.parametrize(
    "sql", [f"SELECT {_ALL} FROM {{t}} WHERE i > 9", "SELECT part, COUNT(DISTINCT s), SUM(l) FROM {t} GROUP BY part"]
)
def test_only_rows_without_an_index_are_read(hooked: SparkSession, form: str, sql: str) -> None:
    """Deleted rows are subtracted; the last data file has no index."""
    (report,) = check(hooked, sql.format(t=f"lake.{shapes.NAMESPACE}.{form}"))

    assert report.kept == report.unindexed == 1
    assert report.reason_counts()["answered"] == 30


@pytest.mark.one_of(3)
@pytest.mark.parametrize("sql", [one.sql for one in statements("aggregates") if not one.shrinks])
def test_what_no_index_gives_is_read(hooked: SparkSession, sql: str) -> None:
    with settings(hooked, {"spark.sql.ansi.enabled": "false"}):
        assert not check(hooked, sql.format(t=_PLAIN))


@pytest.mark.parametrize("part", range(_PARTS))
def test_random_aggregates_have_the_values_of_the_rows(hooked: SparkSession, part: int) -> None:
    random = Random(part)
    answered = 0
    for _ in range(RANDOM_QUERIES // _PARTS):
        sql = RandomAggregate(random).sql
        with settings(
            hooked, shapes.random_settings(random) | {"spark.sql.codegen.wholeStage": random.choice(["true", "false"])}
        ):
            answered += bool(check(hooked, sql))

    assert answered > RANDOM_QUERIES // _PARTS // 4


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_sums_that_may_overflow_are_added_up_by_spark(hooked: SparkSession, catalog: SqlCatalog, ansi: str) -> None:
    name = f"{_SPACE}.huge_{ansi}"
    values = f"(1, {2**63 - 1}, 9), (1, 1, 9), (1, -5, 9), (2, {2**53}, 1), (2, 1, 1), (2, {-(2**62)}, 1)"
    wide = f"CAST(d AS DECIMAL(38, 0)) * {'1' * 38}"
    hooked.sql(
        f"CREATE TABLE lake.{name} USING iceberg AS SELECT g, l, {wide} AS d FROM VALUES {values} AS v (g, l, d)"
    )
    built(catalog, name, bsi=["l", "d"], bitmap=["g"])
    with settings(hooked, {"spark.sql.ansi.enabled": ansi}):
        assert check(hooked, f"SELECT SUM(l), SUM(d) FROM lake.{name} WHERE g = 2")
        assert check(hooked, f"SELECT d, MIN(d), SUM(d) FROM lake.{name} WHERE g = 2 AND l = 7 GROUP BY d")
        # Doubles add up 2^53 and 1 in an order that nobody knows.
        assert not check(hooked, f"SELECT AVG(l) FROM lake.{name} WHERE g = 2")
        # Each of two groups of the index is small enough, but Spark joins the two.
        assert not check(hooked, f"SELECT g > 5, AVG(l) FROM lake.{name} WHERE l IN ({2**53}, 1) GROUP BY g > 5")
        assert not check(hooked, f"SELECT TRY_SUM(l) FROM lake.{name} WHERE g = 1")
        for column in "ld":
            sql = f"SELECT SUM({column}) FROM lake.{name} WHERE g = 1"
            if ansi == "true":
                with pytest.raises(
                    (PySparkException, Py4JError), match=r"(?i)overflow|out of range|cannot be represented"
                ):
                    hooked.sql(sql).collect()
            else:
                assert not check(hooked, sql)


def test_snapshots_and_branches_have_their_own_values(hooked: SparkSession, catalog: SqlCatalog) -> None:
    name = f"{_SPACE}.history"
    hooked.sql(f"CREATE TABLE lake.{name} USING iceberg AS SELECT id AS k, id % 7 AS g FROM RANGE(100)")
    index = built(catalog, name, bsi=["k"], bitmap=["g"])
    first = index.data_table.refresh().snapshots()[-1]
    hooked.sql(f"ALTER TABLE lake.{name} CREATE BRANCH other")
    hooked.sql(f"INSERT INTO lake.{name} SELECT id, 3 FROM RANGE(1000, 1050)")
    hooked.sql(f"INSERT INTO lake.{name}.branch_other SELECT id, 4 FROM RANGE(2000, 2020)")
    index.build(workers=1)
    hooked.sql(f"DELETE FROM lake.{name} WHERE k % 10 = 3")

    for version in ("", f" VERSION AS OF {first.snapshot_id}", " VERSION AS OF 'other'"):
        source = f"lake.{name}{version}"
        check(hooked, f"SELECT COUNT(*), SUM(k), MAX(k), COUNT(DISTINCT g) FROM {source} WHERE k > 5")
        check(hooked, f"SELECT g, COUNT(*), MIN(k) FROM {source} GROUP BY g")
    hooked.sql(f"CALL lake.system.rollback_to_snapshot('{name}', {first.snapshot_id})")
    assert check(hooked, f"SELECT COUNT(*), SUM(k) FROM lake.{name} WHERE k > 5")


def test_changed_columns(hooked: SparkSession, catalog: SqlCatalog) -> None:
    name = f"{_SPACE}.changed"
    hooked.sql(f"CREATE TABLE lake.{name} (a INT, b FLOAT, c DECIMAL(9, 2), s STRUCT<v: INT>) USING iceberg")
    hooked.sql(f"INSERT INTO lake.{name} SELECT id, id / 4, id / 8, NAMED_STRUCT('v', id) FROM RANGE(200)")
    index = built(catalog, name, bsi=["a", "b", "c"], bitmap=["s.v"])
    for change in ("ALTER COLUMN a TYPE BIGINT", "ALTER COLUMN b TYPE DOUBLE", "ALTER COLUMN c TYPE DECIMAL(20, 2)"):
        hooked.sql(f"ALTER TABLE lake.{name} {change}")
    hooked.sql(f"ALTER TABLE lake.{name} RENAME COLUMN a TO e")
    hooked.sql(f"ALTER TABLE lake.{name} ADD COLUMN a INT")
    hooked.sql(f"INSERT INTO lake.{name} SELECT id + 3000000000, id, id, NAMED_STRUCT('v', -id), id FROM RANGE(100)")

    for _ in range(2):
        check(hooked, f"SELECT SUM(e), AVG(e), MAX(b), SUM(c), AVG(c), MIN(s.v), COUNT(a), SUM(a) FROM lake.{name}")
        check(hooked, f"SELECT s.v % 5, COUNT(*), SUM(e) FROM lake.{name} WHERE e > 7 AND b < 99 GROUP BY s.v % 5")
        check(hooked, f"SELECT c, COUNT(*) FROM lake.{name} WHERE a IS NULL GROUP BY c")
        index.build(workers=1)
    assert check(hooked, f"SELECT SUM(e), MIN(s.v) FROM lake.{name} WHERE b < 99")


@pytest.mark.one_of(3)
@pytest.mark.parametrize("form", ["deleted", "plain", "vectors"])
def test_executors_answer_for_row_groups(hooked: SparkSession, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.prune.distributed.FEW_ROW_GROUPS", 0)
    table = f"lake.{shapes.NAMESPACE}.{form}"
    with settings(hooked, {"spark.puffin-index.planning-mode": "distributed"}):
        for sql in (
            f"SELECT {_ALL} FROM {table} WHERE i > 9",
            f"SELECT part, COUNT(DISTINCT s), SUM(l + 1), MAX(YEAR(t)) FROM {table} WHERE i < 3000 GROUP BY part",
            f"SELECT s, COUNT(*), AVG(d) FROM {table} GROUP BY s",
        ):
            (report,) = check(hooked, sql)
            assert report.kept == report.unindexed == (form != "plain")
            assert report.reason_counts()["answered"] > 20


def test_answers_of_no_use_are_not_reported(hooked: SparkSession) -> None:
    assert "answered" not in planner.explain(hooked.sql(f"SELECT SUM(x) FROM {_PLAIN} WHERE i > 100"))


@pytest.mark.parametrize("note", ["true", "false"])
def test_explain_and_plans_say_what_is_answered(hooked: SparkSession, note: str) -> None:
    with settings(hooked, {"spark.puffin-index.job-description": note}):
        frame = hooked.sql(f"SELECT s, COUNT(*), SUM(l) FROM {_DELETED} WHERE i > 100 GROUP BY s")
        explained, plan = planner.explain(frame), plan_text(frame)

    numbers = ": 0 row groups from statistics, 30 from indexes, 1 to be read"
    assert f"answered: count(*), sum(l) by s{numbers}" in explained
    assert "BatchScan" in explained
    assert f"Scan PuffinIndexAnswer (count(*), sum(l) by s{numbers if note == 'true' else ''} of {_DELETED})" in plan


def test_frames_that_run_again_and_cached_frames(hooked: SparkSession) -> None:
    frame = hooked.sql(f"SELECT part, COUNT(*) AS n FROM {_DELETED} WHERE l > 100 GROUP BY part")
    expected = rows_of(hooked, f"SELECT part, COUNT(*) AS n FROM {_DELETED} WHERE l > 100 GROUP BY part", enabled=False)

    assert sorted(map(str, frame.collect())) == sorted(map(str, frame.collect())) == expected
    cached = frame.cache()
    try:
        assert sorted(map(str, cached.collect())) == expected
        assert cached.where("n > 5").count() == len([row for row in frame.collect() if row.n > 5])
    finally:
        cached.unpersist()


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    "spoil",
    [
        lambda answer: answer[:-1],
        lambda answer: answer + b"x",
        lambda answer: answer[:20],
        lambda answer: answer[:1],
        lambda answer: answer[:3] + bytes(8) + answer[11:],
        lambda answer: b"D" + answer[:0] + bytes(4),
    ],
    ids=["short", "long", "cut", "empty", "no-length", "other"],
)
def test_an_answer_that_cannot_be_read_leaves_the_rows_to_spark(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[bytes], bytes]
) -> None:
    sql = f"SELECT part, COUNT(*), SUM(l), MAX(s) FROM {_PLAIN} WHERE i > 100 GROUP BY part"
    expected = rows_of(spark, sql, enabled=False)
    planner.enable(spark)
    try:
        assert rows_of(spark, sql, enabled=True) == expected
        hook = type(callback_of(spark))
        answer, spoiled = hook.apply, []

        def give(self: object, request: str, candidates: bytes) -> bytearray:
            found = bytes(answer(self, request, candidates))
            if found[:1] == b"G":
                spoiled.append(found)
            return bytearray(spoil(found) if found[:1] == b"G" else found)

        monkeypatch.setattr(hook, "apply", give)

        assert rows_of(spark, sql, enabled=True) == expected
        assert spoiled
    finally:
        planner.disable(spark)
