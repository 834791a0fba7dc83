"""The keys that a column has: from statistics, from payloads, and when they are not known."""

from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from planner.condition.tree.nodes import Leaf
from planner.view.cache import new_cache
from planner.view.column_values import ColumnValues, KeyRange, column_values
from planner.view.directories import IndexReads
from planner.view.index_view import IndexView
from puffin_index import IndexDefinition, TableIndex
from puffin_index.index_table.table import read_entries
from puffin_index.keys.leaf import NullTest
from puffin_index.keys.value_types import value_type_named, value_type_of
from puffin_index.keys.values import key_of
from tests.conftest import some
from tests.planner.ten_rows import build_index, k, view_of_index, view_of_ten_rows

LEAF = k(NullTest(is_null=False))
WORDS = ["b", None, "ä", "a", "a", "", "c", "b", "a\0", "z"]
COLUMNS = {
    "word": pa.array(WORDS),
    "same": pa.array(["x"] * 5 + ["y"] * 5),
    "none": pa.array([None] * 10, pa.string()),
    "far": pa.array([i * 10**12 for i in range(10)]),
    "real": pa.array([0.0, -0.0, float("nan"), 1.5, None, -2.0, 0.0, 1.5, float("inf"), -2.0]),
    "wide": pa.array([Decimal(i - 5) * 10**20 for i in range(10)], pa.decimal128(38, 2)),
}


def values_of(
    view: IndexView, leaf: Leaf = LEAF, most: int = 100, most_bytes: int = 10**6
) -> ColumnValues | KeyRange | str:
    return column_values(
        view, leaf.field_id, leaf.value_type, np.arange(view.row_group_count), most, most_bytes, IndexReads()
    )


def leaves_of(index: TableIndex) -> dict[str, Leaf]:
    """A leaf of each column."""
    return {
        field.name: Leaf(field.field_id, NullTest(is_null=False), value_type_of(field.field_type).name)
        for field in index.data_table.schema().fields
    }


def indexed(catalog: SqlCatalog, definition: IndexDefinition) -> tuple[IndexView, dict[str, Leaf]]:
    """A table of ten rows in row groups of three, with an index; and a leaf of each column."""
    index = build_index(catalog, pa.table(COLUMNS), 3, definition)
    return view_of_index(index), leaves_of(index)


def test_integers_of_a_small_range_are_all_between_the_least_and_the_greatest(local_catalog: SqlCatalog) -> None:
    values = values_of(view_of_ten_rows(local_catalog))

    assert isinstance(values, ColumnValues)
    assert values.listed == KeyRange(1, 9)
    assert values.keys.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert values.fingerprint == "1..9"


@pytest.mark.parametrize("layout", ["bitmaps", "postings"])
@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("word", ["", "a", "a\0", "b", "c", "z", "ä"]),
        ("same", ["x", "y"]),
        ("none", []),
        ("far", [i * 10**12 for i in range(10)]),
        ("real", [-2.0, 0.0, 1.5, float("inf"), float("nan")]),
        ("wide", [Decimal(i - 5) * 10**20 for i in range(10)]),
    ],
)
def test_other_keys_are_payloads(local_catalog: SqlCatalog, column: str, layout: str, expected: list[object]) -> None:
    view, leaves = indexed(local_catalog, IndexDefinition.of(bitmap=[column], options={f"{column}.layout": layout}))
    leaf = leaves[column]

    values = values_of(view, leaf)

    assert isinstance(values, ColumnValues)
    value_type = value_type_named(leaf.value_type)
    assert values.keys.tolist() == [key_of(value, value_type) for value in expected]
    assert len(values) == len(expected)


def test_a_dictionary_of_bit_slices_lists_keys_and_plain_slices_do_not(local_catalog: SqlCatalog) -> None:
    view, leaves = indexed(local_catalog, IndexDefinition.of(bsi=["word", "far"], bloom=["same"]))

    words, far, same = (values_of(view, leaves[name]) for name in ("word", "far", "same"))

    assert isinstance(words, ColumnValues)
    assert len(words) == 7
    assert far == KeyRange(0, 9 * 10**12)
    # The middle row group has both values, and a bloom filter lists none.
    assert same == "1 row groups have no index that lists at most 100 values"


@pytest.mark.parametrize(
    ("most", "most_bytes", "reason"),
    [
        (2, 10**6, "the column has more than 2 values"),
        (6, 10**6, "3 row groups have no index that lists at most 6 values"),
        (7, 10, "bytes"),
    ],
)
def test_too_many_keys_or_bytes_are_no_list(local_catalog: SqlCatalog, most: int, most_bytes: int, reason: str) -> None:
    view, leaves = indexed(local_catalog, IndexDefinition.of(bitmap=["word"]))

    found = values_of(view, leaves["word"], most, most_bytes)

    assert isinstance(found, str)
    assert reason in found


def test_a_column_that_has_an_index_in_some_row_groups_only_has_no_list(local_catalog: SqlCatalog) -> None:
    _, leaves = indexed(local_catalog, IndexDefinition.of(bitmap=["word"]))
    index = TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bitmap=["far"]))
    index.data_table.append(pa.table(COLUMNS))
    index.build(workers=1)
    view, leaf = view_of_index(index), leaves["word"]
    covered = np.flatnonzero(view.has(leaf.field_id, "bitmap", np.arange(view.row_group_count)))
    assert 0 < len(covered) < view.row_group_count

    assert values_of(view, leaf) == "some row groups have no index of the column"
    assert isinstance(
        column_values(view, leaf.field_id, leaf.value_type, covered, 100, 10**6, IndexReads()), ColumnValues
    )


def test_lists_of_other_keys_have_other_fingerprints(local_catalog: SqlCatalog) -> None:
    view, leaves = indexed(local_catalog, IndexDefinition.of(bitmap=["word", "same", "wide", "far"]))
    lists = [values_of(view, leaves[name]) for name in ("word", "same", "wide", "far")]

    fingerprints = {values.fingerprint for values in lists if isinstance(values, ColumnValues)}

    assert len(fingerprints) == 4


@pytest.mark.parametrize(
    "definition",
    [
        IndexDefinition.of(bitmap=["word", "far"], options={"word.layout": "bitmaps", "far.layout": "bitmaps"}),
        IndexDefinition.of(bitmap=["word", "far"], options={"word.layout": "postings", "far.layout": "postings"}),
        IndexDefinition.of(bsi=["word", "real"]),
    ],
    ids=["bitmaps", "postings", "dictionaries"],
)
def test_whatever_byte_is_damaged_a_list_has_every_key(local_catalog: SqlCatalog, definition: IndexDefinition) -> None:
    index = build_index(local_catalog, pa.table(COLUMNS), 3, definition)
    segment = next(Path(index.index_table.location().removeprefix("file://")).glob("_segments/*.puffin"))
    original = segment.read_bytes()
    leaves = {name: leaf for name, leaf in leaves_of(index).items() if name in {one.name for one in definition.columns}}
    assert len(leaves) == 2
    entries = read_entries(index.index_table)

    def lists() -> dict[str, ColumnValues | KeyRange | str]:
        view = IndexView("1", entries, index.index_table.io, new_cache())
        return {name: values_of(view, leaf) for name, leaf in leaves.items()}

    whole = lists()
    refused = 0
    for place in some(range(len(original)), 150):
        segment.write_bytes(original[:place] + bytes([original[place] ^ 0x55]) + original[place + 1 :])
        for name, found in lists().items():
            expected = whole[name]
            assert isinstance(expected, ColumnValues)
            refused += not isinstance(found, ColumnValues)
            assert not isinstance(found, ColumnValues) or found.keys.tolist() == expected.keys.tolist()
    assert refused > 0
