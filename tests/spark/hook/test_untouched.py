"""What the hook leaves alone: changelogs, tables by their location; and what works on the tasks after it."""

import pytest
from pyspark.sql import DataFrame, SparkSession

import planner
from tests.spark.agreement import plan_text, settings
from tests.spark.corpus_tables import ROWS

pytestmark = pytest.mark.spark

Names = dict[str, dict[str, str]]


def test_changelog_scans_are_left_alone(hooked: SparkSession, corpus: Names) -> None:
    table = corpus["parted"]["t"]
    view = hooked.sql(f"CALL lake.system.create_changelog_view(table => '{table.removeprefix('lake.')}')").collect()

    assert hooked.sql(f"SELECT COUNT(*) FROM {view[0][0]} WHERE orderkey >= 0").collect() == [(ROWS,)]
    assert planner.reports(hooked) == []


def test_one_dataframe_filtered_in_two_ways(hooked: SparkSession, corpus: Names) -> None:
    frame = hooked.table(corpus["lineorder"]["t"])
    first, second = frame.where("orderkey = 5"), frame.where("orderkey = 6")

    assert [first.count(), second.count(), frame.count()] == [1, 1, ROWS]
    assert first.unionByName(second).join(frame, "orderkey").count() == 2
    assert [first.count(), second.count(), frame.count()] == [1, 1, ROWS]


def exchanges_of(frame: DataFrame) -> list[str]:
    """The shuffles of a plan, those of its subqueries left out."""
    pending, found = [frame._jdf.queryExecution().executedPlan()], []
    while pending:
        node = pending.pop()
        if "Exchange" in node.nodeName():
            found.append(node.nodeName())
        children = node.children()
        pending += [children.apply(at) for at in range(children.size())]
    return found


def test_joins_of_buckets_need_no_shuffle_with_the_index(hooked: SparkSession, corpus: Names) -> None:
    values = {
        "spark.sql.sources.v2.bucketing.enabled": "true",
        "spark.sql.sources.v2.bucketing.pushPartValues.enabled": "true",
        "spark.sql.iceberg.planning.preserve-data-grouping": "true",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.requireAllClusterKeysForCoPartition": "false",
        "spark.sql.adaptive.enabled": "false",
    }
    with settings(hooked, values):
        table = corpus["bucketed"]["t"]
        joined = hooked.sql(
            f"SELECT a.orderkey, b.orderkey FROM {table} a JOIN {table} b ON a.custkey = b.custkey "
            "WHERE a.orderkey = 40 AND b.orderkey BETWEEN 30 AND 900"
        )
        answer = sorted(joined.collect())
        # A subquery that finds the keys of the join has a shuffle of its own.
        assert exchanges_of(joined) == []
        assert sum(report.dropped for report in planner.reports(hooked)) > 0
        hooked.conf.set("spark.puffin-index.enabled", "false")
        assert sorted(joined.where("true").collect()) == answer


def test_runtime_filters_work_on_what_the_index_kept(hooked: SparkSession, corpus: Names) -> None:
    hooked.sql(f"CREATE TABLE {corpus['parted']['n']}.modes (mode STRING, kind INT) USING iceberg")
    hooked.sql(f"INSERT INTO {corpus['parted']['n']}.modes VALUES ('AIR', 1), ('SHIP', 2), ('RAIL', 2)")
    frame = hooked.sql(
        f"SELECT COUNT(*) FROM {corpus['parted']['t']} l JOIN {corpus['parted']['n']}.modes m ON l.mode = m.mode "
        "WHERE m.kind = 1 AND l.orderkey BETWEEN 2000 AND 2002"
    )
    count = frame.collect()

    assert "dynamicpruning" in plan_text(frame).lower()
    assert planner.reports(hooked)[-1].dropped > 0
    hooked.conf.set("spark.puffin-index.enabled", "false")
    assert frame.where("true").collect() == count
    hooked.sql(f"DROP TABLE {corpus['parted']['n']}.modes")
