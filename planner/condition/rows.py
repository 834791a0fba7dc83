"""Rows of a batch that satisfy a condition, tested in the planner's key domain; what only Spark knows is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TypeAlias, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from planner.condition.columns import unused_parts
from planner.condition.tree import nodes
from planner.condition.tree.simplify import simplified
from planner.condition.value_tests import flags_of, verdicts
from puffin_index.errors import UnsupportedError
from puffin_index.keys.arrow_keys import column_of
from puffin_index.keys.columns import Column, KeyArray
from puffin_index.keys.contents import ContentColumn, gather_contents
from puffin_index.keys.leaf import LeafTest, NullTest, RangeTest, SetTest
from puffin_index.keys.map_key import ColumnId, Contents, MapKey, field_of, values_of_key
from puffin_index.keys.value_types import ValueType, value_type_named
from puffin_index.storage.arrays import Flags

ReadColumn: TypeAlias = Callable[[int], pa.Array | pa.ChunkedArray]
"""Gives the values of a column by field id. A single value stands for all rows of a file."""


@dataclass(frozen=True, slots=True)
class Residual:
    """A condition ready to be tested on rows; what is unknown in it is taken for true."""

    predicate: nodes.Predicate

    @classmethod
    def certain(cls, condition: nodes.Predicate) -> Residual:
        """Return a condition, or raise UnsupportedError if only Spark knows what a part of it means."""
        for unused in unused_parts(condition):
            raise UnsupportedError(
                f"cannot be evaluated without Spark: {unused}; "
                "write this part otherwise, or leave it to the engine that reads the rows"
            )
        return cls(simplified(condition, lambda test: test))

    @property
    def field_ids(self) -> frozenset[int]:
        """The columns that the condition tests."""
        return frozenset(
            field_of(part.field_id)
            for part in nodes.parts(self.predicate)
            if isinstance(part, nodes.Leaf | nodes.ByValue)
        )

    def matching(self, read_column: ReadColumn, row_count: int) -> Flags:
        """Say which rows satisfy the condition, or raise UnsupportedError if only Spark knows that of one of them."""
        batch = _Batch(read_column)
        may, does = batch.masks(self.predicate)
        if batch.uncertain and (may & ~does).any():
            raise UnsupportedError(
                f"cannot be evaluated without Spark: {'; '.join(batch.uncertain)}; "
                "a row has text that is not ASCII, has line breaks or is not UTF-8"
            )
        return np.broadcast_to(may, row_count)


_Masks: TypeAlias = tuple[Flags, Flags]
"""Of each row: whether the row may satisfy a condition, and whether it certainly does."""


@dataclass(slots=True)
class _Batch:
    """Rows that are tested, and the tests that only Spark can decide for some of them."""

    read_column: ReadColumn
    uncertain: list[str] = field(default_factory=list)
    _keys: dict[ColumnId, Column] = field(default_factory=dict)
    _contents: dict[Contents, ContentColumn] = field(default_factory=dict)

    def masks(self, predicate: nodes.Predicate) -> _Masks:
        match predicate:
            case nodes.Leaf(Contents() as contents, test, value_type):
                return (self._contents_mask(contents, test, value_type_named(value_type)),) * 2
            case nodes.Leaf():
                return (leaf_mask(predicate.test, self._column(predicate)),) * 2
            case nodes.ByValue():
                return self._tried(predicate)
            case nodes.Conjunction(children):
                return reduce(lambda one, two: (one[0] & two[0], one[1] & two[1]), map(self.masks, children))
            case nodes.Disjunction(children):
                return reduce(lambda one, two: (one[0] | two[0], one[1] | two[1]), map(self.masks, children))
            case nodes.Everything() | nodes.Nothing():
                return (np.array([isinstance(predicate, nodes.Everything)]),) * 2
            case _:
                assert_never(predicate)

    def _tried(self, predicate: nodes.ByValue) -> _Masks:
        # What a text contains follows from another test, which stands beside it.
        if isinstance(predicate.test, nodes.EngineTest) or isinstance(predicate.field_id, Contents):
            return (np.array([True]),) * 2
        matching, certain = verdicts(predicate.test, self._column(predicate))
        if not certain.all():
            self.uncertain.append(predicate.text)
        return matching, matching & certain

    def _contents_mask(self, column: Contents, test: LeafTest, value_type: ValueType) -> Flags:
        if column not in self._contents:
            values = self.read_column(column.field_id)
            chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
            self._contents[column] = gather_contents(chunks, column.part, value_type, len(values))
        return contents_mask(test, self._contents[column])

    def _column(self, leaf: nodes.Leaf | nodes.ByValue) -> Column:
        if leaf.field_id not in self._keys:
            values = values_of(leaf.field_id, self.read_column)
            self._keys[leaf.field_id] = column_of(values, value_type_named(leaf.value_type))
        return self._keys[leaf.field_id]


def values_of(column: ColumnId, read_column: ReadColumn) -> pa.Array | pa.ChunkedArray:
    """The values of a column, or of one key of a map."""
    values = read_column(field_of(column))
    if not isinstance(column, MapKey):
        return values
    maps = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return values_of_key(maps, column.key)


def satisfying(predicate: nodes.Predicate, column: ColumnId, keys: Column) -> Flags:
    """Say which rows satisfy tests of one column, by their keys."""
    batch = _Batch(lambda _: pa.nulls(0), _keys={column: keys})
    return np.broadcast_to(batch.masks(predicate)[0], keys.row_count)


def leaf_mask(test: LeafTest, column: Column) -> Flags:
    """Say which rows of a column satisfy a leaf test."""
    if isinstance(test, NullTest):
        return ~column.is_valid if test.is_null else column.is_valid
    if column.valid_count == 0:
        return np.zeros(column.row_count, np.bool_)
    keys = column.keys if isinstance(column.keys, np.ndarray) else column.bytes_keys
    inside = _among(keys, test.keys) if isinstance(test, SetTest) else between(keys, test)
    if test.negated:
        inside = ~inside
    return inside if column.valid is None else inside & column.valid


def contents_mask(test: LeafTest, column: ContentColumn) -> Flags:
    """Say which rows contain a key that satisfies a leaf test; negated, which certainly contain none."""
    nulls, found = np.zeros(column.row_count, np.bool_), np.zeros(column.row_count, np.bool_)
    nulls[column.null_rows] = True
    if isinstance(test, NullTest):
        return nulls if test.is_null else ~nulls
    found[column.blocks[leaf_mask(replace(test, negated=False), column.keys)]] = True
    if not test.negated:
        return found
    found[column.open_rows] = True
    return ~(found | nulls)


def _among(keys: KeyArray, members: tuple[int, ...] | tuple[bytes, ...]) -> Flags:
    if not isinstance(keys, np.ndarray):
        return flags_of(pc.is_in(keys, pa.array(members, pa.large_binary())))
    asked = np.array(members, np.int64)
    if len(asked) < 2:
        return np.isin(keys, asked)
    places = np.searchsorted(asked, keys.astype(np.int64, copy=False))
    return np.asarray(asked[np.minimum(places, len(asked) - 1)] == keys)


def between(keys: KeyArray, test: RangeTest) -> Flags:
    """Say which keys lie between the bounds of a range, negated or not."""
    inside = np.ones(len(keys), np.bool_)
    for key, is_inclusive, name in (
        (test.low, test.low_inclusive, "greater"),
        (test.high, test.high_inclusive, "less"),
    ):
        compare = f"{name}_equal" if is_inclusive else name
        if key is not None and isinstance(keys, np.ndarray):
            inside &= getattr(np, compare)(keys, key)
        elif key is not None:
            inside &= flags_of(pc.call_function(compare, [keys, pa.scalar(key, pa.large_binary())]))
    return inside
