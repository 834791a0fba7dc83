"""Queries that want only some rows: examples over ten rows, and the law that the wanted rows are in what is kept."""

from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from planner.condition.tree.nodes import UNKNOWN, Everything, Leaf, Predicate
from planner.condition.tree.simplify import conjunction
from planner.first_rows.search import FirstRows, Order, prune_first_rows
from planner.prune.gate import Limits
from planner.prune.verdicts import Pruned, Reason
from planner.view.index_view import IndexView
from puffin_index import IndexDefinition
from puffin_index.keys.leaf import RangeTest, SetTest
from puffin_index.storage.arrays import Flags
from tests.planner.ten_rows import BITMAPS, EVERY, POSTINGS, build_index, k, view_of_index, view_of_ten_rows

ALL_ROWS = Everything(exact=True)
STRICT = Limits(strict=True)


def first_rows(
    view: IndexView, predicate: Predicate, wanted: FirstRows, is_countable: Flags | None = None, limits: Limits = STRICT
) -> Pruned:
    row_groups = np.arange(view.row_group_count)
    countable = np.ones(len(row_groups), np.bool_) if is_countable is None else is_countable
    return prune_first_rows(view, predicate, row_groups, countable, wanted, limits)


def kept(enough: Pruned) -> list[int]:
    return np.flatnonzero(enough.kept).tolist()


descending = partial(Order, 1, "long", True)
ascending = partial(Order, 1, "long", False)


@pytest.mark.parametrize(
    ("count", "order", "row_groups"),
    [
        pytest.param(1, descending(nulls_first=False), [0], id="9"),
        pytest.param(2, descending(nulls_first=False), [0, 1], id="9-8"),
        pytest.param(4, descending(nulls_first=False), [0, 1, 2, 3], id="9-8-7-5-and-the-other-5"),
        pytest.param(1, descending(nulls_first=True), [4], id="null"),
        pytest.param(3, descending(nulls_first=True), [0, 4], id="null-null-9"),
        pytest.param(2, ascending(nulls_first=False), [0, 1], id="1-2"),
        pytest.param(2, ascending(nulls_first=True), [4], id="null-null"),
        pytest.param(8, ascending(nulls_first=False), [0, 1, 2, 3], id="all-but-null"),
        pytest.param(9, ascending(nulls_first=False), [0, 1, 2, 3, 4], id="not-without-null"),
    ],
)
@pytest.mark.parametrize("definition", [BITMAPS, POSTINGS], ids=["bitmaps", "postings"])
def test_an_order_needs_the_row_groups_of_its_first_rows(
    local_catalog: SqlCatalog, definition: IndexDefinition, count: int, order: Order, row_groups: list[int]
) -> None:
    view = view_of_ten_rows(local_catalog, definition)

    assert kept(first_rows(view, ALL_ROWS, FirstRows(count, order))) == row_groups


def test_rows_that_match_are_enough_and_without_an_order_the_fewest_row_groups(local_catalog: SqlCatalog) -> None:
    view = view_of_ten_rows(local_catalog)
    at_least_5 = k(RangeTest(5, None))

    enough = first_rows(view, at_least_5, FirstRows(2, None))

    assert (kept(enough), enough.first and enough.first.text) == ([3], "2 rows are enough")
    assert [Reason(reason).code for reason in enough.reasons] == [
        "enough-rows",
        "enough-rows",
        "enough-rows",
        "all-rows-match",
        "zone-map",
    ]
    assert kept(first_rows(view, at_least_5, FirstRows(5, None))) == [0, 1, 2, 3]
    assert kept(first_rows(view, at_least_5, FirstRows(6, None))) == [0, 1, 2, 3]

    enough = first_rows(view, k(RangeTest(None, 7)), FirstRows(1, descending(nulls_first=False)))
    assert (kept(enough), enough.first and enough.first.text) == ([2], "1 rows are >= 7")


def test_rows_that_may_be_deleted_and_what_is_not_known_prove_nothing(local_catalog: SqlCatalog) -> None:
    view = view_of_ten_rows(local_catalog)
    is_countable = EVERY != 0

    assert kept(first_rows(view, ALL_ROWS, FirstRows(1, descending(nulls_first=False)), is_countable)) == [0, 1]
    assert kept(first_rows(view, ALL_ROWS, FirstRows(2, None), is_countable)) == [1]
    assert kept(first_rows(view, ALL_ROWS, FirstRows(10, None), is_countable)) == [0, 1, 2, 3, 4]

    partly_known = conjunction([k(RangeTest(3, None)), UNKNOWN])
    for order in (None, descending(nulls_first=False)):
        assert kept(first_rows(view, partly_known, FirstRows(1, order))) == [0, 1, 2, 3]
        assert kept(first_rows(view, ALL_ROWS, FirstRows(0, order))) == [0, 1, 2, 3, 4]
        assert kept(first_rows(view, ALL_ROWS, FirstRows(1, order), limits=Limits(seconds=0))) == [0, 1, 2, 3, 4]


def test_a_column_that_only_has_a_filter_is_in_no_order(local_catalog: SqlCatalog) -> None:
    view = view_of_ten_rows(local_catalog, IndexDefinition.of(bloom=["k"]))

    assert kept(first_rows(view, k(SetTest((1, 9))), FirstRows(1, descending(nulls_first=False)))) == [0]
    assert kept(first_rows(view, ALL_ROWS, FirstRows(3, descending(nulls_first=False)))) == [0, 1, 2, 3, 4]


def test_an_order_by_text_needs_few_row_groups(local_catalog: SqlCatalog) -> None:
    words = [f"{number * 7919 % 1000:03}" for number in range(1000)]
    index = build_index(local_catalog, pa.table({"s": pa.array(words)}), 10, IndexDefinition.of(bitmap=["s"]))
    view = view_of_index(index)

    enough = prune_first_rows(
        view, ALL_ROWS, np.arange(100), np.ones(100, np.bool_), FirstRows(5, Order(1, "string", True, False)), STRICT
    )

    assert enough.first
    assert enough.first.text == "5 rows are >= 995"
    assert enough.kept.sum() <= 5


@pytest.mark.parametrize("descending", [True, False])
def test_an_order_by_text_is_cut_between_the_ends_of_row_groups(local_catalog: SqlCatalog, *, descending: bool) -> None:
    """Each row group has nearly the least and the greatest word, and rows that match in the middle."""
    numbers = np.arange(4_000) * 7919 % 4_000
    rare = Leaf(2, SetTest((1,)), "long")
    matches = (numbers % 100 == 50) & (numbers > 500) & (numbers < 3_500)
    data = pa.table({"s": [f"user {number:04}" for number in numbers.tolist()], "c": matches.astype(np.int64)})
    index = build_index(local_catalog, data, 100, IndexDefinition.of(bitmap=["s", "c"]))
    view = view_of_index(index)

    enough = first_rows(view, rare, FirstRows(3, Order(1, "string", descending, False)))

    ordered = np.sort(numbers[matches])
    first = ordered[-3:] if descending else ordered[:3]
    assert kept(enough) == np.unique(np.flatnonzero(np.isin(numbers, first)) // 100).tolist()
