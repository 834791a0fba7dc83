"""Iceberg's own maintenance in Spark, run over all tables of a catalog, leaves indexes usable."""

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import planner
from puffin_index import TableIndex
from puffin_index.index_table.table import GUARD
from tests.puffin_index.indexed_table import named_segments, segment_files
from tests.spark.hook.items import create_items

pytestmark = pytest.mark.spark

TABLE = "ns.kept"
DAYS = 5
OLD = "table => '{table}', older_than => TIMESTAMP '{then}'"
# What Iceberg says where it must not delete, by how a procedure is called: each way of listing files is tried.
PROCEDURES = {
    f"remove_orphan_files({OLD})": "Cannot delete orphan files",
    f"remove_orphan_files({OLD}, prefix_listing => true)": "Cannot delete orphan files",
    f"remove_orphan_files({OLD}, file_list_view => 'listed')": "Cannot delete orphan files",
    f"expire_snapshots({OLD})": "Cannot expire snapshots",
}


@pytest.fixture
def index(hooked: SparkSession, catalog: SqlCatalog) -> TableIndex:
    """An index of two segments, all of whose files are some days old, as are those of its table."""
    create_items(hooked, "kept")
    hooked.sql(f"CREATE INDEX k ON lake.{TABLE} USING bitmap (k) OPTIONS (build = 'sync')")
    hooked.sql(f"CREATE INDEX city ON lake.{TABLE} USING bitmap (city) OPTIONS (build = 'sync')")
    index = TableIndex.open(catalog, TABLE)
    then = time.time() - DAYS * 86_400
    for table in (index.data_table, index.index_table):
        for path in Path(table.location().removeprefix("file://")).rglob("*"):
            os.utime(path, (then, then))
    return index


def maintain(spark: SparkSession, table: str, procedure: str) -> None:
    then = datetime.now(UTC) - timedelta(days=DAYS - 1)
    spark.sql(f"REFRESH TABLE lake.{table}")
    spark.sql(f"CALL lake.system.{procedure.format(table=table, then=then.strftime('%Y-%m-%d %H:%M:%S'))}").collect()


def list_files(spark: SparkSession, index: TableIndex) -> None:
    """Make the view of all files that `file_list_view` is given, as from an inventory of a store."""
    folders = [index.data_table.location(), index.index_table.location()]
    paths = [path for folder in folders for path in Path(folder.removeprefix("file://")).rglob("*") if path.is_file()]
    rows = [(path.as_uri(), datetime.fromtimestamp(path.stat().st_mtime)) for path in paths]
    spark.createDataFrame(rows, "file_path STRING, last_modified TIMESTAMP").createOrReplaceTempView("listed")


def test_maintenance_of_all_tables_leaves_the_index(hooked: SparkSession, index: TableIndex) -> None:
    list_files(hooked, index)
    before = segment_files(index)
    # Of a list of files, all count as a table's whose locations begin like that of the table.
    maintain(hooked, TABLE, next(procedure for procedure in PROCEDURES if "listed" in procedure))
    for procedure, refusal in PROCEDURES.items():
        with pytest.raises(Exception, match=f"{refusal}: GC is disabled"):
            maintain(hooked, f"{TABLE}__puffin_index", procedure)
    with pytest.raises(Exception, match="Cannot purge table: GC is disabled"):
        hooked.sql(f"DROP TABLE lake.{TABLE}__puffin_index PURGE")

    assert segment_files(index) == before == named_segments(index)
    assert index.verify(None).findings == ()
    assert hooked.sql(f"SELECT id FROM lake.{TABLE} WHERE k = 7919").collect() == [(1,)]
    assert planner.reports(hooked)[-1].kept == 1

    index.compact()
    assert (index.expire(timedelta(0)).segments, segment_files(index)) == (2, named_segments(index))
    report = index.drop()
    assert (report.segments, report.kept) == (1, ())
    assert not Path(index.index_table.location().removeprefix("file://")).exists()


def test_an_index_of_an_earlier_release_loses_no_segment_to_a_build(hooked: SparkSession, index: TableIndex) -> None:
    prefix = next(procedure for procedure in PROCEDURES if "prefix_listing" in procedure)
    index.index_table.transaction().remove_properties(*GUARD).commit_transaction()
    index.build(workers=1)
    with pytest.raises(Exception, match="GC is disabled"):
        maintain(hooked, f"{TABLE}__puffin_index", prefix)
    assert segment_files(index) == named_segments(index)
    index.drop()
