"""Predicates evaluated row by row in SQL's three-valued logic: plain and slow, written apart from the planner."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Row: TypeAlias = Mapping[str, Any]  # column -> Python value, None is NULL; values of one column compare with each other
Operator: TypeAlias = Literal["=", "<>", "<", "<=", ">", ">=", "<=>"]


class Beyond(int):
    """A whole number of more than 64 bits beside an integer column; Spark orders by it without looking at the value."""


@dataclass(frozen=True, slots=True)
class Compare:
    """`column operator value`; a value of None is the literal NULL."""

    column: str
    operator: Operator
    value: Any


@dataclass(frozen=True, slots=True)
class Among:
    """`column IN (values)`; a value of None is the literal NULL."""

    column: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Between:
    """`column BETWEEN low AND high`; a bound of None is the literal NULL."""

    column: str
    low: Any
    high: Any


@dataclass(frozen=True, slots=True)
class IsNull:
    column: str


@dataclass(frozen=True, slots=True)
class IsNan:
    """`isnan(column)`, false for NULL."""

    column: str


@dataclass(frozen=True, slots=True)
class Like:
    """`column LIKE pattern`, the pattern in pieces: text, `%` (None) or `_` (the ellipsis)."""

    column: str
    pieces: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Contains:
    """`arrays_overlap(column, array(values))`, or `array_contains` for a single value; no value is NULL."""

    column: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class IsEmpty:
    """`size(column) = 0`."""

    column: str


@dataclass(frozen=True, slots=True)
class Not:
    part: Predicate


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple[Predicate, ...]


Predicate: TypeAlias = Compare | Among | Between | IsNull | IsNan | Like | Contains | IsEmpty | Not | And | Or


def evaluate(predicate: Predicate, row: Row) -> bool | None:
    """Return whether the predicate is true for the row; None if it is NULL. Only True selects the row."""
    match predicate:
        case Compare(column, operator, value):
            return compare(row[column], operator, value)
        case Among(column, values):
            return _or([compare(row[column], "=", value) for value in values])
        case Between(column, low, high):
            return _and([compare(row[column], ">=", low), compare(row[column], "<=", high)])
        case IsNull(column):
            return row[column] is None
        case IsNan(column):
            return isinstance(row[column], float) and math.isnan(row[column])
        case Like(column, pieces):
            pattern = "".join(".*" if piece is None else "." if piece is ... else re.escape(piece) for piece in pieces)
            return None if row[column] is None else re.fullmatch(pattern, row[column], re.DOTALL) is not None
        case Contains(column) | IsEmpty(column):
            return None if row[column] is None else _of_contents(predicate, row[column])
        case Not(part):
            truth = evaluate(part, row)
            return None if truth is None else not truth
        case And(parts):
            return _and([evaluate(part, row) for part in parts])
        case Or(parts):
            return _or([evaluate(part, row) for part in parts])


def _of_contents(predicate: Contains | IsEmpty, values: list[Any]) -> bool | None:
    if isinstance(predicate, IsEmpty):
        return not values
    return _or([compare(own, "=", value) for own in values for value in predicate.values])


def compare(left: Any, operator: Operator, right: Any) -> bool | None:
    """Compare two values as Spark does: NULL with anything is NULL, NaN equals itself and is the greatest."""
    if isinstance(right, Beyond) and operator in ("<", "<=", ">", ">="):
        return operator.startswith("<") is (right > 0)
    if left is None or right is None:
        return (left is right) if operator == "<=>" else None
    nans = [isinstance(side, float) and math.isnan(side) for side in (left, right)]
    less = not nans[0] if nans[1] else not nans[0] and left < right
    equal = all(nans) or (not any(nans) and left == right)
    holds = {"=": equal, "<=>": equal, "<>": not equal, "<": less, ">=": not less}
    holds |= {"<=": less or equal, ">": not (less or equal)}
    return holds[operator]


def _and(truths: list[bool | None]) -> bool | None:
    return False if False in truths else None if None in truths else True


def _or(truths: list[bool | None]) -> bool | None:
    return True if True in truths else None if None in truths else False
