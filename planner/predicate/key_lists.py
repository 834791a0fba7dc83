"""Keys that are found while a query runs, such as those of a join's other side, as tests of a column."""

from __future__ import annotations

from typing import Final, Literal

import pyarrow as pa

from planner.predicate.nodes import Leaf, Nothing, Predicate
from puffin_index.errors import UnsupportedError
from puffin_index.keys.arrow_keys import column_of
from puffin_index.keys.columns import SortedColumn
from puffin_index.keys.leaf import RangeTest, SetTest
from puffin_index.keys.map_key import ColumnId
from puffin_index.keys.value_types import ValueType

MOST_KEYS: Final = 100_000
"""A longer list becomes the range from its least to its greatest key."""


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
