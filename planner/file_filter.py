"""What of a predicate PyIceberg may prune data files by: only leaves whose literals it binds without rounding.

PyIceberg rounds a literal to the type of its column (`i > 1.5` becomes `i > 2` for ints), which would lose files. A
leaf that it cannot take exactly is left out: all its rows, an upper bound.
"""

from __future__ import annotations

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    IsNaN,
    IsNull,
    LiteralPredicate,
    NotNaN,
    NotNull,
    Or,
    Reference,
    SetPredicate,
    UnboundPredicate,
)
from pyiceberg.expressions.literals import BooleanLiteral, DateLiteral, LongLiteral, StringLiteral
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, DateType, IcebergType, IntegerType, LongType, StringType

from planner.found_column import find_column
from puffin_index.map_key import MapKey

_EXACT: dict[type[IcebergType], type] = {
    BooleanType: BooleanLiteral,
    DateType: DateLiteral,
    IntegerType: LongLiteral,
    LongType: LongLiteral,
    StringType: StringLiteral,
}


def file_filter(expression: BooleanExpression, schema: Schema) -> BooleanExpression:
    """Weaken an expression without NOT (as `planner.parser` gives it) to what PyIceberg can take exactly."""
    match expression:
        case And():
            return And(file_filter(expression.left, schema), file_filter(expression.right, schema))
        case Or():
            return Or(file_filter(expression.left, schema), file_filter(expression.right, schema))
        case AlwaysTrue() | AlwaysFalse():
            return expression
        case UnboundPredicate() if _is_exact(expression, schema):
            return expression
        case _:
            return AlwaysTrue()


def _is_exact(leaf: UnboundPredicate, schema: Schema) -> bool:
    if not isinstance(leaf.term, Reference):
        return False
    found = find_column(schema, leaf.term)
    if found is None or isinstance(found.column, MapKey):
        return False
    field_type = found.type
    match leaf:
        case IsNull() | NotNull():
            return field_type.is_primitive
        case IsNaN() | NotNaN():
            return False
        case LiteralPredicate():
            literals = [leaf.literal]
        case SetPredicate():
            literals = list(leaf.literals)
        case _:
            return False
    exact = _EXACT.get(type(field_type))
    return exact is not None and all(isinstance(literal, exact) for literal in literals)
