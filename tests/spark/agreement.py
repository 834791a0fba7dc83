"""What tests of the hook share: settings for a while, an answer, and how the planner's own rows agree with it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession

import planner
from planner import ScanPlan
from planner.prune.gate import CostGate
from puffin_index import TableIndex
from ssb_bench.spark_runs.measure import Measurement, measure

ENABLED = "spark.puffin-index.enabled"


def row_groups_of(rows: int) -> str:
    """Properties of a table, in SQL, whose files have row groups of just as many rows."""
    return (
        "'write.parquet.row-group-size-bytes'='1', 'write.distribution-mode'='none', "
        f"'write.parquet.row-group-check-min-record-count'='{rows}', "
        f"'write.parquet.row-group-check-max-record-count'='{rows}'"
    )


@contextmanager
def settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Change the configuration of a session for the time of a context."""
    before = {name: spark.conf.get(name, None) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, earlier in before.items():
            if earlier is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, earlier)


@contextmanager
def reading_pages() -> Iterator[None]:
    """Let Spark read by pages wherever an index gives rows, however small row groups are and however many match."""
    few = "planner.prune.few_rows"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ((f"{few}.PAGE_ROWS", 2), (f"{few}.MOST_PAGES", 1), (f"{few}._MOST_ROWS", 1)):
            patch.setattr(name, value)
        patch.setattr(CostGate, "_share", lambda _, presence, *_rows: np.minimum(presence, 0.01))
        yield


READS = pytest.mark.parametrize("reads", [nullcontext, pytest.param(reading_pages, marks=pytest.mark.nightly)])
"""Runs a test once as it is, and once more by pages."""


def rows_of(spark: SparkSession, sql: str, *, enabled: bool) -> list[str]:
    """The rows of a query as text, which tells -0.0 from 0.0, in an order of their own."""
    with settings(spark, {ENABLED: str(enabled).lower()}):
        return sorted(map(str, spark.sql(sql).collect()))


def check_rows(spark: SparkSession, sql: str) -> list[ScanPlan]:
    """Check that a query has the same rows with the index; return the scan plans that were made."""
    expected, earlier = rows_of(spark, sql, enabled=False), planner.reports(spark)
    assert rows_of(spark, sql, enabled=True) == expected, sql
    return reports_since(spark, earlier)


def reports_since(spark: SparkSession, earlier: Sequence[ScanPlan]) -> list[ScanPlan]:
    """The scan plans that a session has reported and that are not among earlier ones."""
    return [report for report in planner.reports(spark) if all(report is not one for one in earlier)]


def with_and_without(spark: SparkSession, sql: str) -> tuple[ScanPlan, Measurement]:
    """Run a query with the hook and without, which gives the same answer; return the last plan and what was read."""
    measured = measure(spark, sql)
    report = planner.reports(spark)[-1]
    with settings(spark, {ENABLED: "false"}):
        assert measured.answer == measure(spark, sql).answer, sql
    return report, measured


def selected_rows(spark: SparkSession, view: str, texts: Sequence[str]) -> list[list[bool]]:
    """Return for each condition whether it selects each row of a view, in the order of its `id`."""
    conditions = ", ".join(f"coalesce(({text}\n), false) AS c{number}" for number, text in enumerate(texts))
    found = sorted(spark.sql(f"SELECT id, {conditions} FROM {view}").collect(), key=lambda row: int(row["id"]))
    return [[bool(row[f"c{number}"]) for row in found] for number in range(len(texts))]


def plan_text(frame: DataFrame) -> str:
    """What Spark is about to do, or has done, for a frame."""
    return str(frame._jdf.queryExecution().executedPlan().toString())


def count_and_sum(spark: SparkSession, table: str, where: str) -> tuple[int, int | None]:
    """How many rows match, and the sum of their `id`."""
    (row,) = spark.sql(f"SELECT COUNT(*), SUM(id) FROM {table} WHERE {where}").collect()
    return row[0], row[1]


def check_exact_rows(index: TableIndex, where: str, count: int) -> None:
    """Where the planner knows all matching rows, they are as many as Spark counts; else they fit into what it keeps."""
    scan_plan = planner.plan(index, where, strict=True)
    exact = [split.rows for split in scan_plan.splits]
    if all(rows is not None for rows in exact):
        assert sum(rows or 0 for rows in exact) == count
    else:
        assert count <= scan_plan.kept_rows
