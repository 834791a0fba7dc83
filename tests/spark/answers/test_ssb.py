"""The benchmark from end to end at scale factor 0.01: load, index, run both sides, compare."""

import io
import shutil
import uuid
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from puffin_index import BuildReport
from ssb_bench.commands.demo import show
from ssb_bench.data.dataset import generate, open_duckdb
from ssb_bench.data.layout import NAMESPACE, BenchError, Layout, read_record, write_record
from ssb_bench.results.run import Run
from ssb_bench.results.studies import AppendRun, DoorsRun, WritesRun
from ssb_bench.spark_runs.index import build_index, define_index, describe_index, open_index
from ssb_bench.spark_runs.load import (
    LINEORDER,
    Load,
    load,
    make_bloom_table,
    prove_arrival,
    row_group_properties,
    table_rows,
    write_table,
)
from ssb_bench.spark_runs.measure import answer_of, measure, rows_read
from ssb_bench.spark_runs.run import answer_due, checking_sql, fit_queries, run_queries
from ssb_bench.spark_runs.session import CATALOG
from ssb_bench.studies.append import measure_appends
from ssb_bench.studies.doors import measure_doors
from ssb_bench.studies.writes import measure_writes
from ssb_bench.systems.look_ups import measure_look_ups
from ssb_bench.systems.peers import SYSTEMS
from ssb_bench.systems.run import run_systems
from tests.conftest import amount

pytestmark = pytest.mark.spark

ROWS = 60_175
ROW_GROUP_ROWS = 1000


@pytest.fixture(scope="module")
def layout(warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """SSB files, to be loaded into the session's own warehouse."""
    made = Layout.of(tmp_path_factory.mktemp("ssb"), 0.01, warehouse=warehouse)
    generate(made)
    return made


@pytest.fixture(scope="module")
def loaded(spark: SparkSession, layout: Layout) -> Load:
    return load(spark, layout, row_group_rows=ROW_GROUP_ROWS)


@pytest.fixture(scope="module")
def indexed(spark: SparkSession, layout: Layout, loaded: Load) -> BuildReport:
    """The default index, built."""
    report = build_index(spark, layout, define_index(layout))
    assert report.row_groups == loaded.row_groups
    return report


@pytest.fixture(scope="module")
def run(spark: SparkSession, layout: Layout, indexed: BuildReport) -> Run:
    assert indexed
    return run_queries(spark, layout, fit_queries(layout), repeats=amount(1, 2))


def test_row_groups_have_the_rows_that_were_asked_for(loaded: Load) -> None:
    """Only the last row group of each file is smaller."""
    assert loaded.rows == ROWS
    assert loaded.largest_row_group_rows == ROW_GROUP_ROWS
    assert loaded.data_files == 8
    assert ROWS / ROW_GROUP_ROWS <= loaded.row_groups <= ROWS / ROW_GROUP_ROWS + loaded.data_files


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


def test_a_finished_load_is_left_alone(spark: SparkSession, layout: Layout, loaded: Load) -> None:
    # The snapshot and the seconds of writing are those of the first load.
    assert load(spark, layout, row_group_rows=ROW_GROUP_ROWS) == loaded


def test_a_load_without_rows_in_a_row_group_is_refused(spark: SparkSession, layout: Layout) -> None:
    with pytest.raises(BenchError, match="row group cannot have 0 rows"):
        load(spark, layout, row_group_rows=0)


@pytest.mark.parametrize(
    ("table", "change"),
    [("customer", "* FROM it LIMIT 299"), ("lineorder", "* REPLACE (lo_revenue + 1 AS lo_revenue) FROM it")],
)
def test_rows_that_do_not_arrive_are_noticed(
    spark: SparkSession, layout: Layout, loaded: Load, tmp_path: Path, table: str, change: str
) -> None:
    """A table with a row less than its source, or with another value, is refused."""
    assert loaded.rows == ROWS
    prove_arrival(spark, layout, table)
    other = replace(layout, root=tmp_path)
    shutil.copytree(layout.ssb, other.ssb)
    file = other.files(table)[-1]
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE it AS FROM '{file}'")
        connection.execute(f"COPY (SELECT {change}) TO '{file}' (FORMAT parquet)")

    with pytest.raises(BenchError, match=f"{table} did not arrive whole"):
        prove_arrival(spark, other, table)


def test_all_files_are_indexed(layout: Layout, loaded: Load, indexed: BuildReport) -> None:
    facts = describe_index(layout, open_index(layout))

    assert indexed.files == loaded.data_files
    assert facts.indexed_row_groups == loaded.row_groups
    assert {*facts.columns["lo_revenue"]} == {"bsi", "bitmap"}
    assert facts.index_bytes > 0
    assert facts.build_seconds is not None


def test_both_sides_and_duckdb_give_the_same_answers(run: Run) -> None:
    assert run.failures == []
    assert all(query.answers_equal for query in run.queries)


def test_spark_reads_exactly_the_row_groups_that_were_kept_or_fewer(run: Run) -> None:
    """By the input records of its tasks, not by what the planner says."""
    for query in run.queries:
        assert query.plan is not None
        assert query.with_index is not None
        assert query.plan.unindexed == 0
        assert query.with_index.rows_read <= query.plan.kept_rows, query.name


def test_few_row_groups_have_rows_of_a_narrow_query_and_all_of_a_wide_one(run: Run, loaded: Load) -> None:
    kept = {query.name: query.plan.kept + query.plan.answered for query in run.queries if query.plan is not None}
    planned = {query.plan.row_groups for query in run.queries if query.plan is not None}

    assert max(planned) == loaded.row_groups, "Iceberg's own file statistics may leave fewer"
    assert 1 <= kept["q1"] <= 2, "an order's lines lie together, in two row groups at most"
    assert kept["q2"] <= kept["q1"]
    assert kept["q7"] == loaded.row_groups


def test_a_wide_count_reads_the_whole_table_without_the_index_and_nothing_with_it(run: Run, loaded: Load) -> None:
    q7 = run.queries[-1]
    assert q7.without_index is not None
    assert q7.with_index is not None
    assert q7.plan is not None
    assert (q7.without_index.rows_read, q7.with_index.rows_read) == (ROWS, 0)
    assert (q7.plan.kept, q7.plan.answered) == (0, loaded.row_groups)


def test_a_query_that_fails_is_a_row_with_its_reason(spark: SparkSession, layout: Layout, indexed: BuildReport) -> None:
    assert indexed
    (query,) = fit_queries(layout, ["q1"])
    failed = run_queries(spark, layout, [replace(query, sql="SELECT count(nothing) FROM supplier")], repeats=1)

    (result,) = failed.queries
    assert result.without_index is None
    assert result.answer is None
    assert "nothing" in result.failures[0]


def test_a_query_that_the_index_does_not_serve_is_a_failure_of_the_comparison(
    spark: SparkSession, layout: Layout, indexed: BuildReport
) -> None:
    """Without a report of the planner nothing says that the index was used."""
    assert indexed
    (query,) = fit_queries(layout, ["q1"])
    compared = run_queries(spark, layout, [replace(query, sql="SELECT count(*) FROM supplier WHERE s_suppkey < 9")])

    assert compared.queries[0].answers_equal
    assert "the index was not used" in compared.queries[0].failures[0]


def test_measured_rows_are_those_of_the_whole_scan(spark: SparkSession, loaded: Load) -> None:
    measured = measure(spark.newSession(), f"SELECT sum(lo_revenue), max(lo_shipmode) FROM {LINEORDER}")

    assert measured.rows_read == loaded.rows
    assert measured.process_bytes is None or measured.process_bytes > loaded.data_bytes / 20


def test_a_group_without_jobs_has_read_nothing(spark: SparkSession) -> None:
    assert rows_read(spark, f"none-{uuid.uuid4().hex}") == 0


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
def test_the_demonstration_builds_beside_queries_and_draws_the_comparison(
    spark: SparkSession, layout: Layout, loaded: Load
) -> None:
    """It makes the table and the index anew, with the same row groups, so that the other tests hold after it too."""
    layout.load_json.unlink()
    out = io.StringIO()
    run, path = show(spark, layout, row_group_rows=ROW_GROUP_ROWS, repeats=1, console=Console(file=out, width=120))

    assert run.failures == []
    assert run.index.build_in_background
    assert run.index.indexed_row_groups == run.table.row_groups == loaded.row_groups
    assert f"index of {loaded.row_groups} row groups built in" in out.getvalue()
    assert read_record(path, Run) == run
    assert path.with_suffix(".png").stat().st_size > 10_000


@pytest.mark.nightly
def test_rows_aggregates_and_joins_answer_as_duckdb_does(
    spark: SparkSession, layout: Layout, indexed: BuildReport
) -> None:
    """Q7 gives most of the table: its rows are compared by their digest."""
    assert indexed
    names = ["q7-rows", "q5-aggregate", "q3.4", "q6-rows", "q1.3", "q2.3", "q4.3"]
    compared = run_queries(spark, layout, fit_queries(layout, names), repeats=1)

    assert compared.failures == []
    assert all(query.answers_equal for query in compared.queries)
    assert [query.answer for query in compared.queries if query.name == "q7-rows"] != ["0 rows"]


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
    bloom = make_bloom_table(spark, layout)
    names = ("index", "iceberg-bloom", "duckdb")
    systems = [system for system in SYSTEMS if system.name in names]
    compared = run_systems(
        layout,
        systems,
        fit_queries(layout, ["q1", "q6-rows"]),
        repeats=1,
        resources={"cores": 2, "memory": "1g"},
        bloom=bloom,
    )

    assert compared.failures == []
    assert [system.failure for system in compared.systems] == [None] * 3
    for system in compared.systems:
        assert all(system.median(name) is not None for name in compared.queries), system.name
    assert make_bloom_table(spark, layout) == bloom, "it is there already"


@pytest.mark.nightly
def test_batches_are_indexed_while_queries_run_and_answer_for_what_is_there(
    spark: SparkSession, layout: Layout, loaded: Load, tmp_path: Path
) -> None:
    assert loaded.rows == ROWS
    run = measure_appends(
        *(spark, layout, fit_queries(layout, ["q1", "q5"])),
        batches=2,
        batch_rows=2_000,
        every_seconds=0.5,
        row_group_rows=500,
    )
    write_record(tmp_path / "append.json", run)

    assert run.failures == ()
    assert [batch.rows for batch in run.appended] == [2_000, 2_000]
    assert all(batch.lag_seconds is not None and batch.lag_seconds > 0 for batch in run.appended)
    assert run.executions
    assert {*run.by_query()} == {"q1", "q5"}
    assert read_record(tmp_path / "append.json", AppendRun) == run
    assert not (layout.root / "appends").exists(), "the batches are deleted again"


@pytest.mark.nightly
def test_writes_by_keys_give_the_same_rows_and_places(spark: SparkSession, layout: Layout, tmp_path: Path) -> None:
    run = measure_writes(spark, layout, repeats=1, row_group_rows=ROW_GROUP_ROWS)
    write_record(tmp_path / "writes.json", run)

    assert run.failures == ()
    assert (run.rows, run.data_files) == (ROWS, 8)
    assert len(run.steps) == 10
    assert all(len(step.without) == len(step.with_index) == 1 for step in run.steps)
    deletes = [step for step in run.steps if step.name.startswith("DELETE")]
    assert all(step.kept is not None and step.holding <= step.kept < run.row_groups for step in deletes)
    assert read_record(tmp_path / "writes.json", WritesRun) == run
    tables = {row.tableName for row in spark.sql("SHOW TABLES IN lake.ssb").collect()}
    assert not {"keyed_recent", "keyed_scattered"} & tables, "the sources are dropped again"


@pytest.mark.nightly
def test_doors_give_the_answers_of_pyspark(
    spark: SparkSession, layout: Layout, indexed: BuildReport, tmp_path: Path
) -> None:
    """Real programs and servers with the plugin, and look-ups by workers."""
    assert indexed
    steps, wrong = measure_look_ups(layout, rounds=2)
    run = measure_doors(spark, layout, (steps, wrong), repeats=2, starts=1, warm_ups=1)
    write_record(tmp_path / "doors.json", run)

    assert run.failures == ()
    assert (run.rows, run.row_groups) == (ROWS, indexed.row_groups)
    doors, (answer, ready), look_ups = run.steps[:21], run.steps[21:23], run.steps[23:]
    asked = ("no table, {} without plugin", *(f"{query}, {{}}" for query in ("q1", "q2", "q3", "q4", "q6", "no table")))
    assert [(step.name, step.against) for step in doors] == [
        (name.format(door), "PySpark") for door in ("spark-sql", "beeline", "Connect") for name in asked
    ]
    assert all(len(step.others) == len(step.seconds) == 2 for step in doors)
    assert len(answer.others) == len(answer.seconds) == len(ready.seconds) == 1
    assert look_ups == tuple(steps)
    assert all(len(step.seconds) == 2 for step in look_ups)
    assert read_record(tmp_path / "doors.json", DoorsRun) == run
