"""ORC tables that Spark wrote: stripes are indexed and dropped like row groups, and no answer changes."""

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from puffin_index import IndexDefinition, TableIndex
from puffin_index.data.data_table import list_data_files
from tests.spark.agreement import with_and_without
from tests.spark.corpus_tables import statements

pytestmark = pytest.mark.spark

ROWS = 60_000
TABLE = "lake.ns.stripes"


@pytest.fixture(scope="module")
def index(spark: SparkSession, catalog: SqlCatalog) -> TableIndex:
    """One file of many stripes; every kind of column that ORC stores in a way of its own."""
    spark.sql(f"DROP TABLE IF EXISTS {TABLE} PURGE")
    spark.sql(
        f"CREATE TABLE {TABLE} (id BIGINT, k INT, flag BOOLEAN, x DOUBLE, name STRING, raw BINARY, cents DECIMAL(9,2), "
        "wide DECIMAL(38,4), day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, s STRUCT<a: INT, t: STRUCT<u: STRING>>, "
        "notes MAP<STRING, INT>) "
        "USING iceberg TBLPROPERTIES ('write.format.default'='orc', 'write.orc.stripe-size-bytes'='65536', "
        "'write.orc.vectorized.batch-size'='1024', 'write.distribution-mode'='none')"
    )
    spark.range(0, ROWS, 1, 1).selectExpr(
        "id",
        f"CAST((id * 7919) % {ROWS} AS INT) AS k",
        "id % 2 = 0 AS flag",
        "IF(id % 13 = 0, NULL, id / 7) AS x",
        "SHA2(CAST(id AS STRING), 256) AS name",
        "CAST(CAST(id AS STRING) AS BINARY) AS raw",
        "CAST(id / 100 - 300 AS DECIMAL(9,2)) AS cents",
        "CAST(-id AS DECIMAL(38,4)) AS wide",
        "DATE_ADD(DATE'1950-01-01', CAST(id % 40000 AS INT)) AS day",
        # Before and after 1970, with fractions: where ORC's timestamps are delicate.
        "TIMESTAMP_MICROS((id - 30000) * 100000000007) AS at",
        "CAST(TIMESTAMP_MICROS((id - 30000) * 10000000013) AS TIMESTAMP_NTZ) AS local",
        "IF(id % 3 = 0, NULL, NAMED_STRUCT('a', CAST(id AS INT), "
        "'t', IF(id % 5 = 0, NULL, NAMED_STRUCT('u', CAST(id AS STRING))))) AS s",
        "IF(id % 11 = 0, NULL, MAP('k', CAST(id AS INT), 'even', IF(id % 2 = 0, 1, NULL))) AS notes",
    ).writeTo(TABLE).append()
    columns = ["k", "name", "cents", "wide", "day", "at", "local", "s.a", "s.t.u", "x", "raw", "flag", "notes#k#k"]
    table_index = TableIndex.create(catalog, "ns.stripes", IndexDefinition.of(bitmap=columns, bloom=["name"]))
    report = table_index.build(spark)
    assert (report.files, report.rows, report.skipped) == (1, ROWS, ())
    return table_index


def test_stripes_are_verified_and_an_equality_reads_one(hooked: SparkSession, index: TableIndex) -> None:
    (file,) = list_data_files(index.data_table)
    verified = index.verify(None)
    assert (file.format, verified.findings) == ("ORC", ())
    assert verified.row_groups == index.status().indexed_row_groups == len(file.split_offsets) > 10

    report, measured = with_and_without(hooked, f"SELECT * FROM {TABLE} WHERE k = 4711")

    assert (report.kept, report.unindexed) == (1, 0)
    assert measured.rows_read <= report.kept_rows < ROWS / 10


@pytest.mark.one_of(3)
@pytest.mark.usefixtures("index")
@pytest.mark.parametrize("where", [one.sql for one in statements("stripes")])
def test_answers_are_those_without_the_hook(hooked: SparkSession, where: str) -> None:
    report, _ = with_and_without(hooked, f"SELECT id FROM {TABLE} WHERE {where}")

    assert report.kept < report.row_groups
