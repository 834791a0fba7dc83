"""Files that other writers made and `add_files` imported: Spark reads the row groups that are kept, and no others."""

from collections.abc import Callable
from itertools import product
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import DataFrame, SparkSession

import planner
from puffin_index import IndexDefinition, TableIndex
from puffin_index.data.data_table import list_data_files
from tests.parquet_footer_edit import Struct, columns, edit_footer, first_byte, metadata, row_groups
from tests.spark.agreement import check_rows, reading_pages, settings, with_and_without
from tests.spark.corpus_tables import delete_by_equality

pytestmark = pytest.mark.spark

ROWS = 20_480
ROW_GROUP_ROWS = 2_048
"""DuckDB's smallest."""
ROW_GROUPS = ROWS // ROW_GROUP_ROWS
SPREAD = 7_919
_LONG = 6
VECTORIZED = "spark.sql.iceberg.vectorization.enabled"


def items() -> pa.Table:
    ids = range(ROWS)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "k": pa.array([2 * (at * SPREAD % ROWS) for at in ids], pa.int32()),
            "name": pa.array([f"name-{at % 97}" for at in ids]),
        }
    )


def write_by_arrow(folder: Path) -> None:
    pq.write_table(items(), folder / "data.parquet", row_group_size=ROW_GROUP_ROWS, write_page_index=True)


def write_by_duckdb(folder: Path) -> None:
    items_of_arrow = items()
    assert len(items_of_arrow) == ROWS
    duckdb.sql(
        f"COPY items_of_arrow TO '{folder}/data.parquet' (FORMAT parquet, ROW_GROUP_SIZE {ROW_GROUP_ROWS}, "
        "PRESERVE_ORDER true)"
    )


def write_by_spark(folder: Path) -> None:
    SparkSession.active().range(0, ROWS, 1, 1).selectExpr(
        "id", f"CAST(2 * (id * {SPREAD} % {ROWS}) AS INT) AS k", "CONCAT('name-', CAST(id % 97 AS STRING)) AS name"
    ).write.mode("overwrite").options(
        **{
            "parquet.block.size": 1,
            "parquet.block.size.row.check.min": ROW_GROUP_ROWS,
            "parquet.page.size.row.check.min": ROW_GROUP_ROWS,
            "parquet.block.size.row.check.max": ROW_GROUP_ROWS,
            "parquet.page.size.row.check.max": ROW_GROUP_ROWS,
        }
    ).parquet(str(folder))


def edited(change: Callable[[Struct], None], names: tuple[str, ...] = ("id", "k", "name")) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        path = folder / "data.parquet"
        rows, writing = items().select(names), {"use_dictionary": False, "write_page_index": True}
        pq.write_table(rows, path, row_group_size=ROW_GROUP_ROWS, **writing)
        edit_footer(path, change)

    return write


def state_no_size(footer: Struct) -> None:
    """Old writers: nothing of a row group as a whole."""
    for group in row_groups(footer):
        for number in (5, 6, 7):
            group.pop(number, None)


def state_sizes_of_two(footer: Struct) -> None:
    """Each row group seems to reach into the next one: so does its midpoint, by which readers go."""
    for group in row_groups(footer):
        group[6] = (_LONG, 2 * group[6][1])


def state_one_midpoint(footer: Struct) -> None:
    """A reader of a byte range gets all row groups or none."""
    middle = first_byte(row_groups(footer)[-1])
    for group in row_groups(footer):
        group[6] = (_LONG, 2 * (middle - first_byte(group)))


def state_dictionaries_at_0(footer: Struct) -> None:
    """A bug of some writers: columns without a dictionary say that theirs is at 0."""
    for group in row_groups(footer):
        metadata(columns(group)[0])[11] = (_LONG, 0)


def turn_row_groups_around(footer: Struct) -> None:
    """Row groups are not in the order in which they lie in the file."""
    row_groups(footer).reverse()
    for group in row_groups(footer):
        group.pop(7, None)


def turn_columns_around(footer: Struct) -> None:
    """The first column lies behind the others, so that the midpoint is in the next row group."""
    footer[2][1][1][1:] = footer[2][1][1][:0:-1]
    footer.pop(7, None)
    for group in row_groups(footer):
        columns(group).reverse()


WRITERS: dict[str, Callable[[Path], None]] = {
    "arrow": write_by_arrow,
    "duckdb": write_by_duckdb,
    "spark": write_by_spark,
    "no_size": edited(state_no_size),
    "sizes_of_two": edited(state_sizes_of_two),
    "row_groups_around": edited(turn_row_groups_around),
    "columns_around": edited(turn_columns_around, ("name", "k", "id")),
    "dictionaries_at_0": edited(state_dictionaries_at_0),
    "one_midpoint": edited(state_one_midpoint),
}
READ_WHOLE = {"one_midpoint", "dictionaries_at_0"}
WITHOUT_PAGES = {"duckdb"}
IMPORTED_BY_PYICEBERG = ("row_groups_around", "arrow", "sizes_of_two", "one_midpoint", "columns_around")

QUERIES = [
    "SELECT id, _pos, _file, name FROM {} WHERE k = 4710",
    "SELECT id, _pos FROM {} WHERE k IN (8, 3000, 40958)",
    "SELECT COUNT(*), SUM(id), MIN(_pos) FROM {} WHERE k BETWEEN 100 AND 104",
    "SELECT id, _pos FROM {} WHERE k < 3 OR k = 9000 AND name = 'name-1'",
    "SELECT id FROM {} WHERE k = 4711",
]


def create(spark: SparkSession, name: str, version: int = 2) -> str:
    spark.sql(f"DROP TABLE IF EXISTS lake.ns.{name}")
    spark.sql(
        f"CREATE TABLE lake.ns.{name} (id BIGINT, k INT, name STRING) USING iceberg TBLPROPERTIES ("
        f"'format-version'='{version}', 'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read')"
    )
    return f"lake.ns.{name}"


def imported(
    spark: SparkSession, catalog: SqlCatalog, folder: Path, writer: str, version: int = 2, by: str = "spark"
) -> TableIndex:
    """A table of one file that `add_files` of Spark or PyIceberg has imported, and its index."""
    name = f"{by}_{writer}_{version}"
    folder.mkdir()
    WRITERS[writer](folder)
    create(spark, name, version)
    if by == "spark":
        spark.sql(f"CALL lake.system.add_files('ns.{name}', '`parquet`.`{folder}`')")
    else:
        catalog.load_table(f"ns.{name}").add_files([str(folder / "data.parquet")])
        spark.sql(f"REFRESH TABLE lake.ns.{name}")
    index = TableIndex.create(catalog, f"ns.{name}", IndexDefinition.of(bitmap=["k"], bloom=["name"]))
    # PyIceberg lists split offsets, sorted: they need not be in the order of the row groups.
    listed = 0 if by == "spark" else ROW_GROUPS
    assert [len(file.split_offsets) for file in list_data_files(index.data_table)] == [listed]
    report = index.build(workers=1)
    assert (report.files, report.row_groups, report.skipped) == (1, ROW_GROUPS, ())
    return index


@pytest.mark.one_of(5)
@pytest.mark.parametrize(
    ("writer", "by"),
    [*((writer, "spark") for writer in WRITERS), *((writer, "pyiceberg") for writer in IMPORTED_BY_PYICEBERG)],
)
def test_kept_row_groups_are_read(
    hooked: SparkSession, catalog: SqlCatalog, tmp_path: Path, writer: str, by: str
) -> None:
    index = imported(hooked, catalog, tmp_path / "files", writer, by=by)
    kept = []
    for sql in QUERIES:
        report, measured = with_and_without(hooked, sql.format(f"lake.{index.name}"))
        assert report.row_groups == ROW_GROUPS
        # Of what it is given, Iceberg itself leaves out row groups by their statistics.
        assert measured.rows_read <= report.kept_rows, sql
        assert measured.rows_read == report.kept_rows or writer in READ_WHOLE, sql
        kept.append(report.kept)

    assert kept[0] == (ROW_GROUPS if writer in READ_WHOLE else 1)
    assert kept[-1] == 0
    plan = planner.plan(index, "k = 4710", strict=True)
    assert plan.kept == kept[0]
    assert plan.reason_counts().get("read-whole", 0) == (ROW_GROUPS - 1 if writer in READ_WHOLE else 0)
    found = planner.scan(index, "k = 4710", ["id"]).read_all()
    assert [2 * (row * SPREAD % ROWS) for row in found["id"].to_pylist()] == [4710]
    assert planner.count(index, "k BETWEEN 100 AND 104").rows == 3


@pytest.mark.parametrize("writer", ["arrow", "row_groups_around"])
def test_splits_of_any_size_are_the_same(
    hooked: SparkSession, catalog: SqlCatalog, tmp_path: Path, writer: str
) -> None:
    index = imported(hooked, catalog, tmp_path / "files", writer)
    for vectorized, size in product(("false", "true"), ("20000", "134217728")):
        hooked.sql(
            f"ALTER TABLE lake.{index.name} SET TBLPROPERTIES ("
            f"'read.split.target-size'='{size}', 'read.split.open-file-cost'='1')"
        )
        with settings(hooked, {VECTORIZED: vectorized}):
            report, measured = with_and_without(hooked, QUERIES[1].format(f"lake.{index.name}"))
        assert (report.kept, measured.rows_read) == (3, report.kept_rows)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("writer", WRITERS)
def test_pages_of_odd_files_are_read(hooked: SparkSession, catalog: SqlCatalog, tmp_path: Path, writer: str) -> None:
    """Also where the table has another file, all of which is read, and where splits end inside of row groups."""
    index = imported(hooked, catalog, tmp_path / "files", writer)
    (tmp_path / "others").mkdir()
    WRITERS["one_midpoint"](tmp_path / "others")
    table = f"lake.{index.name}"
    hooked.sql(f"CALL lake.system.add_files('{index.name}', '`parquet`.`{tmp_path}/others`')")
    index.build(workers=1)
    in_each = ", ".join(str(2 * (at * SPREAD % ROWS)) for at in range(7, ROWS, ROW_GROUP_ROWS))
    for size in ("5000", "134217728"):
        hooked.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('read.split.target-size'='{size}')")
        for sql in (*QUERIES, f"SELECT * FROM {{}} WHERE k IN ({in_each})"):
            with reading_pages():
                plans = check_rows(hooked, sql.format(table))
        (read,) = [plan.by_pages and plan.by_pages.row_groups for plan in plans]
        assert read == (None if writer in READ_WHOLE | WITHOUT_PAGES else ROW_GROUPS)


@pytest.mark.one_of(3)
@pytest.mark.parametrize(("writer", "version"), [("row_groups_around", 3), ("arrow", 2), ("sizes_of_two", 3)])
def test_deletes_row_ids_and_rewrites_of_imported_files(
    hooked: SparkSession, catalog: SqlCatalog, tmp_path: Path, writer: str, version: int
) -> None:
    index = imported(hooked, catalog, tmp_path / "files", writer, version)
    table = f"lake.{index.name}"
    hooked.sql(f"DELETE FROM {table} WHERE k % 10 = 0 OR id BETWEEN 4000 AND 7000")
    hooked.sql(f"UPDATE {table} SET name = 'changed' WHERE k IN (102, 4712)")
    lineage = ", _row_id, _last_updated_sequence_number" if version > 2 else ""
    queries = [sql.replace("id, _pos", f"id, _pos{lineage}").format(table) for sql in QUERIES]
    for sql in queries:
        report, _ = with_and_without(hooked, sql)
        assert report.kept < report.row_groups

    hooked.sql(f"CALL lake.system.rewrite_data_files(table => '{index.name}', options => map('rewrite-all', 'true'))")
    index.refresh()
    index.build(workers=1)
    for sql in queries:
        with_and_without(hooked, sql)


def test_equality_deletes_of_imported_files(hooked: SparkSession, catalog: SqlCatalog, tmp_path: Path) -> None:
    index = imported(hooked, catalog, tmp_path / "files", "columns_around")
    delete_by_equality(hooked, index.name, "k", 4710)

    report, measured = with_and_without(hooked, f"SELECT id, _pos FROM lake.{index.name} WHERE k IN (8, 4710, 9000)")

    assert measured.answer is not None
    assert measured.answer.text == "2 rows"
    assert report.kept < report.row_groups


def write_orc_by_iceberg(spark: SparkSession, catalog: SqlCatalog, _: Path) -> str:
    """Files with field ids."""
    spark.sql("DROP TABLE IF EXISTS lake.ns.orc_source")
    spark.sql(
        "CREATE TABLE lake.ns.orc_source (id BIGINT, k INT, name STRING) USING iceberg TBLPROPERTIES ("
        "'write.format.default'='orc', 'write.orc.stripe-size-bytes'='8192', 'write.orc.vectorized.batch-size'='1024')"
    )
    orc_items(spark).writeTo("lake.ns.orc_source").append()
    return catalog.load_table("ns.orc_source").location() + "/data"


def write_orc_by_spark(spark: SparkSession, _: SqlCatalog, folder: Path) -> str:
    """Files without field ids."""
    orc_items(spark).write.options(**{"orc.stripe.size": 8192, "orc.rows.between.memory.checks": 1024}).orc(str(folder))
    return str(folder)


def orc_items(spark: SparkSession) -> DataFrame:
    columns = ["id", f"CAST(2 * (id * {SPREAD} % {ROWS}) AS INT) AS k", "SHA2(CAST(id AS STRING), 256) AS name"]
    return spark.range(0, ROWS, 1, 1).selectExpr(*columns)


@pytest.mark.nightly
@pytest.mark.parametrize("write", [write_orc_by_iceberg, write_orc_by_spark])
def test_stripes_of_imported_orc_files_are_dropped(
    hooked: SparkSession, catalog: SqlCatalog, tmp_path: Path, write: Callable[[SparkSession, SqlCatalog, Path], str]
) -> None:
    spark = hooked
    folder = write(spark, catalog, tmp_path / "files")
    table = create(spark, write.__name__)
    spark.sql(f"CALL lake.system.add_files('ns.{write.__name__}', '`orc`.`{folder}`')")
    index = TableIndex.create(catalog, f"ns.{write.__name__}", IndexDefinition.of(bitmap=["k"]))
    assert [(file.format, file.split_offsets) for file in list_data_files(index.data_table)] == [("ORC", ())]
    report = index.build(workers=1)
    assert report.row_groups > 3

    for vectorized, sql in product(("true", "false"), QUERIES):
        with settings(spark, {VECTORIZED: vectorized}):
            plan, measured = with_and_without(spark, sql.format(table))
        assert plan.kept < plan.row_groups == report.row_groups
        assert measured.rows_read <= plan.kept_rows
    spark.sql(f"DELETE FROM {table} WHERE k IN (8, 4710)")
    for sql in QUERIES:
        with_and_without(spark, sql.format(table))
