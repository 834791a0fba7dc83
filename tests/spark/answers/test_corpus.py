"""The query corpus: what each statement answers, and what it changes, is the same with the hook and without it."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import product

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import planner
from puffin_index import TableIndex
from ssb_bench.spark_runs.measure import Answer, Measurement, answer_of, measure
from tests.spark.agreement import ENABLED, READS, check_exact_rows
from tests.spark.corpus_tables import FACT_TABLES, PLAIN_TABLES, Statement, statements

pytestmark = pytest.mark.spark

_COUNTS = (
    "added-records",
    "deleted-records",
    "total-records",
    "added-position-deletes",
    "total-position-deletes",
    "total-equality-deletes",
)
_QUERIES = [
    *product(FACT_TABLES, statements("queries")),
    *(("lineorder", statement) for statement in statements("ssb")),
    *(("types", statement) for statement in statements("types")),
    ("v3", Statement("SELECT _row_id, _last_updated_sequence_number, _pos FROM {t} WHERE orderkey = 4000", True)),
    ("v3", Statement("SELECT MAX(_row_id), COUNT(*) FROM {t} WHERE orderkey BETWEEN 10 AND 20", True)),
    ("evolved", Statement("SELECT COUNT(*), SUM(income) FROM {t} WHERE revenue IS NULL AND quantity = 9", False)),
    ("evolved", Statement("SELECT COUNT(*) FROM {t} WHERE revenue = income + 1 AND income < 500", False)),
]
_CHANGES = [*product(("lineorder", "v3", "v2", "bucketed"), statements("changes"))]


def run(spark: SparkSession, sql: str, enabled: bool) -> tuple[str, Measurement]:
    """The schema of a query's answer, and what came of executing it."""
    spark.conf.set(ENABLED, str(enabled).lower())
    measured = measure(spark, sql)
    return spark.sql(sql).schema.json(), measured


@READS
@pytest.mark.one_of(23)  # an odd number has both ways of reading
@pytest.mark.parametrize(("name", "statement"), _QUERIES, ids=lambda v: v if isinstance(v, str) else v.sql[:100])
def test_queries_are_equal(
    hooked: SparkSession,
    corpus: dict[str, dict[str, str]],
    name: str,
    statement: Statement,
    reads: Callable[[], AbstractContextManager[None]],
) -> None:
    sql = statement.sql.format(**corpus[name])

    schema, without = run(hooked, sql, False)
    assert planner.reports(hooked) == []
    with reads():
        pruned_schema, pruned = run(hooked, sql, True)

    assert (pruned_schema, pruned.answer) == (schema, without.answer)
    drops = sum(report.dropped for report in planner.reports(hooked)) > 0
    if reads is not nullcontext:
        # Costs are changed for this way of reading: where few pages are read, further look-ups do not seem worth it.
        assert drops or pruned.rows_read < without.rows_read or not statement.shrinks or name == "orc"
        return
    assert pruned.rows_read <= without.rows_read
    if statement.shrinks and name in PLAIN_TABLES:
        assert pruned.rows_read < without.rows_read
    if statement.shrinks and name != "orc":
        assert drops


@pytest.mark.one_of(5)
@pytest.mark.parametrize("where", [statement.sql for statement in statements("wheres")])
def test_every_type_is_counted_and_planned_as_spark_counts_it(
    hooked: SparkSession, catalog: SqlCatalog, corpus: dict[str, dict[str, str]], where: str
) -> None:
    sql = f"SELECT COUNT(*), SUM(k) FROM {corpus['types']['t']} WHERE {where}"
    hooked.conf.set(ENABLED, "false")
    expected = hooked.sql(sql).collect()
    hooked.conf.set(ENABLED, "true")

    assert hooked.sql(sql).collect() == expected
    check_exact_rows(TableIndex.open(catalog, "corpus.types"), where, expected[0][0])


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", ["v3", "v2", "bucketed"])
def test_scans_and_counts_without_spark_leave_deleted_rows_out(
    hooked: SparkSession, catalog: SqlCatalog, corpus: dict[str, dict[str, str]], name: str
) -> None:
    """Positional deletes and deletion vectors."""
    index = TableIndex.open(catalog, f"corpus.{name}")
    hooked.conf.set(ENABLED, "false")
    files = hooked.sql(f"SELECT file_path FROM {corpus[name]['t']}.delete_files").collect()
    assert {file.file_path.rpartition(".")[2] for file in files} == {"puffin" if name == "v3" else "parquet"}
    for where in (
        *("orderkey = 17", "orderkey = 18", "price = 5", "quantity = 3", "price < 3000", "TRUE"),
        "orderkey BETWEEN 100 AND 120 OR mode IS NULL AND quantity = 4",
        "NOT (price <=> 104729) AND orderkey < 40",
        "mode LIKE '%I_' AND orderkey < 200",
    ):
        rows = hooked.sql(f"SELECT orderkey, price FROM {corpus[name]['t']} WHERE {where}").collect()
        found = planner.scan(index, where, ["orderkey", "price"]).read_all()
        assert sorted(zip(*(column.to_pylist() for column in found.columns), strict=True)) == sorted(rows), where
        assert planner.count(index, where).rows == len(rows), where

    # The one row group that had it is dropped, though its bitmaps still show the row.
    plan = planner.plan(index, "orderkey = 17", strict=True)
    assert plan.reason_counts()["all-deleted"] == 1
    assert plan.kept == plan.unindexed


def change(spark: SparkSession, table: str, sql: str, enabled: bool) -> tuple[Answer, list[str | None]]:
    """Run a statement and take it back; return the table's rows, and the affected rows as the snapshot counts them."""
    before = spark.sql(f"SELECT snapshot_id FROM {table}.refs WHERE name = 'main'").collect()[0][0]
    spark.conf.set(ENABLED, str(enabled).lower())
    spark.sql(sql)
    spark.conf.set(ENABLED, "false")
    rows = answer_of(spark.sql(f"SELECT * FROM {table}").collect())
    summary = spark.sql(
        f"SELECT s.summary FROM {table}.snapshots s JOIN {table}.refs r ON s.snapshot_id = r.snapshot_id "
        "WHERE r.name = 'main'"
    ).collect()[0][0]
    spark.sql(f"CALL lake.system.set_current_snapshot('{table.removeprefix('lake.')}', {before})")
    return rows, [summary.get(key) for key in _COUNTS]


@pytest.mark.one_of(13)
@pytest.mark.parametrize(("name", "statement"), _CHANGES, ids=lambda v: v if isinstance(v, str) else v.sql[:100])
def test_changes_are_equal(
    hooked: SparkSession, corpus: dict[str, dict[str, str]], name: str, statement: Statement
) -> None:
    sql = statement.sql.format(**corpus[name])

    without = change(hooked, corpus[name]["t"], sql, False)

    assert change(hooked, corpus[name]["t"], sql, True) == without


def test_the_corpus_is_large_enough() -> None:
    distinct = {statement.sql for file in ("queries", "ssb", "types", "changes") for statement in statements(file)}
    assert len(distinct) >= 150
