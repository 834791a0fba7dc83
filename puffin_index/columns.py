"""Columns of keys: the values of one column in one row group as keys, and sorted for whoever needs it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from puffin_index.key_order import (
    bounds_of,
    changes_of,
    distinct_of_counts,
    distinct_of_sorted,
    gather,
    offsets_from,
    order_by_key,
    order_few,
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
# So narrow a range has counters for all keys in the processor's cache while rows are put in order by them.
_FEW = 4096
_COMPARED_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """The keys of one column in one row group.

    Attributes:
        value_type: What the values are.
        row_count: The number of rows, NULLs included.
        keys: One key a row, undefined where the row is NULL; in the bytes domain NULL there, and plain or coded by a
            dictionary of distinct keys that all occur.
        valid: Which rows are not NULL; None if none is.
    """

    value_type: ValueType
    row_count: int
    keys: KeyArray | pa.DictionaryArray
    valid: npt.NDArray[np.bool_] | None
    _sorted: list[SortedColumn] = field(default_factory=list, init=False, repr=False)

    @property
    def int_keys(self) -> npt.NDArray[np.int64]:
        """The keys of a column in the int64 domain."""
        if not isinstance(self.keys, np.ndarray):
            raise TypeError(f"the keys of {self.value_type.name} are bytes")
        return self.keys

    @property
    def bytes_keys(self) -> pa.LargeBinaryArray | pa.DictionaryArray:
        """The keys of a column in the bytes domain, plain or dictionary-coded."""
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
        minimum, maximum = bounds_of(keys)
        if maximum - minimum < _MOST_COUNTED:
            return distinct_of_counts(np.bincount(keys - np.int64(minimum)), minimum)
        if maximum - minimum < 1 << 32:
            # Half the bytes sort in half the time.
            ordered = offsets_from(minimum, keys, np.dtype(np.uint32))
            ordered.sort()
            offsets, starts = distinct_of_sorted(ordered)
            distinct = offsets.astype(np.int64)
            distinct += minimum
            return distinct, starts
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
    minimum, maximum = bounds_of(keys)
    if maximum - minimum < _FEW:
        order, counts = order_few(keys, minimum, maximum)
        return *distinct_of_counts(counts, minimum), order if column.valid is None else _valid_rows(column)[order]
    rows, packed, row_bits = order_by_key(keys, minimum, maximum, _valid_rows(column), column.row_count)
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
    encoded = sort_dictionary(column.bytes_keys.dictionary_encode())
    if column.valid is None:
        codes = encoded.indices.to_numpy()
        counts = np.bincount(codes, minlength=len(encoded.dictionary))
    else:
        codes = np.zeros(column.row_count, np.uint32)
        codes[column.valid] = encoded.indices.drop_null().to_numpy()
        counts = np.bincount(codes[column.valid], minlength=len(encoded.dictionary))
    starts = np.zeros(len(counts) + 1, np.uint32)
    np.cumsum(counts, out=starts[1:])
    return encoded.dictionary, starts, codes


def sort_dictionary(encoded: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return the same array with its dictionary in ascending order, and uint32 indices."""
    if pa.types.is_uint32(encoded.indices.type) and _is_ascending(encoded.dictionary):
        return encoded
    order = pc.sort_indices(encoded.dictionary)
    rank = np.empty(len(order), np.uint32)
    rank[order.to_numpy()] = np.arange(len(order), dtype=np.uint32)
    return pa.DictionaryArray.from_arrays(pa.array(rank).take(encoded.indices), encoded.dictionary.take(order))


def _is_ascending(keys: pa.LargeBinaryArray) -> bool:
    # Some at a time: what is compared may be mapped from a file that is larger than memory.
    spans = (keys[max(0, start - 1) : start + _COMPARED_AT_ONCE] for start in range(0, len(keys), _COMPARED_AT_ONCE))
    return all(pc.all(pc.less(span[:-1], span[1:]), min_count=0).as_py() for span in spans)


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
