"""Write the SSB tables into Iceberg through Spark, in row groups of chosen rows."""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from puffin_index import IndexDefinition
from ssb_bench.data.dataset import open_duckdb, require_dataset
from ssb_bench.data.layout import NAMESPACE, SSB_TABLES, BenchError, Layout, local_path, read_if_there, write_record
from ssb_bench.results.record import Facts
from ssb_bench.spark_runs.session import CATALOG

MOST_PAGE_ROWS: Final = 20_000
"""Rows of a page at most, as Iceberg's and parquet-java's writers have it by default."""
_LARGEST_TARGET: Final = 2**31 - 1
_log = logging.getLogger(__name__)
_TRIAL: Final = f"{CATALOG}.{NAMESPACE}.row_group_trial"


def page_rows(row_group_rows: int, most: int = MOST_PAGE_ROWS) -> int:
    """Give the rows of a page: the greatest divisor of `row_group_rows` that is within `most`.

    A row group whose greatest such divisor is below a tenth of `most` has one page a column chunk.
    """
    for pages in range(-(-row_group_rows // most), 10 * row_group_rows // most + 1):
        if row_group_rows % pages == 0:
            return row_group_rows // pages
    return row_group_rows


def row_group_properties(rows: DataFrame, row_group_rows: int, most_page_rows: int = MOST_PAGE_ROWS) -> dict[str, str]:
    """Give the table properties by which Iceberg's writer cuts row groups of `row_group_rows` rows into even pages.

    The writer looks at the size of a row group after every so many rows as `check-min` and `check-max` say, and cuts
    the row group when the size is over the target. Parquet's library gives the first page at least `check-min` rows, so
    both are the rows of a page. Then the target has to lie between the sizes of a row group with and without its last
    page. A trial tells the size: one row group of the first rows, in a table that is dropped again. So the rows of all
    row groups must take nearly the same bytes.
    """
    page = page_rows(row_group_rows, most_page_rows)
    pages = row_group_rows // page
    # The writer cuts at its first look where a row group is one page.
    target = 1 if pages == 1 else int(_trial_bytes(rows, row_group_rows, page) * (1 - 0.5 / pages))
    return _properties(page, target)


def _properties(page: int, target_bytes: int) -> dict[str, str]:
    return {
        "write.format.default": "parquet",
        "write.parquet.row-group-size-bytes": str(min(max(target_bytes, 1), _LARGEST_TARGET)),
        "write.parquet.row-group-size-track-uncompressed": "false",
        "write.parquet.row-group-check-min-record-count": str(page),
        "write.parquet.row-group-check-max-record-count": str(page),
        "write.parquet.page-row-limit": str(page),
        "write.distribution-mode": "none",
    }


def _trial_bytes(rows: DataFrame, row_group_rows: int, page: int) -> float:
    """Write the first rows as one row group; give the bytes of the data pages of a whole row group."""
    spark = rows.sparkSession
    write_table(rows.limit(row_group_rows).coalesce(1), _TRIAL, _properties(page, _LARGEST_TARGET))
    try:
        file = spark.sql(f"SELECT file_path FROM {_TRIAL}.files").collect()[0][0]
        row_group = pq.read_metadata(local_path(file)).row_group(0)
    finally:
        spark.sql(f"DROP TABLE {_TRIAL} PURGE")
    columns = [row_group.column(ordinal) for ordinal in range(row_group.num_columns)]
    # The writer's idea of a size leaves dictionaries out until the row group ends.
    dictionaries = sum(c.data_page_offset - c.dictionary_page_offset for c in columns if c.has_dictionary_page)
    in_pages = sum(c.total_compressed_size for c in columns) - dictionaries
    return float(in_pages * row_group_rows / row_group.num_rows)


TABLE: Final = f"{NAMESPACE}.lineorder"
LINEORDER: Final = f"{CATALOG}.{TABLE}"
RANGED_COLUMNS: Final = ("lo_ordtotalprice", "lo_revenue")
DEFINITION: Final = IndexDefinition.of(bitmap=["lo_suppkey", *RANGED_COLUMNS], bsi=RANGED_COLUMNS)
"""What serves the Volcano queries."""

DEFAULT_ROW_GROUP_ROWS: Final = 50_000
_CHECKED_COLUMNS: Final = ("lo_orderkey", "lo_linenumber", "lo_ordtotalprice", "lo_revenue", "lo_orderdate")


@dataclass(frozen=True, slots=True)
class Load:
    """What `load` wrote, as the Parquet footers tell it; the last row group of a file is smaller than the others."""

    scale_factor: float
    rows: int
    data_files: int
    row_groups: int
    row_group_rows: int
    data_bytes: int
    write_seconds: float
    smallest_row_group_rows: int
    largest_row_group_rows: int
    snapshot_id: int

    @property
    def facts(self) -> Facts:
        """What a record says of it."""
        names = ("rows", "data_files", "row_groups", "row_group_rows", "data_bytes", "write_seconds")
        return {name: getattr(self, name) for name in names}


def load(
    spark: SparkSession,
    layout: Layout,
    *,
    row_group_rows: int = DEFAULT_ROW_GROUP_ROWS,
) -> Load:
    """Make the Iceberg tables, unless they are there with the same row-group size.

    Raises BenchError if the SSB files are not there, or if rows did not arrive as they were.
    """
    require_dataset(layout)
    if row_group_rows < 1:
        raise BenchError(f"a row group cannot have {row_group_rows} rows")
    finished = read_if_there(layout.load_json, Load)
    if finished is None or finished.row_group_rows != row_group_rows:
        finished = _load(spark, layout, row_group_rows)
    return finished


def require_load(layout: Layout) -> Load:
    """Read what `load` left, or raise BenchError if there is nothing complete."""
    loaded = read_if_there(layout.load_json, Load)
    if loaded is None:
        raise BenchError(
            f"the SSB tables of scale factor {layout.scale_factor:g} are not in Iceberg yet: "
            f"run `ssb-bench load --sf {layout.scale_factor:g} --data {layout.data}` first"
        )
    return loaded


def prove_arrival(spark: SparkSession, layout: Layout, table: str) -> None:
    """Compare the row count of a table, and for lineorder the sums of some columns, with DuckDB on the SSB files.

    Raises BenchError if they differ. Queries on half a table are fast, so a half table must not pass.
    """
    columns = _CHECKED_COLUMNS if table == "lineorder" else ()
    projection = ", ".join(["count(*)", *(f"CAST(sum({column}) AS BIGINT)" for column in columns)])
    with open_duckdb(layout) as connection:
        due = connection.execute(f'SELECT {projection} FROM "{table}"').fetchone()
    arrived = spark.sql(f"SELECT {projection} FROM {CATALOG}.{NAMESPACE}.{table}").first()
    if due is None or arrived is None or tuple(due) != tuple(arrived):
        raise BenchError(f"{table} did not arrive whole in Iceberg: {projection} is {arrived}, {due} is due")


def _load(spark: SparkSession, layout: Layout, row_group_rows: int) -> Load:
    layout.load_json.unlink(missing_ok=True)
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{NAMESPACE}")
    seconds = 0.0
    # lineorder last: its time is a measure of Spark's writing, not of its waking up.
    for table in reversed(SSB_TABLES):
        _log.info("writing %s into Iceberg", table)
        rows = table_rows(spark, layout, table)
        properties = row_group_properties(rows, row_group_rows) if table == "lineorder" else {}
        seconds = write_table(rows, f"{CATALOG}.{NAMESPACE}.{table}", properties)
    _log.info("checking that all rows arrived")
    for table in SSB_TABLES:
        prove_arrival(spark, layout, table)
    loaded = _describe(spark, layout, row_group_rows, seconds)
    write_record(layout.load_json, loaded)
    return loaded


def table_rows(spark: SparkSession, layout: Layout, table: str) -> DataFrame:
    """Give the rows of an SSB table as they are to be written: a source file is a task and gives one data file."""
    return spark.read.parquet(*(file.as_uri() for file in layout.files(table)))


def write_table(rows: DataFrame, name: str, properties: Mapping[str, str]) -> float:
    """Write rows into an Iceberg table anew; give the seconds that it took."""
    rows.sparkSession.sql(f"DROP TABLE IF EXISTS {name} PURGE")
    started = time.perf_counter()
    writer = rows.writeTo(name).using("iceberg")
    for key, value in properties.items():
        writer = writer.tableProperty(key, value)
    writer.create()
    return time.perf_counter() - started


def _describe(spark: SparkSession, layout: Layout, row_group_rows: int, write_seconds: float) -> Load:
    files = spark.sql(f"SELECT file_path, file_size_in_bytes, split_offsets FROM {LINEORDER}.files").collect()
    rows: list[int] = []
    for file in files:
        footer = pq.read_metadata(local_path(file.file_path))
        if footer.num_row_groups != len(file.split_offsets):
            raise BenchError(f"{file.file_path} has {footer.num_row_groups} row groups, Iceberg says otherwise")
        rows.extend(footer.row_group(ordinal).num_rows for ordinal in range(footer.num_row_groups))
    snapshot = spark.sql(f"SELECT snapshot_id FROM {LINEORDER}.snapshots ORDER BY committed_at DESC LIMIT 1").first()
    if snapshot is None or not rows:
        raise BenchError("lineorder is empty in Iceberg")
    return Load(
        scale_factor=layout.scale_factor,
        row_group_rows=row_group_rows,
        rows=sum(rows),
        data_files=len(files),
        row_groups=len(rows),
        smallest_row_group_rows=min(rows),
        largest_row_group_rows=max(rows),
        data_bytes=sum(file.file_size_in_bytes for file in files),
        write_seconds=write_seconds,
        snapshot_id=snapshot.snapshot_id,
    )


BLOOM_TABLE: Final = f"{CATALOG}.{NAMESPACE}.lineorder_bloom"
FALSE_POSITIVES: Final = 0.01
_MOST_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class BloomTable:
    """What writing the table took; the snapshot is that of lineorder with the same rows."""

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
    for column in RANGED_COLUMNS:
        properties[f"write.parquet.bloom-filter-enabled.column.{column}"] = "true"
        properties[f"write.parquet.bloom-filter-fpp.column.{column}"] = str(FALSE_POSITIVES)
        properties[f"write.parquet.bloom-filter-ndv.column.{column}"] = str(loaded.row_group_rows)
    seconds = write_table(rows, BLOOM_TABLE, properties)
    size = spark.sql(f"SELECT sum(file_size_in_bytes) FROM {BLOOM_TABLE}.files").collect()[0][0]
    made = BloomTable(loaded.snapshot_id, seconds, int(size))
    write_record(record, made)
    return made
