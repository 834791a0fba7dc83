"""Spark's nodes, read as a condition.

Columns and literals carry their types in Spark. A test is unknown if Spark would give the column's type in the schema
another type than the node carries.
"""

import math
from collections.abc import Callable
from typing import Final

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

from planner.condition.as_sql import name_text, quoted
from planner.condition.columns import FoundColumn, column_of_field
from planner.condition.comparisons import (
    Column,
    Constant,
    as_condition,
    compare,
    nan_test,
    null_test,
    one_of,
    prefix_test,
)
from planner.condition.literals import InstantLiteral, LocalTimestampLiteral, Utf8Literal
from planner.condition.spark import nodes
from planner.condition.tree.nodes import ByValue, EngineTest, Predicate, flattened
from planner.condition.truth import Truth, join, unknown
from puffin_index.errors import UnsupportedError
from puffin_index.keys.value_types import value_type_of

_INTEGERS: Final[dict[str, Callable[[int], LiteralValue]]] = {
    "int": LongLiteral,
    "long": LongLiteral,
    "date": DateLiteral,
    "timestamp": LocalTimestampLiteral,
    "timestamptz": InstantLiteral,
}


def read_node(node: nodes.ConditionNode, schema: Schema) -> Predicate:
    """Return the rows for which a condition is true."""
    return flattened(_condition(node, schema).yes)


def _condition(node: nodes.ConditionNode, schema: Schema) -> Truth:
    match node:
        case nodes.Junction(node=kind, parts=parts):
            return join([_condition(part, schema) for part in parts], conjunctive=kind == "and")
        case nodes.Negation(part=part):
            return ~_condition(part, schema)
        case nodes.Function():
            return _function(node, schema)
        case _:
            return _leaf(node, schema) or unknown(text_of(node))


def _function(node: nodes.Function, schema: Schema) -> Truth:
    """Make a condition of a function; its opposite is unknown, for NULL satisfies neither."""
    found, opposite = found_column(node.column, schema), unknown(f"NOT {node.name}")
    if found is None or found.value_type is None:
        return Truth(unknown(node.name).yes, opposite.no, opposite.null)
    leaf = ByValue(found.column, EngineTest(node.number), found.value_type.name, node.name)
    return Truth(leaf, opposite.no, opposite.null)


def _leaf(node: nodes.Node, schema: Schema) -> Truth | None:
    """Make a condition without parts; None if it is unknown."""
    match node:
        case nodes.Boolean(content=content):
            return as_condition(Constant(BooleanLiteral(content)), text_of(node))
        case nodes.Null():
            return as_condition(Constant(None), text_of(node))
        case nodes.Column():
            column = _find(node, schema)
            return None if column is None or node.type != "boolean" else as_condition(column, text_of(node))
        case nodes.Test(node=kind, value=nodes.Column() as tested):
            column = _find(tested, schema)
            return None if column is None else _test(column, kind, text_of(node))
        case nodes.Membership(value=nodes.Column() as tested, members=members):
            column = _find(tested, schema)
            every = [] if column is None else [_constant(member, column.found.type) for member in members]
            known = [constant for constant in every if constant is not None]
            return None if column is None or len(known) < len(every) else one_of(column, known, text_of(node))
        case nodes.Comparison():
            return _comparison(node, schema)
        case _:
            return None


def _test(column: Column, kind: str, text: str) -> Truth:
    match kind:
        case "is-null":
            return null_test(column, text)
        case "is-not-null":
            return ~null_test(column, text)
        case _:
            return nan_test(column, text)


def _comparison(node: nodes.Comparison, schema: Schema) -> Truth | None:
    match node.left, node.right:
        case nodes.Column() as tested, nodes.LiteralNode() as literal:
            column_first = True
        case nodes.LiteralNode() as literal, nodes.Column() as tested:
            column_first = False
        case _:
            return None
    column = _find(tested, schema)
    constant = None if column is None else _constant(literal, column.found.type)
    if column is None or constant is None:
        return None
    left, right = (column, constant) if column_first else (constant, column)
    if node.operator == "starts with":
        return prefix_test(left, right, text_of(node))
    return compare(left, node.operator, right, text_of(node))


def _find(node: nodes.Column, schema: Schema) -> Column | None:
    """Return a column; None if the schema has no such column of the node's type."""
    try:
        field = schema.find_field(node.field)
    except ValueError:
        return None
    key: LiteralValue | None = None
    if node.key is not None:
        constant = _constant(node.key, field.field_type.key_type) if isinstance(field.field_type, MapType) else None
        key = None if constant is None else constant.literal
        if key is None:
            return None
    found = column_of_field(field, name_text(node.path), key)
    return None if spark_type(found.type) != node.type else Column(found)


def found_column(node: nodes.Column, schema: Schema) -> FoundColumn | None:
    """Find the column of a node; None if no index could be of that, or the schema has another type."""
    column = _find(node, schema)
    return None if column is None or column.found.value_type is None else column.found


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


def text_of(node: nodes.Node) -> str:
    """A node without parts as text, for reports only."""
    match node:
        case nodes.Column(path=path, key=key):
            return name_text(path) + (f"[{text_of(key)}]" if key is not None else "")
        case nodes.Comparison(left=left, operator=operator, right=right):
            return f"{text_of(left)} {operator} {text_of(right)}"
        case nodes.Membership(value=value, members=members):
            return f"{text_of(value)} IN ({len(members)} literals)"
        case nodes.Test(node=kind, value=value):
            return f"{text_of(value)} {kind.replace('-', ' ').upper()}"
        case nodes.Bytes(type="string", content=content):
            return quoted(content.decode(errors="replace"))
        case nodes.Floating(number=number):
            return str(number)
        case nodes.Null():
            return "NULL"
        case nodes.Boolean(content=literal) | nodes.Integer(content=literal) | nodes.DecimalNumber(content=literal):
            return str(literal)
        case nodes.Unknown(name=name):
            return f"{name}(...)"
        case _:
            return node.__class__.__name__.lower()
