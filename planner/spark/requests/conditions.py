"""Turn the nodes of a filter of Spark's (see `condition_nodes` beside) into an expression of the SQL dialect.

Columns and literals carry their types in Spark. A test is unknown if Spark would give the column's type in the schema
another type than the node carries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.literals import (
    BinaryLiteral,
    BooleanLiteral,
    DateLiteral,
    DecimalLiteral,
    DoubleLiteral,
    FloatLiteral,
    LongLiteral,
    StringLiteral,
)
from pyiceberg.schema import Schema
from pyiceberg.typedef import LiteralValue
from pyiceberg.types import FixedType, IcebergType, MapType, UUIDType

from planner.predicate.found_column import FoundColumn, find_column
from planner.spark.requests import condition_nodes as nodes
from planner.where.conditions import Column, Constant, as_condition, compare, nan_test, null_test, one_of, prefix_test
from planner.where.sql_literals import InstantLiteral, LocalTimestampLiteral, Utf8Literal
from planner.where.terms import FieldTerm
from planner.where.truth import Condition, Truth, join, matching_rows, negate, unknown
from planner.where.unknown import Unknown, UnknownFunction
from puffin_index.errors import UnsupportedError
from puffin_index.keys.value_types import value_type_of

_INTEGERS: dict[str, Callable[[int], LiteralValue]] = {
    "int": LongLiteral,
    "long": LongLiteral,
    "date": DateLiteral,
    "timestamp": LocalTimestampLiteral,
    "timestamptz": InstantLiteral,
}


def expression_of(node: nodes.ConditionNode, schema: Schema) -> BooleanExpression:
    """Return an expression of the SQL dialect, without NOT, for the rows for which a condition is true.

    Args:
        node: The condition.
        schema: The schema that has the condition's columns.
    """
    return matching_rows(_condition(node, schema))


def _condition(node: nodes.ConditionNode, schema: Schema) -> Condition:
    match node:
        case nodes.Junction(node=kind, parts=parts):
            return join([_condition(part, schema) for part in parts], conjunctive=kind == "and")
        case nodes.Negation(part=part):
            return negate(_condition(part, schema))
        case nodes.Function(number=number, name=name):
            opposite = Unknown(text=f"NOT {name}")
            return Truth(UnknownFunction(text=name, number=number), opposite, opposite)
        case _:
            return _leaf(node, schema) or unknown(str(node))


def _leaf(node: nodes.Node, schema: Schema) -> Condition | None:
    """Make a condition without parts; None if it is unknown."""
    match node:
        case nodes.Boolean(content=content):
            return as_condition(Constant(BooleanLiteral(content)), str(node))
        case nodes.Null():
            return as_condition(Constant(None), str(node))
        case nodes.Column():
            found = _find(node, schema)
            return None if found is None or node.type != "boolean" else as_condition(found[0], str(node))
        case nodes.Test(node=kind, value=nodes.Column() as tested):
            found = _find(tested, schema)
            return None if found is None else _test(found[0], kind, str(node))
        case nodes.Membership(value=nodes.Column() as tested, members=members):
            return _membership(tested, members, schema, str(node))
        case nodes.Comparison():
            return _comparison(node, schema)
        case _:
            return None


def _test(column: Column, kind: str, text: str) -> Condition:
    match kind:
        case "is-null":
            return null_test(column, text)
        case "is-not-null":
            return negate(null_test(column, text))
        case _:
            return nan_test(column, text)


def _membership(
    tested: nodes.Column, members: Sequence[nodes.LiteralNode], schema: Schema, text: str
) -> Condition | None:
    found = _find(tested, schema)
    if found is None:
        return None
    column, column_type = found
    constants = [_constant(member, column_type) for member in members]
    known = [constant for constant in constants if constant is not None]
    return one_of(column, known, text) if len(known) == len(constants) else None


def _comparison(node: nodes.Comparison, schema: Schema) -> Condition | None:
    match node.left, node.right:
        case nodes.Column() as tested, nodes.LiteralNode() as literal:
            column_first = True
        case nodes.LiteralNode() as literal, nodes.Column() as tested:
            column_first = False
        case _:
            return None
    found = _find(tested, schema)
    constant = None if found is None else _constant(literal, found[1])
    if found is None or constant is None:
        return None
    left, right = (found[0], constant) if column_first else (constant, found[0])
    if node.operator == "starts with":
        return prefix_test(left, right, str(node))
    return compare(left, node.operator, right, str(node))


def _find(node: nodes.Column, schema: Schema) -> tuple[Column, IcebergType] | None:
    """Return a column and its type; None if the schema has no such column of the node's type."""
    try:
        field_type = schema.find_type(node.field)
    except ValueError:
        return None
    key: LiteralValue | None = None
    if node.key is not None:
        if not isinstance(field_type, MapType):
            return None
        constant = _constant(node.key, field_type.key_type)
        field_type, key = field_type.value_type, None if constant is None else constant.literal
        if key is None:
            return None
    if spark_type(field_type) != node.type:
        return None
    return Column(FieldTerm(node.field, key)), field_type


def found_column(node: nodes.Column, schema: Schema) -> FoundColumn | None:
    """Find the column of a node; None if no index could be of that, or the schema has another type."""
    found = _find(node, schema)
    column = None if found is None else find_column(schema, found[0].term)
    return None if column is None or column.value_type is None else column


def spark_type(field_type: IcebergType) -> str | None:
    """Return the type that Spark has for a type of Iceberg's, by Iceberg's name; None if no index can be of it."""
    match field_type:
        case UUIDType():
            return "string"
        case FixedType():
            return "binary"
    try:
        return value_type_of(field_type).name
    except UnsupportedError:
        return None


def _constant(node: nodes.LiteralNode, column_type: IcebergType) -> Constant | None:
    """Make a literal to compare a column with; None for NaN and for another type than the column's."""
    literal: LiteralValue | None = None
    match node:
        case nodes.Null(type=type_name):
            pass
        case nodes.Boolean(type=type_name, content=flag):
            literal = BooleanLiteral(flag)
        case nodes.Integer(type=type_name, content=integer):
            literal = _INTEGERS[type_name](integer)
        case nodes.Floating(type=type_name, number=number) if not math.isnan(number):
            literal = FloatLiteral(number) if type_name == "float" else DoubleLiteral(number)
        case nodes.DecimalNumber(type=type_name, content=number):
            literal = DecimalLiteral(number)
        case nodes.Bytes(type="binary" as type_name, content=content):
            literal = BinaryLiteral(content)
        case nodes.Bytes(type=type_name, content=content):
            literal = Utf8Literal(content)
        case _:
            return None
    if type_name != spark_type(column_type):
        return None
    if isinstance(column_type, UUIDType) and isinstance(literal, Utf8Literal):
        return _uuid_text(literal.value)
    return Constant(literal)


def _uuid_text(text: bytes) -> Constant | None:
    try:
        return Constant(StringLiteral(text.decode()))
    except UnicodeDecodeError:
        return None
