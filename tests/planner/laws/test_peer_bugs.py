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
from tests.conftest import create_table
from tests.deletes_sample import commit_deletion_vectors, commit_positional_deletes

ROW_GROUP_ROWS = 100


def indexed(catalog: SqlCatalog, data: pa.Table, **kinds: list[str]) -> tuple[Table, TableIndex]:
    table = create_table(catalog, "t", data, ROW_GROUP_ROWS)
    index = TableIndex.create(catalog, "ns.t", IndexDefinition.of(**kinds))
    index.build(workers=1)
    return table, index


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
    """ClickHouse #50613: a count from metadata counted deleted rows."""
    table, index = indexed(local_catalog, pa.table({"k": range(1_000)}), **{kind: ["k"]})
    asked = "count(*), sum(k), min(k), max(k), count(DISTINCT k)"
    assert only_row(aggregate_with_plan(index, None, asked)) == (1_000, 499_500, 0, 999, 1_000)
    (file,) = list_data_files(table)
    commit(table, {file.path: [0, 500, 999]})
    assert only_row(aggregate_with_plan(index, None, asked)) == (997, 498_001, 1, 998, 997)
    assert only_row(aggregate_with_plan(index, "k >= 500", asked)) == (498, 373_251, 501, 998, 498)


@pytest.mark.parametrize("kind", ["bitmap", "bsi"])
def test_long_strings_come_whole(local_catalog: SqlCatalog, kind: str) -> None:
    """Iceberg #16320, #16328: a minimum or maximum of strings was a truncated bound, or one that no row has."""
    values = [f"{'é' * 100}{n:03}{'😀' * 50}" for n in range(250)]
    _, index = indexed(local_catalog, pa.table({"s": values}), **{kind: ["s"]})
    assert only_row(aggregate_with_plan(index, None, "min(s), max(s)")) == (values[0], values[-1])
    where = f"s > '{values[40]}' AND s < '{values[60]}'"
    assert only_row(aggregate_with_plan(index, where, "min(s), max(s), count(*)")) == (values[41], values[59], 19)
