"""Columns of keys: the values of one column in one row group as keys, and their sorted form on demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from puffin_index.keys.byte_strings import seem_distinct, sort_distinct, sort_keys
from puffin_index.keys.order import bounds_of, distinct_of_sorted, gather, order_by_key, positions_of, settle, starts_of
from puffin_index.keys.sorted_keys import BytesKeys, IntKeys, SortedKeys, bytes_of_keys
from puffin_index.keys.value_types import IntColumnKeys, ValueType, wide_decimal_keys
from puffin_index.storage.arrays import Flags, Ints, Rows, stretches

KeyArray: TypeAlias = Ints | pa.LargeBinaryArray
"""Distinct keys."""

_FEW_KEYS = 1024


def sorted_keys_of(keys: KeyArray) -> SortedKeys:
    """Return ascending keys to be searched."""
    if isinstance(keys, np.ndarray):
        return IntKeys(keys)
    data, offsets = bytes_of_keys(keys)
    return BytesKeys(data.data, offsets[:-1], offsets[1:])


def chosen_keys(keys: KeyArray, places: Ints) -> KeyArray:
    """Return the keys at some places."""
    return keys[places] if isinstance(keys, np.ndarray) else keys.take(pa.array(places))


def tuple_of_keys(keys: KeyArray) -> tuple[int, ...] | tuple[bytes, ...]:
    """Return keys as Python objects."""
    return tuple(keys.tolist()) if isinstance(keys, np.ndarray) else tuple(keys.to_pylist())


def join_keys(keys: Sequence[KeyArray], is_bytes: bool) -> KeyArray:
    """Join ascending keys."""
    if is_bytes:
        return pa.concat_arrays([*keys, pa.array([], pa.large_binary())])
    return np.concatenate([np.empty(0, np.int64), *keys])


_COMPARED_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """The keys of one column in one row group, one per row, and which rows are not NULL (None: all).

    In the int64 domain, keys are numbers of `key_dtype`, undefined in NULL rows. In the bytes domain they are NULL
    there: values, which `bytes_keys` turns into keys, or keys coded by a dictionary of distinct keys that all occur.
    """

    value_type: ValueType
    row_count: int
    keys: IntColumnKeys | pa.Array
    valid: Flags | None

    @property
    def int_keys(self) -> IntColumnKeys:
        """The keys of a column in the int64 domain."""
        if not isinstance(self.keys, np.ndarray):
            raise TypeError(f"the keys of {self.value_type.name} are bytes")
        return self.keys

    @property
    def bytes_keys(self) -> pa.LargeBinaryArray | pa.DictionaryArray:
        """The keys of a column in the bytes domain: coded by a dictionary, or made from the values on each access."""
        if isinstance(self.keys, np.ndarray):
            raise TypeError(f"the keys of {self.value_type.name} are integers")
        if isinstance(self.keys, pa.Decimal128Array):
            return wide_decimal_keys(self.keys)
        return self.keys if isinstance(self.keys, pa.DictionaryArray) else self.keys.cast(pa.large_binary())

    @property
    def is_valid(self) -> Flags:
        """Which rows are not NULL."""
        return np.ones(self.row_count, np.bool_) if self.valid is None else self.valid

    @property
    def valid_count(self) -> int:
        """The number of rows that are not NULL."""
        return self.row_count if self.valid is None else int(np.count_nonzero(self.valid))

    @property
    def null_rows(self) -> Rows:
        """The NULL rows, ascending."""
        if self.valid is None:
            return np.empty(0, np.uint32)
        return positions_of(~self.valid)

    def part(self, first: int, end: int) -> Column:
        """Return the column of the rows from `first` up to `end`."""
        return self._some(self.keys[first:end], slice(first, end))

    def take(self, rows: npt.NDArray[np.integer]) -> Column:
        """Return the column of some rows, in their order."""
        keys = self.keys[rows] if isinstance(self.keys, np.ndarray) else self.keys.take(pa.array(rows))
        return self._some(keys, rows)

    def _some(self, keys: IntColumnKeys | pa.Array, rows: slice | npt.NDArray[np.integer]) -> Column:
        valid = None if self.valid is None else self.valid[rows]
        return Column(self.value_type, len(keys), keys, None if valid is None or valid.all() else valid)


def join_columns(columns: Sequence[Column]) -> Column:
    """Return one column with the rows of all columns, in order; at least one column, all of one value type."""
    if len(columns) == 1:
        return columns[0]
    value_type, row_count = columns[0].value_type, sum(one.row_count for one in columns)
    valid = None
    if any(one.valid is not None for one in columns):
        valid = np.concatenate([one.is_valid for one in columns])
    if value_type.domain == "int64":
        return Column(value_type, row_count, np.concatenate([one.int_keys for one in columns]), valid)
    return Column(value_type, row_count, pa.concat_arrays([plain_keys(one) for one in columns]), valid)


def plain_keys(column: Column) -> pa.LargeBinaryArray:
    """Return the keys of a column in the bytes domain, one per row, without dictionary coding."""
    keys = column.bytes_keys
    return keys.dictionary_decode() if isinstance(keys, pa.DictionaryArray) else keys


class SortedColumn:
    """The distinct keys of a column in order, and the rows of each key.

    All users of a column share one object. Each part is made on first use: sorting integer keys alone is faster than
    sorting them with rows. Code that needs rows and keys asks for `rows` first, as one sort makes both.
    """

    def __init__(self, column: Column) -> None:
        self.column = column
        self._codes: Rows | None = None
        if column.value_type.domain == "bytes":
            keys, starts, self._codes = _encode_bytes_keys(column)
            self._distinct = keys, starts

    @property
    def row_count(self) -> int:
        """The number of rows of the row group."""
        return self.column.row_count

    @property
    def null_count(self) -> int:
        """The number of rows that are NULL."""
        return self.column.row_count - self.column.valid_count

    @property
    def keys(self) -> KeyArray:
        """The distinct keys, ascending."""
        return self._distinct[0]

    @property
    def starts(self) -> Rows:
        """The start of each distinct key's rows in `rows`, followed by the length of `rows`."""
        return self._distinct[1]

    @property
    def distinct_count(self) -> int:
        """The number of distinct keys."""
        return len(self.starts) - 1

    @property
    def counts(self) -> Rows:
        """The number of rows of each distinct key."""
        return np.diff(self.starts)

    @cached_property
    def _distinct(self) -> tuple[KeyArray, Rows]:
        keys = _valid_keys(self.column)
        if not len(keys):
            return np.empty(0, np.int64), np.zeros(1, np.uint32)
        # Of few keys, finding the bounds takes longer than the sort.
        minimum, maximum = bounds_of(keys) if len(keys) > _FEW_KEYS else (0, 1 << 32)
        if maximum - minimum < 1 << 32:
            # Half the bytes sort in half the time. The conversion may wrap, and the subtraction wraps back.
            ordered = keys.astype(np.uint32)
            ordered -= np.uint32(minimum & 0xFFFF_FFFF)
            del keys
            ordered.sort()
            ordered, starts = distinct_of_sorted(ordered)
            return np.add(ordered, np.int64(minimum), dtype=np.int64), starts
        return distinct_of_sorted(np.sort(keys.astype(np.int64, copy=False)))

    @cached_property
    def rows(self) -> Rows:
        """The non-NULL rows ordered by key, then by row."""
        return self._sort_rows()

    @property
    def codes(self) -> Rows:
        """The rank of each row's key among the distinct keys; 0 in NULL rows. For integer keys, made on each access."""
        if self._codes is not None:
            return self._codes
        # Keeping the rows would only cost memory: code that needs them as well has asked for them before.
        rows = self.rows if "rows" in vars(self) else self._sort_rows()
        return _codes_of(rows, self.starts, self.column.row_count)

    def _sort_rows(self) -> Rows:
        column = self.column
        if self._codes is None:
            keys, starts, rows = _sort_int_keys(column)
            self._distinct = keys, starts
            return rows
        codes = self._codes if column.valid is None else self._codes[column.valid]
        return order_by_key(codes, 0, self.distinct_count, _valid_rows(column), column.row_count).rows()


def _valid_rows(column: Column) -> Rows | None:
    """Return the non-NULL rows; None if no row is NULL."""
    return None if column.valid is None else positions_of(column.valid)


def _valid_keys(column: Column) -> IntColumnKeys:
    return column.int_keys if column.valid is None else column.int_keys[column.valid]


def _sort_int_keys(column: Column) -> tuple[Ints, Rows, Rows]:
    """Return the distinct keys, the start of each key's rows, and the rows in order."""
    keys = _valid_keys(column)
    if not len(keys):
        return np.empty(0, np.int64), np.zeros(1, np.uint32), np.empty(0, np.uint32)
    minimum, maximum = bounds_of(keys)
    valid_rows = _valid_rows(column)
    ordered = order_by_key(keys, minimum, maximum, valid_rows, column.row_count)
    del keys, valid_rows
    if ordered.dropped_bits:
        rows = ordered.rows()
        in_order = gather(column.int_keys.astype(np.int64, copy=False), rows)
        settle(ordered.prefixes(), in_order, rows)
        del ordered
        return *distinct_of_sorted(in_order), rows
    changes = ordered.changes()
    distinct = ordered.chosen_keys(changes, minimum)
    rows = ordered.rows()
    return distinct, starts_of(changes), rows


def _encode_bytes_keys(column: Column) -> tuple[pa.LargeBinaryArray, Rows, Rows]:
    """Return the distinct keys, the start of each key's rows, and the code of each row."""
    keys = column.bytes_keys
    if not isinstance(keys, pa.DictionaryArray):
        known = keys if column.valid is None else keys.drop_null()
        if seem_distinct(known):
            # Few duplicates: sorting all keys is faster than to make a dictionary first.
            distinct, order, changes = sort_distinct(known)
            starts = starts_of(changes)
            rows = order if column.valid is None else gather(positions_of(column.valid), order)
            return distinct, starts, _codes_of(rows, starts, column.row_count)
    encoded = keys.dictionary_encode()
    if not (pa.types.is_uint32(encoded.indices.type) and _is_ascending(encoded.dictionary)):
        distinct, rank = sort_keys(encoded.dictionary)
        encoded = pa.DictionaryArray.from_arrays(pa.array(rank).take(encoded.indices), distinct)
    codes = encoded.indices.fill_null(0).to_numpy()
    counts = np.bincount(codes if column.valid is None else codes[column.valid], minlength=len(encoded.dictionary))
    starts = np.zeros(len(counts) + 1, np.uint32)
    np.cumsum(counts, out=starts[1:])
    return encoded.dictionary, starts, codes


def _codes_of(rows: Rows, starts: Rows, row_count: int) -> Rows:
    """Return the rank of each row's key, given the rows in the order of keys and the start of each key's rows."""
    codes = np.zeros(row_count, np.uint32)
    are_distinct = len(starts) > len(rows)
    # A limited number of rows at a time bounds the 64-bit copies that numpy makes of indices.
    for begin, end in stretches(len(rows)):
        if are_distinct:
            codes[rows[begin:end]] = np.arange(begin, end, dtype=np.uint32)
            continue
        first, last = np.searchsorted(starts, np.array((begin, end - 1), starts.dtype), "right") - 1
        ends = np.clip(starts[first : last + 2], begin, end).astype(np.int64)
        codes[rows[begin:end]] = np.repeat(np.arange(first, last + 1, dtype=np.uint32), ends[1:] - ends[:-1])
    return codes


def _is_ascending(keys: pa.LargeBinaryArray) -> bool:
    # A limited number of keys at a time: the keys may be mapped from a file that is larger than memory.
    spans = (keys[max(0, start - 1) : start + _COMPARED_AT_ONCE] for start in range(0, len(keys), _COMPARED_AT_ONCE))
    return all(pc.all(pc.less(span[:-1], span[1:]), min_count=0).as_py() for span in spans)
