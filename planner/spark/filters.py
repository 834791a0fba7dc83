"""Turn the filters that Spark pushes into Python data sources into PyIceberg's expressions."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

from pyiceberg.expressions import (
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    LiteralPredicate,
    NotEqualTo,
    NotNull,
    Or,
    Reference,
    StartsWith,
)
from pyiceberg.expressions.literals import Literal, literal
from pyiceberg.schema import Schema
from pyiceberg.types import TimestamptzType
from pyspark.sql import datasource as spark

from planner.scans.residual import compile_residual
from puffin_index.errors import NotFoundError, UnsupportedError

_VALUES = (bool, int, float, str, bytes, Decimal, date)

_COMPARISONS: dict[type[spark.Filter], type[LiteralPredicate]] = {
    spark.EqualTo: EqualTo,
    spark.EqualNullSafe: EqualTo,
    spark.GreaterThan: GreaterThan,
    spark.GreaterThanOrEqual: GreaterThanOrEqual,
    spark.LessThan: LessThan,
    spark.LessThanOrEqual: LessThanOrEqual,
    spark.StringStartsWith: StartsWith,
}


def expression_of(pushed: spark.Filter, schema: Schema) -> BooleanExpression | None:
    """Turn a filter into an expression that is true for the same rows; None if that is not certain.

    Args:
        pushed: The filter, with column names spelled as in the schema.
        schema: The schema that is scanned.
    """
    try:
        expression = _expression(pushed, schema)
        if expression is not None:
            compile_residual(expression, schema)
    except (NotFoundError, UnsupportedError, TypeError, ValueError):
        return None
    return expression


def _expression(pushed: spark.Filter, schema: Schema) -> BooleanExpression | None:
    match pushed:
        case spark.Not(child=spark.EqualNullSafe(attribute=path, value=value)):
            # NULL satisfies this negation and no other.
            term = _term(path)
            return Or(IsNull(term=term), NotEqualTo(term=term, value=_literal(value, term, schema)))
        case spark.Not(child=child):
            expression = _expression(child, schema)
            return None if expression is None else ~expression
        case spark.IsNull(attribute=path):
            return IsNull(term=_term(path))
        case spark.IsNotNull(attribute=path):
            return NotNull(term=_term(path))
        case spark.In(attribute=path, value=values):
            term = _term(path)
            return In(term=term, values={_literal(value, term, schema) for value in values})
        case (
            spark.EqualTo(attribute=path, value=value)
            | spark.EqualNullSafe(attribute=path, value=value)
            | spark.GreaterThan(attribute=path, value=value)
            | spark.GreaterThanOrEqual(attribute=path, value=value)
            | spark.LessThan(attribute=path, value=value)
            | spark.LessThanOrEqual(attribute=path, value=value)
            | spark.StringStartsWith(attribute=path, value=value)
        ):
            term = _term(path)
            return _COMPARISONS[type(pushed)](term=term, value=_literal(value, term, schema))
        case _:
            return None


def _term(path: tuple[str, ...]) -> Reference:
    if any("." in part for part in path):
        raise UnsupportedError(f"column names with a dot: {path}")
    return Reference(name=".".join(path))


def _literal(value: object, term: Reference, schema: Schema) -> Literal[Any]:
    """Make a literal; refuse NULL, nested values, and timestamps with a zone beside a column without one."""
    if not isinstance(value, _VALUES):
        raise UnsupportedError(f"a literal of type {type(value).__name__}")
    if isinstance(value, str) and "\N{REPLACEMENT CHARACTER}" in value:
        raise UnsupportedError(
            "a text that may have lost bytes: Spark replaces bytes that are not UTF-8 by this character"
        )
    if isinstance(value, datetime):
        has_zone = isinstance(schema.find_field(term.name).field_type, TimestamptzType)
        if has_zone is not (value.tzinfo is not None):
            raise UnsupportedError("a timestamp with a zone beside one without")
    return literal(value)
