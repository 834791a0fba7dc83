"""The residual of a predicate: its leaves tested on the values of a batch of rows, in the planner's own key domain.

What the planner cannot decide for certain is refused here, a predicate or a row: without Spark, nobody else decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    Or,
)
from pyiceberg.schema import Schema

from planner.predicate.bind import bind
from planner.predicate.nodes import Leaf
from planner.predicate.unused import unused_leaf
from planner.predicate.value_tests import column_of_test, flags_of, verdicts
from planner.where.unknown import Unknown, ValueTest
from puffin_index.errors import UnsupportedError
from puffin_index.keys.arrow_keys import column_of
from puffin_index.keys.columns import Column
from puffin_index.keys.leaf import LeafTest, NullTest, RangeTest, SetTest
from puffin_index.keys.map_key import ColumnId, MapKey, values_of_key
from puffin_index.keys.value_types import value_type_named
from puffin_index.storage.arrays import Flags

ReadColumn: TypeAlias = Callable[[int], pa.Array | pa.ChunkedArray]
"""Gives the values of a column by field id. A single value stands for all rows of a file."""


@dataclass(frozen=True, slots=True)
class ColumnTest:
    """A test that is decided value by value.

    Attributes:
        field_id: The column, or a key of a map.
        test: The test.
        value_type: Name of the column's type.
    """

    field_id: ColumnId
    test: ValueTest
    value_type: str


_Step: TypeAlias = Leaf | ColumnTest | bool | Literal["and", "or"]


@dataclass(frozen=True, slots=True)
class Residual:
    """A predicate ready to be tested: its steps in postfix order.

    Attributes:
        steps: A leaf or constant pushes a mask; `and` and `or` join the two masks that were pushed last.
    """

    steps: tuple[_Step, ...]

    @property
    def field_ids(self) -> frozenset[int]:
        """The columns that the predicate tests."""
        tested = [step.field_id for step in self.steps if isinstance(step, Leaf | ColumnTest)]
        return frozenset(column.field_id if isinstance(column, MapKey) else column for column in tested)

    def matching(self, read_column: ReadColumn, row_count: int) -> Flags:
        """Say which rows satisfy the predicate.

        Args:
            read_column: Gives the columns.
            row_count: The number of rows.

        Raises:
            UnsupportedError: If only Spark knows for certain whether one of the rows satisfies the predicate.
        """
        # Of each row: whether it may satisfy the predicate, and whether it certainly does.
        masks: list[tuple[Flags, Flags]] = []
        uncertain: list[str] = []
        for step in self.steps:
            match step:
                case Leaf():
                    column = column_of(values_of(step.field_id, read_column), value_type_named(step.value_type))
                    masks.append((leaf_mask(step.test, column),) * 2)
                case ColumnTest():
                    column = column_of(values_of(step.field_id, read_column), value_type_named(step.value_type))
                    found = verdicts(step.test, column)
                    masks.append((found.matching, found.matching & found.certain))
                    if not found.certain.all():
                        uncertain.append(step.test.text)
                case bool():
                    masks.append((np.array([step]),) * 2)
                case "and":
                    (may, does), (other_may, other_does) = masks.pop(), masks.pop()
                    masks.append((may & other_may, does & other_does))
                case "or":
                    (may, does), (other_may, other_does) = masks.pop(), masks.pop()
                    masks.append((may | other_may, does | other_does))
                case _:
                    assert_never(step)
        may, does = masks.pop()
        if uncertain and (may & ~does).any():
            raise UnsupportedError(
                f"cannot be evaluated without Spark: {'; '.join(uncertain)}; "
                "a row has text that is not ASCII, has line breaks or is not UTF-8"
            )
        return np.broadcast_to(may, row_count)


def values_of(column: ColumnId, read_column: ReadColumn) -> pa.Array | pa.ChunkedArray:
    """The values of a column, or of one key of a map."""
    values = read_column(column.field_id if isinstance(column, MapKey) else column)
    if not isinstance(column, MapKey):
        return values
    maps = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return values_of_key(maps, column.key)


def compile_residual(expression: BooleanExpression, schema: Schema) -> Residual:
    """Bind a predicate for testing rows.

    Args:
        expression: From `planner.where.parser`, without NOT.
        schema: The schema of the scan.

    Raises:
        UnsupportedError: If only Spark knows for certain what a part of the predicate means.
        NotFoundError: If the predicate names a column that the schema lacks.
    """
    steps: list[_Step] = []
    # An explicit stack: generated predicates nest deeper than Python recurses.
    pending: list[BooleanExpression | Literal["and", "or"]] = [expression]
    while pending:
        node = pending.pop()
        match node:
            case "and" | "or":
                steps.append(node)
            case And() | Or():
                pending += ["and" if isinstance(node, And) else "or", node.right, node.left]
            case AlwaysTrue() | AlwaysFalse():
                steps.append(isinstance(node, AlwaysTrue))
            case ValueTest():
                steps.append(_column_test(node, schema))
            case _:
                steps.append(_leaf(node, schema))
    return Residual(tuple(steps))


def _leaf(node: BooleanExpression, schema: Schema) -> Leaf:
    bound = None if isinstance(node, Unknown) else bind(node, schema)
    if not isinstance(bound, Leaf):
        raise UnsupportedError(
            f"cannot be evaluated without Spark: {unused_leaf(node, schema)}; "
            "write this part otherwise, or leave it to the engine that reads the rows"
        )
    return bound


def _column_test(node: ValueTest, schema: Schema) -> ColumnTest:
    found = column_of_test(node, schema)
    if found is None or found.value_type is None:
        raise UnsupportedError(
            f"cannot be evaluated without Spark: {node.text}; Spark would convert {node.column} first"
        )
    return ColumnTest(found.column, node, found.value_type.name)


def leaf_mask(test: LeafTest, column: Column) -> Flags:
    """Say which rows of a column satisfy a leaf test."""
    if isinstance(test, NullTest):
        valid = np.ones(column.row_count, np.bool_) if column.valid is None else column.valid
        return ~valid if test.is_null else valid
    if column.valid_count == 0:
        return np.zeros(column.row_count, np.bool_)
    inside = _int_mask(test, column.int_keys) if isinstance(column.keys, np.ndarray) else _bytes_mask(test, column)
    if test.negated:
        inside = ~inside
    return inside if column.valid is None else inside & column.valid


def _int_mask(test: SetTest | RangeTest, keys: npt.NDArray[np.signedinteger]) -> Flags:
    if isinstance(test, SetTest):
        if len(test.keys) == 1:
            return np.asarray(keys == test.keys[0])
        return np.isin(keys, np.array(test.keys, np.int64))
    inside = np.ones(len(keys), np.bool_)
    if isinstance(test.low, int):
        inside &= keys >= test.low if test.low_inclusive else keys > test.low
    if isinstance(test.high, int):
        inside &= keys <= test.high if test.high_inclusive else keys < test.high
    return inside


def _bytes_mask(test: SetTest | RangeTest, column: Column) -> Flags:
    keys = column.bytes_keys
    if isinstance(test, SetTest):
        return flags_of(pc.is_in(keys, pa.array(test.keys, pa.large_binary())))
    inside = np.ones(column.row_count, np.bool_)
    if test.low is not None:
        compare = pc.greater_equal if test.low_inclusive else pc.greater
        inside &= flags_of(compare(keys, pa.scalar(test.low, pa.large_binary())))
    if test.high is not None:
        compare = pc.less_equal if test.high_inclusive else pc.less
        inside &= flags_of(compare(keys, pa.scalar(test.high, pa.large_binary())))
    return inside
