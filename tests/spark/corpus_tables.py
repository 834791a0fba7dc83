"""The tables of the query corpus: a small star schema, and its fact table in every form that Iceberg knows."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from puffin_index import TableIndex
from tests.conftest import built
from tests.spark.agreement import row_groups_of

ROWS = 6_000
ROW_GROUP_ROWS = 250
NAMESPACE = "corpus"
CORPUS = Path(__file__).parent / "corpus"

_FACT = (
    "orderkey BIGINT, custkey INT, partkey INT, suppkey INT, orderdate INT, quantity INT, price BIGINT, "
    "revenue BIGINT, mode STRING, note STRUCT<words: STRING, size: INT>"
)
# 7919 and 104729 are primes: neighbouring ids spread over the whole range, so that min and max prune nothing.
_FACT_COLUMNS = (
    f"CAST((id * 7919) % {ROWS} AS BIGINT) AS orderkey",
    "CAST(id % 40 AS INT) AS custkey",
    "CAST((id * 13) % 60 AS INT) AS partkey",
    "CAST(id % 20 AS INT) AS suppkey",
    "19920101 + CAST(id % 7 AS INT) * 10000 + CAST(id % 12 AS INT) * 100 AS orderdate",
    "CAST(1 + id % 50 AS INT) AS quantity",
    "IF(id % 11 = 0, NULL, (id * 104729) % 1000003) AS price",
    "(id * 7907) % 999983 AS revenue",
    "CASE id % 4 WHEN 0 THEN 'AIR' WHEN 1 THEN 'SHIP' WHEN 2 THEN 'RAIL' ELSE NULL END AS mode",
    "NAMED_STRUCT('words', SHA2(CAST(id AS STRING), 256), 'size', CAST((id * 31) % 900 AS INT)) AS note",
)
_DIMENSIONS = {
    "customer": (("custkey", "city", "region"), 40),
    "supplier": (("suppkey", "city", "region"), 20),
    "part": (("partkey", "category", "brand"), 60),
}
_PLAIN = "'write.parquet.dict-size-bytes'='64'"
"""Without dictionaries Iceberg itself skips no row group, so that metrics show what the index did."""

_MERGE_ON_READ = ", ".join(f"'write.{verb}.mode'='merge-on-read'" for verb in ("delete", "update", "merge"))

PLAIN_TABLES = frozenset({"lineorder", "v2", "v3"})
FACT_TABLES = {
    "lineorder": (f"'format-version'='2', {_PLAIN}, 'write.parquet.compression-codec'='zstd'", ""),
    "v1": ("'format-version'='1', 'write.parquet.compression-codec'='gzip'", ""),
    "v2": (f"'format-version'='2', {_PLAIN}, 'write.parquet.compression-codec'='snappy', {_MERGE_ON_READ}", ""),
    "v3": (f"'format-version'='3', {_PLAIN}, {_MERGE_ON_READ}", ""),
    "equality": ("'format-version'='2', 'write.parquet.compression-codec'='uncompressed'", ""),
    "parted": ("'format-version'='2'", "PARTITIONED BY (mode)"),
    "bucketed": (f"'format-version'='2', {_MERGE_ON_READ}", "PARTITIONED BY (bucket(4, custkey))"),
    "evolved": ("'format-version'='2'", ""),
    "orc": ("'format-version'='2', 'write.format.default'='orc'", ""),
}


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement of `{t}`, with a snapshot `{old}` and a time `{then}`, and whether it must read fewer rows."""

    sql: str
    shrinks: bool


def statements(name: str) -> list[Statement]:
    """Read a file of the corpus: statements end with `;`, and those that must shrink follow a line `-- shrinks`."""
    found: list[Statement] = []
    for chunk in (CORPUS / f"{name}.sql").read_text(encoding="utf-8").split(";\n"):
        lines = [line for line in chunk.splitlines() if line.strip()]
        sql = "\n".join(line for line in lines if not line.startswith("--"))
        if sql:
            found.append(Statement(sql, "-- shrinks" in lines))
    return found


def texts(name: str) -> list[str]:
    return (CORPUS / f"{name}.txt").read_text(encoding="utf-8").strip().split("\n")


def create_fact(spark: SparkSession, catalog: SqlCatalog, name: str) -> TableIndex:
    """Create one form of the fact table and its index, two data files in each."""
    properties, partitioning = FACT_TABLES[name]
    full = f"lake.{NAMESPACE}.{name}"
    layout = f"{properties}, {row_groups_of(ROW_GROUP_ROWS)}"
    spark.sql(f"CREATE TABLE {full} ({_FACT}) USING iceberg {partitioning} TBLPROPERTIES ({layout})")
    half = ROWS // 2
    append(spark, full, 0, half)
    if name == "evolved":
        spark.sql(f"ALTER TABLE {full} ADD PARTITION FIELD bucket(3, suppkey)")
        spark.sql(f"ALTER TABLE {full} RENAME COLUMN revenue TO income")
        spark.sql(f"ALTER TABLE {full} ADD COLUMN revenue BIGINT")
        spark.sql(f"ALTER TABLE {full} ALTER COLUMN quantity TYPE BIGINT")
    append(spark, full, half, ROWS)
    return built(
        catalog,
        f"{NAMESPACE}.{name}",
        bitmap=["mode", "orderdate", "custkey"],
        bsi=["orderkey", "price", "revenue", "quantity", "note.size"],
        bloom=["orderkey", "note.words"],
    )


def append(spark: SparkSession, full: str, start: int, end: int) -> None:
    """Append rows of the fact table; columns that the table has got since are NULL."""
    rows = spark.range(start, end, 1, 1).selectExpr(*_FACT_COLUMNS)
    columns = spark.table(full).columns
    if "income" in columns:
        rows = rows.withColumnRenamed("revenue", "income").selectExpr("*", "income + 1 AS revenue").select(*columns)
    rows.writeTo(full).append()


def create_dimensions(spark: SparkSession) -> None:
    for name, (columns, count) in _DIMENSIONS.items():
        spark.range(0, count, 1, 1).selectExpr(
            f"CAST(id AS INT) AS {columns[0]}",
            f"CONCAT('CITY', CAST(id % 10 AS STRING)) AS {columns[1]}",
            f"CONCAT('REGION', CAST(id % 5 AS STRING)) AS {columns[2]}",
        ).writeTo(f"lake.{NAMESPACE}.{name}").create()


def change(spark: SparkSession) -> None:
    """Give the tables deletes, branches and tags, after their indexes were built."""
    for name in FACT_TABLES:
        full = f"lake.{NAMESPACE}.{name}"
        spark.sql(f"ALTER TABLE {full} CREATE TAG first")
        if name != "v1":
            spark.sql(f"ALTER TABLE {full} CREATE BRANCH side")
            spark.sql(f"DELETE FROM {full}.branch_side WHERE orderkey = 3001")
    for name in ("v2", "v3", "bucketed"):
        spark.sql(f"DELETE FROM lake.{NAMESPACE}.{name} WHERE orderkey = 17 OR quantity = 3")
        spark.sql(f"UPDATE lake.{NAMESPACE}.{name} SET price = 5 WHERE orderkey = 18")
    delete_by_equality(spark, f"{NAMESPACE}.equality", "quantity", 3)


def delete_by_equality(spark: SparkSession, table_name: str, column: str, value: int) -> None:
    """Commit an equality delete file, which Spark itself never writes, through Iceberg's Java library."""
    context = spark.sparkContext
    jvm, gateway = context._jvm, context._gateway
    assert jvm is not None
    assert gateway is not None
    table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, f"lake.{table_name}")
    ids = gateway.new_array(jvm.int, 1)
    ids[0] = table.schema().findField(column).fieldId()
    path = Path(table.location().removeprefix("file:")) / "data" / f"deletes-{column}-{value}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    field = pa.field(column, pa.int32(), metadata={"PARQUET:field_id": str(ids[0])})
    pq.write_table(pa.table([pa.array([value], pa.int32())], schema=pa.schema([field])), path)
    delete_file = (
        jvm.org.apache.iceberg.FileMetadata.deleteFileBuilder(table.spec())
        .ofEqualityDeletes(ids)
        .withPath(str(path))
        .withFormat("PARQUET")
        .withFileSizeInBytes(path.stat().st_size)
        .withRecordCount(1)
        .build()
    )
    table.newRowDelta().addDeletes(delete_file).commit()
    spark.sql(f"REFRESH TABLE lake.{table_name}")
