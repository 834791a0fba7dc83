"""Files of Spark and Iceberg are read by pages: their offset indexes, page headers and encodings are parquet-java's."""

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import planner
from planner.arrow.row_group_columns import DataRead
from tests.conftest import built

pytestmark = pytest.mark.spark

ROWS = 40_000
PAGE_ROWS = 500
COLUMNS = """
    id AS n, CAST(id * 7919 % 20011 AS INT) AS k, IF(id % 11 = 0, NULL, concat('name-', id % 1000)) AS t,
    CAST(id AS DECIMAL(12, 2)) AS d, id / 3 AS f, id % 2 = 0 AS b,
    CAST('2024-01-01' AS DATE) + CAST(id % 900 AS INT) AS dt,
    TIMESTAMP_MICROS(id * 1000003) AS ts, CAST(concat('b', id) AS BINARY) AS bin,
    IF(id % 7 = 0, NULL, named_struct('x', id, 'y', IF(id % 5 = 0, NULL, concat('y', id)))) AS s,
    IF(id % 6 = 0, NULL, transform(sequence(1, 1 + CAST(id % 4 AS INT)), i -> i * id)) AS l,
    IF(id % 9 = 0, NULL, map(concat('k', id % 3), id, 'z', NULL)) AS m,
    IF(id % 13 = 0, NULL, array_repeat(named_struct('a', id, 'b', concat('e', id)), CAST(id % 3 AS INT))) AS e
"""


@pytest.mark.one_of(4)
@pytest.mark.parametrize("codec", ["zstd", "gzip", "snappy", "uncompressed"])
def test_pages_of_spark_give_the_rows_of_spark(spark: SparkSession, catalog: SqlCatalog, codec: str) -> None:
    name = f"paged_{codec}"
    spark.sql(
        f"CREATE TABLE lake.pages.{name} USING iceberg TBLPROPERTIES ('write.parquet.compression-codec' = '{codec}', "
        f"'write.parquet.page-row-limit' = '{PAGE_ROWS}', 'write.parquet.row-group-check-min-record-count' = '100') "
        f"AS SELECT {COLUMNS} FROM range(0, {ROWS}, 1, 1)"
    )
    index = built(catalog, f"pages.{name}", bsi=["k"])
    for where in ("k = 4711", "k IN (1, 500, 19000)", "k < 4 AND n > 100", "k BETWEEN 10 AND 12 AND t LIKE 'name-%'"):
        read = DataRead()
        found = planner.scan(index, where, data_read=read).read_all().sort_by("n").to_pylist()
        rows = spark.sql(f"SELECT * FROM lake.pages.{name} WHERE {where} ORDER BY n").toArrow().to_pylist()
        assert found == rows != [], where
        assert 0 < read.pages_read < 0.3 * read.pages, (where, read)
        assert planner.count(index, where).rows == len(rows)
