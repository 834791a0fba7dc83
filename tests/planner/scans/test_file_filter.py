"""Pruning of whole files by PyIceberg never loses a file: it only gets what it binds exactly."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from planner.scans.plan import plan
from puffin_index import IndexDefinition, TableIndex
from tests.conftest import create_table


@pytest.fixture
def index(local_catalog: SqlCatalog) -> TableIndex:
    """Two files: i = 1, 2 and i = 10, 11."""
    schema = pa.schema([("i", pa.int32()), ("s", pa.string())])
    table = create_table(local_catalog, "t", pa.table({"i": [1, 2], "s": ["a", "b"]}, schema), 100)
    table.append(pa.table({"i": [10, 11], "s": ["c", None]}, schema))
    index = TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bsi=["i"]))
    index.build(workers=1)
    return index


@pytest.mark.parametrize(
    ("where", "row_groups", "kept"),
    [
        ("i > 1.5 AND i < 3", 1, 1),
        ("i = 2", 1, 1),
        ("I = 2", 1, 1),
        ("i > 1.9", 2, 2),
        ("i = 2.5", 2, 0),
        ("i = 2 OR length(s) = 1", 2, 2),
        ("i = 2 AND length(s) = 1", 1, 1),
        ("s IS NULL", 1, 1),
        ("i = 99", 0, 0),
    ],
)
def test_files_and_row_groups_with_matches_stay(index: TableIndex, where: str, row_groups: int, kept: int) -> None:
    scan_plan = plan(index, where, strict=True)

    assert (scan_plan.row_groups, scan_plan.kept) == (row_groups, kept)
