"""The benchmark from end to end at scale factor 0.01: load, index, run both sides, compare."""

import io
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from puffin_index import BuildReport
from ssb_bench.commands.main import demo
from ssb_bench.data.dataset import generate, open_duckdb, require_dataset
from ssb_bench.data.layout import NAMESPACE, BenchError, Layout, write_record
from ssb_bench.data.workload import Query
from ssb_bench.results.record import Record, Step
from ssb_bench.spark_runs.bench import Bench
from ssb_bench.spark_runs.load import (
    LINEORDER,
    Load,
    define_index,
    describe_index,
    load,
    record_build,
    row_group_properties,
    table_rows,
    write_table,
)
from ssb_bench.spark_runs.measure import answer_of, measure, rows_read
from ssb_bench.spark_runs.session import CATALOG
from ssb_bench.studies import doors, fresh, pages, systems, text, writes
from ssb_bench.studies.run import answer_due, checking_sql, fit_queries, run_queries
from tests.conftest import amount

pytestmark = pytest.mark.spark

ROWS = 60_175
ROW_GROUP_ROWS = 1000


@pytest.fixture(scope="module")
def layout(warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """SSB files, to be loaded into the session's own warehouse."""
    made = replace(Layout.of(tmp_path_factory.mktemp("ssb"), 0.01), warehouse=warehouse)
    generate(made)
    return made


@pytest.fixture(scope="module")
def loaded(spark: SparkSession, layout: Layout) -> Load:
    return load(spark, layout, row_group_rows=ROW_GROUP_ROWS)


@pytest.fixture(scope="module")
def indexed(spark: SparkSession, layout: Layout, loaded: Load) -> BuildReport:
    """The default index, built."""
    report = record_build(layout, define_index(layout).build(spark), in_background=False)
    assert report.row_groups == loaded.row_groups
    return report


def run_of(spark: SparkSession, layout: Layout, queries: Sequence[Query], repeats: int = 1) -> Record:
    bench = Bench(layout, spark=spark)
    run_queries(bench, queries, repeats=repeats)
    return bench.record("run", "Run")


@pytest.fixture(scope="module")
def run(spark: SparkSession, layout: Layout, indexed: BuildReport) -> Record:
    assert indexed
    return run_of(spark, layout, fit_queries(layout), amount(1, 2))


def sides_of(run: Record) -> dict[str, list[Step]]:
    """Each query without the index and with it."""
    return {name: [step for own in sides.values() for step in own] for (_, name), sides in run.rows().items()}


def test_row_groups_have_the_rows_that_were_asked_for(spark: SparkSession, layout: Layout, loaded: Load) -> None:
    """Only the last row group of each file is smaller."""
    assert loaded.rows == ROWS
    assert loaded.data_files == 8
    assert ROWS / ROW_GROUP_ROWS <= loaded.row_groups <= ROWS / ROW_GROUP_ROWS + loaded.data_files
    # A finished load is left alone: the snapshot and the seconds of writing are those of the first.
    assert load(spark, layout, row_group_rows=ROW_GROUP_ROWS) == loaded


def test_row_groups_of_several_pages_have_even_rows_and_even_pages(spark: SparkSession, layout: Layout) -> None:
    """Only the last row group of each file, and its last page, is smaller."""
    name = f"{CATALOG}.{NAMESPACE}.paged"
    rows = table_rows(spark, layout, "lineorder")
    write_table(rows, name, row_group_properties(rows, 2_000, most_page_rows=600))
    open_file = spark._jvm.org.apache.parquet.hadoop.ParquetFileReader.open
    input_of = spark._jvm.org.apache.parquet.hadoop.util.HadoopInputFile.fromPath
    path_of = spark._jvm.org.apache.hadoop.fs.Path

    files = spark.sql(f"SELECT file_path FROM {name}.files").collect()
    assert len(files) == 8
    for file in files:
        reader = open_file(input_of(path_of(file.file_path), spark._jsc.hadoopConfiguration()))
        blocks = list(reader.getFooter().getBlocks())
        assert {block.getRowCount() for block in blocks[:-1]} == {2_000}
        for block in blocks:
            pages = [reader.readOffsetIndex(column) for column in block.getColumns()]
            assert {page.getPageCount() for page in pages} == {-(-block.getRowCount() // 500)}
            assert {page.getFirstRowIndex(number) % 500 for page in pages for number in range(page.getPageCount())} == {
                0
            }
        reader.close()
    spark.sql(f"DROP TABLE {name} PURGE")


def test_a_load_without_rows_in_a_row_group_is_refused(spark: SparkSession, layout: Layout) -> None:
    with pytest.raises(BenchError, match="row group cannot have 0 rows"):
        load(spark, layout, row_group_rows=0)


def test_rows_that_do_not_arrive_are_noticed(spark: SparkSession, layout: Layout, loaded: Load, tmp_path: Path) -> None:
    """A table with a row less than its source is refused; `lineorder`, which is written last, stays."""
    assert loaded.rows == ROWS
    other = replace(layout, root=tmp_path, warehouse=tmp_path / "warehouse")
    shutil.copytree(layout.ssb, other.ssb)
    dataset = require_dataset(layout)
    write_record(other.dataset_json, replace(dataset, rows=dataset.rows | {"customer": 301}))

    with pytest.raises(BenchError, match="customer did not arrive whole"):
        load(spark, other)


def test_all_files_are_indexed(layout: Layout, loaded: Load, indexed: BuildReport) -> None:
    facts = describe_index(layout)

    assert indexed.files == loaded.data_files
    assert facts["indexed_row_groups"] == loaded.row_groups
    assert "lo_revenue (bitmap, bsi, " in str(facts["columns"])
    assert float(facts["index_bytes"]) > 0
    assert float(facts["build_seconds"]) > 0


def test_both_sides_answer_alike_and_read_what_the_query_needs(run: Record, loaded: Load) -> None:
    assert run.failures == []
    assert len(run.steps) == 2 * 7
    assert all(step.answer is not None and step.seconds for step in run.steps)

    counts = {name: [step.counts for step in sides] for name, sides in sides_of(run).items()}
    kept = {name: both["row groups"] + both["answered row groups"] for name, (_, both) in counts.items()}

    assert max(without["row groups"] for without, _ in counts.values()) == loaded.row_groups, "Iceberg may leave fewer"
    assert 1 <= kept["q1"] <= 2, "an order's lines lie together, in two row groups at most"
    assert kept["q2"] <= kept["q1"]
    assert kept["q7"] == loaded.row_groups
    # The wide count reads the whole table without the index, and nothing with it.
    without, with_index = counts["q7"]
    assert (without["rows read"], with_index["rows read"]) == (ROWS, 0)
    assert (with_index["row groups"], with_index["answered row groups"]) == (0, loaded.row_groups)


def test_a_query_that_fails_is_told_with_its_reason(spark: SparkSession, layout: Layout, indexed: BuildReport) -> None:
    """One that DuckDB cannot read has no answer to compare with; one that Spark cannot read has no seconds."""
    assert indexed
    (query,) = fit_queries(layout, ["q1"])
    failed = run_of(spark, layout, [replace(query, sql="SELECT count(nothing) FROM supplier")])
    unread = run_of(spark, layout, [replace(query, sql="SELECT list_sum([count(*)]) FROM supplier")])

    assert failed.steps == ()
    assert "nothing" in failed.failures[0]
    assert [step.seconds for step in unread.steps] == [(), ()]
    assert len(unread.failures) == 2


_HALF = "SELECT count(*) AS n FROM lineorder WHERE lo_{} >= 0"


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT count(*) FROM supplier WHERE s_suppkey < 9", "the index was not used"),
        (f"SELECT sum(n) FROM ({_HALF.format('discount')} UNION ALL {_HALF.format('tax')})", "Spark read 120,350 rows"),
    ],
)
def test_a_query_that_the_index_does_not_serve_is_a_failure_of_the_comparison(
    spark: SparkSession, layout: Layout, indexed: BuildReport, sql: str, reason: str
) -> None:
    """Without a report of the planner nothing says that the index was used; rows read are counted by Spark's tasks."""
    assert indexed
    (query,) = fit_queries(layout, ["q1"])
    compared = run_of(spark, layout, [replace(query, sql=sql)])

    assert any(reason in failure for failure in compared.failures)


def test_measured_rows_are_those_of_the_whole_scan(spark: SparkSession, loaded: Load) -> None:
    measured = measure(spark.newSession(), f"SELECT sum(lo_revenue), max(lo_shipmode) FROM {LINEORDER}")

    assert measured.rows_read == loaded.rows
    assert rows_read(spark, f"none-{uuid.uuid4().hex}") == 0
    assert measured.process_bytes is None or measured.process_bytes > loaded.data_bytes / 20


def test_answers_compare_by_value_whoever_made_them(spark: SparkSession, layout: Layout, loaded: Load) -> None:
    sql = "SELECT lo_shipmode, count(*), sum(lo_revenue) FROM {} GROUP BY lo_shipmode"
    with open_duckdb(layout) as connection:
        duck = answer_of(connection.execute(sql.format("lineorder")).fetchall())

    assert loaded.rows == ROWS
    assert answer_of(spark.sql(sql.format(LINEORDER)).collect()) == duck
    assert duck.text == "7 rows"
    assert answer_of([(1,)]).text == "1"
    assert answer_of([(1,)]) != answer_of([(2,)])


@pytest.mark.nightly
def test_the_demonstration_builds_beside_queries_and_draws(spark: SparkSession, layout: Layout, loaded: Load) -> None:
    """It makes the table and the index anew, with the same row groups, so that the other tests hold after it too."""
    (layout.warehouse / "load.json").unlink()
    out = io.StringIO()
    bench = Bench(layout, console=Console(file=out, width=120), spark=spark)
    demo(bench, row_group_rows=ROW_GROUP_ROWS, repeats=1)

    assert bench.record("run", "Run").failures == []
    assert bench.facts["index"]["built"] == "beside queries"
    assert bench.layout.result("run").exists()
    assert bench.facts["index"]["indexed row groups"] == bench.facts["table"]["row groups"] == loaded.row_groups
    assert f"index of {loaded.row_groups} row groups built in" in out.getvalue()
    needles = [line for line in out.getvalue().splitlines() if line.startswith("SELECT * FROM lake.ssb.lineorder")]
    assert [line.split()[3] for line in needles] == ["lake.ssb.lineorder_default", "lake.ssb.lineorder"]


@pytest.mark.nightly
def test_rows_aggregates_and_joins_are_duckdbs(spark: SparkSession, layout: Layout, indexed: BuildReport) -> None:
    """Q7 gives most of the table: its rows are compared by their digest."""
    assert indexed
    names = ["q7-rows", "q5-aggregate", "q3.4", "q6-rows", "q1.3", "q2.3", "q4.3"]
    compared = run_of(spark, layout, fit_queries(layout, names))

    assert compared.failures == []
    assert [step.answer for step in sides_of(compared)["q7-rows"]] == ["52,218 rows"] * 2


def test_a_wrong_digest_is_noticed(spark: SparkSession, layout: Layout, indexed: BuildReport) -> None:
    assert indexed
    (query,) = fit_queries(layout, ["q7-rows"])
    sql, due = checking_sql(query), answer_due(layout, query)
    changed = sql.replace("SELECT * FROM lineorder", "SELECT * FROM lineorder_less")
    session = spark.newSession()
    session.sql("USE lake.ssb")
    session.sql("SELECT * FROM lineorder WHERE lo_orderkey <> 1").createOrReplaceTempView("lineorder_less")

    assert answer_of(session.sql(sql).collect()) == due
    assert answer_of(session.sql(changed).collect()) != due


@pytest.mark.nightly
def test_systems_answer_alike_each_in_its_process(spark: SparkSession, layout: Layout, indexed: BuildReport) -> None:
    """Two of Spark's, and DuckDB."""
    assert indexed
    bench = Bench(layout, memory="1g", spark=spark)
    systems.measure(bench, repeats=1, system=("index", "iceberg-bloom", "duckdb"), query=("q1", "q6-rows"))

    assert bench.record("systems", "Systems").failures == []
    assert len(bench.steps) == 2 * 3
    assert all(step.first_seconds and step.seconds for step in bench.steps)
    assert not any("not run" in facts for facts in bench.facts.values())


@pytest.mark.nightly
def test_writes_by_keys_give_the_same_rows_and_places(spark: SparkSession, layout: Layout) -> None:
    bench = Bench(layout, spark=spark)
    writes.measure(bench, repeats=1, row_group_rows=ROW_GROUP_ROWS)

    assert bench.record("writes", "Writes").failures == []
    assert (bench.facts["table"]["rows"], bench.facts["table"]["data files"]) == (ROWS, 8)
    assert len(bench.steps) == 2 * 10
    deletes = [step for step in bench.steps if step.name.startswith("DELETE") and step.side == "with"]
    for step in deletes:
        assert step.answer is not None
        assert step.answer.endswith("100 positions deleted")
        assert step.counts["holding row groups"] <= step.counts["kept row groups"] < bench.facts["table"]["row groups"]
    tables = {row.tableName for row in spark.sql("SHOW TABLES IN lake.ssb").collect()}
    assert not {"keyed_recent", "keyed_scattered"} & tables, "the sources are dropped again"


@pytest.mark.nightly
def test_few_rows_of_default_row_groups_are_the_same_rows(spark: SparkSession, layout: Layout, loaded: Load) -> None:
    bench = Bench(layout, spark=spark)
    pages.measure(bench, repeats=1, system=("arrow", "duckdb"))

    assert bench.record("pages", "Pages").failures == []
    assert bench.facts["table"]["rows"] == loaded.rows
    few = [step for step in bench.steps if step.heading == "Few rows"]
    assert len(few) == 2 * 7 + 2 * 3
    assert [step.side for step in few if "seconds" in step.most] == ["with"] * 7
    assert not spark.catalog.tableExists("lake.ssb.pages_source")


@pytest.mark.nightly
def test_words_and_elements_are_found_on_all_sides(spark: SparkSession, layout: Layout) -> None:
    bench = Bench(layout, spark=spark)
    text.measure(bench, lines=20_000, repeats=1)

    assert bench.record("text", "Text").failures == []
    assert bench.facts["table"]["rows"] == 20_000
    assert len(bench.steps) == 3 * 5 - 1
    (element,) = {step.answer for step in bench.steps if step.name.startswith("a word of every eighth")}
    assert element is not None
    assert 2_000 < int(element.partition(" ")[0].replace(",", "")) < 3_000
    spark.sql("DROP TABLE lake.ssb.lines_20000 PURGE")


@pytest.mark.nightly
def test_doors_give_the_answers_of_pyspark(spark: SparkSession, layout: Layout, indexed: BuildReport) -> None:
    """Real programs and servers with the plugin, and look-ups by workers."""
    assert indexed
    bench = Bench(layout, spark=spark)
    doors.measure(bench, repeats=2, warm_ups=1)

    assert bench.record("doors", "Doors").failures == []
    headings = {heading: len([*steps]) for heading, steps in groupby(bench.steps, lambda step: step.heading)}
    headings.pop("look-ups by key")
    names = ("spark-sql", "beeline", "Connect")
    assert headings == dict.fromkeys(names, 12) | {f"{name} without plugin": 2 for name in names}
    assert all(len(step.seconds) == 2 for step in bench.steps if step.heading in names)


@pytest.mark.nightly
def test_a_stream_is_followed_and_its_rows_are_found(spark: SparkSession, layout: Layout) -> None:
    bench = Bench(layout, spark=spark)
    fresh.measure(bench, seconds=12, rows=50, before=20)

    assert bench.record("fresh", "Fresh").failures == []
    looks, followed, _ = ([*steps] for _, steps in groupby(bench.steps, lambda step: step.heading))
    assert [step.side for step in looks] == ["planner.scan", "Spark"] * (len(looks) // 2)
    assert all(min(step.seconds) > 0 for step in followed), "nothing is indexed before it is committed"
    assert sum(len(step.seconds) for step in followed) > len(followed)
    assert all(step.counts["segments"] <= 64 for step in followed)
