"""A scan that nothing is left of is left out of the plan, with all that has no rows without it; answers stay."""

from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import planner
from puffin_index import IndexDefinition, TableIndex
from tests.spark.agreement import plan_text, row_groups_of
from tests.spark.corpus_tables import statements

pytestmark = pytest.mark.spark

NONE = "f.a = 500 AND f.b = 501"
"""Both values are in every row group, but in no row together: `b` is `a`."""


@pytest.fixture(scope="module")
def facts(spark: SparkSession, catalog: SqlCatalog) -> TableIndex:
    spark.sql(
        "CREATE TABLE lake.empty.f (id BIGINT, a INT, b INT, name STRING NOT NULL) USING iceberg TBLPROPERTIES ("
        f"{row_groups_of(2000)}, "
        "'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read', 'write.merge.mode'='merge-on-read')"
    )
    rows = "id", "CAST(id % 1000 AS INT) a", "CAST(id % 1000 AS INT) b", "CONCAT('n', id % 7) name"
    spark.range(0, 10_000, 1, 1).selectExpr(*rows).writeTo("lake.empty.f").append()
    spark.range(6).selectExpr("id AS a", "CONCAT('d', id) AS text").writeTo("lake.empty.d").using("iceberg").create()
    index = TableIndex.create(catalog, "empty.f", IndexDefinition.of(bitmap=["a"], bsi=["b"]))
    index.build(spark)
    return index


@pytest.fixture
def hook(hooked: SparkSession, facts: TableIndex) -> SparkSession:
    assert facts.name == "empty.f"
    return hooked


@pytest.mark.one_of(3)
@pytest.mark.parametrize("sql", [one.sql for one in statements("empty")])
def test_answers_and_columns_are_those_of_a_plain_scan(hook: SparkSession, sql: str) -> None:
    sql = sql.format(f="lake.empty.f f", d="lake.empty.d d", none=NONE)
    with_index = hook.sql(sql)
    plan, rows = plan_text(with_index), with_index.collect()
    assert planner.reports(hook)[-1].kept == 0
    hook.conf.set("spark.puffin-index.enabled", "false")
    without = hook.sql(sql)

    # A subquery that stays one keeps its scan.
    assert "BatchScan lake.empty.f" not in plan.split("Subquery")[0]
    assert "BatchScan lake.empty.f" in plan_text(without)
    assert sorted(map(str, rows)) == sorted(map(str, without.collect()))
    assert with_index.schema == without.schema


def test_what_is_joined_with_nothing_is_not_scanned_either(hook: SparkSession) -> None:
    frame = hook.sql(f"SELECT f.id, d.text FROM lake.empty.f f JOIN lake.empty.d d ON f.a = d.a WHERE {NONE}")

    assert "BatchScan" not in plan_text(frame)
    assert frame.collect() == []


def test_one_frame_answers_again_and_from_the_cache(hook: SparkSession) -> None:
    frame = hook.sql(f"SELECT id FROM lake.empty.f f WHERE {NONE}")

    assert frame.collect() == frame.collect() == []
    assert (frame.count(), frame.union(hook.range(2)).count()) == (0, 2)
    frame.cache()
    try:
        assert frame.count() == 0
    finally:
        frame.unpersist()


def test_what_is_written_may_be_nothing(hook: SparkSession, tmp_path: Path) -> None:
    nothing = f"SELECT id, name FROM lake.empty.f f WHERE {NONE}"
    hook.sql("CREATE TABLE lake.empty.kept (id BIGINT, name STRING) USING iceberg")
    hook.sql("INSERT INTO lake.empty.kept VALUES (1, 'a')")

    hook.sql(f"INSERT INTO lake.empty.kept {nothing}")
    assert hook.table("lake.empty.kept").count() == 1
    hook.sql(f"INSERT OVERWRITE lake.empty.kept {nothing}")
    assert hook.table("lake.empty.kept").count() == 0
    hook.sql(f"CREATE TABLE lake.empty.made USING iceberg AS {nothing}")
    assert (hook.table("lake.empty.made").columns, hook.table("lake.empty.made").count()) == (["id", "name"], 0)
    hook.sql(nothing).write.format("noop").mode("overwrite").save()
    hook.sql(nothing).write.parquet(str(tmp_path / "parquet"))
    assert hook.read.parquet(str(tmp_path / "parquet")).columns == ["id", "name"]


def test_rows_without_an_index_are_scanned_and_writes_keep_their_scans(hook: SparkSession, facts: TableIndex) -> None:
    """Merge-on-read: what a command reads is what it validates its commit with."""
    table, none = "lake.empty.f", NONE.replace("f.", "")

    def count(where: str) -> int:
        return hook.table(table).where(where).count()

    before = count("true")
    hook.sql(f"DELETE FROM {table} WHERE {none}")
    hook.sql(f"UPDATE {table} SET name = 'x' WHERE {none}")
    hook.sql(f"INSERT INTO {table} SELECT * FROM {table} WHERE {none}")
    merge = f"MERGE INTO {table} t USING (SELECT 500 a, 501 b) s ON t.a = s.a AND t.b = s.b AND t.a = 500 AND t.b = 501"
    hook.sql(
        f"{merge} WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, a, b, name) VALUES (-1, s.a, s.b, 'm')"
    )

    assert (count("true"), count("name = 'x'"), count(none)) == (before + 1, 0, 1)
    found = hook.sql(f"SELECT * FROM {table} WHERE {none}")
    assert plan_text(found).count("BatchScan") == 1
    assert [tuple(row) for row in found.collect()] == [(-1, 500, 501, "m")]
    hook.sql(f"UPDATE {table} SET name = 'y' WHERE {none}")
    assert [row.name for row in hook.sql(f"SELECT * FROM {table} WHERE {none}").collect()] == ["y"]
    facts.build(hook)
    assert [row.name for row in hook.sql(f"SELECT * FROM {table} WHERE {none}").collect()] == ["y"]
