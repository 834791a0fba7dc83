"""Leaves of expressions as SQL text, for people only."""

from __future__ import annotations

from typing import Final

import numpy as np
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    LiteralPredicate,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    Reference,
    SetPredicate,
    StartsWith,
    UnboundPredicate,
)
from pyiceberg.expressions.literals import (
    BinaryLiteral,
    BooleanLiteral,
    DateLiteral,
    FloatLiteral,
    StringLiteral,
    TimeLiteral,
)
from pyiceberg.typedef import LiteralValue

from planner.where.sql_literals import InstantLiteral, LocalTimestampLiteral, SessionTimestampLiteral, Utf8Literal
from planner.where.terms import MapElement
from planner.where.unknown import Unknown

_FORMS: Final[dict[type[BooleanExpression], str]] = {
    EqualTo: "{} = {}",
    NotEqualTo: "{} <> {}",
    LessThan: "{} < {}",
    LessThanOrEqual: "{} <= {}",
    GreaterThan: "{} > {}",
    GreaterThanOrEqual: "{} >= {}",
    StartsWith: "startswith({}, {})",
    NotStartsWith: "NOT startswith({}, {})",
    In: "{} IN ({})",
    NotIn: "{} NOT IN ({})",
    IsNull: "{} IS NULL",
    NotNull: "{} IS NOT NULL",
    IsNaN: "isnan({})",
    NotNaN: "NOT isnan({})",
}
_TIMESTAMPS: Final[dict[type[LiteralValue], str]] = {
    LocalTimestampLiteral: "TIMESTAMP_NTZ '{}'",
    SessionTimestampLiteral: "TIMESTAMP '{}'",
    InstantLiteral: "TIMESTAMP '{}Z'",
}
_MOST_MEMBERS: Final = 50


def leaf_text(leaf: BooleanExpression) -> str:
    """Return the SQL of a leaf; what was written, where only that is known. Long lists are cut short."""
    match leaf:
        case AlwaysTrue():
            return "TRUE"
        case AlwaysFalse():
            return "FALSE"
        case Unknown():
            return leaf.text
        case LiteralPredicate():
            return _FORMS[type(leaf)].format(_term(leaf), literal_text(leaf.literal))
        case SetPredicate():
            members = sorted(map(literal_text, leaf.literals))
            more = f", ... {len(members) - _MOST_MEMBERS} more" if len(members) > _MOST_MEMBERS else ""
            return _FORMS[type(leaf)].format(_term(leaf), ", ".join(members[:_MOST_MEMBERS]) + more)
        case UnboundPredicate() if type(leaf) in _FORMS:
            return _FORMS[type(leaf)].format(_term(leaf))
        case _:
            return str(leaf)


def _term(leaf: UnboundPredicate) -> str:
    match leaf.term:
        case Reference(name=name):
            return name
        case MapElement(name, key):
            return f"{name}[{literal_text(key)}]"
        case term:
            return str(term)


def literal_text(literal: LiteralValue) -> str:
    """Return a literal as SQL writes it."""
    value = literal.value
    match literal:
        case StringLiteral():
            return "'{}'".format(value.replace("\\", "\\\\").replace("'", "\\'"))
        case Utf8Literal():
            return f"'{value.decode(errors='replace')}'"
        case BinaryLiteral():
            return f"X'{value.hex()}'"
        case BooleanLiteral():
            return str(value).upper()
        case DateLiteral():
            return f"DATE '{np.datetime64(value, 'D')}'"
        case FloatLiteral():
            return f"{value}F"
        case TimeLiteral():
            return f"TIME '{str(np.datetime64(value, 'us')).partition('T')[2]}'"
        case LocalTimestampLiteral() | InstantLiteral() | SessionTimestampLiteral():
            written = str(np.datetime64(value, "us")).replace("T", " ").removesuffix(".000000")
            return _TIMESTAMPS[type(literal)].format(written)
        case _:
            return str(value)
