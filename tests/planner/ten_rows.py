"""Ten rows in five row groups, small enough to check every answer by eye.

| row group | k          | c    |
| --------- | ---------- | ---- |
| 0         | 1, 9       | 0, 1 |
| 1         | 2, 8       | 0, 1 |
| 2         | 3, 7       | 0, 1 |
| 3         | 5, 5       | 0, 1 |
| 4         | NULL, NULL | 0, 1 |
"""

from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from planner.condition.tree.nodes import Leaf
from planner.view.index_view import IndexView
from planner.view.views import view_of
from puffin_index import IndexDefinition, TableIndex
from puffin_index.data.column_source import reading_of
from puffin_index.keys.leaf import LeafTest
from tests.conftest import built, create_table

ROWS = pa.table(
    {"k": pa.array([1, 9, 2, 8, 3, 7, 5, 5, None, None], pa.int64()), "c": pa.array([0, 1] * 5, pa.int64())}
)
EVERY = np.arange(5)

BITMAPS = IndexDefinition.of(bitmap=["k"], options={"k.layout": "bitmaps"})
"""Each row group has a bitmap of its own."""

POSTINGS = IndexDefinition.of(bitmap=["k"], options={"k.layout": "postings"})
"""One payload covers all row groups."""


def build_index(
    catalog: SqlCatalog,
    data: pa.Table,
    row_group_rows: int,
    definition: IndexDefinition,
    name: str = "t",
    **writing: Any,
) -> TableIndex:
    create_table(catalog, name, data, row_group_rows, **writing)
    return built(catalog, f"ns.{name}", definition)


def view_of_index(index: TableIndex) -> IndexView:
    return view_of(index.index_table, reading_of(index.data_table))


def view_of_ten_rows(catalog: SqlCatalog, definition: IndexDefinition = BITMAPS) -> IndexView:
    return view_of_index(build_index(catalog, ROWS, 2, definition))


def k(test: LeafTest) -> Leaf:
    return Leaf(1, test, "long")


def c(test: LeafTest) -> Leaf:
    return Leaf(2, test, "long")
