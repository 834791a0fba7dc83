"""Keys that are found while a query runs, such as those of a join's other side, as tests of a column."""

from __future__ import annotations

from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa

from planner.condition.tree.nodes import UNKNOWN, Leaf, Nothing, Predicate
from planner.condition.tree.simplify import conjunction
from puffin_index.errors import UnsupportedError
from puffin_index.keys.arrow_keys import column_of
from puffin_index.keys.columns import KeyArray, SortedColumn
from puffin_index.keys.leaf import LeafTest, NullTest, RangeTest, SetTest
from puffin_index.keys.map_key import ColumnId
from puffin_index.keys.value_types import ValueType
from puffin_index.storage.arrays import Ints

MOST_KEYS: Final = 100_000
"""A longer list becomes the range from its least to its greatest key."""

FEW_KEYS: Final = 64
"""More keys that follow each other become a range. Fewer stay a list: for ranges of bytes there are no estimates."""


def among(field_id: ColumnId, values: pa.Array, value_type: ValueType) -> Predicate:
    """Return the predicate that a column has one of some values.

    Args:
        field_id: The column.
        values: Arrow values of the column's type, in any order, with or without duplicates. NULL equals nothing.
        value_type: The column's type.

    Raises:
        UnsupportedError: If the values are not of the column's type.
    """
    keys = SortedColumn(column_of(values.drop_null(), value_type)).keys
    if len(keys) == 0:
        return Nothing()
    if len(keys) > MOST_KEYS:
        low, high = keys[:1].tolist()[0], keys[-1:].tolist()[0]
        return Leaf(field_id, RangeTest(low, high), value_type.name)
    return Leaf(field_id, SetTest(tuple(keys.tolist())), value_type.name)


def chosen(field_id: ColumnId, keys: KeyArray, places: Ints, value_type: ValueType) -> Predicate:
    """Return the predicate that a column has one of some keys among all keys that it has.

    Args:
        field_id: The column.
        keys: All keys of the column, ascending.
        places: The places of the chosen keys, ascending.
        value_type: The column's type.
    """

    def leaf(test: LeafTest) -> Leaf:
        return Leaf(field_id, test, value_type.name)

    count = len(keys)
    if len(places) == 0:
        return Nothing()
    if len(places) == count:
        return leaf(NullTest(is_null=False))
    others = np.setdiff1d(np.arange(count), places, assume_unique=True)
    for some, negated in ((places, False), (others, True)):
        if len(some) > FEW_KEYS and some[-1] - some[0] == len(some) - 1:
            low, high = _keys_at(keys, some[[0, -1]])
            return leaf(RangeTest(low, high, negated=negated))
    some, negated = (places, False) if len(places) <= len(others) else (others, True)
    if len(some) <= MOST_KEYS:
        return leaf(SetTest(_keys_at(keys, some), negated))
    low, high = _keys_at(keys, places[[0, -1]])
    return conjunction([leaf(RangeTest(low, high)), UNKNOWN])


def _keys_at(keys: KeyArray, places: Ints) -> tuple[Any, ...]:
    found = keys[places].tolist() if isinstance(keys, np.ndarray) else keys.take(pa.array(places)).to_pylist()
    return tuple(found)


def compared(
    field_id: ColumnId, operator: Literal["<", "<=", ">", ">="], values: pa.Array, value_type: ValueType
) -> Predicate:
    """Return the predicate that a column compares with a value.

    Args:
        field_id: The column.
        operator: The column stands on its left.
        values: The value, of the column's type. Nothing compares with NULL, or with no value.
        value_type: The column's type.

    Raises:
        UnsupportedError: If the value is not of the column's type, or there are several.
    """
    keys = SortedColumn(column_of(values.drop_null(), value_type)).keys
    if len(keys) > 1:
        raise UnsupportedError(f"{len(keys)} values where one is compared with")
    if len(keys) == 0:
        return Nothing()
    key, is_inclusive = keys.tolist()[0], operator.endswith("=")
    if operator.startswith("<"):
        return Leaf(field_id, RangeTest(None, key, high_inclusive=is_inclusive), value_type.name)
    return Leaf(field_id, RangeTest(key, None, low_inclusive=is_inclusive), value_type.name)
