"""The same lineorder with Parquet bloom filters, as Iceberg writes them, on the columns of the queries."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

from pyspark.sql import SparkSession

from ssb_bench.data.layout import NAMESPACE, Layout, write_json
from ssb_bench.spark_runs.load import require_load, write_lineorder
from ssb_bench.spark_runs.session import CATALOG

BLOOM_TABLE: Final = f"{CATALOG}.{NAMESPACE}.lineorder_bloom"
BLOOM_COLUMNS: Final = ("lo_ordtotalprice", "lo_revenue")
FALSE_POSITIVES: Final = 0.01
_MOST_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class BloomTable:
    """What writing it took.

    Attributes:
        source_snapshot_id: The snapshot of lineorder that it stands beside.
        write_seconds: Time that Spark took to write it.
        data_bytes: Size of its data files, filters included.
    """

    source_snapshot_id: int
    write_seconds: float
    data_bytes: int


def make_bloom_table(spark: SparkSession, layout: Layout) -> BloomTable:
    """Write the table, unless it stands beside the present lineorder.

    The filters are sized for as many distinct values as a row group has rows, with one false positive in a hundred.
    """
    loaded, record = require_load(layout), layout.warehouse / "bloom.json"
    if record.exists():
        made = BloomTable(**json.loads(record.read_text(encoding="utf-8")))
        if made.source_snapshot_id == loaded.snapshot_id:
            return made
    record.unlink(missing_ok=True)
    properties = {"write.parquet.bloom-filter-max-bytes": str(_MOST_BYTES)}
    for column in BLOOM_COLUMNS:
        properties[f"write.parquet.bloom-filter-enabled.column.{column}"] = "true"
        properties[f"write.parquet.bloom-filter-fpp.column.{column}"] = str(FALSE_POSITIVES)
        properties[f"write.parquet.bloom-filter-ndv.column.{column}"] = str(loaded.row_group_rows)
    seconds = write_lineorder(spark, layout, BLOOM_TABLE, loaded.row_group_rows, properties)
    size = spark.sql(f"SELECT sum(file_size_in_bytes) FROM {BLOOM_TABLE}.files").collect()[0][0]
    made = BloomTable(loaded.snapshot_id, seconds, int(size))
    write_json(record, asdict(made))
    return made
