"""Rows in few pages: which row groups are read by pages, and that indexes are read for that, and not for nothing."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyroaring import BitMap

from planner.condition.tree.nodes import Conjunction, Predicate
from planner.prune.few_rows import MOST_PAGES, PAGE_ROWS, few_rows, pages_of, share_of_pages
from planner.prune.gate import Limits
from planner.prune.row_sets import RowSets
from planner.prune.search import prune
from planner.prune.verdicts import Pruned
from planner.view.index_view import IndexView
from puffin_index import IndexDefinition, TableIndex
from puffin_index.keys.leaf import SetTest
from puffin_index.kinds.base import RowSet
from tests.planner.ten_rows import build_index, c, k, view_of_index

ROWS = 400_000


@given(st.integers(1, 300_000), st.data())
def test_row_groups_are_read_by_pages_where_few_pages_have_a_row(row_count: int, data: st.DataObject) -> None:
    rows = BitMap(data.draw(st.lists(st.integers(0, row_count - 1), max_size=30)))
    found = few_rows(RowSets({7: RowSet(rows, exact=True)}), np.array([3, 7]), np.array([row_count, row_count]))
    wanted = len({row // PAGE_ROWS for row in rows})
    most = MOST_PAGES * -(-row_count // PAGE_ROWS)
    is_read_by_pages = wanted <= most and 20 * len(rows) <= row_count > PAGE_ROWS
    assert found.rows == ({7: RowSet(rows, exact=True)} if is_read_by_pages else {})
    assert found.pages == ({7: wanted} if is_read_by_pages else {})


@pytest.mark.parametrize("rows", [1, 10, 100])
def test_the_expected_share_of_pages_is_that_of_random_rows(rows: int) -> None:
    random, row_count = np.random.default_rng(rows), 1_200_000
    shares = [len(np.unique(random.integers(0, row_count, rows) // PAGE_ROWS)) for _ in range(200)]
    expected = share_of_pages(np.array([rows]), np.array([row_count]))[0]
    # The mean of 200 draws is within a twentieth.
    assert float(np.mean(shares)) / pages_of(np.array([row_count]))[0] == pytest.approx(expected, rel=0.05)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> TableIndex:
    """Two row groups of ten pages; each value of `k` has a row in both, and each of `c` 50,000."""
    folder, random = tmp_path_factory.mktemp("few"), np.random.default_rng(3)
    catalog = SqlCatalog("few", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}")
    catalog.create_namespace("ns")
    keys = np.concatenate([random.permutation(ROWS // 2), random.permutation(ROWS // 2)])
    data = pa.table({"k": keys, "c": keys % 4})
    return build_index(catalog, data, ROWS // 2, IndexDefinition.of(bitmap=["k", "c"]), write_page_index=True)


def found_by(view: IndexView, predicate: Predicate, *, pages: bool) -> Pruned:
    return prune(view, predicate, np.arange(view.row_group_count), Limits(pages=pages))


def test_an_index_is_read_where_pages_are_saved(index: TableIndex) -> None:
    view, few = view_of_index(index), k(SetTest((70,), False))
    kept, without = found_by(view, few, pages=True), found_by(view, few, pages=False)
    assert kept.matches.tolist() == [1, 1]
    assert [kept.row_sets.of(at) is not None for at in range(2)] == [True, True]
    assert without.matches.tolist() == [-1, -1]
    assert without.row_sets.of(0) is None
    # Each page has a row with one of four values, so that nothing is saved.
    assert found_by(view, c(SetTest((1,), False)), pages=True).row_sets.of(0) is None


def test_no_other_index_is_read_where_pages_are_few_already(index: TableIndex) -> None:
    view, few, wide = view_of_index(index), k(SetTest((70,), False)), c(SetTest((1, 2), False))
    alone, both = (found_by(view, one, pages=True) for one in (few, Conjunction((few, wide))))
    assert sum(stage.bytes_read for stage in both.stages) <= sum(stage.bytes_read for stage in alone.stages) + 64
    rows = [both.row_sets.of(at) for at in range(2)]
    assert [len(own.rows) for own in rows if own is not None] == [1, 1]
