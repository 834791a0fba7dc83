"""Look-ups in sorted postings of ten rows (`tests.planner.ten_rows`): one payload answers for all five row groups."""

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyroaring import BitMap

from planner.prune.gate import Limits
from planner.prune.leaf_search import LeafSearch
from planner.prune.row_sets import FoundRows
from planner.prune.search import prune
from planner.prune.state import SearchState
from planner.view.directories import KindDirectory
from planner.view.index_view import IndexView
from puffin_index import IndexDefinition
from puffin_index.keys.leaf import LeafTest, RangeTest, SetTest
from tests.planner.ten_rows import EVERY, POSTINGS, k, pruning_of, view_of_ten_rows


@pytest.fixture
def view(local_catalog: SqlCatalog) -> IndexView:
    return view_of_ten_rows(local_catalog, POSTINGS)


def opened(view: IndexView, test: LeafTest, limits: Limits) -> tuple[SearchState, KindDirectory]:
    pruning = pruning_of(view, k(test), limits)
    leaf = pruning.leaves[0].leaf
    directory = view.directory(leaf.field_id, leaf.value_type, "bitmap", pruning.reads)
    assert directory is not None
    return pruning, directory


def asked(look_up: LeafSearch) -> tuple[FoundRows, list[int]]:
    *_, (found, counts) = look_up.find(EVERY)
    return found, counts.tolist()


def test_a_wide_leaf_is_left_for_later(view: IndexView) -> None:
    pruning, directory = opened(view, RangeTest(5, 8), Limits(rows_wanted=True))

    # Four of ten rows match.
    found, counts = asked(LeafSearch(pruning, pruning.leaves[0], directory, widest_share=0.3))

    assert found.rows == {}
    assert counts == [-1] * 5


def test_wide_ranges_whose_rows_are_wanted_are_left_to_bit_slices(
    local_catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planner.prune.leaf_search._CHEAP_BYTES", 0)
    both = view_of_ten_rows(
        local_catalog, IndexDefinition.of(bitmap=["k"], bsi=["k"], options={"k.layout": "postings"})
    )
    for test, limits, weight, counts in (
        (RangeTest(5, 8), Limits(rows_wanted=True), 1000, [-1] * 5),
        (RangeTest(5, 8), Limits(rows_wanted=True), 0, [0, 1, 1, 2, 0]),
        # Of a set of keys, postings read only what has these keys.
        (SetTest((5, 8)), Limits(rows_wanted=True), 1000, [0, 1, 0, 2, 0]),
    ):
        monkeypatch.setattr("planner.prune.leaf_search._DECODING_WEIGHT", weight)
        pruning, directory = opened(both, test, limits)

        _, told = asked(LeafSearch(pruning, pruning.leaves[0], directory))

        assert told == counts


def test_a_wide_leaf_is_looked_for_among_candidates(view: IndexView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.prune.leaf_payloads._FEW_ROWS", 0)  # so that four rows are many
    pruning, directory = opened(view, RangeTest(5, 8), Limits(rows_wanted=True))
    narrow = FoundRows(directory, view.row_counts, {int(directory.blob[0]): BitMap([65_537, 196_608])})

    found, counts = asked(LeafSearch(pruning, pruning.leaves[0], directory, candidates=narrow))

    assert [list(rows) for rows in found.rows.values()] == [[65_537, 196_608]]
    assert counts == [0, 1, 0, 1, 0]


def test_without_bytes_left_no_row_is_read_but_what_the_payload_lacks_is_known(view: IndexView) -> None:
    for test, counts in ((SetTest((5,)), [-1] * 5), (SetTest((0,)), [0] * 5)):
        pruning, directory = opened(view, test, Limits(byte_budget=0, rows_wanted=True))

        _, told = asked(LeafSearch(pruning, pruning.leaves[0], directory))

        # The payload's directory says that blocks begin with key 1: there is nothing to read for 0.
        assert told == counts


def test_alone_a_leaf_that_is_not_worth_its_bytes_is_opened_once(
    view: IndexView, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[object] = []
    plain = LeafSearch.prepare
    monkeypatch.setattr(LeafSearch, "prepare", lambda self, work: opened.append(work) or plain(self, work))

    prune(view, k(SetTest((4, 6))), EVERY, Limits(byte_budget=0))

    assert len(opened) == 1
