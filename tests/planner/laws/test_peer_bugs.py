"""What went wrong in other indexes, each once: bugs that their users reported, as tests of ours."""

import math
from collections.abc import Callable

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from planner.arrow.aggregate import Aggregated, aggregate_with_plan
from planner.arrow.plan import plan
from planner.report.scan_plan import ScanPlan
from puffin_index import IndexDefinition, TableIndex
from puffin_index.data.data_table import list_data_files
from tests.deletes_sample import commit_deletion_vectors, commit_positional_deletes
from tests.planner.ten_rows import build_index

ROW_GROUP_ROWS = 100


def indexed(catalog: SqlCatalog, data: pa.Table, **kinds: list[str]) -> tuple[Table, TableIndex]:
    index = build_index(catalog, data, ROW_GROUP_ROWS, IndexDefinition.of(**kinds))
    return index.data_table, index


def only_row(found: Aggregated) -> tuple[object, ...]:
    """The values of an answer of one row, for which no data was read."""
    (row,) = found.table.to_pylist()
    assert found.row_groups_read == 0
    return tuple(row.values())


def kept(scan_plan: ScanPlan) -> list[int]:
    return [split.row_group for split in scan_plan.splits if split.verdict == "kept"]


def test_a_rewritten_file_does_not_inherit_the_index_of_the_old_one(local_catalog: SqlCatalog) -> None:
    """Lance #5929, #6116, #6514: entries from before an update or a compaction answered for the new rows."""
    table, index = indexed(local_catalog, pa.table({"k": range(1_000)}), bsi=["k"])
    table.overwrite(pa.table({"k": [n * 3 for n in range(1_000)]}))
    scan_plan = plan(index, "k = 2997")
    assert scan_plan.unindexed == scan_plan.kept == scan_plan.row_groups > 0
    index.build(workers=1)
    assert kept(plan(index, "k = 2997")) == [9]


@pytest.mark.parametrize("kind", ["bitmap", "bsi", "bloom"])
def test_negative_nan_and_negative_zero_are_found(local_catalog: SqlCatalog, kind: str) -> None:
    """Lance's zone maps and others: the sign of a NaN, or of a zero, hid rows."""
    values = [float(n) for n in range(1, 1_001)]
    values[150], values[250], values[350], values[450] = math.nan, -math.nan, -0.0, 0.0
    _, index = indexed(local_catalog, pa.table({"x": values}), **{kind: ["x"]})
    assert {1, 2} <= set(kept(plan(index, "isnan(x)")))
    assert {3, 4} <= set(kept(plan(index, "x = 0")))
    assert {3, 4} <= set(kept(plan(index, "x = -0.0D")))
    assert {1, 2} <= set(kept(plan(index, "x > 1e300D")))


@pytest.mark.parametrize("kind", ["bitmap", "bsi"])
def test_the_complement_of_a_set_drops_row_groups_without_other_values(local_catalog: SqlCatalog, kind: str) -> None:
    """RFC-92 and others: NOT turned NULL rows into matches, or into rows behind the last one."""
    values = [None if n % 2 else 5 for n in range(249)]
    data = pa.table({"k": pa.array([*values, 6], pa.int64()), "n": range(250)})
    _, index = indexed(local_catalog, data, **{kind: ["k", "n"]})
    for where in ("NOT (k = 5)", "k <> 5", "k NOT IN (5, 7)", "NOT (k BETWEEN 0 AND 5)"):
        assert kept(plan(index, where)) == [2], where
    assert kept(plan(index, "NOT (k <> 5) AND n IN (1, 101)")) == []


def test_a_renamed_column_keeps_its_index_and_a_new_one_of_the_old_name_has_none(local_catalog: SqlCatalog) -> None:
    """Kahshe's introduction: names and positions are no identity, field ids are."""
    table, index = indexed(local_catalog, pa.table({"k": range(1_000)}), bsi=["k"])
    with table.update_schema() as update:
        update.rename_column("k", "old")
    with table.update_schema() as update:
        update.add_column("k", table.schema().find_field("old").field_type)
    assert kept(plan(index, "old = 500")) == [5]
    # In the files of before, the new column is NULL; no index says anything of it.
    found = plan(index, "k = 500")
    assert found.kept in (0, found.row_groups)
    assert all(split.verdict == "dropped" or split.rows is None for split in found.splits)
    assert plan(index, "k IS NULL").dropped == 0


def test_an_index_of_few_values_is_not_read_where_it_drops_nothing(local_catalog: SqlCatalog) -> None:
    """StarRocks: bitmaps of few values made queries three times slower."""
    data = pa.table({"k": [n % 3 for n in range(10_000)]})
    _, index = indexed(local_catalog, data, bitmap=["k"])
    plan(index, "k = 1")
    again = plan(index, "k = 1")
    assert (again.kept, again.index_reads, again.index_bytes_read) == (again.row_groups, 0, 0)


@pytest.mark.parametrize("commit", [commit_positional_deletes, commit_deletion_vectors])
@pytest.mark.parametrize("kind", ["bitmap", "bsi"])
def test_a_count_leaves_deleted_rows_out(
    local_catalog: SqlCatalog, kind: str, commit: Callable[[Table, dict[str, list[int]]], str]
) -> None:
    """ClickHouse #50613, Sail #2461: counts from metadata, of rows or of NULL, had deleted rows."""
    data = pa.table({"k": range(1_000), "n": [None if k % 4 == 0 else k for k in range(1_000)]})
    table, index = indexed(local_catalog, data, **{kind: ["k", "n"]})
    asked = "count(*), sum(k), min(k), max(k), count(DISTINCT k), count(n)"
    assert only_row(aggregate_with_plan(index, None, asked)) == (1_000, 499_500, 0, 999, 1_000, 750)
    (file,) = list_data_files(table)
    commit(table, {file.path: [0, 500, 999]})
    assert only_row(aggregate_with_plan(index, None, asked)) == (997, 498_001, 1, 998, 997, 749)
    assert only_row(aggregate_with_plan(index, "k >= 500", asked)) == (498, 373_251, 501, 998, 498, 374)
    assert only_row(aggregate_with_plan(index, "n IS NULL", "count(*), count(n)")) == (248, 0)


def test_files_without_an_index_are_read_and_no_others(local_catalog: SqlCatalog) -> None:
    """Paimon's `fast` mode, Lance #6831: the answer covered what the index covers."""
    table, index = indexed(local_catalog, pa.table({"k": range(1_000)}), bsi=["k"])
    table.append(pa.table({"k": range(1_000, 1_500)}))
    scan_plan = plan(index, "k >= 990")
    assert (scan_plan.kept, scan_plan.unindexed, scan_plan.dropped) == (6, 5, 9)
    found = aggregate_with_plan(index, "k >= 990", "count(*), sum(k), max(k)")
    assert found.table.to_pylist() == [{"count(*)": 510, "sum(k)": 634_695, "max(k)": 1_499}]
    assert (found.row_groups_indexed, found.row_groups_read) == (1, 5)


@pytest.mark.parametrize("kind", ["bitmap", "bsi"])
def test_nan_is_the_greatest_double(local_catalog: SqlCatalog, kind: str) -> None:
    """Iceberg #15069: the maximum of doubles left NaN out."""
    values = [float(n) for n in range(1, 301)]
    values[150] = math.nan
    _, index = indexed(local_catalog, pa.table({"x": values}), **{kind: ["x"]})
    for where, least in ((None, 1.0), ("x > 120.5D", 121.0)):
        assert str(only_row(aggregate_with_plan(index, where, "min(x), max(x)"))) == f"({least}, nan)"
    assert only_row(aggregate_with_plan(index, "x < 200 AND NOT isnan(x)", "max(x)")) == (199.0,)


def test_only_a_zero_is_not_told_without_its_sign(local_catalog: SqlCatalog) -> None:
    """-0.0 and 0.0 are equal, and an index knows them as one; an answer that is one of them comes from the data."""
    _, index = indexed(local_catalog, pa.table({"x": [-0.0, 3.0], "y": [0.0, 3.0]}), bsi=["x", "y"])
    found = aggregate_with_plan(index, None, "min(x), min(y)")
    assert [math.copysign(1, value) for value in found.table.to_pylist()[0].values()] == [-1, 1]
    assert found.row_groups_read == 1
    assert only_row(aggregate_with_plan(index, None, "max(x), max(y)")) == (3.0, 3.0)


@pytest.mark.parametrize("kind", ["bitmap", "bsi"])
def test_long_strings_come_whole(local_catalog: SqlCatalog, kind: str) -> None:
    """Iceberg #16320, #16328: a minimum or maximum of strings was a truncated bound, or one that no row has."""
    values = [f"{'é' * 100}{n:03}{'😀' * 50}" for n in range(250)]
    _, index = indexed(local_catalog, pa.table({"s": values}), **{kind: ["s"]})
    assert only_row(aggregate_with_plan(index, None, "min(s), max(s)")) == (values[0], values[-1])
    where = f"s > '{values[40]}' AND s < '{values[60]}'"
    assert only_row(aggregate_with_plan(index, where, "min(s), max(s), count(*)")) == (values[41], values[59], 19)
