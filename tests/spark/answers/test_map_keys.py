"""Keys of maps with Spark itself as the judge: with the hook, without it, and in `planner.plan`, answers agree."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import planner
from puffin_index import IndexDefinition, TableIndex
from tests.spark.agreement import check_exact_rows, count_and_sum, row_groups_of
from tests.spark.corpus_tables import statements

pytestmark = pytest.mark.spark

ROWS = 6_000
ROW_GROUP_ROWS = 500
KEYS = ["m#k#color", "m#k#it's \\", "n#k#1", "n#k#-7", "days#k#2024-02-29", "s.m#k#9000000000"]


@pytest.fixture(scope="module")
def index(spark: SparkSession, catalog: SqlCatalog) -> Iterator[TableIndex]:
    spark.sql(
        "CREATE OR REPLACE TABLE lake.ns.maps (id BIGINT, m MAP<STRING, STRING>, n MAP<INT, BIGINT>, "
        "days MAP<DATE, DOUBLE>, s STRUCT<m: MAP<BIGINT, INT>>) USING iceberg TBLPROPERTIES ("
        f"{row_groups_of(ROW_GROUP_ROWS)})"
    )
    spark.range(0, ROWS, 1, 2).selectExpr(
        "id",
        "CASE id % 9 WHEN 1 THEN NULL WHEN 2 THEN MAP('size', 'color 77') WHEN 3 THEN MAP('color', NULL) ELSE "
        "MAP('color', CONCAT('color ', id * 7919 % 1000), 'it\\'s \\\\', CONCAT('line\\nbreak ', id % 3000)) END AS m",
        "IF(id % 5 = 0, NULL, MAP(1, id * 31 % 1000, -7, id % 3001)) AS n",
        "MAP(DATE'2024-02-29', IF(id = 99, DOUBLE('NaN'), id * 13 % 1501 / 2)) AS days",
        "NAMED_STRUCT('m', IF(id % 3 = 0, NULL, MAP(9000000000, CAST(id * 17 % 1999 AS INT)))) AS s",
    ).writeTo("lake.ns.maps").append()
    # PyIceberg warns of options that it does not know.
    spark.sql("ALTER TABLE lake.ns.maps UNSET TBLPROPERTIES ('write.parquet.row-group-size-bytes')")
    append_duplicates(catalog)
    spark.sql("REFRESH TABLE lake.ns.maps")
    definition = IndexDefinition.of(bitmap=KEYS, bsi=KEYS, bloom=KEYS)
    table_index = TableIndex.create(catalog, "ns.maps", definition)
    report = table_index.build(workers=2)
    assert (report.rows, report.skipped) == (ROWS + 1, ())
    planner.enable(spark, strict=True)
    yield table_index
    planner.disable(spark)


def append_duplicates(catalog: SqlCatalog) -> None:
    """Append a row as no Spark writes it: one key has two entries."""
    table = catalog.load_table("ns.maps")
    row = {"id": -1, "m": [("color", "first"), ("color", "second")], "n": [(1, 33), (1, 34)], "days": None, "s": None}
    table.append(pa.Table.from_pylist([row], schema=table.schema().as_arrow()))


def answer(spark: SparkSession, where: str) -> tuple[int, int | None]:
    return count_and_sum(spark, "lake.ns.maps", where)


@pytest.mark.one_of(5)
@pytest.mark.parametrize("where", [one.sql for one in statements("maps") if not one.shrinks])
def test_answers_are_equal(spark: SparkSession, index: TableIndex, plain: SparkSession, where: str) -> None:
    expected = answer(plain, where)

    assert answer(spark, where) == expected
    check_exact_rows(index, where, expected[0])


@pytest.mark.parametrize("where", [one.sql for one in statements("maps") if one.shrinks])
def test_row_groups_are_dropped_in_spark(spark: SparkSession, index: TableIndex, where: str) -> None:
    assert index.status().indexed_data_files == 3

    answer(spark, where)

    assert planner.reports(spark)[-1].dropped > 0


def test_of_two_entries_with_one_key_the_first_counts_as_in_spark(plain: SparkSession, index: TableIndex) -> None:
    assert answer(plain, "m['color'] = 'first'") == (1, -1)
    assert answer(plain, "m['color'] = 'second'") == answer(plain, "element_at(m, 'color') = 'second'") == (0, None)
    assert planner.plan(index, "m['color'] = 'second'", strict=True).kept == 0


def test_scalar_subqueries_that_differ_in_a_key_alone_keep_their_answers(
    spark: SparkSession, plain: SparkSession
) -> None:
    subqueries = [f"(SELECT SUM(id) FROM lake.ns.maps WHERE m['color'] = 'color {number}')" for number in (77, 78, 79)]

    row = spark.sql(f"SELECT {', '.join(subqueries)}").first()

    assert row is not None
    assert list(row) == [answer(spark.newSession(), f"m['color'] = 'color {number}'")[1] for number in (77, 78, 79)]
    assert row[0] == answer(plain, "m['color'] = 'color 77'")[1]


def test_joins_prune_each_side_by_its_own_keys(spark: SparkSession, index: TableIndex) -> None:
    sql = (
        "SELECT a.id, b.id FROM lake.ns.maps a JOIN lake.ns.maps b ON a.id = b.id + 1 "
        "WHERE a.m['color'] = 'color 77' AND b.n[1] = (SELECT MAX(id) * 0 + 44 FROM lake.ns.maps) AND b.n[-7] > 0"
    )

    with_hook = sorted(map(tuple, spark.sql(sql).collect()))

    assert index.name == "ns.maps"
    assert with_hook == sorted(map(tuple, spark.newSession().sql(sql).collect()))
