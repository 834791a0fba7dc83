"""Statements that need others around them: views, caches, EXPLAIN, tables made of queries, DataFrames that write."""

import re
from typing import TypeAlias

import pytest
from pyspark.sql import SparkSession, functions as f

import planner
from ssb_bench.spark_runs.measure import Answer, answer_of
from tests.spark.agreement import ENABLED

pytestmark = pytest.mark.spark

Names = dict[str, dict[str, str]]
Scenario: TypeAlias = tuple[tuple[str, ...], str, tuple[str, ...]]
"""What is done first, a query whose answer counts, and what takes all of it back."""

SCENARIOS: dict[str, Scenario] = {
    "temporary view": (
        ("CREATE OR REPLACE TEMPORARY VIEW seen AS SELECT * FROM {t} WHERE orderkey BETWEEN 2000 AND 2009",),
        "SELECT a.orderkey, b.price FROM seen a JOIN seen b ON a.orderkey = b.orderkey WHERE a.orderkey < 2003",
        ("DROP VIEW seen",),
    ),
    "view of the catalog": (
        ("CREATE VIEW {n}.kept AS SELECT orderkey, price FROM {t} WHERE orderkey IN (4711, 17)",),
        "SELECT * FROM {n}.kept WHERE orderkey > 20",
        ("DROP VIEW {n}.kept",),
    ),
    "cached table": (
        ("CACHE TABLE few AS SELECT * FROM {t} WHERE orderkey < 4",),
        "SELECT COUNT(*), SUM(price) FROM few WHERE orderkey <> 2",
        ("UNCACHE TABLE few", "DROP VIEW few"),
    ),
    "table of a query": (
        ("CREATE TABLE {n}.copied USING iceberg AS SELECT * FROM {t} WHERE orderkey IN (1, 50, 600)",),
        "SELECT * FROM {n}.copied",
        ("DROP TABLE {n}.copied",),
    ),
    "table replaced by a query of itself": (
        (
            "CREATE TABLE {n}.copied USING iceberg AS SELECT * FROM {t} WHERE orderkey < 12",
            "CREATE OR REPLACE TABLE {n}.copied USING iceberg AS SELECT * FROM {n}.copied WHERE orderkey < 5",
        ),
        "SELECT * FROM {n}.copied",
        ("DROP TABLE {n}.copied",),
    ),
    "rows into another table": (
        (
            "CREATE TABLE {n}.copied (orderkey BIGINT, price BIGINT) USING iceberg",
            "INSERT INTO {n}.copied SELECT orderkey, price FROM {t} WHERE orderkey = 77",
            "INSERT INTO {n}.copied SELECT orderkey, price FROM {t} VERSION AS OF 'first' WHERE orderkey = 3001",
            "MERGE INTO {n}.copied c USING (SELECT * FROM {t} WHERE orderkey IN (77, 78)) l "
            "ON c.orderkey = l.orderkey WHEN MATCHED THEN UPDATE SET price = -1 "
            "WHEN NOT MATCHED THEN INSERT (orderkey, price) VALUES (l.orderkey, -2)",
        ),
        "SELECT * FROM {n}.copied",
        ("DROP TABLE {n}.copied",),
    ),
    "a branch that is written to": (
        (
            "ALTER TABLE {t} CREATE BRANCH draft",
            "INSERT INTO {t}.branch_draft SELECT * FROM {t} WHERE orderkey = 90",
            "UPDATE {t}.branch_draft SET price = 12 WHERE orderkey = 90",
        ),
        "SELECT orderkey, price FROM {t} VERSION AS OF 'draft' WHERE orderkey IN (90, 91)",
        ("ALTER TABLE {t} DROP BRANCH draft",),
    ),
}


def outcome(spark: SparkSession, scenario: Scenario, names: dict[str, str], enabled: bool) -> tuple[str, Answer]:
    before, query, after = scenario
    spark.conf.set(ENABLED, str(enabled).lower())
    try:
        for sql in before:
            spark.sql(sql.format(**names))
        frame = spark.sql(query.format(**names))
        return frame.schema.json(), answer_of(frame.collect())
    finally:
        for sql in after:
            spark.sql(sql.format(**names))


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", ["lineorder", "v3"])
@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_statements_in_a_row_end_the_same(hooked: SparkSession, corpus: Names, scenario: Scenario, name: str) -> None:
    without = outcome(hooked, scenario, corpus[name], False)
    assert planner.reports(hooked) == []

    assert outcome(hooked, scenario, corpus[name], True) == without
    assert sum(report.dropped for report in planner.reports(hooked)) > 0


def plan_lines(spark: SparkSession, sql: str) -> list[str]:
    """What EXPLAIN says, without the numbers that Spark gives to whatever it makes."""
    return re.sub(r"#\d+L?|plan_id=\d+|\[id=#?\d*\]", "#", spark.sql(sql).collect()[0][0]).splitlines()


@pytest.mark.one_of(3)
@pytest.mark.parametrize("kind", ["", "EXTENDED ", "FORMATTED "])
def test_explain_says_the_same_and_reads_nothing(hooked: SparkSession, corpus: Names, kind: str) -> None:
    sql = f"EXPLAIN {kind}SELECT COUNT(*) FROM {corpus['lineorder']['t']} WHERE orderkey = 4711"
    hooked.conf.set(ENABLED, "false")
    without = plan_lines(hooked, sql)
    hooked.conf.set(ENABLED, "true")

    assert plan_lines(hooked, sql) == without
    assert planner.reports(hooked)[-1].kept == 1


def test_a_dataframe_replaces_what_a_filter_names(hooked: SparkSession, corpus: Names) -> None:
    """`overwrite` deletes by a filter and adds rows that come from the same table."""
    table = f"{corpus['lineorder']['n']}.replaced"
    answers = []
    for enabled in ("false", "true"):
        hooked.conf.set(ENABLED, enabled)
        source = hooked.table(corpus["lineorder"]["t"])
        source.where("orderkey < 20").writeTo(table).using("iceberg").partitionedBy("mode").create()
        source.where("orderkey = 100").writeTo(table).overwrite(f.col("mode") == "AIR")
        source.where("orderkey IN (101, 102)").writeTo(table).overwritePartitions()
        answers.append(answer_of(hooked.table(table).collect()))
        hooked.sql(f"DROP TABLE {table}")

    assert answers[0] == answers[1]
    assert sum(report.dropped for report in planner.reports(hooked)) > 0
