"""PyIceberg expressions of `planner.where.parser` evaluated on a row; what they leave open stays open."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    Or,
    Reference,
    StartsWith,
    UnboundPredicate,
)

from planner.where.unknown import Unknown, ValueTest
from tests.oracle import Operator, Row, compare

_COMPARISONS: dict[type[BooleanExpression], Operator] = {
    EqualTo: "=",
    NotEqualTo: "<>",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
}


def selects(expression: BooleanExpression, row: Row) -> bool | None:
    """Return whether an expression selects a row; None if it does not say."""
    match expression:
        case AlwaysTrue() | AlwaysFalse():
            return isinstance(expression, AlwaysTrue)
        case And() | Or():
            sides = [selects(expression.left, row), selects(expression.right, row)]
            decisive = isinstance(expression, Or)
            return decisive if decisive in sides else None if None in sides else not decisive
        case ValueTest(function=None, operator="LIKE"):
            value = row[expression.column]
            return value is not None and _matches(expression, value) is not expression.negated
        case Unknown():
            return None
        case UnboundPredicate(term=Reference() as column):
            return _leaf_selects(expression, row[column.name])
        case _:
            raise AssertionError(f"{expression!r} is no expression of the parser's")


def _leaf_selects(leaf: BooleanExpression, value: Any) -> bool:
    if value is None or isinstance(leaf, IsNull | NotNull):
        return isinstance(leaf, IsNull) is (value is None)
    match leaf:
        case IsNaN() | NotNaN():
            return (value != value) is isinstance(leaf, IsNaN)
        case In() | NotIn():
            inside = any(_compare(value, "=", literal.value) for literal in leaf.literals)
            return inside is isinstance(leaf, In)
        case StartsWith() | NotStartsWith():
            return value.startswith(leaf.literal.value) is isinstance(leaf, StartsWith)
        case EqualTo() | NotEqualTo() | LessThan() | LessThanOrEqual() | GreaterThan() | GreaterThanOrEqual():
            return _compare(value, _COMPARISONS[type(leaf)], leaf.literal.value)
        case _:
            raise AssertionError(f"{leaf!r} is no leaf of the parser's")


def _compare(value: Any, operator: Operator, literal: Any) -> bool:
    left, right = _scaled(value), literal
    if isinstance(left, float) or isinstance(right, float):
        # Spark compares as doubles where either side is one.
        left, right = float(left), float(right)
    return compare(left, operator, right) is True


def _scaled(value: Any) -> Any:
    """Put dates and timestamps on the scale of Iceberg's literals."""
    match value:
        case datetime():
            epoch = datetime(1970, 1, 1, tzinfo=UTC if value.tzinfo else None)
            return (value - epoch) // timedelta(microseconds=1)
        case date():
            return (value - date(1970, 1, 1)).days
        case _:
            return value


def _matches(like: ValueTest, value: str) -> bool:
    escape = re.escape(like.escape)
    parts = re.findall(rf"{escape}.|.", str(like.literals[0]), re.DOTALL)
    wildcards = {"%": ".*", "_": "."}
    pattern = "".join(re.escape(part[1]) if len(part) == 2 else wildcards.get(part, re.escape(part)) for part in parts)
    return re.fullmatch(pattern, value, re.DOTALL) is not None
