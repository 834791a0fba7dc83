"""A second opinion on which rows satisfy a query: filters and conditions tested on values, without the planner's code.

Nothing here binds a predicate or makes keys: Arrow compares values, and SQL's three-valued logic joins the results. A
row counts only if it satisfies the query for certain; what is not understood here is true for no row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    BoundEqualTo,
    BoundGreaterThan,
    BoundGreaterThanOrEqual,
    BoundIn,
    BoundIsNaN,
    BoundIsNull,
    BoundLessThan,
    BoundLessThanOrEqual,
    BoundLiteralPredicate,
    BoundNotEqualTo,
    BoundNotIn,
    BoundNotNaN,
    BoundNotNull,
    BoundNotStartsWith,
    BoundPredicate,
    BoundStartsWith,
    Not,
    Or,
    UnboundPredicate,
)
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, DoubleType, FixedType, FloatType, IcebergType, UUIDType

from planner.condition.iceberg_filters import read_filter
from planner.condition.rows import ReadColumn, values_of
from planner.condition.spark import nodes
from planner.condition.spark.read import found_column, spark_type
from puffin_index.keys.map_key import ColumnId
from puffin_index.storage.arrays import Flags

Scalar: TypeAlias = bool | int | float | Decimal | bytes
"""A literal, as values of its column are compared: days and microseconds as integers, text as bytes."""

_OPERATORS = {
    BoundEqualTo: "=",
    BoundLessThan: "<",
    BoundLessThanOrEqual: "<=",
    BoundGreaterThan: ">",
    BoundGreaterThanOrEqual: ">=",
    BoundStartsWith: "starts with",
}
_OPPOSITES = {BoundNotEqualTo: "=", BoundNotStartsWith: "starts with"}
_TURNED = {"=": "=", "<=>": "<=>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class _NotUnderstoodError(Exception):
    """Say that a part is not understood here."""


@dataclass(frozen=True, slots=True)
class _Truth:
    """What is certain of each row: that a part is true, or that it is false. NULL is neither."""

    true: Flags
    false: Flags

    def __invert__(self) -> _Truth:
        return _Truth(self.false, self.true)


@dataclass(frozen=True, slots=True)
class DirectTest:
    """Filters and conditions that all hold together.

    Attributes:
        filters: Filters as Iceberg's JSON.
        conditions: Conditions of Spark's.
        schema: The schema that has their columns.
    """

    filters: Sequence[str]
    conditions: Sequence[nodes.ConditionNode]
    schema: Schema

    def certain(self, read_column: ReadColumn, row_count: int) -> Flags:
        """Say which rows certainly satisfy them all.

        Args:
            read_column: Gives the columns.
            row_count: The number of rows.
        """
        rows = _Rows(self.schema, read_column, row_count)
        found = np.ones(row_count, np.bool_)
        for text in self.filters:
            found &= rows.of_filter(text).true
        for node in self.conditions:
            found &= rows.of_node(node).true
        return found


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a row group.

    Attributes:
        schema: The schema that has the columns.
        read_column: Gives the columns.
        row_count: The number of rows.
    """

    schema: Schema
    read_column: ReadColumn
    row_count: int

    def of_filter(self, text: str) -> _Truth:
        """A filter of Iceberg's."""
        try:
            return self._expression(read_filter(text))
        except (RecursionError, ValueError):
            return self._nothing()

    def of_node(self, node: nodes.Node) -> _Truth:
        """A condition of Spark's."""
        try:
            return self._node(node)
        except (_NotUnderstoodError, ValueError, TypeError, ArithmeticError, pa.ArrowException):
            return self._nothing()

    def _nothing(self) -> _Truth:
        return _Truth(np.zeros(self.row_count, np.bool_), np.zeros(self.row_count, np.bool_))

    def _constant(self, value: bool) -> _Truth:
        every = np.ones(self.row_count, np.bool_)
        return _Truth(every, ~every) if value else _Truth(~every, every)

    def _expression(self, node: BooleanExpression) -> _Truth:
        match node:
            case And():
                return _joined([self._expression(node.left), self._expression(node.right)], is_and=True)
            case Or():
                return _joined([self._expression(node.left), self._expression(node.right)], is_and=False)
            case Not():
                return ~self._expression(node.child)
            case AlwaysTrue() | AlwaysFalse():
                return self._constant(isinstance(node, AlwaysTrue))
            case UnboundPredicate():
                return self._unbound_leaf(node)
            case _:
                return self._nothing()

    def _unbound_leaf(self, leaf: UnboundPredicate) -> _Truth:
        try:
            bound = leaf.bind(self.schema, case_sensitive=True)
            # PyIceberg knows a constant where a literal is out of range, by other rules for NaN than Spark's.
            return self._leaf(bound) if isinstance(bound, BoundPredicate) else self._nothing()
        except (_NotUnderstoodError, ValueError, TypeError, ArithmeticError, pa.ArrowException):
            return self._nothing()

    def _leaf(self, bound: BoundPredicate) -> _Truth:
        field = bound.term.ref().field
        if isinstance(field.field_type, BinaryType | FixedType | UUIDType):
            # Iceberg's JSON has bytes as text, which PyIceberg takes for the bytes; Spark compares UUIDs as text.
            return self._nothing()
        values = self._values(field.field_id, field.field_type)
        match bound:
            case BoundIsNull() | BoundNotNull():
                is_null = _Truth(values.null, ~values.null)
                return is_null if isinstance(bound, BoundIsNull) else ~is_null
            case BoundIsNaN() | BoundNotNaN():
                return values.nan if isinstance(bound, BoundIsNaN) else ~values.nan
            case BoundIn() | BoundNotIn():
                found = [values.test("=", _scalar(one.value, field.field_type)) for one in bound.literals]
                among = _joined(found, is_and=False)
                return among if isinstance(bound, BoundIn) else ~among
            case BoundLiteralPredicate():
                literal = _scalar(bound.literal.value, field.field_type)
                opposite = _OPPOSITES.get(type(bound))
                # Of NULL, Iceberg says that it is not equal, and Spark does not: nothing is certain of NULL here.
                return (
                    values.test(_OPERATORS[type(bound)], literal)
                    if opposite is None
                    else ~values.test(opposite, literal)
                )
            case _:
                return self._nothing()

    def _node(self, node: nodes.Node) -> _Truth:
        match node:
            case nodes.Junction(node=kind, parts=parts):
                return _joined([self.of_node(part) for part in parts], is_and=kind == "and")
            case nodes.Negation(part=part):
                return ~self.of_node(part)
            case nodes.Boolean(content=content):
                return self._constant(content)
            case nodes.Column():
                return self._column(node).test("=", True)
            case nodes.Test(node="is-nan", value=nodes.Column() as tested):
                return self._column(tested).nan
            case nodes.Test(node=kind, value=nodes.Column() as tested):
                null = self._column(tested).null
                return _Truth(null, ~null) if kind == "is-null" else _Truth(~null, null)
            case nodes.Membership(value=nodes.Column() as tested, members=members):
                return self._membership(self._column(tested), members)
            case nodes.Comparison(
                left=nodes.Column() as tested, operator=operator, right=nodes.LiteralNode() as literal
            ):
                return self._comparison(self._column(tested), operator, literal)
            case nodes.Comparison(
                left=nodes.LiteralNode() as literal, operator=operator, right=nodes.Column() as tested
            ):
                if operator not in _TURNED:
                    return self._nothing()
                return self._comparison(self._column(tested), _TURNED[operator], literal)
            case _:
                return self._nothing()

    def _comparison(self, values: _Values, operator: str, literal: nodes.LiteralNode) -> _Truth:
        if isinstance(literal, nodes.Null):
            return _Truth(values.null, ~values.null) if operator == "<=>" else self._nothing()
        if operator != "<=>":
            return values.test(operator, _node_scalar(literal))
        equal = values.test("=", _node_scalar(literal)).true
        return _Truth(equal, ~equal)

    def _membership(self, values: _Values, members: Iterable[nodes.LiteralNode]) -> _Truth:
        found = [
            self._nothing() if isinstance(one, nodes.Null) else values.test("=", _node_scalar(one)) for one in members
        ]
        return _joined(found, is_and=False) if found else self._nothing()

    def _column(self, node: nodes.Column) -> _Values:
        found = found_column(node, self.schema)
        if found is None or isinstance(found.type, UUIDType) or spark_type(found.type) != node.type:
            raise _NotUnderstoodError
        return self._values(found.column, found.type)

    def _values(self, column: ColumnId, column_type: IcebergType) -> _Values:
        array = values_of(column, self.read_column)
        array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
        if isinstance(array, pa.ChunkedArray):
            array = pa.concat_arrays(array.chunks)
        if len(array) != self.row_count and len(array) == 1:
            array = array.take(pa.array(np.zeros(self.row_count, np.int64)))
        if len(array) != self.row_count:
            raise _NotUnderstoodError
        return _Values.of(array, column_type)


@dataclass(frozen=True, slots=True, eq=False)
class _Values:
    """The values of a column, one for each row.

    Attributes:
        array: The values as they are compared; floating-point numbers as doubles.
        null: Which are NULL.
    """

    array: pa.Array
    null: Flags

    @classmethod
    def of(cls, array: pa.Array, column_type: IcebergType) -> _Values:
        """Make values comparable with literals of a type."""
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        if isinstance(array, pa.DictionaryArray):
            array = array.dictionary_decode()
        null = np.asarray(array.is_null().to_numpy(zero_copy_only=False), np.bool_)
        return cls(_comparable(array, column_type), null)

    @property
    def nan(self) -> _Truth:
        """Which values are NaN; NULL is none."""
        if not pa.types.is_floating(self.array.type) and not self.null.all():
            raise _NotUnderstoodError
        is_nan = np.zeros(len(self.null), np.bool_) if self.null.all() else np.isnan(self._doubles()) & ~self.null
        return _Truth(is_nan, ~is_nan)

    def test(self, operator: str, literal: Scalar) -> _Truth:
        """Compare the values with a literal."""
        found = self._found(operator, literal)
        return _Truth(found & ~self.null, ~found & ~self.null)

    def _found(self, operator: str, literal: Scalar) -> Flags:
        if self.null.all():
            return np.zeros(len(self.null), np.bool_)
        if pa.types.is_floating(self.array.type):
            return self._compared_doubles(operator, float(literal))
        scalar = self._scalar(literal)
        if operator == "starts with":
            if not pa.types.is_large_binary(self.array.type) or not isinstance(literal, bytes):
                raise _NotUnderstoodError
            return _flags(pc.equal(pc.binary_slice(self.array, 0, len(literal)), scalar))
        compare = {"=": pc.equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}
        return _flags(compare[operator](self.array, scalar))

    def _scalar(self, literal: Scalar) -> pa.Scalar:
        stored = self.array.type
        if isinstance(literal, bool) != pa.types.is_boolean(stored):
            raise _NotUnderstoodError
        if isinstance(literal, Decimal) != pa.types.is_decimal(stored):
            raise _NotUnderstoodError
        if isinstance(literal, Decimal):
            # The column may have been widened, which leaves its scale.
            return pa.scalar(literal, pa.decimal128(38, stored.scale))
        return pa.scalar(literal, stored)

    def _doubles(self) -> npt.NDArray[np.float64]:
        return np.asarray(pc.fill_null(self.array, 0.0).to_numpy(zero_copy_only=False), np.float64)

    def _compared_doubles(self, operator: str, literal: float) -> Flags:
        """Compare as Spark does: NaN is equal to NaN and greater than all other numbers."""
        values = self._doubles()
        is_nan, other_is_nan = np.isnan(values), np.isnan(literal)
        equal = is_nan if other_is_nan else values == literal
        less = ~is_nan if other_is_nan else values < literal
        match operator:
            case "=":
                return equal
            case "<":
                return less
            case "<=":
                return less | equal
            case ">":
                return ~(less | equal)
            case ">=":
                return ~less
            case _:
                raise _NotUnderstoodError


def _comparable(array: pa.Array, column_type: IcebergType) -> pa.Array:
    stored, is_any = array.type, pa.types
    if is_any.is_timestamp(stored):
        if str(column_type).endswith("_ns"):
            raise _NotUnderstoodError
        return array.cast(pa.timestamp("us", stored.tz)).cast(pa.int64())
    if is_any.is_date(stored):
        return array.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
    if is_any.is_decimal(stored):
        return array.cast(pa.decimal128(38, stored.scale))
    for belongs, wide in (
        (is_any.is_null, pa.int64()),
        (is_any.is_boolean, pa.bool_()),
        (is_any.is_integer, pa.int64()),
        (is_any.is_floating, pa.float64()),
        (is_any.is_string, pa.large_binary()),
        (is_any.is_large_string, pa.large_binary()),
        (is_any.is_binary, pa.large_binary()),
        (is_any.is_large_binary, pa.large_binary()),
        (is_any.is_fixed_size_binary, pa.large_binary()),
    ):
        if belongs(stored):
            return array.cast(wide)
    raise _NotUnderstoodError


def _flags(found: pa.Array) -> Flags:
    return np.asarray(pc.fill_null(found, False).to_numpy(zero_copy_only=False), np.bool_)


def _joined(parts: Sequence[_Truth], *, is_and: bool) -> _Truth:
    true = np.logical_and.reduce if is_and else np.logical_or.reduce
    false = np.logical_or.reduce if is_and else np.logical_and.reduce
    return _Truth(true([part.true for part in parts]), false([part.false for part in parts]))


def _scalar(value: object, column_type: IcebergType) -> Scalar:
    """A literal of PyIceberg's."""
    match value:
        case float() if isinstance(column_type, FloatType):
            return float(np.float32(value))
        case int() if isinstance(column_type, FloatType | DoubleType):
            return float(value)
        case str():
            return value.encode()
        case bool() | int() | float() | Decimal() | bytes():
            return value
        case _:
            raise _NotUnderstoodError


def _node_scalar(node: nodes.LiteralNode) -> Scalar:
    """A literal of Spark's, of the column's own type."""
    match node:
        case nodes.Floating(number=number):
            return number
        case nodes.Boolean() | nodes.Integer() | nodes.DecimalNumber() | nodes.Bytes():
            return node.content
        case _:
            raise _NotUnderstoodError
