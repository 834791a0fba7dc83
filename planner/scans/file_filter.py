"""The part of a predicate that PyIceberg may prune data files by: leaves whose literals PyIceberg does not round.

PyIceberg rounds a literal to the type of its column (`i > 1.5` becomes `i > 2` for ints), which would lose files. A
leaf that PyIceberg would change is left out: all its rows, an upper bound.
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

from planner.predicate.found_column import find_column
from planner.predicate.junctions import fold_junctions
from planner.where.sql_literals import text_bytes
from puffin_index.keys.map_key import MapKey

_EXACT: dict[type[IcebergType], type] = {
    BooleanType: BooleanLiteral,
    DateType: DateLiteral,
    IntegerType: LongLiteral,
    LongType: LongLiteral,
    StringType: StringLiteral,
}


_MOST_PARTS = 1_000
"""PyIceberg takes some 50 microseconds to bind a leaf, and more time for each file."""


def file_filter(expression: BooleanExpression, schema: Schema) -> BooleanExpression:
    """Weaken an expression without NOT, from `planner.where.parser`, to leaves that PyIceberg takes exactly.

    PyIceberg reads the result by recursion, leaf by leaf. So parts that lie too deep are left out, and parts beyond the
    first thousand.
    """
    everything: BooleanExpression = AlwaysTrue()

    def join(parts: list[BooleanExpression], is_and: bool) -> BooleanExpression:
        if is_and:
            return And(*parts[:_MOST_PARTS])
        return Or(*parts) if len(parts) <= _MOST_PARTS else everything

    return fold_junctions(
        expression,
        leaf=lambda leaf, _: leaf if _is_kept(leaf, schema) else everything,
        join=join,
        too_deep=everything,
    )


def _is_kept(leaf: BooleanExpression, schema: Schema) -> bool:
    match leaf:
        case AlwaysTrue() | AlwaysFalse():
            return True
        case UnboundPredicate():
            return _is_exact(leaf, schema)
        case _:
            return False


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
    if exact is StringLiteral:
        return all(text_bytes(literal) is not None for literal in literals)
    return exact is not None and all(isinstance(literal, exact) for literal in literals)
