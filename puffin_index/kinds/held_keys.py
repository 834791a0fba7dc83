"""Keys of rows: what an opened index that holds every row's key tells of a row set, for aggregates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Flag, auto
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from puffin_index.keys.asked import AskedTest
from puffin_index.keys.columns import Column, KeyArray, SortedColumn, chosen_keys, tuple_of_keys
from puffin_index.keys.leaf import Key
from puffin_index.keys.value_types import MAXIMUM_DECIMAL_PRECISION, ValueType, decimals_of_wide_keys
from puffin_index.storage.arrays import Ints
from puffin_index.storage.ranged import Reading, at_once

_FEW_KEYS, _MOST_KEYS, _ROWS_A_KEY = 8, 256, 256
"""Row sets are made of any keys up to the first number, of no more than the second, and of keys of this many rows."""

_LOW_32_BITS = np.int64(0xFFFF_FFFF)


@dataclass(frozen=True, slots=True, eq=False)
class KeyCounts:
    """The distinct keys of some rows, ascending."""

    value_type: ValueType
    keys: KeyArray
    counts: Ints
    null_count: int


DistinctKeys: TypeAlias = tuple[KeyArray, int]
"""The distinct keys of some rows, ascending, and the number of rows that are not NULL."""


@dataclass(frozen=True, slots=True, eq=False)
class KeySets:
    """The distinct keys of a payload, ascending, and the rows of each, disjoint and not empty; nobody changes them."""

    value_type: ValueType
    keys: KeyArray
    rows: Sequence[BitMap]
    nulls: BitMap

    def among(self, rows: BitMap) -> KeyCounts:
        """Return the distinct keys of some rows."""
        counts = np.array([rows.intersection_cardinality(own) for own in self.rows], np.int64)
        there = np.flatnonzero(counts)
        nulls = rows.intersection_cardinality(self.nulls)
        return KeyCounts(self.value_type, chosen_keys(self.keys, there), counts[there], nulls)


class Want(Flag):
    """What somebody wants of totals besides the number of values."""

    SUMS = auto()
    ENDS = auto()
    ALL = SUMS | ENDS


@dataclass(frozen=True, slots=True)
class Totals:
    """The keys of some rows taken together. What nobody wanted is 0 or None.

    Sums of positive and negative keys are exact, of decimals' unscaled values; other types than numbers have none.
    """

    value_count: int
    positive: int = 0
    negative: int = 0
    minimum: Key | None = None
    maximum: Key | None = None


class HoldsKeys(ABC):
    """An opened index that knows the key of each row. All readings raise CorruptFileError on damage.

    Rows are numbered as in its answers: from 0 for one row group, in the segment's row space for several.
    """

    @abstractmethod
    def keys_of(self, rows: BitMap | None) -> Reading[Column]:
        """Return the keys of some rows, in the order of the rows; None for all rows of the payload."""

    def counts_of(self, rows: BitMap) -> Reading[KeyCounts]:
        """Return the distinct keys of some rows."""
        sets = yield from self.sets_of()
        if sets is not None:
            return sets.among(rows)
        decoded = yield from self.in_memory()
        if decoded is not None:
            return (yield from decoded.counts_of(rows))
        return _counts_of_column((yield from self.keys_of(rows)))

    def distinct_of(self, rows: BitMap) -> Reading[DistinctKeys]:
        """Return the distinct keys of some rows."""
        counted = yield from self.counts_of(rows)
        return counted.keys, int(counted.counts.sum())

    def sets_of(self) -> Reading[KeySets | None]:
        """Return the rows of each key; None if decoding all rows takes less time."""
        return at_once(None)

    def in_memory(self) -> Reading[KeysInMemory | None]:
        """Decode the key of each row; None if the payload gives the keys of some rows without decoding the others."""
        return at_once(None)

    def within(self, test: AskedTest) -> Reading[KeysWithin | None]:
        """Prepare to read the keys of rows that satisfy a test; None if that reads the keys of other rows as well."""
        del test
        return at_once(None)

    def totals_of_each(self, groups: Sequence[BitMap], want: Want = Want.ALL) -> Reading[list[Totals]]:
        """Return the totals of each of some disjoint sets of rows. The payload is read only once."""
        del want
        if len(groups) == 1:
            return [totals_of_counts((yield from self.counts_of(groups[0])))]
        sets = yield from self.sets_of()
        if sets is not None:
            return [totals_of_counts(sets.among(rows)) for rows in groups]
        every = BitMap.union(BitMap(), *groups)
        column, numbers = (yield from self.keys_of(every)), np.frombuffer(every.to_array(), np.uint32)
        places = [np.searchsorted(numbers, np.frombuffer(rows.to_array(), np.uint32)) for rows in groups]
        return [totals_of_counts(_counts_of_column(column.take(own))) for own in places]


class KeysInMemory(HoldsKeys):
    """The key of each row of a payload, decoded."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """The approximate memory in bytes."""


class KeysWithin(HoldsKeys):
    """The keys of the rows of a payload that satisfy a test; nobody may ask for other rows."""

    cost_bytes: int
    """The number of bytes that are read for the keys."""

    @abstractmethod
    def read_once(self) -> Reading[tuple[BitMap, KeysWithin]]:
        """Read all rows that satisfy the test, and return the same keys in memory."""


def most_key_sets(row_counts: Ints) -> Ints:
    """Return of how many keys row sets take less time than decoding the key of each row, for numbers of rows."""
    return np.clip(row_counts // _ROWS_A_KEY, _FEW_KEYS, _MOST_KEYS)


def are_few_keys(key_count: int, row_count: int) -> bool:
    """Return whether a row set of each key takes less time than decoding the key of each row."""
    return key_count <= int(most_key_sets(np.array(row_count)))


def totals_of_counts(found: KeyCounts) -> Totals:
    """Return the totals of rows whose distinct keys are known."""
    keys, counts = found.keys, found.counts
    if not len(keys):
        return Totals(0)
    if isinstance(keys, np.ndarray):
        is_positive = keys > 0
        sums = [_weighted_sum(keys[some], counts[some]) for some in (is_positive, ~is_positive)]
        return Totals(int(counts.sum()), sums[0], sums[1], int(keys[0]), int(keys[-1]))
    ends = keys[0].as_py(), keys[-1].as_py()
    positive, negative = _wide_sums(keys, counts) if found.value_type.is_decimal else (0, 0)
    return Totals(int(counts.sum()), positive, negative, *ends)


def totals_of_distinct(found: DistinctKeys) -> Totals:
    """Return the totals of rows whose distinct keys are known, without sums."""
    keys, value_count = found
    if not len(keys):
        return Totals(0)
    minimum, maximum = tuple_of_keys(chosen_keys(keys, np.array([0, len(keys) - 1])))
    return Totals(value_count, minimum=minimum, maximum=maximum)


def join_totals(parts: Sequence[Totals]) -> Totals:
    """Return the totals of the rows of several totals of one column."""
    lows: list[Any] = [part.minimum for part in parts if part.minimum is not None]
    highs: list[Any] = [part.maximum for part in parts if part.maximum is not None]
    return Totals(
        sum(part.value_count for part in parts),
        sum(part.positive for part in parts),
        sum(part.negative for part in parts),
        min(lows, default=None),
        max(highs, default=None),
    )


def _counts_of_column(column: Column) -> KeyCounts:
    ordered = SortedColumn(column)
    counts = ordered.counts.astype(np.int64)
    return KeyCounts(column.value_type, ordered.keys, counts, column.row_count - column.valid_count)


def _weighted_sum(keys: Ints, counts: Ints) -> int:
    """Return the exact sum of each key times its count; the counts add up to less than 2**32."""
    high, low = keys >> np.int64(32), (keys & _LOW_32_BITS).view(np.uint64)
    return (int((high * counts).sum()) << 32) + int((low * counts.view(np.uint64)).sum())


def _wide_sums(keys: pa.LargeBinaryArray, counts: Ints) -> list[int]:
    """Return the exact sums of positive and of other decimals, each times its count."""
    decimals = decimals_of_wide_keys(keys, MAXIMUM_DECIMAL_PRECISION, 0).cast(pa.decimal256(MAXIMUM_DECIMAL_PRECISION))
    products = pc.multiply(decimals, pa.array(counts).cast(pa.decimal256(19)))
    is_positive = pc.greater(products, pa.scalar(0).cast(products.type))
    return [int(pc.sum(products.filter(own)).as_py() or 0) for own in (is_positive, pc.invert(is_positive))]
