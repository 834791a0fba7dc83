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

from planner.condition.columns import ONLY_SPARK_KNOWS_INSTANT, FoundColumn
from planner.condition.literals import MAX_DECIMAL_DIGITS, Literal, text_literal
from planner.condition.places import Pair, nan_tests, prefix_tests, range_tests, set_tests
from planner.condition.session_time import in_session
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
from planner.condition.truth import ALWAYS_FALSE, ALWAYS_NULL, ALWAYS_TRUE, Truth, join, unknown
from planner.condition.value_tests import rlike_regex, split_like, takes, year_range
from puffin_index.keys.leaf import LeafTest, NullTest
from puffin_index.keys.value_types import ValueType

Compared: TypeAlias = TypingLiteral["=", "<", "<=", ">", ">=", "IN"]
Comparison: TypeAlias = TypingLiteral["=", "<>", "<", "<=", ">", ">=", "<=>"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or what a map holds for a key, and the session's zone, by which dates and times are converted."""

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

    def truth(self, tests: Callable[[ValueType], Pair | None], text: str) -> Truth:
        """Make a condition of the tests that there are for values of the column's type."""
        if self.found.value_type is None:
            return unknown(text, f"no index can be of a {self.found.type}")
        pair = tests(self.found.value_type)
        if pair is None:
            kind = f"the literal is of another kind than the column, a {self.found.type}"
            is_instant = self.found.value_type.name == "timestamptz"
            reason = ONLY_SPARK_KNOWS_INSTANT if is_instant else f"{kind}: Spark converts one of them first"
            return unknown(text, reason)
        return Truth(self.leaf(pair[0]), self.leaf(pair[1]), self.is_null)

    def compared(self, comparison: Compared, literals: Sequence[Literal], text: str) -> Truth:
        """Compare with literals, several for `IN`."""
        own = str(self.found.type)
        converted = [in_session(literal, own, self.zone) for literal in literals]
        match comparison:
            case "=" | "IN":
                return self.truth(lambda value_type: set_tests(converted, value_type), text)
            case _:
                return self.truth(lambda value_type: range_tests(comparison, converted[0], value_type), text)


@dataclass(frozen=True, slots=True)
class Applied:
    """A function of a column, NULL exactly where the column is NULL."""

    function: TextFunction | NumberFunction
    column: Column

    def compared(self, comparison: Compared, literals: Sequence[Literal], text: str) -> Truth:
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


Value: TypeAlias = Column | Applied | Computed | Truth | Literal | None
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
    value: Column | Applied, operator: ValueOperator, literals: Sequence[Literal], text: str, escape: str = "\\"
) -> Truth:
    """Make a test of a column's values; unknown where Spark would convert a literal or the column first."""
    function, column = (value.function, value.column) if isinstance(value, Applied) else (None, value)
    kind = "long" if function in get_args(NumberFunction) else "string"
    if not all(literal.type == kind for literal in literals):
        return unknown(text, why(value))
    values = tuple(one.value.decode() if kind == "string" else one.value for one in literals)
    test, found = ValueTest(function, operator, values, escape), column.found
    if found.value_type is None or not takes(test, found.value_type):
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
        case Literal("boolean", is_true):
            return ALWAYS_TRUE if is_true else ALWAYS_FALSE
        case Literal():
            return None
        case Applied() | Computed():
            return unknown(text, why(value))
        case Truth():
            return value
        case _:
            assert_never(value)


def _boolean_tests(value_type: ValueType) -> Pair | None:
    true, false = (set_tests([Literal("boolean", value)], value_type) for value in (True, False))
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
        case Column() | Applied(), Literal("decimal", number) if comparison in _MIRRORED and _is_beyond(number, left):
            # Spark decides without the value: `i < 9223372036854775808` is true even for NULL.
            return ALWAYS_TRUE if comparison.startswith("<") == (number > 0) else ALWAYS_FALSE
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


def _is_beyond(number: Decimal, value: Column | Applied) -> bool:
    """Whether a number that is compared with a whole number of at most 64 bits has more."""
    if isinstance(value, Applied):
        is_whole = value.function in get_args(NumberFunction)
    else:
        is_whole = str(value.found.type) in ("int", "long")
    return is_whole and not -(2**63) <= number <= 2**63 - 1


def _either(first: Predicate, second: Predicate) -> Predicate:
    return joined([first, second], is_and=False)


def _compare_null_safe(left: Value, right: Value, text: str) -> Truth:
    if left is None:
        return null_test(right, text)
    if right is None:
        return null_test(left, text)
    plain = compare(left, "=", right, text)
    return Truth(plain.yes, _either(plain.no, plain.null), NO_ROW)


def _is_one_kind(literals: Sequence[Literal]) -> bool:
    """Whether Spark compares literals with each other as they are."""
    kinds = {literal.type for literal in literals}
    return len(kinds) == 1 or kinds == {"long", "decimal"}


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


def _compare_alike(literals: Sequence[Literal]) -> bool:
    """Say whether Spark compares each literal of an IN list as `=` would.

    Spark converts the column and the whole list to one type. A literal of another type then changes what the others
    mean, and decimals lose the digits that have no room in the common type.
    """
    if not _is_one_kind(literals):
        return False
    if not any(literal.type == "decimal" for literal in literals):
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
            takes_column = takes(ValueTest(function, "=", ()), column.found.value_type)
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
        case Column(), Literal("string"):
            return _starts_with(value, prefix, text)
        case _:
            return unknown(text, why(value, prefix))


def _starts_with(column: Column, prefix: Literal, text: str) -> Truth:
    if not prefix.value:
        is_null = null_test(column, text)
        return Truth(is_null.no, NO_ROW, is_null.yes)
    return column.truth(lambda value_type: prefix_tests(prefix, value_type), text)


def like(value: Value, word: str, pattern: Value, escape: str, text: str) -> Truth:
    """Make `value word pattern ESCAPE escape`, where the word is `LIKE`, `ILIKE`, `RLIKE` or `REGEXP`.

    Raises ValueError, saying what was expected, if the pattern is malformed.
    """
    match value, pattern, word:
        case (None, _, _) | (_, None, _):
            return ALWAYS_NULL
        case Column() | Applied(), Literal("string", said), "LIKE":
            return _like(value, said.decode(), escape, text)
        case Column() | Applied(), Literal("string", said), "ILIKE" if said.isascii():
            # Spark lowers the pattern before it looks for escapes.
            split_like(said.decode().lower(), escape)
            return _value_test(value, "ILIKE", [pattern], text, escape)
        case Column() | Applied(), Literal("string", said), "RLIKE" | "REGEXP":
            is_read = rlike_regex(said.decode()) is not None
            return _value_test(value, "RLIKE", [pattern], text) if is_read else unknown(text, why(value))
        case _:
            return unknown(text, why(value, pattern))


def _like(subject: Column | Applied, pattern: str, escape: str, text: str) -> Truth:
    prefix, wildcards = split_like(pattern, escape)
    whole = _value_test(subject, "LIKE", [text_literal(pattern)], text, escape)
    if isinstance(subject, Applied):
        return whole
    if not wildcards:
        return subject.truth(lambda value_type: set_tests([text_literal(prefix)], value_type), text)
    starts = _starts_with(subject, text_literal(prefix), text)
    if wildcards.strip("%") == "":
        return starts
    return Truth(joined([starts.yes, whole.yes], is_and=True), whole.no, whole.null)
