"""The Spark hook on a real session: fewer row groups are read, by Spark's own metrics, and no answer changes."""

import json
import threading
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import planner
from puffin_index import IndexDefinition, TableIndex
from tests.conftest import built
from tests.processes import wait_for
from tests.spark.agreement import settings
from tests.spark.hook.items import ROWS, append_items, count_elsewhere, create_items, elsewhere

pytestmark = pytest.mark.spark


def test_an_index_of_files_that_are_gone_says_so_once(
    hooked: SparkSession, catalog: SqlCatalog, caplog: pytest.LogCaptureFixture
) -> None:
    create_items(hooked, "rewritten", files=1)
    index = TableIndex.create(catalog, "ns.rewritten", IndexDefinition.of(bsi=["k"]))
    frame = hooked.sql("SELECT * FROM lake.ns.rewritten WHERE k = 4711")
    hint = "indexed: run `puffin-index build`"
    assert f"(0 of 1 files are {hint})" in planner.explain(frame)

    index.build(hooked)
    append_items(hooked, "rewritten", ROWS, ROWS + 2_000)
    assert f"(1 of 2 files is {hint})" in planner.explain(frame)

    hooked.sql("CALL lake.system.rewrite_data_files(table => 'ns.rewritten', options => map('rewrite-all', 'true'))")
    caplog.clear()
    reports = len(planner.reports(hooked))
    frame = hooked.sql("SELECT * FROM lake.ns.rewritten WHERE k = 4711")
    frame.collect()
    report = planner.reports(hooked)[-1]
    assert len(planner.reports(hooked)) > reports
    assert (report.staleness, report.kept) == (f"0 of 1 files are {hint}", report.row_groups)
    assert hint in str(hooked.sparkContext.getLocalProperty("spark.job.description"))
    assert hint in planner.explain(frame)
    assert sum(hint in record.getMessage() for record in caplog.records) == 1
    index.build(hooked)
    assert not planner.plan(index, "k = 4711").staleness


def test_no_query_waits_for_the_catalog_and_builds_are_seen(hooked: SparkSession, catalog: SqlCatalog) -> None:
    """A build of this process is seen at once, one of another process by the second query after it."""
    create_items(hooked, "watched", files=1)
    index = built(catalog, "ns.watched", bsi=["k"])

    def unindexed(copies: int) -> int:
        assert hooked.sql("SELECT COUNT(*) FROM lake.ns.watched WHERE k = 4711").collect() == [(copies,)]
        return planner.reports(hooked)[-1].unindexed

    with settings(hooked, {"spark.puffin-index.refresh-seconds": "0.01"}):
        assert unindexed(1) == 0
        append_items(hooked, "watched", 0, ROWS)
        assert unindexed(2) == 20
        assert index.build().files == 1
        assert unindexed(2) == 0

        append_items(hooked, "watched", 0, ROWS)
        elsewhere(index, "index.build()")
        assert unindexed(3) == 20
        assert wait_for(lambda: not unindexed(3), 30)
    assert index.build().files == 0


def test_disable_leaves_the_session_as_it_was(spark: SparkSession) -> None:
    before = spark._jsparkSession.experimental().extraOptimizations().size()
    planner.enable(spark)
    planner.enable(spark)
    assert spark._jsparkSession.experimental().extraOptimizations().size() == before + 1

    planner.disable(spark)

    assert spark._jsparkSession.experimental().extraOptimizations().size() == before
    assert planner.reports(spark) == []


def test_a_snapshot_of_wrong_counts_changes_nothing(hooked: SparkSession, catalog: SqlCatalog, tmp_path: Path) -> None:
    """Scans of all files of a snapshot are recognised by its summary; here every scan of one partition looks so."""
    hooked.sql("DROP TABLE IF EXISTS lake.ns.miscounted PURGE")
    hooked.sql("CREATE TABLE lake.ns.miscounted (part INT, k INT) USING iceberg PARTITIONED BY (part)")
    hooked.sql("INSERT INTO lake.ns.miscounted SELECT CAST(id % 2 AS INT), CAST(id AS INT) FROM range(0, 1000, 1, 1)")
    table = catalog.load_table("ns.miscounted")
    metadata = json.loads(table.metadata.model_dump_json())
    assert metadata["snapshots"][-1]["summary"]["total-data-files"] == "2"
    metadata["snapshots"][-1]["summary"]["total-data-files"] = "1"
    path = tmp_path / "miscounted.metadata.json"
    path.write_text(json.dumps(metadata))
    catalog.drop_table("ns.miscounted")
    catalog.register_table("ns.miscounted", path.as_uri())
    hooked.sql("REFRESH TABLE lake.ns.miscounted")
    TableIndex.create(catalog, "ns.miscounted", IndexDefinition.of(bsi=["k"])).build()
    for part, k, due in ((0, 500, 1), (1, 501, 1), (0, 501, 0), (1, 500, 0), (0, 2_000, 0), (1, 2_000, 0)):
        rows = hooked.sql(f"SELECT k FROM lake.ns.miscounted WHERE part = {part} AND k = {k}").collect()
        assert rows == [(k,)] * due


def test_threads_of_the_jvm_leave_no_threads_of_python(hook: SparkSession) -> None:
    """Nor connections."""
    queries = [f"SELECT * FROM lake.ns.items WHERE k = {k}" for k in range(0, ROWS, ROWS // 12)]
    before, asked = threading.active_count(), len(planner.reports(hook))

    futures = [count_elsewhere(hook, sql)() for sql in queries]
    assert [future.get() for future in futures] == [1] * len(queries)

    assert len(planner.reports(hook)) == asked + len(queries), "each thread has asked the planner"
    assert wait_for(lambda: threading.active_count() <= before, 30)
