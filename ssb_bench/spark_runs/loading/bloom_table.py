"""The same lineorder with Parquet bloom filters, as Iceberg writes them, on the columns of the queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import SparkSession

from ssb_bench.data.layout import NAMESPACE, Layout
from ssb_bench.data.records import read_if_there, write_record
from ssb_bench.spark_runs.loading.load import require_load, table_rows, write_table
from ssb_bench.spark_runs.loading.row_groups import row_group_properties
from ssb_bench.spark_runs.session import CATALOG

BLOOM_TABLE: Final = f"{CATALOG}.{NAMESPACE}.lineorder_bloom"
BLOOM_COLUMNS: Final = ("lo_ordtotalprice", "lo_revenue")
FALSE_POSITIVES: Final = 0.01
_MOST_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class BloomTable:
    """What writing the table took.

    Attributes:
        source_snapshot_id: The snapshot of lineorder that has the same rows.
        write_seconds: Time that Spark took to write the table.
        data_bytes: Size of the data files, filters included.
    """

    source_snapshot_id: int
    write_seconds: float
    data_bytes: int


def make_bloom_table(spark: SparkSession, layout: Layout) -> BloomTable:
    """Write the table, unless it is there with the rows of the present lineorder.

    The filters are sized for as many distinct values as a row group has rows, with one false positive in a hundred.
    """
    loaded, record = require_load(layout), layout.warehouse / "bloom.json"
    made = read_if_there(record, BloomTable)
    if made is not None and made.source_snapshot_id == loaded.snapshot_id:
        return made
    record.unlink(missing_ok=True)
    rows = table_rows(spark, layout, "lineorder")
    properties = row_group_properties(rows, loaded.row_group_rows)
    properties["write.parquet.bloom-filter-max-bytes"] = str(_MOST_BYTES)
    for column in BLOOM_COLUMNS:
        properties[f"write.parquet.bloom-filter-enabled.column.{column}"] = "true"
        properties[f"write.parquet.bloom-filter-fpp.column.{column}"] = str(FALSE_POSITIVES)
        properties[f"write.parquet.bloom-filter-ndv.column.{column}"] = str(loaded.row_group_rows)
    seconds = write_table(rows, BLOOM_TABLE, properties)
    size = spark.sql(f"SELECT sum(file_size_in_bytes) FROM {BLOOM_TABLE}.files").collect()[0][0]
    made = BloomTable(loaded.snapshot_id, seconds, int(size))
    write_record(record, made)
    return made
