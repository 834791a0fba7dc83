"""Equality deletes of Iceberg's own writers: the planner and the hook give what Spark's own scans give."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, NestedField, UUIDType
from pyspark.sql import SparkSession

import planner
from planner.spark.rules import java_list, jvm_of
from puffin_index import TableIndex
from puffin_index.errors import UnsupportedError
from ssb_bench.spark_runs.jars import SPARK_RELEASE
from tests.conftest import built, some
from tests.spark.agreement import ENABLED, check_rows, reports_since, row_groups_of, settings
from tests.spark.java_source import object_of

pytestmark = [pytest.mark.spark, pytest.mark.skipif(SPARK_RELEASE != "4.1", reason="its Iceberg has other writers")]

ROWS, ROW_GROUP_ROWS = 2_000, 250
DEFAULT = "'write.delete.mode'='merge-on-read'"
CONDITIONS = ["true", "k = 8", "k BETWEEN 100 AND 250", "g = 3", "name IS NULL", "k > 1500 OR g IN (1, 2)", "id = 77"]

Rows = Sequence[Sequence[Any]]
Delete = Callable[..., None]


@pytest.fixture(scope="module")
def delete(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Delete:
    """Commits an equality delete file."""
    return deleter(spark, tmp_path_factory.mktemp("java"))


def deleter(spark: SparkSession, folder: Path) -> Delete:
    """What commits equality delete files by Iceberg's Java library, which is compiled into a folder."""
    writer = object_of(spark, Path(__file__).with_name("EqualityDeletes.java"), folder)

    def commit(
        table: str, names: Sequence[str], rows: Rows, file_format: str = "PARQUET", spec: int = 0, partition: str = ""
    ) -> None:
        loaded = jvm_of(spark).org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, table)
        texts = [[None if value is None else str(value) for value in row] for row in rows]
        writer.commit(loaded, spec, partition, file_format, java_list(spark, names), json.dumps(texts))
        spark.sql(f"REFRESH TABLE {table}")

    return commit


def create(spark: SparkSession, name: str, version: int = 2, partitioned: str = "", properties: str = DEFAULT) -> str:
    table = f"lake.ns.equality_{name}"
    spark.sql(f"DROP TABLE IF EXISTS {table} PURGE")
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT, k INT, g INT, name STRING, d DOUBLE) USING iceberg {partitioned} "
        f"TBLPROPERTIES ('format-version'='{version}', {row_groups_of(ROW_GROUP_ROWS)}, {properties})"
    )
    append(spark, table, 0)
    return table


def append(spark: SparkSession, table: str, first: int) -> None:
    """Append rows; every value of `k` is that of one row, and the same in each append."""
    spark.range(first, first + ROWS, 1, 1).selectExpr(
        "id",
        f"CAST(id * 7919 % {ROWS} AS INT) AS k",
        "CAST(id % 7 AS INT) AS g",
        "IF(id % 9 = 0, NULL, CONCAT('name-', CAST(id % 50 AS STRING))) AS name",
        "CASE id % 11 WHEN 0 THEN double('NaN') WHEN 1 THEN -0.0D WHEN 2 THEN 0.0D ELSE id / 4 END AS d",
    ).writeTo(table).append()


def check(spark: SparkSession, index: TableIndex, table: str, conditions: Sequence[str] = CONDITIONS) -> list[bool]:
    """Check scans, counts, aggregates and located rows; say of each condition whether its aggregate needed no rows."""
    index.refresh()
    answered = []
    for where in conditions:
        with settings(spark, {ENABLED: "false"}):
            rows = spark.sql(f"SELECT id, g, k, d, _file, _pos FROM {table} WHERE {where}").collect()
        expected = sorted(str(tuple(row)[:4]) for row in rows)
        groups: dict[Any, tuple[int, int]] = {}
        for row in rows:
            count, total = groups.get(row["g"], (0, 0))
            groups[row["g"]] = count + 1, total + row["k"]

        found = planner.scan(index, where, ["id", "g", "k", "d"]).read_all().to_pylist()
        assert sorted(str(tuple(row.values())) for row in found) == expected, where
        assert planner.count(index, where).rows == len(rows)
        aggregated = planner.aggregate(index, where, "count(*), sum(k)", group_by="g").to_pylist()
        assert {row["g"]: (row["count(*)"], row["sum(k)"]) for row in aggregated} == groups, where

        sql = f"SELECT id, g, k, d FROM {table} WHERE {where}"
        assert sorted(str(tuple(row)) for row in spark.sql(sql).collect()) == expected, where
        with settings(spark, {"spark.puffin-index.aggregates": "true"}):
            earlier = planner.reports(spark)
            summed = spark.sql(f"SELECT g, count(*), sum(k) FROM {table} WHERE {where} GROUP BY g").collect()
        reports = reports_since(spark, earlier)
        assert {row[0]: (row[1], row[2]) for row in summed} == groups, where
        answered.append(bool(reports) and all(report.answered and not report.kept for report in reports))
    located = planner.locate(index, {"id": [row["id"] for row in rows]})
    own = sorted(zip(located["_file"].to_pylist(), located["_pos"].to_pylist(), strict=True))
    assert own == sorted((row["_file"], row["_pos"]) for row in rows)
    return answered


EVERY_COLUMN = {"bsi": ["id", "k", "d"], "bitmap": ["g", "name"]}


@pytest.mark.one_of(2)
@pytest.mark.parametrize(("version", "file_format"), [(3, "ORC"), (2, "PARQUET")])
def test_the_index_subtracts_keys_of_one_and_of_several_columns(
    hooked: SparkSession, catalog: SqlCatalog, delete: Delete, version: int, file_format: str
) -> None:
    table = create(hooked, f"v{version}", version)
    delete(table, ["k"], [[at] for at in range(0, 300, 4)], file_format)
    delete(table, ["name", "g"], [[None, 3], ["name-4", 4], ["name-4", None]], file_format)
    append(hooked, table, ROWS)
    delete(table, ["id"], [[ROWS + 77], [16]], file_format)
    index = built(catalog, table.removeprefix("lake."), **EVERY_COLUMN)

    assert all(check(hooked, index, table, some(CONDITIONS, 2)))
    hooked.sql(f"DELETE FROM {table} WHERE k IN (9, 101, 1999)")
    delete(table, ["name"], [[None]], file_format)
    assert all(check(hooked, index, table, some(CONDITIONS[-3:-1], 1)))
    assert hooked.sql(f"SELECT count(*) FROM {table} WHERE name IS NULL").first() == (0,)
    append(hooked, table, 2 * ROWS)
    # The third file has no index.
    assert not any(check(hooked, index, table, some(CONDITIONS[:2], 1)))


@pytest.mark.parametrize(
    "kinds",
    [{"bitmap": ["g"]}, {"bloom": ["k"], "bitmap": ["g"]}, {"bitmap": ["k", "g"]}],
    ids=["none", "bloom", "all"],
)
def test_rows_are_read_where_the_index_does_not_know_them(
    hooked: SparkSession, catalog: SqlCatalog, delete: Delete, kinds: dict[str, list[str]]
) -> None:
    table = create(hooked, "kinds")
    delete(table, ["k"], [[8], [9], [101]])
    index = built(catalog, table.removeprefix("lake."), **kinds)

    assert check(hooked, index, table, ["true", "k = 8", "g = 3"])[-1] == ("k" in kinds["bitmap"])
    with settings(hooked, {"spark.puffin-index.aggregates": "true"}):
        reports = check_rows(hooked, f"SELECT count(*) FROM {table} WHERE g = 3")
    # A bloom filter tells the row groups that have none of the keys.
    assert any(report.kept < report.row_groups for report in reports) == (len(kinds) > 1 or "k" in kinds["bitmap"])


def test_zeros_and_nan_are_compared_as_by_iceberg(hooked: SparkSession, catalog: SqlCatalog, delete: Delete) -> None:
    table = create(hooked, "doubles")
    index = built(catalog, table.removeprefix("lake."), **EVERY_COLUMN)
    for key, answers in (("NaN", True), ("-0.0", False), ("0.0", False)):
        delete(table, ["d"], [[key]])
        assert all(check(hooked, index, table, ["k < 400"])) == answers, key


def test_columns_are_promoted_renamed_dropped_added(hooked: SparkSession, catalog: SqlCatalog, delete: Delete) -> None:
    table = create(hooked, "evolved", 3)
    delete(table, ["k", "name"], [[k, f"name-{id_ % 50}"] for id_ in range(1, 40) for k in [id_ * 7919 % ROWS]])
    index = built(catalog, table.removeprefix("lake."), **EVERY_COLUMN)
    hooked.sql(f"ALTER TABLE {table} ALTER COLUMN k TYPE BIGINT")
    hooked.sql(f"ALTER TABLE {table} RENAME COLUMN name TO label")
    hooked.sql(f"ALTER TABLE {table} ADD COLUMN more INT")
    delete(table, ["k"], [[8], [2**40]])
    conditions = ["k < 300", "g = 2"]
    assert all(check(hooked, index, table, conditions))
    hooked.sql(f"ALTER TABLE {table} DROP COLUMN label")
    hooked.sql(f"ALTER TABLE {table} ADD COLUMN label STRING")
    assert not any(check(hooked, index, table, conditions))
    # No data file has the column, so that all rows are deleted.
    delete(table, ["more"], [[None]])
    check(hooked, index, table, conditions)
    assert planner.count(index, "true").rows == 0


def test_deletes_of_a_partition_leave_others_alone(hooked: SparkSession, catalog: SqlCatalog, delete: Delete) -> None:
    table = create(hooked, "partitions", partitioned="PARTITIONED BY (g)")
    delete(table, ["name"], [["name-4"], [None]], partition="g=3")
    index = built(catalog, table.removeprefix("lake."), **EVERY_COLUMN)
    assert all(check(hooked, index, table, CONDITIONS[2:5]))
    # Of a spec without a partition: applies to all files.
    hooked.sql(f"ALTER TABLE {table} DROP PARTITION FIELD g")
    delete(table, ["g", "name"], [[2, "name-5"], [3, "name-6"], [None, None]], spec=1)
    append(hooked, table, ROWS)
    index.build(workers=1)
    assert all(check(hooked, index, table, CONDITIONS[2:5]))


def test_avro_is_left_to_spark(hooked: SparkSession, catalog: SqlCatalog, delete: Delete) -> None:
    table = create(hooked, "avro")
    index = built(catalog, table.removeprefix("lake."), **EVERY_COLUMN)
    delete(table, ["k"], [[8], [9]], "AVRO")

    with settings(hooked, {"spark.puffin-index.aggregates": "true", "spark.puffin-index.strict": "false"}):
        check_rows(hooked, f"SELECT count(*) FROM {table} WHERE k < 300")
    index.refresh()
    with pytest.raises(UnsupportedError, match=r"equality delete file .* is AVRO"):
        planner.scan(index, "k < 300").read_all()


def check_missed_deletes(hooked: SparkSession, index: TableIndex, table: str, rows: int, deleted: int) -> None:
    """Check that the hook gives what Spark gives, which misses deletes, and the planner what the specification says."""
    index.refresh()
    sql = f"SELECT count(*) FROM {table} WHERE k >= 0"
    with settings(hooked, {"spark.puffin-index.aggregates": "true"}):
        reports = check_rows(hooked, sql)
        assert hooked.sql(sql).first() == (rows,)
    assert [(report.kept, bool(report.answered)) for report in reports] == [(0, True)]
    assert planner.count(index, "k >= 0").rows == len(planner.scan(index).read_all()) == rows - deleted


def test_nan_beside_other_numbers_deletes_nothing(hooked: SparkSession, catalog: SqlCatalog, delete: Delete) -> None:
    """Iceberg compares the bounds of both files, which leave NaN out."""
    table = create(hooked, "nan")
    index = built(catalog, table.removeprefix("lake."), **EVERY_COLUMN)
    delete(table, ["d"], [["NaN"], ["1e9"]])

    check_missed_deletes(hooked, index, table, ROWS, len(range(0, ROWS, 11)))


def test_uuids_that_java_takes_for_negative_stay(hooked: SparkSession, catalog: SqlCatalog, delete: Delete) -> None:
    """Iceberg compares bounds as Java orders uuids, and writers order them otherwise (apache/iceberg#14216)."""
    table = "lake.ns.equality_uuids"
    hooked.sql(f"DROP TABLE IF EXISTS {table} PURGE")
    schema = Schema(NestedField(1, "u", UUIDType()), NestedField(2, "k", IntegerType()))
    keys = [UUID(int=at << 120 | at) for at in range(256)]
    made = catalog.create_table(table.removeprefix("lake."), schema, properties={"format-version": "2"})
    made.append(
        pa.table({"u": pa.array([key.bytes for key in keys], pa.uuid()), "k": pa.array(range(256), pa.int32())})
    )
    index = built(catalog, table.removeprefix("lake."), bitmap=["u", "k"])
    delete(table, ["u"], [[keys[100]], [keys[200]]])

    check_missed_deletes(hooked, index, table, len(keys), 2)
