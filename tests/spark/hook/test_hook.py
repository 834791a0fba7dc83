"""The Spark hook on a real session: fewer row groups are read, by Spark's own metrics, and no answer changes."""

import json
import logging
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import planner
from puffin_index import IndexDefinition, TableIndex
from puffin_index.data.data_table import list_data_files
from ssb_bench.spark_runs.measure import measure
from tests.conftest import amount
from tests.spark.agreement import row_groups_of

pytestmark = pytest.mark.spark

ROWS = 20_000
ROW_GROUP_ROWS = 1_000
SPREAD = 7_919
"""A prime: `(id * SPREAD) % n` spreads neighbouring ids over the whole range, so that min/max prune nothing."""


def create_items(spark: SparkSession, name: str, files: int = 2) -> None:
    spark.sql(f"DROP TABLE IF EXISTS lake.ns.{name} PURGE")
    spark.sql(
        f"CREATE TABLE lake.ns.{name} (id BIGINT, k INT, price BIGINT, city STRING, note STRING) USING iceberg "
        f"TBLPROPERTIES ({row_groups_of(ROW_GROUP_ROWS)})"
    )
    append_items(spark, name, 0, ROWS, files)


def append_items(spark: SparkSession, name: str, start: int, end: int, files: int = 1) -> None:
    spark.range(start, end, 1, files).selectExpr(
        "id",
        f"CAST((id * {SPREAD}) % {ROWS} AS INT) AS k",
        "IF(id % 11 = 0, NULL, (id * 104729) % 1000003) AS price",
        "CONCAT('city-', CAST(id % 97 AS STRING)) AS city",
        "IF(id % 5 = 0, NULL, SUBSTR(SHA2(CAST(id AS STRING), 256), 1, 6)) AS note",
    ).writeTo(f"lake.ns.{name}").append()


@pytest.fixture(scope="module")
def index(spark: SparkSession, catalog: SqlCatalog) -> TableIndex:
    """20 row groups in 2 files, indexed with all three kinds."""
    create_items(spark, "items")
    definition = IndexDefinition.of(bitmap=["city", "k"], bsi=["k", "price", "note"], bloom=["price", "note"])
    table_index = TableIndex.create(catalog, "ns.items", definition)
    report = table_index.build(spark)
    assert (report.files, report.rows, report.row_groups) == (2, ROWS, ROWS // ROW_GROUP_ROWS)
    return table_index


@pytest.fixture
def hook(spark: SparkSession, index: TableIndex) -> Iterator[SparkSession]:
    """The session with the hook enabled, failing loudly on trouble."""
    assert index.name == "ns.items"
    planner.enable(spark, strict=True)
    yield spark
    planner.disable(spark)


def rows_read(spark: SparkSession, sql: str) -> int:
    return measure(spark, sql).rows_read


def test_an_equality_reads_one_row_group_by_sparks_own_metrics(hook: SparkSession) -> None:
    sql = "SELECT * FROM lake.ns.items WHERE k = 4711"

    with_index = measure(hook, sql)
    report = planner.reports(hook)[-1]
    planner.disable(hook)
    without = measure(hook, sql)

    assert with_index.answer == without.answer
    assert (report.row_groups, report.kept) == (20, 1)
    assert with_index.rows_read == report.kept_rows == ROW_GROUP_ROWS
    assert without.rows_read > ROW_GROUP_ROWS


def test_two_columns_that_never_meet_read_nothing(hook: SparkSession) -> None:
    """Each value is there, in the same row group even, but not in one row."""
    price = hook.sql("SELECT price FROM lake.ns.items WHERE id = 2").first()
    assert price is not None

    measured = measure(hook, f"SELECT COUNT(*) FROM lake.ns.items WHERE k = 7919 AND price = {price[0]}")

    assert measured.answer.text == "0"
    assert measured.rows_read == 0
    assert planner.reports(hook)[-1].kept == 0


def test_a_range_over_everything_reads_everything_and_no_index_bytes_but_directories(hook: SparkSession) -> None:
    measured = measure(hook, "SELECT COUNT(*) FROM lake.ns.items WHERE price >= 10 AND price < 1000000")

    report = planner.reports(hook)[-1]
    assert report.kept == 20
    assert measured.rows_read == ROWS
    assert [stage.bytes_read for stage in report.funnel if stage.name in ("bloom", "rows")] == [0, 0]


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a.id, b.id FROM lake.ns.items a JOIN lake.ns.items b ON a.id = b.k WHERE a.k = 17 AND b.price > 500",
        "WITH c AS (SELECT * FROM lake.ns.items WHERE k IN (3, 5, 7)) SELECT city, COUNT(*) FROM c GROUP BY city",
        "SELECT id FROM lake.ns.items WHERE k = (SELECT MAX(k) FROM lake.ns.items WHERE price = 104729)",
        "SELECT id FROM lake.ns.items i WHERE EXISTS (SELECT 1 FROM lake.ns.items j WHERE j.k = 12 AND j.id = i.id)",
        "SELECT id FROM lake.ns.items WHERE k = 1 UNION ALL SELECT id FROM lake.ns.items WHERE k = 2",
        "SELECT id FROM lake.ns.items WHERE NOT (k <> 55)",
        "SELECT id FROM lake.ns.items WHERE NOT (price <=> 104729) AND k < 40",
        "SELECT COUNT(*) FROM lake.ns.items WHERE price IS NULL AND city = 'city-3'",
        "SELECT id FROM lake.ns.items WHERE city LIKE 'city-9%' AND k < 30",
        "SELECT id FROM lake.ns.items WHERE k = 3000 OR note = 'ffffff'",
        "SELECT id FROM lake.ns.items WHERE CAST(k AS STRING) = '77' AND k < 100",
        "SELECT id FROM lake.ns.items_view WHERE k = 999",
        "SELECT id FROM lake.ns.items WHERE k = 5 LIMIT 1",
    ],
)
def test_answers_are_those_without_the_hook(hook: SparkSession, sql: str) -> None:
    hook.sql("CREATE OR REPLACE TEMPORARY VIEW items_view AS SELECT * FROM lake.ns.items WHERE price > 100")
    sql = sql.replace("lake.ns.items_view", "items_view")

    with_index = measure(hook, sql)
    assert planner.reports(hook)
    planner.disable(hook)
    without = measure(hook, sql)

    assert with_index.answer == without.answer
    assert with_index.rows_read <= without.rows_read


def test_dataframe_queries_are_pruned_as_well(hook: SparkSession) -> None:
    frame = hook.table("lake.ns.items")

    assert frame.where((frame.k == 4711) | (frame.k == 4712)).count() == 2
    assert planner.reports(hook)[-1].kept <= 2


def test_random_predicates_agree_with_duckdb_on_the_same_files(hook: SparkSession, index: TableIndex) -> None:
    paths = [file.path.removeprefix("file://").removeprefix("file:") for file in list_data_files(index.data_table)]
    chooser = random.Random(20_261)
    predicates = [random_predicate(chooser, 3) for _ in range(amount(30, 500))]

    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE items AS SELECT * FROM read_parquet(?)", [paths])
        for where in predicates:
            expected = connection.execute(f"SELECT COUNT(*), SUM(id) FROM items WHERE {where}").fetchone()
            found = hook.sql(f"SELECT COUNT(*), SUM(id) FROM lake.ns.items WHERE {where}").first()
            assert found is not None
            assert tuple(found) == expected, where

    assert sum(report.dropped for report in planner.reports(hook)) > 0


def random_predicate(chooser: random.Random, depth: int) -> str:
    if depth and chooser.random() < 0.6:
        operator = chooser.choice(["AND", "OR", "AND NOT"])
        return f"({random_predicate(chooser, depth - 1)} {operator} {random_predicate(chooser, depth - 1)})"
    column = chooser.choice(["id", "k", "price", "city", "note"])
    if column == "city":
        values = [f"'city-{chooser.randrange(110)}'" for _ in range(3)]
    elif column == "note":
        values = [f"'{chooser.getrandbits(24):06x}'" for _ in range(3)]
    else:
        limit = 1_000_100 if column == "price" else ROWS + 50
        values = [str(chooser.randrange(-5, limit)) for _ in range(3)]
    return chooser.choice(
        [
            f"{column} {chooser.choice(['=', '<>', '<', '<=', '>', '>='])} {values[0]}",
            f"{column} IN ({', '.join(values)})",
            f"{column} NOT IN ({', '.join(values)})",
            f"{column} BETWEEN {min(values[:2])} AND {max(values[:2])}",
            f"{column} = {values[0]}",
            f"{column} IS {chooser.choice(['', 'NOT '])}NULL",
        ]
    )


def test_appended_files_are_read_and_then_indexed(spark: SparkSession, catalog: SqlCatalog) -> None:
    create_items(spark, "growing", files=1)
    index = TableIndex.create(catalog, "ns.growing", IndexDefinition.of(bsi=["k"]))
    index.build(spark)
    planner.enable(spark, strict=True)
    try:
        append_items(spark, "growing", ROWS, ROWS + 2_000)
        sql = "SELECT COUNT(*) FROM lake.ns.growing WHERE k = 4711"
        before = int(spark.sql("SELECT COUNT(*) FROM lake.ns.growing WHERE k + 0 = 4711").first()[0])

        first = measure(spark, sql)
        report = planner.reports(spark)[-1]
        assert first.answer.text == str(before)
        assert (report.unindexed, report.kept) == (2, 3)

        built = index.build(spark)
        assert (built.files, built.rows) == (1, 2_000)
        second = measure(spark, sql)
        report = planner.reports(spark)[-1]
        assert second.answer == first.answer
        assert report.unindexed == 0
        assert second.rows_read < first.rows_read

        assert index.build(spark).files == 0
    finally:
        planner.disable(spark)


def test_an_index_of_files_that_are_gone_says_so_once(
    spark: SparkSession, catalog: SqlCatalog, caplog: pytest.LogCaptureFixture
) -> None:
    create_items(spark, "rewritten", files=1)
    index = TableIndex.create(catalog, "ns.rewritten", IndexDefinition.of(bsi=["k"]))
    frame = spark.sql("SELECT * FROM lake.ns.rewritten WHERE k = 4711")
    hint = "indexed: run `puffin-index build`"
    planner.enable(spark, strict=True)
    try:
        assert f"(0 of 1 files are {hint})" in planner.explain(frame)

        index.build(spark)
        append_items(spark, "rewritten", ROWS, ROWS + 2_000)
        assert f"(1 of 2 files is {hint})" in planner.explain(frame)

        spark.sql("CALL lake.system.rewrite_data_files(table => 'ns.rewritten', options => map('rewrite-all', 'true'))")
        caplog.clear()
        reports = len(planner.reports(spark))
        frame = spark.sql("SELECT * FROM lake.ns.rewritten WHERE k = 4711")
        frame.collect()
        report = planner.reports(spark)[-1]
        assert len(planner.reports(spark)) > reports
        assert (report.staleness, report.kept) == (f"0 of 1 files are {hint}", report.row_groups)
        assert hint in str(spark.sparkContext.getLocalProperty("spark.job.description"))
        assert hint in planner.explain(frame)
        assert sum(hint in record.getMessage() for record in caplog.records) == 1
    finally:
        planner.disable(spark)
    index.build(spark)
    assert not planner.plan(index, "k = 4711").staleness


_BUILD_ELSEWHERE = """
import json, sys
from pyiceberg.catalog.sql import SqlCatalog
from puffin_index import TableIndex
TableIndex.open(SqlCatalog("lake", **json.loads(sys.argv[1])), sys.argv[2]).build()
"""


def test_no_query_waits_for_the_catalog_and_builds_are_seen_all_the_same(
    spark: SparkSession, catalog: SqlCatalog
) -> None:
    """A build of this process is seen at once, one of another process by the second query after it."""
    create_items(spark, "watched", files=1)
    index = TableIndex.create(catalog, "ns.watched", IndexDefinition.of(bsi=["k"]))
    index.build()
    spark.conf.set("spark.puffin-index.refresh-seconds", "0.01")
    planner.enable(spark, strict=True)

    def unindexed() -> int:
        assert spark.sql("SELECT COUNT(*) FROM lake.ns.watched WHERE k = 4711").collect()[0][0] == copies
        return planner.reports(spark)[-1].unindexed

    try:
        copies = 1
        assert unindexed() == 0
        append_items(spark, "watched", 0, ROWS)
        copies = 2
        assert unindexed() == 20
        index.build()
        assert unindexed() == 0

        append_items(spark, "watched", 0, ROWS)
        copies = 3
        arguments = [json.dumps(dict(catalog.properties)), "ns.watched"]
        subprocess.run([sys.executable, "-c", _BUILD_ELSEWHERE, *arguments], check=True)
        assert unindexed() == 20
        deadline = time.monotonic() + 30
        while unindexed():
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        planner.disable(spark)
        spark.conf.set("spark.puffin-index.refresh-seconds", "0")


def test_a_background_build_can_be_waited_for_and_queries_run_meanwhile(
    spark: SparkSession, catalog: SqlCatalog
) -> None:
    create_items(spark, "background")
    index = TableIndex.create(catalog, "ns.background", IndexDefinition.of(bsi=["k", "price"], bloom=["k"]))

    handle = index.build_async(spark)
    assert spark.sql("SELECT COUNT(*) FROM lake.ns.background WHERE k = 3").first() is not None
    report = handle.wait(120)

    assert handle.status() == "done"
    assert report.rows == ROWS
    assert handle.progress().rows_done == ROWS
    status = index.status()
    assert (status.data_files, status.indexed_data_files) == (2, 2)
    assert status.index_bytes > 0


def test_deletes_and_updates_stay_right(spark: SparkSession, catalog: SqlCatalog) -> None:
    create_items(spark, "changing", files=1)
    spark.sql(
        "ALTER TABLE lake.ns.changing SET TBLPROPERTIES ('write.delete.mode'='merge-on-read', "
        "'write.update.mode'='merge-on-read', 'format-version'='2')"
    )
    index = TableIndex.create(catalog, "ns.changing", IndexDefinition.of(bsi=["k"]))
    index.build(spark)
    planner.enable(spark, strict=True)
    try:
        spark.sql("DELETE FROM lake.ns.changing WHERE k = 100")
        spark.sql("UPDATE lake.ns.changing SET k = 100 WHERE k = 200")
        rows = spark.sql("SELECT id FROM lake.ns.changing WHERE k = 100").collect()
        planner.disable(spark)
        assert rows == spark.sql("SELECT id FROM lake.ns.changing WHERE k = 100").collect()
        assert len(rows) == 1
        assert spark.sql("SELECT COUNT(*) FROM lake.ns.changing").first()[0] == ROWS - 1
    finally:
        planner.disable(spark)


def test_a_broken_segment_changes_no_answer_and_says_so(
    spark: SparkSession, catalog: SqlCatalog, caplog: pytest.LogCaptureFixture
) -> None:
    create_items(spark, "broken", files=1)
    index = TableIndex.create(catalog, "ns.broken", IndexDefinition.of(bsi=["k"]))
    index.build(spark)
    segment = next(Path(index.index_table.location().removeprefix("file://")).glob("_segments/*.puffin"))
    segment.write_bytes(b"\0" * segment.stat().st_size)
    planner.enable(spark)
    try:
        with caplog.at_level(logging.WARNING):
            measured = measure(spark, "SELECT COUNT(*) FROM lake.ns.broken WHERE k = 4711")

        assert measured.answer.text == "1"
        report = planner.reports(spark)[-1]
        assert (report.kept, report.dropped) == (20, 0)
        assert report.warnings
    finally:
        planner.disable(spark)


def test_disable_leaves_the_session_as_it_was(spark: SparkSession) -> None:
    before = spark._jsparkSession.experimental().extraOptimizations().size()
    planner.enable(spark)
    planner.enable(spark)
    assert spark._jsparkSession.experimental().extraOptimizations().size() == before + 1

    planner.disable(spark)

    assert spark._jsparkSession.experimental().extraOptimizations().size() == before
    assert planner.reports(spark) == []


def test_a_table_without_an_index_is_left_alone(hook: SparkSession) -> None:
    hook.sql("CREATE TABLE IF NOT EXISTS lake.ns.plain (a INT) USING iceberg")
    hook.sql("INSERT INTO lake.ns.plain VALUES (1), (2)")
    before = len(planner.reports(hook))

    assert hook.sql("SELECT * FROM lake.ns.plain WHERE a = 2").collect() == [(2,)]
    assert len(planner.reports(hook)) == before


def test_time_travel_uses_the_index_for_the_files_of_that_snapshot(spark: SparkSession, catalog: SqlCatalog) -> None:
    create_items(spark, "travel", files=1)
    index = TableIndex.create(catalog, "ns.travel", IndexDefinition.of(bsi=["k"]))
    index.build(spark)
    old = index.data_table.current_snapshot()
    assert old is not None
    spark.sql("DELETE FROM lake.ns.travel WHERE k < 10000")
    planner.enable(spark, strict=True)
    try:
        sql = f"SELECT COUNT(*) FROM lake.ns.travel VERSION AS OF {old.snapshot_id} WHERE k = 4711"
        assert measure(spark, sql).answer.text == "1"
        assert planner.reports(spark)[-1].kept == 1
        assert measure(spark, "SELECT COUNT(*) FROM lake.ns.travel WHERE k = 4711").answer.text == "0"
    finally:
        planner.disable(spark)


def test_a_snapshot_that_counts_its_files_wrongly_changes_no_answer(
    spark: SparkSession, catalog: SqlCatalog, tmp_path: Path
) -> None:
    """Scans of all files of a snapshot are recognised by its summary; here every scan of one partition looks so."""
    spark.sql("DROP TABLE IF EXISTS lake.ns.miscounted PURGE")
    spark.sql("CREATE TABLE lake.ns.miscounted (part INT, k INT) USING iceberg PARTITIONED BY (part)")
    spark.sql("INSERT INTO lake.ns.miscounted SELECT CAST(id % 2 AS INT), CAST(id AS INT) FROM range(0, 1000, 1, 1)")
    table = catalog.load_table("ns.miscounted")
    metadata = json.loads(table.metadata.model_dump_json())
    assert metadata["snapshots"][-1]["summary"]["total-data-files"] == "2"
    metadata["snapshots"][-1]["summary"]["total-data-files"] = "1"
    path = tmp_path / "miscounted.metadata.json"
    path.write_text(json.dumps(metadata))
    catalog.drop_table("ns.miscounted")
    catalog.register_table("ns.miscounted", path.as_uri())
    spark.sql("REFRESH TABLE lake.ns.miscounted")
    TableIndex.create(catalog, "ns.miscounted", IndexDefinition.of(bsi=["k"])).build()
    planner.enable(spark, strict=True)
    try:
        for part, k, due in ((0, 500, 1), (1, 501, 1), (0, 501, 0), (1, 500, 0), (0, 2_000, 0), (1, 2_000, 0)):
            rows = spark.sql(f"SELECT k FROM lake.ns.miscounted WHERE part = {part} AND k = {k}").collect()
            assert rows == [(k,)] * due
    finally:
        planner.disable(spark)


def test_columns_that_old_files_lack_are_null_or_their_default(spark: SparkSession, catalog: SqlCatalog) -> None:
    """Old files read NULL for a plain new column (indexed so), and the default for one that has it (not indexed)."""
    create_items(spark, "evolving", files=1)
    spark.sql("ALTER TABLE lake.ns.evolving SET TBLPROPERTIES ('format-version'='3')")
    spark.sql("ALTER TABLE lake.ns.evolving ADD COLUMN plain INT")
    index = TableIndex.create(catalog, "ns.evolving", IndexDefinition.of(bsi=["plain", "k"]))
    assert index.build(spark).files == 1
    planner.enable(spark, strict=True)
    try:
        sql = "SELECT COUNT(*) FROM lake.ns.evolving WHERE "
        assert measure(spark, sql + "plain = 5").rows_read == 0
        assert measure(spark, sql + "plain IS NULL").answer.text == str(ROWS)
        assert measure(spark, sql + "plain IS NULL AND k = 4711").rows_read == ROW_GROUP_ROWS
    finally:
        planner.disable(spark)


def test_files_imported_without_their_partition_column_have_its_value(
    spark: SparkSession, catalog: SqlCatalog, tmp_path: Path
) -> None:
    """`add_files` takes Hive files whose partition column is only in the path: it is not NULL there."""
    spark.range(0, 1_000).selectExpr("id", "CAST(id % 2 AS INT) AS part").write.partitionBy("part").parquet(
        str(tmp_path / "hive")
    )
    spark.sql("CREATE TABLE lake.ns.imported (id BIGINT, part INT) USING iceberg PARTITIONED BY (part)")
    spark.sql(f"CALL lake.system.add_files('ns.imported', '`parquet`.`{tmp_path / 'hive'}`')")
    index = TableIndex.create(catalog, "ns.imported", IndexDefinition.of(bsi=["part"], bitmap=["id"]))
    report = index.build(spark)
    assert (report.files, report.skipped) == (4, ())
    planner.enable(spark, strict=True)
    try:
        assert spark.sql("SELECT COUNT(*) FROM lake.ns.imported WHERE part = 1").collect() == [(500,)]
        assert spark.sql("SELECT part FROM lake.ns.imported WHERE id = 7").collect() == [(1,)]
    finally:
        planner.disable(spark)


def test_renamed_and_promoted_columns_keep_their_index(spark: SparkSession, catalog: SqlCatalog) -> None:
    create_items(spark, "renamed", files=1)
    index = TableIndex.create(catalog, "ns.renamed", IndexDefinition.of(bsi=["k"], bloom=["k"]))
    index.build(spark)
    spark.sql("ALTER TABLE lake.ns.renamed RENAME COLUMN k TO number")
    spark.sql("ALTER TABLE lake.ns.renamed ALTER COLUMN number TYPE BIGINT")
    spark.sql("ALTER TABLE lake.ns.renamed ADD COLUMN k INT")
    planner.enable(spark, strict=True)
    try:
        measured = measure(spark, "SELECT COUNT(*) FROM lake.ns.renamed WHERE number = 4711")
        assert (measured.answer.text, measured.rows_read) == ("1", ROW_GROUP_ROWS)
        assert measure(spark, "SELECT COUNT(*) FROM lake.ns.renamed WHERE number = 3000000000").rows_read == 0
        assert measure(spark, "SELECT COUNT(*) FROM lake.ns.renamed WHERE k IS NULL").answer.text == str(ROWS)
    finally:
        planner.disable(spark)


def test_a_renamed_table_keeps_its_index(
    spark: SparkSession, catalog: SqlCatalog, caplog: pytest.LogCaptureFixture
) -> None:
    create_items(spark, "before", files=1)
    TableIndex.create(catalog, "ns.before", IndexDefinition.of(bsi=["k"])).build(spark)
    planner.enable(spark, strict=True)
    try:
        sql = "SELECT COUNT(*) FROM lake.ns.{} WHERE k = 4711"
        assert rows_read(spark, sql.format("before")) == ROW_GROUP_ROWS
        spark.sql("ALTER TABLE lake.ns.before RENAME TO ns.after")
        assert rows_read(spark, sql.format("after")) == ROW_GROUP_ROWS
        assert f"puffin-index follow {catalog.name}.ns.after" in caplog.text
        TableIndex.follow(catalog, "ns.after")
        assert rows_read(spark, sql.format("after")) == ROW_GROUP_ROWS
    finally:
        planner.disable(spark)


def test_strict_makes_trouble_of_ours_an_error(spark: SparkSession, catalog: SqlCatalog) -> None:
    create_items(spark, "strict", files=1)
    index = TableIndex.create(catalog, "ns.strict", IndexDefinition.of(bsi=["k"]))
    index.build(spark)
    segment = next(Path(index.index_table.location().removeprefix("file://")).glob("_segments/*.puffin"))
    segment.unlink()
    planner.enable(spark, strict=True)
    try:
        with pytest.raises(Exception, match="puffin-index"):
            spark.sql("SELECT COUNT(*) FROM lake.ns.strict WHERE k = 4711").collect()
    finally:
        planner.disable(spark)
    assert spark.sql("SELECT COUNT(*) FROM lake.ns.strict WHERE k = 4711").collect() == [(1,)]
