"""Tests of columns as conditions: comparisons, IN, BETWEEN, LIKE and the IS tests over columns and literals.

A test becomes leaf tests where these say what Spark means, a `ByValue` leaf where the values of the one column decide,
and `unknown` where neither is certain.
"""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo
from decimal import Decimal
from typing import Any, Final, Literal as TypingLiteral, TypeAlias, assert_never, get_args

from pyiceberg.expressions.literals import BooleanLiteral, DecimalLiteral, Literal, LongLiteral, StringLiteral
from pyiceberg.typedef import LiteralValue
from pyiceberg.types import IntegerType, LongType, TimestamptzType

from planner.condition.columns import ONLY_SPARK_KNOWS_INSTANT, FoundColumn
from planner.condition.literals import MAX_DECIMAL_DIGITS, Utf8Literal
from planner.condition.places import Pair, Scale, nan_tests, prefix_tests, range_tests, set_tests
from planner.condition.tree.nodes import (
    NO_ROW,
    UNKNOWN,
    ByValue,
    Everything,
    Leaf,
    NumberFunction,
    Predicate,
    TextFunction,
    ValueOperator,
    ValueTest,
    joined,
)
from planner.condition.truth import (
    ALWAYS_FALSE,
    ALWAYS_NULL,
    ALWAYS_TRUE,
    Truth,
    join,
    unknown,
)
from planner.condition.value_tests import rlike_regex, split_like, takes, year_range
from puffin_index.keys.leaf import LeafTest, NullTest

Compared: TypeAlias = TypingLiteral["=", "<", "<=", ">", ">=", "IN"]
Comparison: TypeAlias = TypingLiteral["=", "<>", "<", "<=", ">", ">=", "<=>"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or what a map column holds for a key.

    Attributes:
        zone: The time zone of the session, by which literals of dates and times are converted.
    """

    found: FoundColumn
    zone: tzinfo = UTC

    def leaf(self, test: LeafTest) -> Leaf:
        """Return a test of the column, whose values an index can hold."""
        assert self.found.value_type is not None
        return Leaf(self.found.column, test, self.found.value_type.name)

    @property
    def is_null(self) -> Leaf:
        """The test for NULL."""
        return self.leaf(NullTest(is_null=True))

    def truth(self, tests: Callable[[Scale], Pair | None], text: str) -> Truth:
        """Make a condition of the tests that the column's scale gives."""
        if self.found.value_type is None:
            return unknown(text, f"no index can be of a {self.found.type}")
        pair = tests(Scale(self.found.type, self.found.value_type, self.zone))
        if pair is None:
            kind = f"the literal is of another kind than the column, a {self.found.type}"
            is_instant = isinstance(self.found.type, TimestamptzType)
            reason = ONLY_SPARK_KNOWS_INSTANT if is_instant else f"{kind}: Spark converts one of them first"
            return unknown(text, reason)
        return Truth(self.leaf(pair[0]), self.leaf(pair[1]), self.is_null)

    def compared(self, comparison: Compared, literals: Sequence[LiteralValue], text: str) -> Truth:
        """Compare with literals, several for `IN`."""
        match comparison:
            case "=" | "IN":
                return self.truth(lambda scale: set_tests(literals, scale), text)
            case _:
                (literal,) = literals
                return self.truth(lambda scale: range_tests(comparison, literal, scale), text)


@dataclass(frozen=True, slots=True)
class Applied:
    """A function of a column, NULL exactly where the column is NULL."""

    function: TextFunction | NumberFunction
    column: Column

    def compared(self, comparison: Compared, literals: Sequence[LiteralValue], text: str) -> Truth:
        """Compare with literals, several for `IN`."""
        return _value_test(self, comparison, literals, text)


@dataclass(frozen=True, slots=True)
class Computed:
    """Anything the planner does not evaluate, and why: arithmetic, other functions, elements of arrays and maps."""

    reason: str = ""


ARITHMETIC: Final = Computed("the planner does not evaluate arithmetic, casts, CASE and the clock")


def call(function: str) -> Computed:
    """A call of a function that the planner does not evaluate."""
    return Computed(f"the planner does not evaluate {function}(...) here")


Value: TypeAlias = Column | Applied | Computed | Truth | LiteralValue | None
"""What a part of a condition gives for a row; None is NULL."""


def why(*values: Value) -> str:
    """The first reason that values give why nothing is known of a condition on them; empty if they give none."""
    for value in values:
        match value:
            case Computed(reason) | Truth(null=Everything(exact=False, reason=reason)) if reason:
                return reason
            case Applied(function):
                return call(function).reason
    return ""


def _value_test(
    value: Column | Applied, operator: ValueOperator, literals: Sequence[LiteralValue], text: str, escape: str = "\\"
) -> Truth:
    """Make a test of a column's values; unknown where Spark would convert a literal or the column first."""
    function, column = (value.function, value.column) if isinstance(value, Applied) else (None, value)
    kind = LongLiteral if function in get_args(NumberFunction) else StringLiteral
    if not all(isinstance(literal, kind) for literal in literals):
        return unknown(text, why(value))
    test, found = ValueTest(function, operator, tuple(literal.value for literal in literals), escape), column.found
    if found.value_type is None or not takes(test, found.type):
        return unknown(text, _converted(column))
    years = year_range(test, found.value_type)
    if years is not None:
        return Truth(column.leaf(years), column.leaf(replace(years, negated=True)), column.is_null)
    yes, no = (ByValue(found.column, one, found.value_type.name, text) for one in (test, ~test))
    return Truth(yes, no, column.is_null)


def _converted(column: Column) -> str:
    return f"Spark would convert {column.found.name} first, or takes the pattern otherwise"


def as_condition(value: Value, text: str) -> Truth | None:
    """Read a value as a condition; None for a literal that is neither true, false nor NULL."""
    match value:
        case Column():
            return value.truth(_boolean_tests, text)
        case None:
            return ALWAYS_NULL
        case BooleanLiteral():
            return ALWAYS_TRUE if value.value else ALWAYS_FALSE
        case Literal():
            return None
        case Applied() | Computed():
            return unknown(text, why(value))
        case Truth():
            return value
        case _:
            assert_never(value)


def _boolean_tests(scale: Scale) -> Pair | None:
    true, false = (set_tests([BooleanLiteral(value)], scale) for value in (True, False))
    return None if true is None or false is None else (true[0], false[0])


_MIRRORED: Final[dict[Comparison, Comparison]] = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""The operators whose sides cannot be exchanged, and what they become then."""

_OPERATORS: Final[dict[Comparison, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def compare(left: Value, comparison: Comparison, right: Value, text: str) -> Truth:
    """Make a comparison by `=`, `<>`, `<`, `<=`, `>`, `>=` or the NULL-safe `<=>`."""
    if comparison == "<=>":
        return _compare_null_safe(left, right, text)
    match left, right:
        case (None, _) | (_, None):
            return ALWAYS_NULL
        case Column() | Applied(), DecimalLiteral() if comparison in _MIRRORED and _is_beyond_long(right, left):
            # Spark decides without the value: `i < 9223372036854775808` is true even for NULL.
            return ALWAYS_TRUE if comparison.startswith("<") == (right.value > 0) else ALWAYS_FALSE
        case Column() | Applied(), Literal():
            return (
                ~left.compared("=", [right], text) if comparison == "<>" else left.compared(comparison, [right], text)
            )
        case Literal(), Column() | Applied():
            return compare(right, _MIRRORED.get(comparison, comparison), left, text)
        case Literal(), Literal() if _is_one_kind([left, right]):
            return ALWAYS_TRUE if _OPERATORS[comparison](left.value, right.value) else ALWAYS_FALSE
        case Column(), Column():
            return unknown(text, "a column is compared with a column, and an index knows one column")
        case _:
            return unknown(text, why(left, right))


def _is_beyond_long(literal: DecimalLiteral, value: Column | Applied) -> bool:
    """Whether a literal that is compared with a whole number of at most 64 bits has more."""
    if isinstance(value, Applied):
        is_whole = value.function in get_args(NumberFunction)
    else:
        is_whole = isinstance(value.found.type, IntegerType | LongType)
    return is_whole and not -(2**63) <= literal.value <= 2**63 - 1


def _either(first: Predicate, second: Predicate) -> Predicate:
    return joined([first, second], is_and=False)


def _compare_null_safe(left: Value, right: Value, text: str) -> Truth:
    if left is None:
        return null_test(right, text)
    if right is None:
        return null_test(left, text)
    plain = compare(left, "=", right, text)
    return Truth(plain.yes, _either(plain.no, plain.null), NO_ROW)


def _is_one_kind(literals: Sequence[LiteralValue]) -> bool:
    """Whether Spark compares literals with each other as they are."""
    kinds = {type(literal) for literal in literals}
    return len(kinds) == 1 or kinds == {LongLiteral, DecimalLiteral}


def between(value: Value, low: Value, high: Value, text: str) -> Truth:
    """Make `value BETWEEN low AND high`."""
    return join([compare(value, ">=", low, text), compare(value, "<=", high, text)], conjunctive=True)


def one_of(value: Value, members: Sequence[Value], text: str) -> Truth:
    """Make `value IN (members)`."""
    if value is None:
        return ALWAYS_NULL
    literals = [member for member in members if isinstance(member, Literal)]
    nulls = sum(member is None for member in members)
    if not isinstance(value, Column | Applied) or len(literals) + nulls < len(members):
        return unknown(text, why(value, *members))
    if not literals:
        return ALWAYS_NULL
    if not _compare_alike(literals):
        return unknown(text, why(value))
    truth = value.compared("IN", literals, text)
    if nulls:
        # No row is known to be outside of a list with a NULL in it.
        return Truth(truth.yes, NO_ROW, _either(truth.no, truth.null))
    return truth


def _compare_alike(literals: Sequence[LiteralValue]) -> bool:
    """Say whether Spark compares each literal of an IN list as `=` would.

    Spark converts the column and the whole list to one type. A literal of another type then changes what the others
    mean, and decimals lose the digits that have no room in the common type.
    """
    if not _is_one_kind(literals):
        return False
    if not any(isinstance(literal, DecimalLiteral) for literal in literals):
        return True
    parts = [Decimal(str(literal.value)).as_tuple() for literal in literals]
    scale = max(-int(part.exponent) for part in parts)
    return scale + max(len(part.digits) + int(part.exponent) for part in parts) <= MAX_DECIMAL_DIGITS


def null_test(value: Value, text: str) -> Truth:
    """Make `value IS NULL`."""
    match value:
        case Column():
            truth = value.truth(lambda _: (NullTest(is_null=True), NullTest(is_null=False)), text)
            return Truth(truth.yes, truth.no, NO_ROW)
        case Applied(function, column):
            is_null = null_test(column, text)
            takes_column = takes(ValueTest(function, "=", ()), column.found.type)
            return is_null if takes_column else unknown(text, _converted(column))
        case None | Literal():
            return ALWAYS_TRUE if value is None else ALWAYS_FALSE
        case Computed() | Truth(null=Everything(exact=False)):
            return unknown(text, why(value))
        case Truth(yes, no, null):
            return Truth(null, _either(yes, no), NO_ROW)
        case _:
            assert_never(value)


def truth_test(value: Value, expected: bool, text: str) -> Truth:
    """Make `value IS TRUE` or `value IS FALSE`."""
    condition = as_condition(value, text)
    if condition is None or condition.null == UNKNOWN:
        return unknown(text, why(value))
    wanted = condition if expected else ~condition
    return Truth(wanted.yes, _either(wanted.no, wanted.null), NO_ROW)


def nan_test(value: Value, text: str) -> Truth:
    """Make `isnan(value)`, which is false for NULL."""
    if not isinstance(value, Column):
        return unknown(text, why(value))
    truth = value.truth(nan_tests, text)
    return Truth(truth.yes, _either(truth.no, truth.null), NO_ROW)


def prefix_test(value: Value, prefix: Value, text: str) -> Truth:
    """Make `startswith(value, prefix)`."""
    match value, prefix:
        case (None, _) | (_, None):
            return ALWAYS_NULL
        case Column(), StringLiteral() | Utf8Literal():
            return _starts_with(value, prefix, text)
        case _:
            return unknown(text, why(value, prefix))


def _starts_with(column: Column, prefix: StringLiteral | Utf8Literal, text: str) -> Truth:
    if not prefix.value:
        is_null = null_test(column, text)
        return Truth(is_null.no, NO_ROW, is_null.yes)
    return column.truth(lambda scale: prefix_tests(prefix, scale), text)


def like(value: Value, word: str, pattern: Value, escape: str, text: str) -> Truth:
    """Make `value word pattern ESCAPE escape`, where the word is `LIKE`, `ILIKE`, `RLIKE` or `REGEXP`.

    Raises ValueError, saying what was expected, if the pattern is malformed.
    """
    match value, pattern, word:
        case (None, _, _) | (_, None, _):
            return ALWAYS_NULL
        case Column() | Applied(), StringLiteral(), "LIKE":
            return _like(value, pattern, escape, text)
        case Column() | Applied(), StringLiteral(), "ILIKE" if pattern.value.isascii():
            # Spark lowers the pattern before it looks for escapes.
            split_like(pattern.value.lower(), escape)
            return _value_test(value, "ILIKE", [pattern], text, escape)
        case Column() | Applied(), StringLiteral(), "RLIKE" | "REGEXP" if rlike_regex(pattern.value) is not None:
            return _value_test(value, "RLIKE", [pattern], text)
        case _:
            return unknown(text, why(value, pattern))


def _like(subject: Column | Applied, literal: StringLiteral, escape: str, text: str) -> Truth:
    prefix, wildcards = split_like(literal.value, escape)
    if isinstance(subject, Applied):
        return _value_test(subject, "LIKE", [literal], text, escape)
    if not wildcards:
        return subject.truth(lambda scale: set_tests([Utf8Literal(prefix.encode())], scale), text)
    starts = _starts_with(subject, StringLiteral(prefix), text)
    if wildcards.strip("%") == "":
        return starts
    whole = _value_test(subject, "LIKE", [literal], text, escape)
    return Truth(joined([starts.yes, whole.yes], is_and=True), whole.no, whole.null)
