"""SQL predicates as conditions: comparisons, IN, BETWEEN, LIKE and the IS tests over columns and literals.

A predicate becomes a `ValueTest` where PyIceberg's leaves can't say what Spark means but the values of one column
decide, and `unknown` where they don't.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias, assert_never, get_args

from pyiceberg.expressions import (
    And,
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
    Or,
    Reference,
    StartsWith,
)
from pyiceberg.expressions.literals import BooleanLiteral, DecimalLiteral, Literal, LongLiteral, StringLiteral
from pyiceberg.typedef import LiteralValue

from planner.where.patterns import rlike_regex, split_like
from planner.where.sql_literals import MAX_DECIMAL_DIGITS, TextLiteral, Utf8Literal, text_bytes
from planner.where.terms import FieldTerm, MapElement
from planner.where.truth import (
    ALWAYS_FALSE,
    ALWAYS_NULL,
    ALWAYS_TRUE,
    NO_ROW,
    Condition,
    Junction,
    Negation,
    Truth,
    join,
    unknown,
)
from planner.where.unknown import NumberFunction, TextFunction, Unknown, ValueOperator, ValueTest


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or what a map column holds for a key, as PyIceberg's expressions have it."""

    term: Reference | MapElement | FieldTerm


@dataclass(frozen=True, slots=True)
class Applied:
    """A function of a column, NULL exactly where the column is NULL."""

    function: TextFunction | NumberFunction
    column: Column


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal; None is NULL."""

    literal: LiteralValue | None


@dataclass(frozen=True, slots=True)
class Computed:
    """Anything the planner does not evaluate: arithmetic, other functions, elements of arrays and maps."""


Value: TypeAlias = Column | Applied | Constant | Computed | Truth | Junction | Negation

_NULL = Constant(None)


def _test(leaf: type[LiteralPredicate], column: Column, literal: LiteralValue) -> LiteralPredicate:
    return leaf(term=column.term, value=literal)


def _null(column: Column) -> IsNull:
    return IsNull(term=column.term)


def _value_test(
    value: Column | Applied, operator: ValueOperator, literals: Sequence[LiteralValue], text: str, escape: str = "\\"
) -> Truth:
    """Make a test of a column's values; unknown where Spark would convert a literal first."""
    function, column = (value.function, value.column) if isinstance(value, Applied) else (None, value)
    plain = [_plain_literal(literal, takes_text=function not in get_args(NumberFunction)) for literal in literals]
    known = tuple(literal for literal in plain if literal is not None)
    if len(known) < len(plain):
        return unknown(text)

    def leaf(operator: ValueOperator, literals: tuple[str | int, ...]) -> ValueTest:
        return ValueTest(
            text=text, term=column.term, function=function, operator=operator, literals=literals, escape=escape
        )

    yes = leaf(operator, known)
    if operator == "IS NULL":
        return Truth(yes, ~yes, NO_ROW)
    # Of a column of another type the function may be NULL where the column is not, so the leaf names the function.
    null = leaf("IS NULL", ()) if isinstance(value, Applied) else _null(column)
    return Truth(yes, ~yes, null)


def _plain_literal(literal: LiteralValue, *, takes_text: bool) -> str | int | None:
    match literal:
        case StringLiteral() if takes_text and text_bytes(literal) is not None:
            return str(literal.value)
        case LongLiteral() if not takes_text:
            return int(literal.value)
        case _:
            return None


def _not_null(column: Column) -> NotNull:
    return NotNull(term=column.term)


def as_condition(value: Value, text: str) -> Condition | None:
    """Read a value as a condition; None for a literal that is neither true, false nor NULL."""
    match value:
        case Column():
            return Truth(
                _test(EqualTo, value, BooleanLiteral(True)), _test(EqualTo, value, BooleanLiteral(False)), _null(value)
            )
        case Constant(None):
            return ALWAYS_NULL
        case Constant(BooleanLiteral() as literal):
            return ALWAYS_TRUE if literal.value else ALWAYS_FALSE
        case Constant():
            return None
        case Applied() | Computed():
            return unknown(text)
        case Truth() | Junction() | Negation():
            return value
        case _:
            assert_never(value)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """How an operator compares a column with a literal.

    Attributes:
        leaf: The expression of the operator.
        opposite: The expression of NOT. Spark sorts NaN above all numbers, so NOT (a < b) is a >= b for floats, too.
        mirrored: The operator with both sides exchanged.
        orders: The operator holds for these signs of (left - right).
    """

    leaf: type[LiteralPredicate]
    opposite: type[LiteralPredicate]
    mirrored: str
    orders: frozenset[int]


_COMPARISONS = {
    "=": _Comparison(EqualTo, NotEqualTo, "=", frozenset({0})),
    "<>": _Comparison(NotEqualTo, EqualTo, "<>", frozenset({-1, 1})),
    "<": _Comparison(LessThan, GreaterThanOrEqual, ">", frozenset({-1})),
    "<=": _Comparison(LessThanOrEqual, GreaterThan, ">=", frozenset({-1, 0})),
    ">": _Comparison(GreaterThan, LessThanOrEqual, "<", frozenset({1})),
    ">=": _Comparison(GreaterThanOrEqual, LessThan, "<=", frozenset({0, 1})),
}


def compare(left: Value, comparison: str, right: Value, text: str) -> Truth:
    """Make a comparison.

    Args:
        left: Its left side.
        comparison: `=`, `<>`, `<`, `<=`, `>`, `>=` or the NULL-safe `<=>`.
        right: Its right side.
        text: As written, for what can't be said.
    """
    if comparison == "<=>":
        return _compare_null_safe(left, right, text)
    match left, right:
        case (Constant(None), _) | (_, Constant(None)):
            return ALWAYS_NULL
        case Column() as column, Constant(Literal() as literal):
            how = _COMPARISONS[comparison]
            truth = Truth(_test(how.leaf, column, literal), _test(how.opposite, column, literal), _null(column))
            return _with_open_nulls(truth, text) if how.mirrored != comparison and _is_beyond_long(literal) else truth
        case Applied() as applied, Constant(Literal() as literal):
            return _compare_applied(applied, comparison, literal, text)
        case Constant(), Column() | Applied():
            return compare(right, _COMPARISONS[comparison].mirrored, left, text)
        case Constant(Literal() as one), Constant(Literal() as other):
            order = _constant_order(one, other)
            if order is None:
                return unknown(text)
            return ALWAYS_TRUE if order in _COMPARISONS[comparison].orders else ALWAYS_FALSE
        case _:
            return unknown(text)


def _compare_applied(applied: Applied, comparison: str, literal: LiteralValue, text: str) -> Truth:
    match comparison:
        case "<>":
            equal = _value_test(applied, "=", [literal], text)
            return Truth(equal.no, equal.yes, equal.null)
        case "=" | "<" | "<=" | ">" | ">=":
            return _value_test(applied, comparison, [literal], text)
        case _:
            raise AssertionError(comparison)


def _is_beyond_long(literal: LiteralValue) -> bool:
    return isinstance(literal, DecimalLiteral) and not -(2**63) <= literal.value <= 2**63 - 1


def _with_open_nulls(truth: Truth, text: str) -> Truth:
    """Leave NULLs open: Spark decides a range test of integers with a literal beyond 64 bits without the value.

    Even a NULL then satisfies the test: `i < 9223372036854775808` is true for NULL. In columns of other types a NULL
    stays neither true nor false.
    """
    nulls = And(truth.null, Unknown(text=text))
    return Truth(Or(truth.yes, nulls), Or(truth.no, nulls), nulls)


def _compare_null_safe(left: Value, right: Value, text: str) -> Truth:
    if isinstance(left, Constant) and left.literal is None:
        return null_test(right, text)
    if isinstance(right, Constant) and right.literal is None:
        return null_test(left, text)
    plain = compare(left, "=", right, text)
    return Truth(plain.yes, Or(plain.no, plain.null), NO_ROW)


def _constant_order(left: LiteralValue, right: LiteralValue) -> int | None:
    """Compare two literals as Spark would; None if Spark converts one of them first."""
    exact = LongLiteral | DecimalLiteral
    if isinstance(left, exact) and isinstance(right, exact):
        return int(Decimal(str(left.value)).compare(Decimal(str(right.value))))
    match left.value, right.value:
        case ((bool() | int() | float() as one), (bool() | int() | float() as other)) if type(left) is type(right):
            return (one > other) - (one < other)
        case ((str() as one), (str() as other)):
            return (one > other) - (one < other)
        case ((bytes() as one), (bytes() as other)):
            return (one > other) - (one < other)
        case _:
            return None


def between(value: Value, low: Value, high: Value, text: str) -> Condition:
    """Make `value BETWEEN low AND high`."""
    return join([compare(value, ">=", low, text), compare(value, "<=", high, text)], conjunctive=True)


def one_of(value: Value, members: Sequence[Value], text: str) -> Truth:
    """Make `value IN (members)`."""
    if value == _NULL:
        return ALWAYS_NULL
    if not isinstance(value, Column | Applied):
        return unknown(text)
    literals = [member.literal for member in members if isinstance(member, Constant) and member.literal is not None]
    nulls = members.count(_NULL)
    if len(literals) + nulls < len(members) or not _compare_alike(literals):
        return unknown(text)
    if not literals:
        return ALWAYS_NULL
    truth = _value_test(value, "IN", literals, text) if isinstance(value, Applied) else _column_in(value, literals)
    if nulls:
        # No row is known to be outside of a list with a NULL in it.
        return Truth(truth.yes, NO_ROW, Or(truth.no, truth.null))
    return truth


def _column_in(column: Column, literals: Sequence[LiteralValue]) -> Truth:
    term = column.term
    return Truth(In(term=term, values=set(literals)), NotIn(term=term, values=set(literals)), _null(column))


def _compare_alike(literals: Sequence[LiteralValue]) -> bool:
    """Say whether Spark compares each literal of an IN list as `=` would.

    Spark converts the column and the whole list to one type. A literal of another type then changes what the others
    mean, and decimals lose the digits that have no room in the common type.
    """
    kinds = {type(literal) for literal in literals}
    if not kinds <= {LongLiteral, DecimalLiteral}:
        return len(kinds) == 1
    if kinds <= {LongLiteral}:
        return True
    parts = [Decimal(str(literal.value)).as_tuple() for literal in literals]
    scale = max(-int(part.exponent) for part in parts)
    return scale + max(len(part.digits) + int(part.exponent) for part in parts) <= MAX_DECIMAL_DIGITS


def null_test(value: Value, text: str) -> Truth:
    """Make `value IS NULL`."""
    match value:
        case Column():
            return Truth(_null(value), _not_null(value), NO_ROW)
        case Applied():
            return _value_test(value, "IS NULL", [], text)
        case Constant(literal):
            return ALWAYS_TRUE if literal is None else ALWAYS_FALSE
        case Truth(yes, no, null):
            return Truth(null, Or(yes, no), NO_ROW)
        case Computed() | Junction() | Negation():
            return unknown(text)
        case _:
            assert_never(value)


def truth_test(value: Value, expected: bool, text: str) -> Truth:
    """Make `value IS TRUE` or `value IS FALSE`."""
    condition = as_condition(value, text)
    if not isinstance(condition, Truth):
        return unknown(text)
    if expected:
        return Truth(condition.yes, Or(condition.no, condition.null), NO_ROW)
    return Truth(condition.no, Or(condition.yes, condition.null), NO_ROW)


def nan_test(value: Value, text: str) -> Truth:
    """Make `isnan(value)`, which is false for NULL."""
    if not isinstance(value, Column):
        return unknown(text)
    column = value.term
    return Truth(IsNaN(term=column), Or(NotNaN(term=column), _null(value)), NO_ROW)


def prefix_test(value: Value, prefix: Value, text: str) -> Truth:
    """Make `startswith(value, prefix)`."""
    if _NULL in (value, prefix):
        return ALWAYS_NULL
    match value, prefix:
        case Column() as column, Constant(StringLiteral() | Utf8Literal() as literal):
            return _starts_with(column, literal)
        case _:
            return unknown(text)


def _starts_with(column: Column, prefix: StringLiteral | Utf8Literal) -> Truth:
    if not prefix.value:
        return Truth(_not_null(column), NO_ROW, _null(column))
    return Truth(_test(StartsWith, column, prefix), _test(NotStartsWith, column, prefix), _null(column))


def like(value: Value, word: str, pattern: Value, escape: str, text: str) -> Truth:
    """Make `value word pattern ESCAPE escape`.

    Args:
        value: What is tested.
        word: `LIKE`, `ILIKE`, `RLIKE` or `REGEXP`.
        pattern: The pattern.
        escape: The escape character of LIKE and ILIKE.
        text: As written, for what can't be said.

    Raises:
        ValueError: If the pattern is malformed; the message says what was expected.
    """
    if _NULL in (value, pattern):
        return ALWAYS_NULL
    match value, pattern:
        case (Column() | Applied() as subject, Constant(StringLiteral() as literal)):
            pass
        case _:
            return unknown(text)
    match word:
        case "LIKE":
            return _like(subject, literal, escape, text)
        case "ILIKE" if literal.value.isascii():
            # Spark lowers the pattern before it looks for escapes.
            split_like(literal.value.lower(), escape)
            return _value_test(subject, "ILIKE", [literal], text, escape)
        case "RLIKE" | "REGEXP" if rlike_regex(literal.value) is not None:
            return _value_test(subject, "RLIKE", [literal], text)
        case _:
            return unknown(text)


def _like(subject: Column | Applied, literal: StringLiteral, escape: str, text: str) -> Truth:
    prefix, wildcards = split_like(literal.value, escape)
    if isinstance(subject, Applied):
        return _value_test(subject, "LIKE", [literal], text, escape)
    if not wildcards:
        exact = TextLiteral(prefix)
        return Truth(_test(EqualTo, subject, exact), _test(NotEqualTo, subject, exact), _null(subject))
    starts = _starts_with(subject, StringLiteral(prefix))
    if wildcards.strip("%") == "":
        return starts
    whole = _value_test(subject, "LIKE", [literal], text, escape)
    return Truth(And(starts.yes, whole.yes), whole.no, whole.null)
