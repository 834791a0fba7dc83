"""Executors plan like the driver: the same verdicts, whatever the order of row groups."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import planner
from planner.arrow.plan import view_of
from planner.condition.sql.parser import read_where
from planner.condition.tree.simplify import simplified
from planner.prune.distributed import LOCAL_ROW_GROUPS, Executors, prune_row_groups
from puffin_index import IndexDefinition, TableIndex
from puffin_index.data.column_source import reading_of
from puffin_index.errors import PuffinIndexError
from tests.spark.hook.items import append_items, create_items

pytestmark = pytest.mark.spark

PREDICATES = (
    "k = 4711",
    "k BETWEEN 10 AND 12 AND city = 'city-3'",
    "price IS NULL OR k = 77",
    "note = 'nowhere'",
    "city IN ('city-1', 'city-2') AND price > 999000",
    "true",
)


@pytest.fixture(autouse=True)
def many_row_groups(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """For most tests here, a few row groups stand for many."""
    if "small" not in request.node.name:
        monkeypatch.setattr("planner.prune.distributed.FEW_ROW_GROUPS", 0)


@pytest.fixture(scope="module")
def index(spark: SparkSession, catalog: SqlCatalog) -> Iterator[TableIndex]:
    """Five files, indexed by three builds, and one that is not."""
    create_items(spark, "spread")
    definition = IndexDefinition.of(bitmap=["city", "k"], bsi=["k", "price"], bloom=["note"])
    table_index = TableIndex.create(catalog, "ns.spread", definition)
    table_index.build(spark)
    for start in (20_000, 22_000):
        append_items(spark, "spread", start, start + 2_000)
        table_index.build(spark)
    append_items(spark, "spread", 24_000, 25_000)
    assert planner.plan(table_index, "k = 4711").unindexed == 1
    yield table_index
    spark.sql("DROP TABLE lake.ns.spread PURGE")


@pytest.mark.one_of(3)
@pytest.mark.parametrize("where", PREDICATES)
def test_executors_come_to_the_drivers_verdicts(spark: SparkSession, index: TableIndex, where: str) -> None:
    local = planner.plan(index, where)
    distributed = planner.plan(index, where, spark=spark, planning_mode="distributed")
    assert distributed.data_files == local.data_files
    assert np.array_equal(distributed.reasons, local.reasons)
    assert np.array_equal(distributed.matches, local.matches)
    assert [(s.name, s.entered, s.dropped) for s in distributed.funnel] == [
        (s.name, s.entered, s.dropped) for s in local.funnel
    ]


def test_verdicts_come_in_the_order_that_was_asked_for(spark: SparkSession, index: TableIndex) -> None:
    index.refresh()
    view = view_of(index.index_table, reading_of(index.data_table))
    predicate = simplified(read_where("k BETWEEN 100 AND 103", index.data_table.schema()))
    shuffled = np.random.default_rng(3).permutation(view.row_group_count)
    executors = Executors(spark.sparkContext, index.index_table, "distributed")
    found = prune_row_groups(view, predicate, shuffled, executors=executors)
    expected = prune_row_groups(view, predicate, shuffled)
    assert np.array_equal(found.reasons, expected.reasons)
    assert 0 < found.kept.sum() < view.row_group_count


def test_auto_asks_executors_only_for_very_many_row_groups(spark: SparkSession, index: TableIndex) -> None:
    auto = Executors(spark.sparkContext, index.index_table)
    assert not auto.are_worth_it(LOCAL_ROW_GROUPS, 10**9)
    assert auto.are_worth_it(LOCAL_ROW_GROUPS + 1, 0)


def test_the_driver_plans_small_scans_in_every_mode(
    spark: SparkSession, index: TableIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("executors were asked")

    monkeypatch.setattr("planner.prune.distributed.prune_on_executors", refuse)
    planner.plan(index, "k = 4711", spark=spark, planning_mode="distributed")
    for few in ("FEW_ROW_GROUPS", "FEW_ROWS"):
        with monkeypatch.context() as fewer:
            fewer.setattr(f"planner.prune.distributed.{few}", 3)
            with pytest.raises(AssertionError, match="executors were asked"):
                planner.plan(index, "k = 4711", spark=spark, planning_mode="distributed")


def test_the_callers_job_description_stays(spark: SparkSession, index: TableIndex) -> None:
    spark.sparkContext.setJobDescription("mine")
    try:
        planner.plan(index, "k = 4711", spark=spark, planning_mode="distributed")
        assert spark.sparkContext.getLocalProperty("spark.job.description") == "mine"
    finally:
        spark.sparkContext.setLocalProperty("spark.job.description", "")


def test_trouble_on_executors_keeps_row_groups_and_is_told(
    spark: SparkSession, catalog: SqlCatalog, index: TableIndex
) -> None:
    """On an index that no executor has read yet."""
    create_items(spark, "spoilt")
    spoilt = TableIndex.create(catalog, "ns.spoilt", IndexDefinition.of(bsi=["k"]))
    spoilt.build(spark)
    spoilt.refresh()
    for location, size in view_of(spoilt.index_table, reading_of(spoilt.data_table)).segments:
        Path(location.removeprefix("file://")).write_bytes(bytes(size))
    with pytest.raises(PuffinIndexError, match="checksum"):
        planner.plan(spoilt, "k = 4711", spark=spark, planning_mode="distributed", strict=True)
    plan = planner.plan(spoilt, "k = 4711", spark=spark, planning_mode="distributed")
    assert plan.kept == plan.row_groups
    assert "checksum" in plan.warnings[0]
    assert planner.plan(index, "k = 4711", spark=spark, planning_mode="distributed").kept == 2
