"""Which column of a data file Iceberg reads: imported files, changed mappings, partition constants, restored tables.

Every query is asked with the hook and without, by Spark and by the planner in Python.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import planner
from puffin_index import IndexDefinition, TableIndex
from ssb_bench.spark_runs.measure import answer_of, measure
from tests.conftest import built
from tests.spark.agreement import ENABLED, check_rows, settings

pytestmark = pytest.mark.spark

ROWS = 1_000
GROUP_ROWS = 100


def write_file(path: Path, columns: dict[str, pa.Array], ids: dict[str, int] | None = None, **options: object) -> None:
    """Write a Parquet file of many row groups; `ids` gives some of the columns field ids.

    Without statistics, so that Iceberg's own pruning by them hides nothing.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fields = [
        pa.field(name, values.type, metadata={"PARQUET:field_id": str(ids[name])} if ids and name in ids else None)
        for name, values in columns.items()
    ]
    table = pa.Table.from_arrays(list(columns.values()), schema=pa.schema(fields))
    pq.write_table(table, path, row_group_size=GROUP_ROWS, write_statistics=False, **options)


def numbers(start: int = 0, arrow_type: pa.DataType | None = None) -> pa.Array:
    return pa.array(range(start, start + ROWS), arrow_type or pa.int32())


def import_files(spark: SparkSession, table: str, folder: Path) -> None:
    spark.sql(f"CALL lake.system.add_files(table => 'found.{table}', source_table => '`parquet`.`{folder}`')")


def create(spark: SparkSession, table: str, columns: str, more: str = "") -> None:
    spark.sql(f"DROP TABLE IF EXISTS lake.found.{table}")
    spark.sql(f"CREATE TABLE lake.found.{table} ({columns}) USING iceberg {more}")


def check(spark: SparkSession, index: TableIndex, *wheres: str) -> None:
    """The same rows with the hook and without, and counted and read by the planner."""
    for where, expected in check_in_spark(spark, index, *wheres).items():
        assert planner.count(index, where).rows == expected, where
        names = [field.name for field in index.data_table.schema().fields]
        assert planner.scan(index, where, names).read_all().num_rows == expected, where


def check_in_spark(spark: SparkSession, index: TableIndex, *wheres: str) -> dict[str, int]:
    """The same rows with the hook and without, no row group read but those kept; return how many rows there are."""
    counts: dict[str, int] = {}
    for where in wheres:
        query = f"SELECT * FROM lake.{index.name} WHERE {where}"
        with settings(spark, {ENABLED: "false"}):
            rows = spark.sql(query).collect()
        reports = len(planner.reports(spark))
        measured = measure(spark, query)
        assert measured.answer == answer_of(rows), where
        for report in planner.reports(spark)[reports:]:
            assert report.unindexed or measured.rows_read <= report.kept_rows, where
        counts[where] = len(rows)
    return counts


def test_a_column_with_the_name_of_a_renamed_one(hooked: SparkSession, catalog: SqlCatalog, tmp_path: Path) -> None:
    write_file(tmp_path / "f" / "a.parquet", {"id": numbers(), "a": numbers(5000)})
    create(hooked, "renamed", "id INT, a INT")
    import_files(hooked, "renamed", tmp_path / "f")
    index = built(catalog, "found.renamed", bitmap=["id", "a"], bsi=["id", "a"])
    check(hooked, index, "a = 5007", "a IS NULL", "id = 7")

    hooked.sql("ALTER TABLE lake.found.renamed RENAME COLUMN a TO x")
    check(hooked, index, "x = 5007", "x IS NULL", "x IS NOT NULL")
    hooked.sql("ALTER TABLE lake.found.renamed ADD COLUMN a INT")
    check(
        hooked, index, "x IS NULL", "x = 5007", "a IS NULL", "a = 5007", "id = 7 AND a = 5007", "id = 7 AND x IS NULL"
    )
    report = planner.plan(index, "x = 5007")
    assert any("other column mappings" in warning for warning in report.warnings)
    # The column that was found as before is still of use.
    assert planner.plan(index, "id = 7").kept == 1

    status = index.status()
    assert status.indexed_data_files == 0
    assert status.outdated == ("column x of 1 data files: the name mapping had other names for it when it was indexed",)
    index.build(workers=1)
    assert index.status().outdated == ()
    assert index.status().indexed_data_files == 1
    check(hooked, index, "x IS NULL", "x = 5007", "x IS NOT NULL")
    assert planner.plan(index, "x = 5007").warnings == ()
    assert index.verify(None).findings == ()


def test_a_partition_value_of_the_folder_wins(hooked: SparkSession, catalog: SqlCatalog, tmp_path: Path) -> None:
    write_file(tmp_path / "f" / "p=5" / "a.parquet", {"id": numbers(), "p": numbers(100)})
    create(hooked, "constant", "id INT, p INT", "PARTITIONED BY (p)")
    import_files(hooked, "constant", tmp_path / "f")
    index = built(catalog, "found.constant", bitmap=["id", "p"], bsi=["id", "p"])
    assert index.status().indexed_data_files == 1
    check(hooked, index, "p = 5", "p = 107", "p = 5 AND id = 7", "p = 107 OR id = 7", "p IS NULL", "p > 5 OR id < 3")
    assert index.verify(None).findings == ()
    assert planner.count(index, "p = 5").row_groups_read == 0

    # The same file again, as what another folder says.
    hooked.sql("DELETE FROM lake.found.constant WHERE p = 5")
    hooked.sql(
        "CALL lake.system.add_files(table => 'found.constant', "
        f"source_table => '`parquet`.`{tmp_path / 'f'}`', check_duplicate_files => false)"
    )
    check(hooked, index, "p = 5", "p = 107", "p = 107 OR id = 7")
    # And once more, where the table has no partitions any more: now the file's own column counts.
    hooked.sql("ALTER TABLE lake.found.constant DROP PARTITION FIELD p")
    hooked.sql(
        "CALL lake.system.add_files(table => 'found.constant', "
        f"source_table => '`parquet`.`{tmp_path / 'f' / 'p=5'}`', check_duplicate_files => false)"
    )
    for _ in range(2):
        check(hooked, index, "p = 5", "p = 107", "p = 107 OR id = 7", "id = 7")
        index.build(workers=1)
        index.compact()
    assert index.status().indexed_data_files == index.status().data_files == 2
    assert index.verify(None).findings == ()


def test_a_file_that_a_table_has_twice(hooked: SparkSession, catalog: SqlCatalog, tmp_path: Path) -> None:
    write_file(tmp_path / "f" / "a.parquet", {"id": numbers(), "a": pa.array([at % 7 for at in range(ROWS)])})
    create(hooked, "twice", "id INT, a BIGINT")
    for _ in range(2):
        hooked.sql(
            "CALL lake.system.add_files(table => 'found.twice', "
            f"source_table => '`parquet`.`{tmp_path / 'f'}`', check_duplicate_files => false)"
        )
    index = built(catalog, "found.twice", bitmap=["id", "a"], bsi=["id"])

    check(hooked, index, "id = 7", "a = 3", "a = 3 AND id < 100", "a <> 3")
    for wanted in ("count(*)", "sum(id), count(a), max(id)", "count(DISTINCT id)"):
        for more in ("", "WHERE a = 3", "WHERE id < 150 AND a <> 3", "GROUP BY a"):
            check_rows(hooked, f"SELECT {wanted} FROM lake.found.twice {more}")
    check_rows(hooked, "SELECT id FROM lake.found.twice ORDER BY id DESC LIMIT 3")


@pytest.mark.one_of(3)
@pytest.mark.parametrize(
    ("column", "folder", "wheres"),
    [
        ("DATE", "2024-02-29", ["p = DATE'2024-02-29'", "p < DATE'2024-02-29' OR id = 7"]),
        ("STRING", "b%C3%A4r", ["p = 'bär'", "p > 'bär' OR id = 7"]),
        ("DECIMAL(10,2)", "12.50", ["p = 12.5", "p < 12.5 OR id = 7"]),
        ("DECIMAL(30,2)", "12.50", ["p = 12.5", "p < 12.5 OR id = 7"]),
        ("DOUBLE", "-0.1", ["p = -0.1", "p > 0 OR id = 7"]),
        ("FLOAT", "0.1", ["p > 0.05 AND p < 0.2", "p > 1 OR id = 7"]),
        ("BOOLEAN", "true", ["p", "NOT p OR id = 7"]),
        ("BIGINT", "__HIVE_DEFAULT_PARTITION__", ["p IS NULL", "p = 5 OR id = 7", "p IS NOT NULL"]),
    ],
)
def test_constants_of_every_type_are_the_same_on_both_sides(
    hooked: SparkSession, catalog: SqlCatalog, tmp_path: Path, column: str, folder: str, wheres: list[str]
) -> None:
    write_file(tmp_path / "f" / f"p={folder}" / "a.parquet", {"id": numbers()})
    create(hooked, "typed", f"id INT, p {column}", "PARTITIONED BY (p)")
    import_files(hooked, "typed", tmp_path / "f")
    check(hooked, built(catalog, "found.typed", bitmap=["id", "p"], bsi=["id", "p"]), *wheres, "id = 7")
    # Spark's side knows the file for the one that was indexed.
    hooked.sql("SELECT * FROM lake.found.typed WHERE id = 7").collect()
    assert (planner.reports(hooked)[-1].unindexed, planner.reports(hooked)[-1].kept) == (0, 1)


def add_default(spark: SparkSession, table: str, column: str, type_name: str, value: object) -> None:
    """Add a column with a default, which Spark's own statement cannot."""
    spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
        spark._jsparkSession, f"lake.found.{table}"
    ).updateSchema().addColumn(
        column,
        getattr(spark._jvm.org.apache.iceberg.types.Types, f"{type_name}Type").get(),
        spark._jvm.org.apache.iceberg.expressions.Literal.of(value),
    ).commit()
    spark.sql(f"REFRESH TABLE lake.found.{table}")


def test_first_rows_where_files_lack_the_column(hooked: SparkSession, catalog: SqlCatalog) -> None:
    create(hooked, "lacking", "id INT", "TBLPROPERTIES ('format-version'='3')")
    hooked.sql("INSERT INTO lake.found.lacking SELECT CAST(id AS INT) FROM RANGE(100)")
    add_default(hooked, "lacking", "s", "String", "m")
    hooked.sql("ALTER TABLE lake.found.lacking ADD COLUMN w DECIMAL(30, 1)")
    hooked.sql("INSERT INTO lake.found.lacking SELECT CAST(id AS INT), NULL, NULL FROM RANGE(100, 200)")
    hooked.sql("INSERT INTO lake.found.lacking SELECT CAST(id AS INT), CONCAT('k', id % 7), id FROM RANGE(200, 300)")
    index = built(catalog, "found.lacking", bitmap=["id", "s", "w"], bsi=["id", "s", "w"])

    orders, wheres = ("s ASC NULLS LAST", "w DESC NULLS FIRST"), ("id < 200", "TRUE")
    check_in_spark(hooked, index, *(f"{where} ORDER BY {order}, id LIMIT 7" for where in wheres for order in orders))


def test_a_default_of_another_lineage(hooked: SparkSession, catalog: SqlCatalog) -> None:
    """Built as NULL while the column had no default; the restored table's column of that id has one."""
    create(hooked, "defaults", "id INT", "TBLPROPERTIES ('format-version'='3')")
    hooked.sql(f"INSERT INTO lake.found.defaults SELECT CAST(id AS INT) FROM range({ROWS})")
    old = catalog.load_table("found.defaults").metadata_location
    hooked.sql("ALTER TABLE lake.found.defaults ADD COLUMN a INT")
    index = built(catalog, "found.defaults", bitmap=["id", "a"], bsi=["id", "a"])
    check(hooked, index, "a IS NULL", "a = 7")

    catalog.drop_table("found.defaults")
    hooked.sql(f"CALL lake.system.register_table(table => 'found.defaults', metadata_file => '{old}')")
    table = catalog.load_table("found.defaults")
    add_default(hooked, "defaults", "b", "Integer", 7)
    assert table.refresh().schema().find_field("b").field_id == 2
    index = TableIndex.open(catalog, "found.defaults")
    check(hooked, index, "b = 7", "b IS NULL", "id = 7")


@pytest.mark.nightly
def test_imported_orc_files_are_found_by_name(hooked: SparkSession, catalog: SqlCatalog, tmp_path: Path) -> None:
    folder = tmp_path / "f"
    hooked.range(0, ROWS, 1, 1).selectExpr(
        "CAST(id AS INT) AS id", "CAST(id + 5000 AS INT) AS a", "NAMED_STRUCT('x', id, 'y', CAST(id AS STRING)) AS s"
    ).write.orc(folder.as_uri())
    create(hooked, "orc", "id INT, a INT, s STRUCT<x: BIGINT, y: STRING>, later INT")
    hooked.sql(f"CALL lake.system.add_files(table => 'found.orc', source_table => '`orc`.`{folder}`')")
    index = TableIndex.create(catalog, "found.orc", IndexDefinition.of(bitmap=["id", "a", "s.y", "later"]))
    assert index.build(workers=1).files == 1
    wheres = ["a = 5007", "a = 1", "s.y = '7'", "s.y IS NULL", "later IS NULL", "later = 1", "id = 1 AND s.x = 1"]
    check_in_spark(hooked, index, *wheres)
    assert planner.plan(index, "a = 1").kept == 0

    hooked.sql("ALTER TABLE lake.found.orc RENAME COLUMN a TO b")
    hooked.sql("ALTER TABLE lake.found.orc ADD COLUMN a INT")
    check_in_spark(hooked, index, "a IS NULL", "a = 5007", "b IS NULL", "b = 5007", "b IS NOT NULL")
    assert index.verify(None).findings == ()


@pytest.mark.nightly
def test_constants_that_writers_of_the_table_made(hooked: SparkSession, catalog: SqlCatalog) -> None:
    columns = {
        "b": ("BIGINT", "id % 3"),
        "t": ("TIMESTAMP", "TIMESTAMP_MICROS(id % 3 - 1)"),
        "n": ("TIMESTAMP_NTZ", "CAST(TIMESTAMP_MICROS(-id % 3) AS TIMESTAMP_NTZ)"),
        "x": ("BINARY", "IF(id % 3 = 0, NULL, CAST(CONCAT('ä', id % 3) AS BINARY))"),
        "f": ("FLOAT", "CAST(id % 3 AS FLOAT) / 3"),
        "d": ("DOUBLE", "CAST(id % 3 AS DOUBLE) / 3"),
        "w": ("DECIMAL(38,10)", "CAST(id % 3 - 1 AS DECIMAL(38,10)) / 7"),
    }
    for name, (kind, expression) in columns.items():
        create(hooked, f"own_{name}", f"id BIGINT, p {kind}", "PARTITIONED BY (p)")
        hooked.range(300).selectExpr("id", f"CAST({expression} AS {kind}) AS p").writeTo(
            f"lake.found.own_{name}"
        ).append()
        index = built(catalog, f"found.own_{name}", bitmap=["id", "p"], bsi=["id", "p"])
        check(hooked, index, "id = 7", "p IS NULL", "id = 7 OR p IS NULL")
        hooked.sql(f"SELECT * FROM lake.found.own_{name} WHERE id = 7").collect()
        assert (planner.reports(hooked)[-1].unindexed, planner.reports(hooked)[-1].kept) == (0, 1), name
