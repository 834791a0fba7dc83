"""Proofs: check an opened payload against the data, row group by row group, so that no wrong value stays unnoticed.

A payload that holds keys is decoded and compared key by key; what the search of a single row group reads besides is
proven by ranges and by a set of keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import starmap
from typing import Protocol, TypeAlias, cast

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from puffin_index.keys.columns import Column, KeyArray, SortedColumn, plain_keys
from puffin_index.keys.leaf import LeafTest, NullTest, RangeTest, SetTest
from puffin_index.kinds.base import MergedIndex, RowGroupIndex, RowSet
from puffin_index.kinds.held_keys import HoldsKeys
from puffin_index.roaring.read import row_set_of_ascending
from puffin_index.storage.arrays import Flags, Ints

_FEW_KEYS = 64
_RANGES = 16

_Ask: TypeAlias = Callable[[LeafTest], RowSet]
_Test: TypeAlias = tuple[LeafTest, Flags]
"""A test, and which distinct keys of a column satisfy it."""


class Proof(Protocol):
    """Checks row groups of one opened payload."""

    def __call__(self, place: int, column: SortedColumn) -> Iterator[str]:
        """Yield the differences, one sentence each.

        Args:
            place: The place of the row group in the payload, from 0.
            column: The column of the data.

        Raises:
            CorruptFileError: If the payload is damaged.
        """


def proof_by_keys(index: HoldsKeys, row_counts: Ints) -> Proof:
    """Return a proof that compares the keys of all rows, decoded once, and tries the search of a single row group.

    Args:
        index: An opened payload.
        row_counts: The number of rows of each row group that the payload covers.
    """
    decoded: list[Column] = []

    def prove(place: int, column: SortedColumn) -> Iterator[str]:
        if not decoded:
            every = index.keys_of(None)
            ends = np.cumsum(row_counts)
            decoded.extend(starmap(every.part, zip((ends - row_counts).tolist(), ends.tolist(), strict=True)))
        yield from _compare_columns(decoded[place], column.column)
        if not isinstance(index, MergedIndex):
            yield from _check(column, cast(RowGroupIndex, index).evaluate, [*_ranges(column), *_one_set(column)])

    return prove


def _compare_columns(stored: Column, column: Column) -> Iterator[str]:
    valid, stored_valid = _valid(column), _valid(stored)
    if not np.array_equal(valid, stored_valid):
        yield f"{np.count_nonzero(valid != stored_valid)} rows are NULL in the data or in the index, not in both"
    elif not _of_rows(stored, valid).equals(_of_rows(column, valid)):
        yield "rows of other keys than the data has"


def _valid(column: Column) -> Flags:
    return np.ones(column.row_count, np.bool_) if column.valid is None else column.valid


def _of_rows(column: Column, valid: Flags) -> pa.Array:
    """Return the keys of non-NULL rows in the widest type, so that columns of different integer widths compare."""
    if isinstance(column.keys, np.ndarray):
        return pa.array(column.keys.astype(np.int64, copy=False)).filter(pa.array(valid))
    return plain_keys(column).filter(pa.array(valid))


def _check(ordered: SortedColumn, ask: _Ask, tests: Sequence[_Test]) -> Iterator[str]:
    """Ask an index; yield a sentence for each answer that differs from the column."""
    column = ordered.column
    rows = ordered.rows  # asked first: this sorts rows and keys together
    codes = ordered.codes
    valid = _valid(column)
    assert len(rows) == column.valid_count
    for test, is_asked in tests:
        truth = _row_set(valid & is_asked[codes] if ordered.distinct_count else np.zeros(column.row_count, np.bool_))
        yield from _compare(test, ask(test), truth)
    yield from _compare(NullTest(True), ask(NullTest(True)), _row_set(~valid))


def _one_set(ordered: SortedColumn) -> Iterator[_Test]:
    """Yield a set of few keys, spread over all."""
    places = _chosen(ordered, _FEW_KEYS)
    if len(places):
        yield SetTest(_keys(ordered.keys, places)), _flags(ordered.distinct_count, places)


def _chosen(ordered: SortedColumn, most: int) -> Ints:
    """The places of some distinct keys, of all if there are few."""
    count = ordered.distinct_count
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))


def _ranges(ordered: SortedColumn) -> Iterator[_Test]:
    """Yield ranges of keys that cover all."""
    count = ordered.distinct_count
    cuts = np.unique(np.linspace(0, count, _RANGES + 1).astype(np.int64)) if count else np.zeros(0, np.int64)
    for low, high in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        ends = _keys(ordered.keys, np.array([low, high - 1]))
        yield RangeTest(ends[0], ends[1]), _flags(count, np.arange(low, high))


def _keys(keys: KeyArray, places: Ints) -> tuple[int, ...] | tuple[bytes, ...]:
    return tuple(keys[places].tolist()) if isinstance(keys, np.ndarray) else tuple(keys.take(places).to_pylist())


def _flags(count: int, places: Ints) -> Flags:
    flags = np.zeros(count, np.bool_)
    flags[places] = True
    return flags


def _row_set(flags: Flags) -> BitMap:
    return row_set_of_ascending(np.flatnonzero(flags))


def _compare(test: LeafTest, answer: RowSet, truth: BitMap) -> Iterator[str]:
    missed = truth - answer.rows
    if missed:
        yield f"{_described(test)} misses {len(missed)} rows, the first is {missed.min()}"
    elif answer.exact and answer.rows != truth:
        yield f"{_described(test)} claims {len(answer.rows - truth)} rows that do not match"


def _described(test: LeafTest) -> str:
    match test:
        case SetTest(keys):
            return f"a test for {len(keys)} keys from {keys[0]!r} to {keys[-1]!r}"
        case RangeTest(low, high):
            return f"a test for keys from {low!r} to {high!r}"
        case NullTest():
            return "a test for NULL"
