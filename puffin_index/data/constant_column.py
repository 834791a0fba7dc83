"""Columns of keys with one value in all rows, which a partition fixes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from puffin_index.data.constants import NULL
from puffin_index.errors import UnsupportedError
from puffin_index.keys.columns import Column
from puffin_index.keys.forms import key_dtype
from puffin_index.keys.value_types import ValueType
from puffin_index.keys.values import wide_decimal_key


def constant_column(text: str, value_type: ValueType, row_count: int) -> Column:
    """Return the keys of a column that has one value in all rows.

    Args:
        text: The value, in its text form (`puffin_index.data.constants`).
        value_type: The type of the column.
        row_count: The number of rows.

    Raises:
        UnsupportedError: If the value is not of this type.
    """
    try:
        key = _key(text, value_type)
    except (ValueError, OverflowError) as error:
        raise UnsupportedError(f"a {value_type.name} column cannot hold the partition value {text}") from error
    if value_type.domain == "int64":
        dtype = key_dtype(value_type)
        if key is None:
            return Column(value_type, row_count, np.zeros(row_count, dtype), np.zeros(row_count, np.bool_))
        return Column(value_type, row_count, np.full(row_count, key, dtype), None)
    if key is None or not row_count:
        return Column(value_type, row_count, pa.nulls(row_count, pa.large_binary()), np.zeros(row_count, np.bool_))
    codes = pa.array(np.zeros(row_count, np.uint32))
    return Column(
        value_type, row_count, pa.DictionaryArray.from_arrays(codes, pa.array([key], pa.large_binary())), None
    )


def _key(text: str, value_type: ValueType) -> int | bytes | None:
    if text == NULL:
        return None
    if text.startswith("x") is (value_type.domain == "int64" or value_type.is_decimal):
        raise ValueError(text)
    if value_type.domain == "int64":
        return int(text)
    if value_type.is_decimal:
        return wide_decimal_key(int(text))
    return bytes.fromhex(text[1:])
