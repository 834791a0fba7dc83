"""Tables that Spark deletes from: positional deletes (v2) and deletion vectors (v3), read without Spark."""

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import planner
from puffin_index import IndexDefinition, TableIndex
from tests.spark.hook.items import ROW_GROUP_ROWS, ROWS, create_items

pytestmark = pytest.mark.spark

PREDICATES = [
    "k = 4711",
    "k = 7919",
    "price < 3000",
    "k BETWEEN 100 AND 120 OR note IS NULL AND city = 'city-3'",
    "NOT (price <=> 104729) AND k < 40",
    "city LIKE '%-9_' AND k < 200",
    "id >= 19990",
]


@pytest.mark.one_of(2)
@pytest.mark.parametrize(("version", "ending"), [(3, "puffin"), (2, "parquet")])
def test_scans_and_counts_are_sparks_after_deletes(
    spark: SparkSession, catalog: SqlCatalog, version: int, ending: str
) -> None:
    name = f"deleted_v{version}"
    create_items(spark, name)
    spark.sql(
        f"ALTER TABLE lake.ns.{name} SET TBLPROPERTIES ('format-version'='{version}', "
        "'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read')"
    )
    index = TableIndex.create(catalog, f"ns.{name}", IndexDefinition.of(bitmap=["city"], bsi=["k", "price"]))
    index.build(workers=1)
    spark.sql(f"DELETE FROM lake.ns.{name} WHERE id % 7 = 3 OR k = 4711")
    spark.sql(f"DELETE FROM lake.ns.{name} WHERE id BETWEEN 5000 AND 8000 AND id % 2 = 0")
    spark.sql(f"UPDATE lake.ns.{name} SET price = 5 WHERE k = 7919")
    index.refresh()
    files = spark.sql(f"SELECT file_path FROM lake.ns.{name}.delete_files").collect()
    assert files
    assert all(file[0].endswith(ending) for file in files)

    for where in PREDICATES:
        expected = sorted(
            tuple(row) for row in spark.sql(f"SELECT id, price FROM lake.ns.{name} WHERE {where}").collect()
        )
        found = planner.scan(index, where, ["id", "price"]).read_all()
        assert sorted(zip(*(column.to_pylist() for column in found.columns), strict=True)) == expected, where
        assert planner.count(index, where).rows == len(expected), where
    assert planner.count(index).rows == spark.table(f"lake.ns.{name}").count()

    # Deleted by its own DELETE: the one row group that had it is dropped, though its bitmaps still show the row.
    plan = planner.plan(index, "k = 4711", strict=True)
    assert plan.reason_counts()["all-deleted"] == 1
    assert plan.kept == plan.unindexed
    assert plan.row_groups - plan.unindexed == ROWS // ROW_GROUP_ROWS
