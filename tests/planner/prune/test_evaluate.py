"""The row level on ten rows (`tests.planner.ten_rows`): row sets of leaves, intersected and united."""

import numpy as np
from pyiceberg.catalog.sql import SqlCatalog

from planner.clock import Clock
from planner.condition.tree.nodes import Conjunction
from planner.prune.segment_search import RowGroups, exact_directories, has_exact_index, index_cost_bytes
from planner.prune.zone_map import Verdicts
from planner.view.directories import IndexReads
from puffin_index.keys.leaf import RangeTest, SetTest
from puffin_index.storage.ranged import run
from tests.planner.ten_rows import EVERY, POSTINGS, c, k, pruning_of, view_of_ten_rows

SMALL = k(RangeTest(None, 3))  # row 0 of row groups 0, 1 and 2
IS_9 = k(SetTest((9,)))  # row 1 of row group 0
UNINDEXED = c(SetTest((1,)))


def test_an_upper_bound_that_is_empty_is_exact(local_catalog: SqlCatalog) -> None:
    searched = RowGroups(pruning_of(view_of_ten_rows(local_catalog), Conjunction((SMALL, UNINDEXED))))

    found = [run(searched.search(position)) for position in range(5)]

    assert [list(one.rows) for one in found] == [[0], [0], [0], [], []]
    assert [one.exact for one in found] == [False, False, False, True, True]


def test_no_index_is_read_for_a_leaf_with_a_verdict(local_catalog: SqlCatalog) -> None:
    pruning = pruning_of(view_of_ten_rows(local_catalog), SMALL)
    pruning.leaves[0].verdicts = Verdicts(
        possible=np.array([True, True, True, False, False]), certain=np.array([False, True, True, False, False])
    )
    searched = RowGroups(pruning)

    # The verdicts say more than is true, so the answers show where they come from.
    assert [list(run(searched.search(position)).rows) for position in range(1, 5)] == [[0, 1], [0, 1], [], []]
    assert list(run(searched.search(0)).rows) == [0]


def test_without_time_all_rows_are_an_upper_bound(local_catalog: SqlCatalog) -> None:
    pruning = pruning_of(view_of_ten_rows(local_catalog), SMALL)
    pruning.clock = Clock(0)
    searched = RowGroups(pruning)

    found = run(searched.search(0))

    assert (list(found.rows), found.exact, searched.late) == ([0, 1], False, {0})


def test_the_kinds_that_answer_exactly_and_what_they_read(local_catalog: SqlCatalog) -> None:
    view = view_of_ten_rows(local_catalog)

    assert has_exact_index(view, SMALL, EVERY).tolist() == [True] * 5
    assert not has_exact_index(view, UNINDEXED, EVERY).any()
    assert exact_directories(view, UNINDEXED, IndexReads()) == []
    (bitmap,) = exact_directories(view, SMALL, IndexReads())
    # Payloads of two rows are short; a range reads them whole, and so does a look-up.
    assert (index_cost_bytes(SMALL.test, bitmap, EVERY) == bitmap.length).all()
    assert (index_cost_bytes(IS_9.test, bitmap, EVERY) == bitmap.length).all()


def test_what_covers_several_row_groups_costs_no_row_group_anything(local_catalog: SqlCatalog) -> None:
    (postings,) = exact_directories(view_of_ten_rows(local_catalog, POSTINGS), SMALL, IndexReads())

    assert postings.merged.tolist() == [True] * 5
    assert index_cost_bytes(SMALL.test, postings, EVERY).tolist() == [0] * 5
