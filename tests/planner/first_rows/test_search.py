"""Queries that want only some rows: examples over ten rows, and the law that the wanted rows are in what is kept."""

from decimal import Decimal
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from planner.condition.tree.nodes import UNKNOWN, Everything, Leaf, Nothing, Predicate
from planner.condition.tree.simplify import conjunction
from planner.first_rows.search import Enough, FirstRows, Order, prune_first_rows
from planner.prune.gate import Limits
from planner.prune.verdicts import Reason
from planner.view.index_view import IndexView
from puffin_index import IndexDefinition
from puffin_index.keys.leaf import NullTest, RangeTest, SetTest
from puffin_index.keys.value_types import value_type_named, value_type_of
from puffin_index.keys.values import key_of
from puffin_index.storage.arrays import Flags
from tests.conftest import amount
from tests.planner.ten_rows import BITMAPS, EVERY, POSTINGS, build_index, k, view_of_index, view_of_ten_rows

ALL_ROWS = Everything(exact=True)
STRICT = Limits(strict=True)


def first_rows(
    view: IndexView,
    predicate: Predicate,
    wanted: FirstRows,
    is_countable: Flags | None = None,
    limits: Limits = STRICT,
) -> Enough:
    row_groups = np.arange(view.row_group_count)
    countable = np.ones(len(row_groups), np.bool_) if is_countable is None else is_countable
    return prune_first_rows(view, predicate, row_groups, countable, wanted, limits)


def kept(enough: Enough) -> list[int]:
    return np.flatnonzero(enough.pruned.kept).tolist()


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


def test_the_whole_predicate_holds_for_the_first_rows(local_catalog: SqlCatalog) -> None:
    view = view_of_ten_rows(local_catalog)
    up_to_7 = k(RangeTest(None, 7))

    enough = first_rows(view, up_to_7, FirstRows(1, descending(nulls_first=False)))

    assert (kept(enough), enough.implied) == ([2], "1 rows are >= 7")


def test_without_an_order_the_fewest_row_groups_are_kept(local_catalog: SqlCatalog) -> None:
    view = view_of_ten_rows(local_catalog)
    at_least_5 = k(RangeTest(5, None))

    enough = first_rows(view, at_least_5, FirstRows(2, None))

    assert (kept(enough), enough.implied) == ([3], "2 rows are enough")
    assert [Reason(reason).code for reason in enough.pruned.reasons] == [
        "enough-rows",
        "enough-rows",
        "enough-rows",
        "all-rows-match",
        "zone-map",
    ]
    assert kept(first_rows(view, at_least_5, FirstRows(5, None))) == [0, 1, 2, 3]
    assert kept(first_rows(view, at_least_5, FirstRows(6, None))) == [0, 1, 2, 3]


def test_rows_that_may_be_deleted_prove_nothing(local_catalog: SqlCatalog) -> None:
    view = view_of_ten_rows(local_catalog)
    is_countable = EVERY != 0

    assert kept(first_rows(view, ALL_ROWS, FirstRows(1, descending(nulls_first=False)), is_countable)) == [0, 1]
    assert kept(first_rows(view, ALL_ROWS, FirstRows(2, None), is_countable)) == [1]
    assert kept(first_rows(view, ALL_ROWS, FirstRows(10, None), is_countable)) == [0, 1, 2, 3, 4]


def test_what_is_not_known_proves_nothing(local_catalog: SqlCatalog) -> None:
    view = view_of_ten_rows(local_catalog)
    partly_known = conjunction([k(RangeTest(3, None)), UNKNOWN])

    for order in (None, descending(nulls_first=False)):
        assert kept(first_rows(view, partly_known, FirstRows(1, order))) == [0, 1, 2, 3]
        assert kept(first_rows(view, ALL_ROWS, FirstRows(0, order))) == [0, 1, 2, 3, 4]
        assert kept(first_rows(view, ALL_ROWS, FirstRows(1, order), limits=Limits(seconds=0))) == [0, 1, 2, 3, 4]


def test_a_column_that_only_has_a_filter_is_in_no_order(local_catalog: SqlCatalog) -> None:
    view = view_of_ten_rows(local_catalog, IndexDefinition.of(bloom=["k"]))

    assert kept(first_rows(view, k(SetTest((1, 9))), FirstRows(1, descending(nulls_first=False)))) == [0]
    assert kept(first_rows(view, ALL_ROWS, FirstRows(3, descending(nulls_first=False)))) == [0, 1, 2, 3, 4]


NUMBERS = [None, float("nan"), float("-inf"), -1.5, -0.0, 0.0, 1e-300, 2.0, 2.0, 7.25, 1e300, float("inf")]
WORDS = [None, "", "a", "a\0", "ab", "b", "zz", "\u00e4", "\U0001f600"]
WIDE = [None, *(Decimal(number) * 10**20 for number in (-3, -1, 0, 1, 7)), Decimal("0.01"), Decimal("-0.01")]


def _values(random: Random, column_type: str, rows: int) -> pa.Array:
    some: dict[str, tuple[list[Any], Any]] = {
        "double": (NUMBERS, lambda: random.gauss(0, 100)),
        "string": (WORDS, lambda: f"w{random.randrange(1000)}"),
        "decimal(38, 2)": (WIDE, lambda: Decimal(random.randrange(-(10**24), 10**24)) / 100),
    }
    examples, another = some[column_type]
    values = [random.choice(examples) if random.random() < 0.7 else another() for _ in range(rows)]
    if random.random() < 0.2:
        values = [None] * rows
    types = {"double": pa.float64(), "string": pa.string(), "decimal(38, 2)": pa.decimal128(38, 2)}
    return pa.array(values, types[column_type])


@pytest.mark.parametrize("column_type", ["double", "string", "decimal(38, 2)"])
@pytest.mark.parametrize("seed", range(amount(6, 100)))
def test_the_first_rows_are_in_what_is_kept(local_catalog: SqlCatalog, seed: int, column_type: str) -> None:
    random = Random(seed)
    rows = random.choice([1, 7, 60, 400])
    column = _values(random, column_type, rows)
    values = column.to_pylist()
    others = [99 if random.random() < 0.03 else random.choice([None, *range(8)]) for _ in range(rows)]
    size = random.choice([1, 3, 20, 64])
    data = pa.table({"f": column, "c": pa.array(others, pa.int64())})
    kinds = random.choice([{"bitmap": ["f", "c"]}, {"bsi": ["f"], "bitmap": ["c"]}, {"bsi": ["f", "c"]}])
    index = build_index(local_catalog, data, size, IndexDefinition.of(**kinds))
    view = view_of_index(index)
    type_name = value_type_of(index.data_table.schema().find_type(1)).name
    keys = [None if value is None else key_of(value, value_type_named(type_name)) for value in values]
    is_countable = np.array([random.random() < 0.8 for _ in range(view.row_group_count)])
    is_alive = [bool(is_countable[row // size]) or random.random() < 0.5 for row in range(rows)]

    for _ in range(12):
        low = random.randrange(8)
        own = next((key for key in random.sample(keys, rows) if key is not None), None)
        reached = [key is not None and own is not None and key >= own for key in keys]
        from_own: Predicate = Nothing() if own is None else Leaf(1, RangeTest(own, None), type_name)
        is_rare = [other == 99 for other in others]
        rare = Leaf(2, SetTest((99,)), "long")
        predicate, matches = random.choice(
            [
                (ALL_ROWS, [True] * rows),
                (rare, is_rare),
                (from_own, reached),
                (conjunction([from_own, rare]), [one and other for one, other in zip(is_rare, reached, strict=True)]),
                (Leaf(2, RangeTest(low, None), "long"), [other is not None and other >= low for other in others]),
                (Leaf(2, NullTest(is_null=True), "long"), [other is None for other in others]),
            ]
        )
        order = random.choice([None, Order(1, type_name, random.random() < 0.5, random.random() < 0.5)])
        wanted = FirstRows(random.choice([1, 2, 5, 30, 1000]), order)

        found = set(kept(first_rows(view, predicate, wanted, is_countable)))

        live = [row for row in range(rows) if is_alive[row] and matches[row]]
        if order is None:
            in_kept = sum(row // size in found for row in live)
            assert in_kept >= min(wanted.count, len(live)), wanted
        else:
            needed = _with_ties(live, values, order, wanted.count)
            assert {row // size for row in needed} <= found, wanted


def _with_ties(live: list[int], values: list[Any], order: Order, count: int) -> list[int]:
    """The first rows of an order, and all rows that are equal to the last of them."""
    keys = {
        row: None if values[row] is None else key_of(values[row], value_type_named(order.value_type)) for row in live
    }
    ordered = sorted((row for row in live if keys[row] is not None), key=keys.__getitem__, reverse=order.descending)
    nulls = [row for row in live if keys[row] is None]
    ordered = nulls + ordered if order.nulls_first else ordered + nulls
    if not ordered:
        return []
    last = keys[ordered[min(count, len(ordered)) - 1]]
    cut = max(at for at, row in enumerate(ordered) if keys[row] == last)
    return ordered[: cut + 1]


def test_an_order_by_text_needs_few_row_groups(local_catalog: SqlCatalog) -> None:
    words = [f"{number * 7919 % 1000:03}" for number in range(1000)]
    index = build_index(local_catalog, pa.table({"s": pa.array(words)}), 10, IndexDefinition.of(bitmap=["s"]))
    view = view_of_index(index)

    enough = prune_first_rows(
        view, ALL_ROWS, np.arange(100), np.ones(100, np.bool_), FirstRows(5, Order(1, "string", True, False)), STRICT
    )

    assert enough.implied == "5 rows are >= 995"
    assert enough.pruned.kept.sum() <= 5


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
