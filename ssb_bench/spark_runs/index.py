"""The index of lineorder: its definition, its build, and what that took."""

from dataclasses import dataclass

from pyspark.sql import SparkSession

from puffin_index import BuildReport, TableIndex
from ssb_bench.data.layout import Layout, read_if_there, write_record
from ssb_bench.results.record import Facts
from ssb_bench.spark_runs.load import DEFINITION, TABLE, require_load
from ssb_bench.spark_runs.session import open_catalog


@dataclass(frozen=True, slots=True)
class BuildRecord:
    """What the build of the present index took."""

    snapshot_id: int
    build_seconds: float
    in_background: bool


def define_index(layout: Layout) -> TableIndex:
    """Define the index of lineorder; an index of the same columns is kept. Raises BenchError without the table."""
    require_load(layout)
    return TableIndex.create(open_catalog(layout.warehouse), TABLE, DEFINITION)


def open_index(layout: Layout) -> TableIndex:
    """Open the index of lineorder, or raise BenchError if the table is not loaded, NotFoundError without an index."""
    require_load(layout)
    return TableIndex.open(open_catalog(layout.warehouse), TABLE)


def build_index(spark: SparkSession, layout: Layout, index: TableIndex) -> BuildReport:
    """Build what is missing of the index, in the foreground, on Spark's executors."""
    report = index.build(spark)
    record_build(layout, report, in_background=False)
    return report


def record_build(layout: Layout, report: BuildReport, *, in_background: bool) -> None:
    """Remember what a build took, unless there was nothing to build."""
    if report.rows:
        record = BuildRecord(require_load(layout).snapshot_id, report.seconds, in_background)
        write_record(layout.warehouse / "build.json", record)


def describe_index(layout: Layout, index: TableIndex) -> Facts:
    """Say what the index is, from the index table and the remembered build."""
    status = index.status()
    facts: Facts = {
        "columns": "; ".join(
            f"{column.name} ({', '.join(column.kinds)}, {column.index_bytes / 1e6:.1f} MB)" for column in status.columns
        ),
        "indexed_row_groups": status.indexed_row_groups,
        "index_bytes": status.index_bytes,
    }
    record = read_if_there(layout.warehouse / "build.json", BuildRecord)
    if record is not None and record.snapshot_id == status.snapshot_id:
        facts |= {"build_seconds": record.build_seconds, "built": "beside queries" * record.in_background or "alone"}
    return facts
