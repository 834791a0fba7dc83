"""Write the SSB tables into Iceberg through Spark, in row groups of chosen rows; the index of lineorder."""

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Row, SparkSession, functions

from puffin_index import BuildReport, IndexDefinition, TableIndex
from ssb_bench.data.dataset import require_dataset
from ssb_bench.data.layout import NAMESPACE, SSB_TABLES, BenchError, Layout, local_path, read_record, write_record
from ssb_bench.results.record import Facts
from ssb_bench.spark_runs.bench import Bench
from ssb_bench.spark_runs.session import CATALOG, open_catalog

MOST_PAGE_ROWS: Final = 20_000
"""Rows of a page at most, as Iceberg's and parquet-java's writers have it by default."""
_LARGEST_TARGET: Final = 2**31 - 1
_log = logging.getLogger(__name__)
_TRIAL: Final = f"{CATALOG}.{NAMESPACE}.row_group_trial"


def row_group_properties(rows: DataFrame, row_group_rows: int, most_page_rows: int = MOST_PAGE_ROWS) -> dict[str, str]:
    """Give the table properties by which Iceberg's writer cuts row groups of `row_group_rows` rows into even pages.

    A page has the greatest divisor of these within `most_page_rows`, or all of them if that is below a tenth of it.
    The writer looks at the size of a row group after every `check-min` rows, and cuts one that is over the target.
    Parquet's library gives the first page at least `check-min` rows, so that is the rows of a page. Then the target has
    to lie between the sizes of a row group with and without its last page, which a trial in a table of its own tells.
    So the rows of all row groups must take nearly the same bytes.
    """
    counts = range(-(-row_group_rows // most_page_rows), 10 * row_group_rows // most_page_rows + 1)
    pages, target = next((count for count in counts if row_group_rows % count == 0), 1), 1
    page = row_group_rows // pages
    # The writer cuts at its first look where a row group is one page.
    if pages > 1:
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
        in_pages = (sum(c.total_compressed_size for c in columns) - dictionaries) / row_group.num_rows
        target = int(in_pages * (row_group_rows - page / 2))
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


TABLE: Final = f"{NAMESPACE}.lineorder"
LINEORDER: Final = f"{CATALOG}.{TABLE}"
BLOOM_TABLE: Final = f"{LINEORDER}_bloom"
RANGED_COLUMNS: Final = ("lo_ordtotalprice", "lo_revenue")
DEFINITION: Final = IndexDefinition.of(bitmap=["lo_suppkey", *RANGED_COLUMNS], bsi=RANGED_COLUMNS)
"""What serves the Volcano queries."""

DEFAULT_TABLE: Final = f"{TABLE}_default"
"""The same rows as Iceberg writes them by default, with an id of each, and visits."""
RECENT: Final = "ORDER BY lo_orderkey DESC, lo_linenumber DESC LIMIT 100000"
_ORDERS_A_BLOCK, _BURST_ORDERS, _VISITS = 8, 3, 6
"""Order keys have 8 of each 32 numbers; three orders have twelve rows on average; a visitor comes six times."""
_INDEXED: Final = ("id", "visit", "lo_custkey", "lo_suppkey", *RANGED_COLUMNS)
DEFAULT_DEFINITION: Final = IndexDefinition.of(bitmap=_INDEXED, bsi=RANGED_COLUMNS)
DEFAULT_ROW_GROUP_ROWS: Final = 50_000
_LOADED: Final = "load.json"
_BUILT: Final = "build.json"


@dataclass(frozen=True, slots=True)
class Load:
    """What `load` wrote, as Iceberg's metadata tell it."""

    rows: int
    data_files: int
    row_groups: int
    row_group_rows: int
    data_bytes: int
    write_seconds: float
    snapshot_id: int

    @property
    def facts(self) -> Facts:
        """What a record says of it."""
        return {name: fact for name, fact in asdict(self).items() if name != "snapshot_id"}


def load(spark: SparkSession, layout: Layout, *, row_group_rows: int = DEFAULT_ROW_GROUP_ROWS) -> Load:
    """Make the Iceberg tables, unless they are there with the same row-group size."""
    dataset, record = require_dataset(layout), layout.warehouse / _LOADED
    if row_group_rows < 1:
        raise BenchError(f"a row group cannot have {row_group_rows} rows")
    finished = read_record(record, Load)
    if finished is not None and finished.row_group_rows == row_group_rows:
        return finished
    record.unlink(missing_ok=True)
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{NAMESPACE}")
    # lineorder last: its time is a measure of Spark's writing, not of its waking up.
    for table in reversed(SSB_TABLES):
        rows = table_rows(spark, layout, table)
        properties = row_group_properties(rows, row_group_rows) if table == "lineorder" else {}
        loaded = _write(rows, f"{NAMESPACE}.{table}", properties, dataset.rows[table], row_group_rows)
    write_record(record, loaded)
    return loaded


def load_default(spark: SparkSession, layout: Layout) -> Load:
    """Write the rows of lineorder as Iceberg does by default, with ids and visits, unless they are there."""
    record = layout.warehouse / "load_default.json"
    finished = read_record(record, Load)
    if finished is not None:
        return finished
    block = 4 * _ORDERS_A_BLOCK
    orders = f"(lo_orderkey div {block} * {_ORDERS_A_BLOCK} + lo_orderkey % {block})"
    visits = int(layout.scale_factor * 1_500_000 / _BURST_ORDERS / _VISITS) + 1
    visit = f"pmod(xxhash64({orders} div {_BURST_ORDERS}), {visits}L) AS visit"
    rows = table_rows(spark, layout, "lineorder")
    rows = rows.selectExpr("xxhash64(lo_orderkey, lo_linenumber) AS id", visit, "*")
    properties = {"format-version": "2", "write.merge.mode": "merge-on-read"}
    loaded = _write(rows, DEFAULT_TABLE, properties, require_dataset(layout).rows["lineorder"])
    write_record(record, loaded)
    return loaded


def _write(
    rows: DataFrame, table: str, properties: Mapping[str, str], due: int, row_group_rows: int | None = None
) -> Load:
    """Write a table, and say what it is: in row groups of some rows, or of those that they have in the mean.

    Raises BenchError if rows are missing: queries on half a table are fast. Answers of queries show the values.
    """
    _log.info("writing %s into Iceberg", table)
    spark, seconds = rows.sparkSession, write_table(rows, f"{CATALOG}.{table}", properties)
    sums = "sum(record_count), count(*), sum(size(split_offsets)), sum(file_size_in_bytes)"
    row_count, files, row_groups, size = spark.sql(f"SELECT {sums} FROM {CATALOG}.{table}.files").collect()[0]
    if row_count != due:
        raise BenchError(f"{table} did not arrive whole in Iceberg: it has {row_count:,} rows, {due:,} are due")
    snapshot = spark.sql(f"SELECT snapshot_id FROM {CATALOG}.{table}.snapshots").collect()[0][0]
    return Load(row_count, files, row_groups, row_group_rows or row_count // row_groups, size, seconds, snapshot)


def require_load(layout: Layout) -> Load:
    """Read what `load` left, or raise BenchError if there is nothing complete."""
    loaded = read_record(layout.warehouse / _LOADED, Load)
    if loaded is None:
        raise BenchError(
            f"the SSB tables of scale factor {layout.scale_factor:g} are not in Iceberg yet: "
            f"run `ssb-bench load --sf {layout.scale_factor:g} --data {layout.root.parent}` first"
        )
    return loaded


def table_rows(spark: SparkSession, layout: Layout, table: str) -> DataFrame:
    """Give the rows of an SSB table as they are to be written: a source file is a task and gives one data file."""
    return spark.read.parquet(*(file.as_uri() for file in layout.files(table)))


def write_table(rows: DataFrame, name: str, properties: Mapping[str, str], by_hour: str | None = None) -> float:
    """Write rows into an Iceberg table anew; give the seconds that it took."""
    rows.sparkSession.sql(f"DROP TABLE IF EXISTS {name} PURGE")
    started = time.perf_counter()
    writer = rows.writeTo(name).using("iceberg")
    for key, value in properties.items():
        writer = writer.tableProperty(key, value)
    if by_hour is not None:
        writer = writer.partitionedBy(functions.partitioning.hours(by_hour))
    writer.create()
    return time.perf_counter() - started


def make_bloom_table(spark: SparkSession, layout: Layout) -> Facts:
    """Write lineorder with Parquet bloom filters; say what the filters took.

    They are sized for as many distinct values as a row group has rows, with one false positive in a hundred.
    """
    loaded, rows = require_load(layout), table_rows(spark, layout, "lineorder")
    properties = row_group_properties(rows, loaded.row_group_rows)
    properties["write.parquet.bloom-filter-max-bytes"] = str(16 << 20)
    for column in RANGED_COLUMNS:
        properties[f"write.parquet.bloom-filter-enabled.column.{column}"] = "true"
        properties[f"write.parquet.bloom-filter-fpp.column.{column}"] = "0.01"
        properties[f"write.parquet.bloom-filter-ndv.column.{column}"] = str(loaded.row_group_rows)
    seconds = write_table(rows, BLOOM_TABLE, properties)
    size = spark.sql(f"SELECT sum(file_size_in_bytes) FROM {BLOOM_TABLE}.files").collect()[0][0]
    return {"index_bytes": size - loaded.data_bytes, "write_seconds": seconds}


def define_index(layout: Layout) -> TableIndex:
    """Define the index of lineorder; an index of the same columns is kept. Raises BenchError without the table."""
    require_load(layout)
    return TableIndex.create(open_catalog(layout.warehouse), TABLE, DEFINITION)


def index_table(bench: Bench, spark: SparkSession, table: str, definition: IndexDefinition) -> TableIndex:
    """Build what is missing of the index of a table, and note what both are."""
    index = TableIndex.create(open_catalog(bench.layout.warehouse), table, definition)
    report = index.build(spark)
    if report.rows:
        bench.note("index", build_seconds=report.seconds)
    index.refresh()
    status = index.status()
    rows = int(index.data_table.inspect.files()["record_count"].to_numpy().sum())
    facts = {name: getattr(status, name) for name in ("data_files", "row_groups", "data_bytes", "index_bytes")}
    bench.note("table", rows=rows, **facts)
    return index


def open_index(warehouse: Path, table: str = TABLE) -> TableIndex:
    """Open the index of lineorder or of another table, or raise NotFoundError without one."""
    return TableIndex.open(open_catalog(warehouse), table)


def record_build(layout: Layout, report: BuildReport, *, in_background: bool) -> BuildReport:
    """Remember what a build took, unless there was nothing to build."""
    if report.rows:
        facts: Facts = {"build_seconds": report.seconds, "built": "beside queries" if in_background else "alone"}
        write_record(layout.warehouse / _BUILT, {"snapshot_id": require_load(layout).snapshot_id, **facts})
    return report


def describe_index(layout: Layout) -> Facts:
    """Say what the index is, from the index table and the remembered build."""
    status = open_index(layout.warehouse).status()
    columns = (f"{one.name} ({', '.join(one.kinds)}, {one.index_bytes / 1e6:.1f} MB)" for one in status.columns)
    facts: Facts = {"columns": "; ".join(columns)}
    facts |= {"indexed_row_groups": status.indexed_row_groups, "index_bytes": status.index_bytes}
    built = read_record(layout.warehouse / _BUILT, Facts) or {}
    return facts | built if built.pop("snapshot_id", None) == status.snapshot_id else facts


def write_source(spark: SparkSession, table: str, source: str, among: str, new: int = 0) -> list[int]:
    """Write 1,000 rows that a hash chooses, changed, and some with new ids as the source of a MERGE; give the old ids.

    They are chosen among the first rows of the table as SQL says, `ORDER BY ... LIMIT ...`.
    """
    chosen = f"SELECT id FROM (SELECT id FROM {table} {among}) ORDER BY xxhash64(id, 7) LIMIT 1000"
    ids = sorted(row.id for row in spark.sql(chosen).collect())
    rows = spark.sql(f"SELECT * FROM {table} WHERE id IN {(*ids,)}").localCheckpoint()
    changed = rows.selectExpr("* EXCEPT (lo_quantity)", "lo_quantity + 1 AS lo_quantity").select(*rows.columns)
    others = rows.limit(new).selectExpr("id ^ 1099511627776 AS id", *(name for name in rows.columns if name != "id"))
    write_table(changed.unionByName(others).coalesce(1), source, {})
    return ids


def newest_snapshot(spark: SparkSession, table: str) -> Row:
    """Give ID and summary of the snapshot that a table has now."""
    ids = f"SELECT snapshot_id FROM {table}.history ORDER BY made_current_at DESC LIMIT 1"
    return spark.sql(f"SELECT snapshot_id, summary FROM {table}.snapshots JOIN ({ids}) USING (snapshot_id)").collect()[
        0
    ]


def roll_back(spark: SparkSession, table: str, snapshot: int) -> None:
    """Let a table be what it was, before the statement that was measured."""
    spark.sql(f"CALL {CATALOG}.system.rollback_to_snapshot('{table}', {snapshot})")


def drop_changes(spark: SparkSession, table: str, sources: Iterable[str]) -> None:
    """Delete what statements have written into a table that was rolled back, and what they took it from."""
    for source in sources:
        spark.sql(f"DROP TABLE IF EXISTS {source} PURGE")
    now = "TIMESTAMP '2100-01-01 00:00:00'"
    spark.sql(f"CALL {CATALOG}.system.expire_snapshots(table => '{table}', older_than => {now})")


def note_table(bench: Bench) -> Load:
    """Note the table and its index, or raise BenchError if the table is not loaded, NotFoundError without an index."""
    loaded = require_load(bench.layout)
    bench.note("table", **loaded.facts)
    bench.note("index", **describe_index(bench.layout))
    return loaded
