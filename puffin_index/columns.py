"""Columns of keys: the values of one column in one row group as keys, from Arrow, and sorted for whoever needs it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from puffin_index.errors import UnsupportedError
from puffin_index.key_order import (
    changes_of,
    distinct_of_counts,
    distinct_of_sorted,
    gather,
    order_by_key,
    settle,
    starts_of,
)
from puffin_index.value_types import ValueType

KeyArray: TypeAlias = npt.NDArray[np.int64] | pa.LargeBinaryArray

_NAN_BITS = 0x7FF8_0000_0000_0000
NAN_KEY = _NAN_BITS
_LOW_63_BITS = np.int64(0x7FFF_FFFF_FFFF_FFFF)
_DECIMAL_KEY_BYTES = 16
# The counters of so narrow a range of keys stay in the processor's cache.
_MOST_COUNTED = 65_536
# In so narrow a range, searching every possible key among the sorted ones is the least work.
_MOST_SEARCHED = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """The keys of one column in one row group.

    Attributes:
        value_type: What the values are.
        row_count: The number of rows, NULLs included.
        keys: One key a row, undefined where the row is NULL.
        valid: Which rows are not NULL; None if none is.
    """

    value_type: ValueType
    row_count: int
    keys: KeyArray
    valid: npt.NDArray[np.bool_] | None
    _sorted: list[SortedColumn] = field(default_factory=list, init=False, repr=False)

    @property
    def int_keys(self) -> npt.NDArray[np.int64]:
        """The keys of a column in the int64 domain."""
        if not isinstance(self.keys, np.ndarray):
            raise TypeError(f"the keys of {self.value_type.name} are bytes")
        return self.keys

    @property
    def bytes_keys(self) -> pa.LargeBinaryArray:
        """The keys of a column in the bytes domain."""
        if isinstance(self.keys, np.ndarray):
            raise TypeError(f"the keys of {self.value_type.name} are integers")
        return self.keys

    @property
    def valid_count(self) -> int:
        """The number of rows that are not NULL."""
        return self.row_count if self.valid is None else int(np.count_nonzero(self.valid))

    @property
    def null_rows(self) -> npt.NDArray[np.uint32]:
        """The NULL rows, ascending."""
        if self.valid is None:
            return np.empty(0, np.uint32)
        return np.flatnonzero(~self.valid).astype(np.uint32)


class SortedColumn:
    """The distinct keys of a column in order, and where each lies. Built once a column by `sort_column`.

    What is not asked for is not made: integer keys alone sort faster. Who needs rows and keys asks for `rows` first.
    """

    def __init__(self, column: Column) -> None:
        # A copy that knows no sorted form: a cycle would keep all arrays until the garbage collector finds it.
        self._column = replace(column)
        if column.value_type.domain == "bytes":
            keys, starts, self.codes = _encode_bytes_keys(column)
            self._distinct = keys, starts

    @property
    def keys(self) -> KeyArray:
        """The distinct keys, ascending."""
        return self._distinct[0]

    @property
    def starts(self) -> npt.NDArray[np.uint32]:
        """Where the rows of each distinct key begin in `rows`, and in the end the length of `rows`."""
        return self._distinct[1]

    @property
    def distinct_count(self) -> int:
        """The number of distinct keys."""
        return len(self.starts) - 1

    @property
    def counts(self) -> npt.NDArray[np.uint32]:
        """How many rows have each distinct key."""
        return np.diff(self.starts)

    @cached_property
    def _distinct(self) -> tuple[KeyArray, npt.NDArray[np.uint32]]:
        keys = _valid_keys(self._column)
        if not len(keys):
            return np.empty(0, np.int64), np.zeros(1, np.uint32)
        minimum, maximum = int(keys.min()), int(keys.max())
        if maximum - minimum < _MOST_COUNTED:
            return distinct_of_counts(np.bincount(keys - np.int64(minimum)), minimum)
        return distinct_of_sorted(np.sort(keys))

    @cached_property
    def rows(self) -> npt.NDArray[np.uint32]:
        """The non-NULL rows ordered by key, then by row."""
        column = self._column
        if column.value_type.domain == "int64":
            keys, starts, rows = _sort_int_keys(column)
            self._distinct = keys, starts
            return rows
        codes = self.codes if column.valid is None else self.codes[column.valid]
        rows = _valid_rows(column)
        return order_by_key(codes, 0, self.distinct_count, rows, column.row_count)[0]

    @cached_property
    def codes(self) -> npt.NDArray[np.uint32]:
        """The rank of each row's key among the distinct keys; 0 where the row is NULL."""
        codes = np.zeros(self._column.row_count, np.uint32)
        rows = self.rows
        ascending = np.arange(self.distinct_count, dtype=np.uint32)
        codes[rows] = ascending if self.distinct_count == len(rows) else np.repeat(ascending, self.counts)
        return codes


def sort_column(column: Column) -> SortedColumn:
    """Return the column's sorted form, built at the first call."""
    if not column._sorted:
        column._sorted.append(SortedColumn(column))
    return column._sorted[0]


def _valid_rows(column: Column) -> npt.NDArray[np.uint32]:
    if column.valid is None:
        return np.arange(column.row_count, dtype=np.uint32)
    return np.flatnonzero(column.valid).astype(np.uint32)


def _valid_keys(column: Column) -> npt.NDArray[np.int64]:
    return column.int_keys if column.valid is None else column.int_keys[column.valid]


def _sort_int_keys(
    column: Column,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """The distinct keys, where the rows of each begin, the rows."""
    keys = _valid_keys(column)
    if not len(keys):
        return np.empty(0, np.int64), np.zeros(1, np.uint32), np.empty(0, np.uint32)
    minimum, maximum = int(keys.min()), int(keys.max())
    rows, packed, row_bits = order_by_key(keys, minimum, maximum, _valid_rows(column), column.row_count)
    if maximum - minimum < _MOST_SEARCHED:
        firsts = (np.arange(maximum - minimum + 1, dtype=np.uint64) << np.uint64(row_bits)).astype(packed.dtype)
        counts = np.diff(np.searchsorted(packed, firsts), append=len(rows))
        return *distinct_of_counts(counts, minimum), rows
    if (maximum - minimum).bit_length() + row_bits <= 64:
        packed >>= packed.dtype.type(row_bits)
        changes = changes_of(packed)
        chosen = packed if changes.all() else packed[changes]
        distinct = chosen.astype(np.uint64, copy=False).view(np.int64)
        distinct += np.int64(minimum)
        return distinct, starts_of(changes), rows
    packed >>= packed.dtype.type(row_bits)
    ordered = gather(column.int_keys, rows)
    settle(packed, ordered, rows)
    del packed
    return *distinct_of_sorted(ordered), rows


def _encode_bytes_keys(
    column: Column,
) -> tuple[pa.LargeBinaryArray, npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """The distinct keys, where the rows of each begin, the code of each row."""
    encoded = column.bytes_keys.dictionary_encode()
    dictionary = encoded.dictionary
    order = pc.sort_indices(dictionary)
    rank = np.empty(len(dictionary), np.uint32)
    rank[order.to_numpy()] = np.arange(len(dictionary), dtype=np.uint32)
    indices = encoded.indices
    if column.valid is None:
        codes = rank[indices.to_numpy()]
        counts = np.bincount(codes, minlength=len(rank))
    else:
        codes = np.zeros(column.row_count, np.uint32)
        codes[column.valid] = rank[indices.drop_null().to_numpy()]
        counts = np.bincount(codes[column.valid], minlength=len(rank))
    starts = np.zeros(len(rank) + 1, np.uint32)
    np.cumsum(counts, out=starts[1:])
    return dictionary.take(order), starts, codes


def float_keys(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return the keys of doubles: their bits, in the order of Spark's comparison."""
    with np.errstate(invalid="ignore"):  # what lies under a NULL may be a signalling NaN
        bits = (values + 0.0).view(np.int64)  # -0.0 + 0.0 is 0.0
    bits[np.isnan(values)] = _NAN_BITS
    bits ^= (bits >> np.int64(63)) & _LOW_63_BITS
    return bits


def floats_of_keys(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return the doubles that have these keys."""
    return (keys ^ ((keys >> np.int64(63)) & _LOW_63_BITS)).view(np.float64)


def column_of(values: pa.Array | pa.ChunkedArray, value_type: ValueType) -> Column:
    """Return the keys of an Arrow column.

    Args:
        values: The column as it was read: any Arrow type that can hold the values of `value_type`, narrower ones
            included (a column promoted since the file was written), or only NULLs of whatever type.
        value_type: What the values are in the table's schema.

    Raises:
        UnsupportedError: If values of this Arrow type are not values of this column, or one is out of range.
    """
    array = _one_array(values)
    row_count = len(array)
    valid = None if array.null_count == 0 else array.is_valid().to_numpy(zero_copy_only=False)
    if array.null_count == row_count:
        return Column(value_type, row_count, _null_keys(value_type, row_count), valid)
    try:
        keys = _int64_keys(array, value_type) if value_type.domain == "int64" else _bytes_keys(array, value_type)
    except pa.ArrowException as error:
        raise UnsupportedError(f"a {value_type.name} column cannot hold Arrow {array.type} values: {error}") from error
    return Column(value_type, row_count, keys, valid)


def _one_array(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    array = values
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def _null_keys(value_type: ValueType, row_count: int) -> KeyArray:
    if value_type.domain == "int64":
        return np.zeros(row_count, np.int64)
    return pa.nulls(row_count, pa.large_binary())


def _int64_keys(array: pa.Array, value_type: ValueType) -> npt.NDArray[np.int64]:
    found = array.type
    if value_type.is_floating and pa.types.is_floating(found):
        return float_keys(_fixed_width(array.cast(pa.float64()), np.int64).view(np.float64))
    if value_type.is_decimal and pa.types.is_decimal(found):
        wide = array.cast(pa.decimal128(38, value_type.decimal_scale))
        return np.ascontiguousarray(_fixed_width(wide, np.dtype("<i8"), parts=2)[0::2])
    match value_type.name:
        case "boolean" if pa.types.is_boolean(found):
            return _fixed_width(array.cast(pa.int64()), np.int64)
        case "int" | "long" if pa.types.is_integer(found):
            return _fixed_width(array.cast(pa.int64()), np.int64)
        case "date" if pa.types.is_date(found):
            return _fixed_width(array.cast(pa.date32()), np.int32).astype(np.int64)
        case "time" if pa.types.is_time(found):
            return _fixed_width(array.cast(pa.time64("us")), np.int64)
        case "timestamp" | "timestamptz" | "timestamp_ns" | "timestamptz_ns" if pa.types.is_timestamp(found):
            unit = "ns" if value_type.name.endswith("_ns") else "us"
            return _fixed_width(array.cast(pa.timestamp(unit, found.tz)), np.int64)
        case _:
            raise _mismatch(found, value_type)


def _mismatch(found: pa.DataType, value_type: ValueType) -> UnsupportedError:
    return UnsupportedError(f"a {value_type.name} column cannot hold Arrow {found} values")


def _fixed_width(array: pa.Array, dtype: npt.DTypeLike, parts: int = 1) -> npt.NDArray[np.int64]:
    """The values buffer of a fixed-width array, `parts` numbers a value."""
    width = np.dtype(dtype).itemsize * parts
    return np.frombuffer(array.buffers()[1], dtype, count=len(array) * parts, offset=array.offset * width)


def _bytes_keys(array: pa.Array, value_type: ValueType) -> pa.LargeBinaryArray:
    found = array.type
    if value_type.is_decimal:
        if not pa.types.is_decimal(found):
            raise _mismatch(found, value_type)
        return _wide_decimal_keys(array.cast(pa.decimal128(38, value_type.decimal_scale)))
    is_text = pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_string_view(found)
    is_fixed = pa.types.is_fixed_size_binary(found) and not pa.types.is_decimal(found)
    is_plain = pa.types.is_binary(found) or pa.types.is_large_binary(found) or pa.types.is_binary_view(found)
    length = value_type.fixed_length
    fits = is_plain or (is_fixed and length in (None, found.byte_width))
    # A string column may have been written as plain BYTE_ARRAY; anything but a string column never holds text.
    if not (fits or (is_text and value_type.name == "string")):
        raise _mismatch(found, value_type)
    return array.cast(pa.large_binary())


def _wide_decimal_keys(array: pa.Array) -> pa.LargeBinaryArray:
    raw = np.frombuffer(
        array.buffers()[1], np.uint8, len(array) * _DECIMAL_KEY_BYTES, array.offset * _DECIMAL_KEY_BYTES
    )
    keys = np.ascontiguousarray(raw.reshape(-1, _DECIMAL_KEY_BYTES)[:, ::-1])
    keys[:, 0] ^= 0x80
    offsets = np.arange(0, (len(array) + 1) * _DECIMAL_KEY_BYTES, _DECIMAL_KEY_BYTES, dtype=np.int64)
    valid = None if array.null_count == 0 else pa.array(array.is_valid().to_numpy(zero_copy_only=False))
    flags = None if valid is None else valid.buffers()[1]
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(array), [flags, pa.py_buffer(offsets), pa.py_buffer(keys)]
    )
