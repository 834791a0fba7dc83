"""The residual of a predicate: its leaves tested on the values of a batch of rows, in the planner's own key domain.

A literal that binding cannot place for certain is refused here: without Spark, nobody else decides about those rows.
"""

from __future__ import annotations

import re
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
    LiteralPredicate,
    Or,
    Reference,
    UnboundPredicate,
)
from pyiceberg.schema import Schema
from pyiceberg.types import StringType

from planner.predicate.bind import bind
from planner.predicate.nodes import Leaf
from planner.where.unknown import Unknown, UnknownLike
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
class LikeTest:
    """`column [NOT] LIKE pattern`.

    Attributes:
        field_id: A string column, or a key of a map of strings.
        pattern: As a regular expression (RE2) that the whole value has to match.
        negated: NOT LIKE.
    """

    field_id: ColumnId
    pattern: str
    negated: bool


_Step: TypeAlias = Leaf | LikeTest | bool | Literal["and", "or"]


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
        tested = [step.field_id for step in self.steps if isinstance(step, Leaf | LikeTest)]
        return frozenset(column.field_id if isinstance(column, MapKey) else column for column in tested)

    def matching(self, read_column: ReadColumn, row_count: int) -> Flags:
        """Say which rows satisfy the predicate."""
        masks: list[Flags] = []
        for step in self.steps:
            match step:
                case Leaf():
                    column = column_of(values_of(step.field_id, read_column), value_type_named(step.value_type))
                    masks.append(leaf_mask(step.test, column))
                case LikeTest():
                    masks.append(_like_mask(step, values_of(step.field_id, read_column)))
                case bool():
                    masks.append(np.array([step]))
                case "and":
                    masks.append(masks.pop() & masks.pop())
                case "or":
                    masks.append(masks.pop() | masks.pop())
                case _:
                    assert_never(step)
        return np.broadcast_to(masks.pop(), row_count)


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
            case UnknownLike():
                steps.append(_like_test(node, schema))
            case _:
                steps.append(_leaf(node, schema))
    return Residual(tuple(steps))


def _leaf(node: BooleanExpression, schema: Schema) -> Leaf:
    bound = None if isinstance(node, Unknown) else bind(node, schema)
    if not isinstance(bound, Leaf):
        raise UnsupportedError(
            f"cannot be evaluated without Spark: {_text(node)}; "
            "write the literal in the column's own type, or leave this part to the engine that reads the rows"
        )
    return bound


def _text(node: BooleanExpression) -> str:
    match node:
        case Unknown():
            return node.text
        case LiteralPredicate(term=Reference() as column):
            return f"{type(node).__name__} of {column.name} with {node.literal.value!r}"
        case UnboundPredicate(term=Reference() as column):
            return f"{type(node).__name__} of {column.name}"
        case _:
            return str(node)


def _like_test(node: UnknownLike, schema: Schema) -> LikeTest:
    # `bind` raises if there is no such column.
    bind(node, schema)
    field = schema.find_field(node.column, case_sensitive=False)
    if not isinstance(field.field_type, StringType):
        raise UnsupportedError(f"cannot be evaluated without Spark: {node.text}; {node.column} is {field.field_type}")
    escape = re.escape(node.escape)
    parts = re.findall(rf"{escape}.|.", node.pattern, re.DOTALL)
    wildcards = {"%": ".*", "_": "."}
    body = "".join(_quoted(part[1]) if len(part) == 2 else wildcards.get(part) or _quoted(part) for part in parts)
    return LikeTest(field.field_id, f"(?s)\\A(?:{body})\\z", node.negated)


def _quoted(character: str) -> str:
    """Quote a character for RE2, which takes no backslash before letters outside of ASCII."""
    return re.escape(character) if character.isascii() and character != "\0" else f"\\x{{{ord(character):x}}}"


def _like_mask(test: LikeTest, values: pa.Array | pa.ChunkedArray) -> Flags:
    try:
        text = values.cast(pa.large_string())
        text.validate(full=True)
    except pa.ArrowNotImplementedError as error:
        raise UnsupportedError(f"field {test.field_id}: what a data file holds is no text: {error}") from error
    except pa.ArrowInvalid as error:
        raise UnsupportedError(
            f"LIKE cannot be evaluated without Spark: field {test.field_id} has text that is not UTF-8"
        ) from error
    found = pc.match_substring_regex(text, test.pattern)
    return _as_mask(pc.invert(found) if test.negated else found)


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
        return _as_mask(pc.is_in(keys, pa.array(test.keys, pa.large_binary())))
    inside = np.ones(column.row_count, np.bool_)
    if test.low is not None:
        compare = pc.greater_equal if test.low_inclusive else pc.greater
        inside &= _as_mask(compare(keys, pa.scalar(test.low, pa.large_binary())))
    if test.high is not None:
        compare = pc.less_equal if test.high_inclusive else pc.less
        inside &= _as_mask(compare(keys, pa.scalar(test.high, pa.large_binary())))
    return inside


def _as_mask(flags: pa.Array | pa.ChunkedArray) -> Flags:
    """Flags with NULL as false."""
    return np.asarray(pc.fill_null(flags, False).to_numpy(zero_copy_only=False), np.bool_)
