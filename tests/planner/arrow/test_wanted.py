"""Plans, scans and counts without Spark that have keys of other tables, an order and a limit."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import planner
from planner.arrow.wanted_keys import KeysError
from planner.condition.implied import Implied
from planner.first_rows.order_text import OrderSyntaxError
from puffin_index import IndexDefinition, TableIndex
from puffin_index.errors import NotFoundError, UnsupportedError
from tests.conftest import create_table, temporary_catalog
from tests.planner.arrow.test_locate import NAN, ROWS
from tests.planner.ten_rows import build_index


@pytest.fixture(scope="module")
def index() -> Iterator[TableIndex]:
    with temporary_catalog() as catalog:
        yield build_index(catalog, ROWS, 2, IndexDefinition.of(bitmap=["i", "s"], bsi=["f"]))


def test_keys_leave_the_row_groups_and_rows_that_have_them(index: TableIndex) -> None:
    keys = {"I": np.array([9, 2, 77])}

    assert planner.plan(index, keys=keys).kept == 2
    assert planner.plan(index, keys=keys).implied == (Implied("keys", "I in 3 keys"),)
    assert planner.scan(index, keys=keys).read_all()["i"].to_pylist() == [9, 2]
    assert planner.count(index, keys={"i": (key for key in (9, 2, 77))}).rows == 2
    assert planner.count(index, "i > 2", keys=keys).rows == 1


@pytest.mark.parametrize(
    ("column", "values", "rows"),
    [
        ("i", pa.array([None, 5], pa.int64()), 2),
        ("i", [], 0),
        ("f", [NAN], 2),
        ("f", [0.0, NAN, None], 4),
        ("s", pa.array(["é", "B", "zz"]), 2),
    ],
)
def test_keys_are_equal_as_in_a_join(index: TableIndex, column: str, values: Any, rows: int) -> None:
    assert planner.count(index, keys={column: values}).rows == rows
    assert planner.scan(index, keys={column: values}).read_all().num_rows == rows


@pytest.mark.parametrize(
    ("order_by", "first"),
    [
        ("i", [None, 1, 2]),
        ("i DESC", [9, 7, 5]),
        ("i asc nulls last", [1, 2, 3]),
        ("`i` DESC NULLS FIRST", [None, 9, 7]),
    ],
)
def test_the_first_rows_come_in_order(index: TableIndex, order_by: str, first: list[int | None]) -> None:
    found = planner.scan(index, columns=["i"], order_by=order_by, limit=3).read_all()

    assert found["i"].to_pylist() == first
    (implied,) = planner.plan(index, order_by=order_by, limit=3).implied
    assert implied.source == "top-k"
    assert implied.dropped is not None
    assert implied.seconds


def test_a_limit_without_order_takes_any_rows(index: TableIndex) -> None:
    found = planner.scan(index, "i >= 5", columns=["i"], limit=2).read_all()["i"].to_pylist()

    assert len(found) == 2
    assert all(value >= 5 for value in found)
    assert planner.plan(index, "i >= 5", limit=1).kept == 1
    assert planner.scan(index, "i >= 5", limit=0).read_all().num_rows == 0


def test_what_is_no_order_or_key_is_refused(index: TableIndex) -> None:
    for order_by, limit in (("i, f", 1), ("i upwards", 1), ("i", None), (None, -1)):
        with pytest.raises(OrderSyntaxError):
            planner.plan(index, order_by=order_by, limit=limit)
    with pytest.raises(NotFoundError, match="there is no column 'x'; the table has: i, f, s"):
        planner.plan(index, order_by="x", limit=1)
    with pytest.raises(NotFoundError, match="there is no column 'x'"):
        planner.plan(index, keys={"x": [1]})
    with pytest.raises(KeysError, match="keys of i: 'int' object is not iterable"):
        planner.plan(index, keys={"i": 1})


def test_a_column_without_an_order_is_refused(local_catalog: SqlCatalog) -> None:
    create_table(local_catalog, "t", pa.table({"a": [[1], [2]], "i": [1, 2]}), row_group_rows=1)
    index = TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bitmap=["i"]))

    with pytest.raises(UnsupportedError, match="cannot be indexed"):
        planner.plan(index, order_by="a", limit=1)
