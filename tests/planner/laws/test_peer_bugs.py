"""What went wrong in other indexes, each once: bugs that their users reported, as tests of ours."""

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from planner.arrow.aggregate import Aggregated, aggregate_with_plan
from puffin_index import IndexDefinition, TableIndex
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


@pytest.mark.parametrize("kind", ["bitmap", "bsi"])
def test_long_strings_come_whole(local_catalog: SqlCatalog, kind: str) -> None:
    """Iceberg #16320, #16328: a minimum or maximum of strings was a truncated bound, or one that no row has."""
    values = [f"{'é' * 100}{n:03}{'😀' * 50}" for n in range(250)]
    _, index = indexed(local_catalog, pa.table({"s": values}), **{kind: ["s"]})
    assert only_row(aggregate_with_plan(index, None, "min(s), max(s)")) == (values[0], values[-1])
    where = f"s > '{values[40]}' AND s < '{values[60]}'"
    assert only_row(aggregate_with_plan(index, where, "min(s), max(s), count(*)")) == (values[41], values[59], 19)
