"""Tests of columns as conditions: comparisons, IN, BETWEEN, LIKE and the IS tests over columns and literals.

A test becomes leaf tests where these say what Spark means, a `ByValue` leaf where the values of the one column decide,
and `unknown` where neither is certain.
"""

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final, Literal as TypingLiteral, TypeAlias, assert_never, get_args

from planner.condition.columns import Compared, FoundColumn
from planner.condition.literals import MAX_DECIMAL_DIGITS, Literal, text_literal
from planner.condition.places import Pair, nan_tests, prefix_tests, set_tests
from planner.condition.tree import nodes
from planner.condition.truth import ALWAYS_FALSE, ALWAYS_NULL, ALWAYS_TRUE, Truth, join, unknown
from planner.condition.value_tests import rlike_regex, split_like, takes, year_range
from planner.condition.words import word_tests
from puffin_index.keys.leaf import NullTest, RangeTest
from puffin_index.keys.map_key import Part
from puffin_index.keys.value_types import ValueType

Comparison: TypeAlias = TypingLiteral["=", "<>", "<", "<=", ">", ">=", "<=>"]


@dataclass(frozen=True, slots=True)
class Applied:
    """A function of a column, NULL exactly where the column is NULL."""

    function: nodes.TextFunction | nodes.NumberFunction
    column: FoundColumn

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


Value: TypeAlias = FoundColumn | Applied | Computed | Truth | Literal | None
"""What a part of a condition gives for a row; None is NULL."""


def why(*values: Value) -> str:
    """The first reason that values give why nothing is known of a condition on them; empty if they give none."""
    for value in values:
        match value:
            case Computed(reason) | Truth(null=nodes.Everything(exact=False, reason=reason)) if reason:
                return reason
            case Applied(function):
                return call(function).reason
    return ""


def _value_test(
    value: FoundColumn | Applied,
    operator: nodes.ValueOperator,
    literals: Sequence[Literal],
    text: str,
    escape: str = "\\",
) -> Truth:
    """Make a test of a column's values; unknown where Spark would convert a literal or the column first."""
    function, column = (value.function, value.column) if isinstance(value, Applied) else (None, value)
    kind = "long" if function in get_args(nodes.NumberFunction) else "string"
    if not all(literal.type == kind for literal in literals):
        return unknown(text, why(value))
    values = tuple(one.value.decode() if kind == "string" else one.value for one in literals)
    test = nodes.ValueTest(function, operator, values, escape)
    if column.value_type is None or not takes(test, column.value_type):
        return unknown(text, _converted(column))
    years = year_range(test, column.value_type)
    if years is not None:
        return Truth(column.leaf(years), column.leaf(replace(years, negated=True)), column.is_null)
    yes, no = (nodes.ByValue(column.column, one, column.value_type.name, text) for one in (test, ~test))
    return _with_words(Truth(yes, no, column.is_null), column, test, text)


def _with_words(truth: Truth, column: FoundColumn, test: nodes.ValueTest, text: str) -> Truth:
    """Add that texts which satisfy the test have some words. Others may have them as well."""
    words = column.contents("words")
    if words is None or not word_tests(test):
        return truth
    of_words = nodes.ByValue(words.column, test, str(words.type), text)
    return replace(truth, yes=nodes.joined([truth.yes, of_words], is_and=True))


def _converted(column: FoundColumn) -> str:
    return f"Spark would convert {column.name} first, or takes the pattern otherwise"


def as_condition(value: Value, text: str) -> Truth | None:
    """Read a value as a condition; None for a literal that is neither true, false nor NULL."""
    match value:
        case FoundColumn():
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
        if left is None or right is None:
            return null_test(right if left is None else left, text)
        return compare(left, "=", right, text).or_false()
    match left, right:
        case (None, _) | (_, None):
            return ALWAYS_NULL
        case FoundColumn() | Applied(), Literal("decimal", number) if comparison in _MIRRORED and _is_beyond(
            number, left
        ):
            # Spark decides without the value: `i < 9223372036854775808` is true even for NULL.
            return ALWAYS_TRUE if comparison.startswith("<") == (number > 0) else ALWAYS_FALSE
        case FoundColumn() | Applied(), Literal():
            return (
                ~left.compared("=", [right], text) if comparison == "<>" else left.compared(comparison, [right], text)
            )
        case Literal(), FoundColumn() | Applied():
            return compare(right, _MIRRORED.get(comparison, comparison), left, text)
        case Literal(), Literal() if _is_one_kind([left, right]):
            return ALWAYS_TRUE if _OPERATORS[comparison](left.value, right.value) else ALWAYS_FALSE
        case FoundColumn(), FoundColumn():
            return unknown(text, "a column is compared with a column, and an index knows one column")
        case _:
            return unknown(text, why(left, right))


def _is_beyond(number: Decimal, value: FoundColumn | Applied) -> bool:
    """Whether a number that is compared with a whole number of at most 64 bits has more."""
    if isinstance(value, Applied):
        is_whole = value.function in get_args(nodes.NumberFunction)
    else:
        is_whole = str(value.type) in ("int", "long")
    return is_whole and not -(2**63) <= number <= 2**63 - 1


def _is_one_kind(literals: Sequence[Literal]) -> bool:
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
    if not isinstance(value, FoundColumn | Applied) or len(literals) + nulls < len(members):
        return unknown(text, why(value, *members))
    if not literals:
        return ALWAYS_NULL
    if not _compare_alike(literals):
        return unknown(text, why(value))
    truth = value.compared("IN", literals, text)
    if nulls:
        # No row is known to be outside of a list with a NULL in it.
        return Truth(truth.yes, nodes.NO_ROW, nodes.joined([truth.no, truth.null], is_and=False))
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
        case FoundColumn():
            # A list or map is tested by what it contains.
            tested = value if value.value_type else value.contents("elements") or value.contents("keys") or value
            truth = tested.truth(lambda _: (NullTest(is_null=True), NullTest(is_null=False)), text)
            return Truth(truth.yes, truth.no, nodes.NO_ROW)
        case Applied(function, column):
            is_null = null_test(column, text)
            takes_column = takes(nodes.ValueTest(function, "=", ()), column.value_type)
            return is_null if takes_column else unknown(text, _converted(column))
        case None | Literal():
            return ALWAYS_TRUE if value is None else ALWAYS_FALSE
        case Computed() | Truth(null=nodes.Everything(exact=False)):
            return unknown(text, why(value))
        case Truth(yes, no, null):
            return Truth(null, yes, no).or_false()
        case _:
            assert_never(value)


def truth_test(value: Value, expected: bool, text: str) -> Truth:
    """Make `value IS TRUE` or `value IS FALSE`."""
    condition = as_condition(value, text)
    if condition is None or condition.null == nodes.UNKNOWN:
        return unknown(text, why(value))
    return (condition if expected else ~condition).or_false()


def nan_test(value: Value, text: str) -> Truth:
    """Make `isnan(value)`, which is false for NULL."""
    if not isinstance(value, FoundColumn):
        return unknown(text, why(value))
    return value.truth(nan_tests, text).or_false()


def contains(value: Value, part: Part, members: Sequence[Value], text: str) -> Truth:
    """Make `arrays_overlap(value, array(members))`; `part` says what of a map. With a NULL member, it is unknown."""
    found = value.contents(part) if isinstance(value, FoundColumn) else None
    literals = [member for member in members if isinstance(member, Literal)]
    if found is None or not literals or len(literals) < len(members) or not _compare_alike(literals):
        return unknown(text, why(value, *members))
    truth = found.compared("IN", literals, text)
    # It is NULL where the value is, or where it contains NULL and none of the members.
    return replace(truth, null=nodes.Everything(False, text))


def is_empty(value: Value, text: str) -> Truth:
    """Make `size(value) = 0`; whether it is false or NULL otherwise depends on a setting of Spark."""
    truth = unknown(text, why(value))
    if not isinstance(value, FoundColumn):
        return truth
    found = value.contents("keys") or value.contents("elements")
    if found is None or found.value_type is None:
        return truth
    # What contains none of all keys, and no NULL, contains nothing.
    return replace(truth, yes=found.leaf(RangeTest(None, None, negated=True)))


def prefix_test(value: Value, prefix: Value, text: str) -> Truth:
    """Make `startswith(value, prefix)`."""
    match value, prefix:
        case (None, _) | (_, None):
            return ALWAYS_NULL
        case FoundColumn(), Literal("string", b""):
            is_null = null_test(value, text)
            return Truth(is_null.no, nodes.NO_ROW, is_null.yes)
        case FoundColumn(), Literal("string", said):
            truth = value.truth(lambda value_type: prefix_tests(prefix, value_type), text)
            # Bytes that are no text are no pattern.
            pattern = without_wildcards(said.decode(errors="replace"))
            return _with_words(truth, value, nodes.ValueTest(None, "LIKE", (f"{pattern}%",)), text)
        case _:
            return unknown(text, why(value, prefix))


def like(value: Value, word: str, pattern: Value, escape: str, text: str) -> Truth:
    """Make `value word pattern ESCAPE escape` of LIKE, ILIKE, RLIKE or REGEXP; raise ValueError if malformed."""
    match value, pattern, word:
        case (None, _, _) | (_, None, _):
            return ALWAYS_NULL
        case FoundColumn() | Applied(), Literal("string", said), "LIKE":
            return _like(value, said.decode(), escape, text)
        case FoundColumn() | Applied(), Literal("string", said), "ILIKE" if said.isascii():
            # Spark lowers the pattern before it looks for escapes.
            split_like(said.decode().lower(), escape)
            return _value_test(value, "ILIKE", [pattern], text, escape)
        case FoundColumn() | Applied(), Literal("string", said), "RLIKE" | "REGEXP":
            is_read = rlike_regex(said.decode()) is not None
            return _value_test(value, "RLIKE", [pattern], text) if is_read else unknown(text, why(value))
        case _:
            return unknown(text, why(value, pattern))


def without_wildcards(text: str) -> str:
    """Return a text as a pattern of LIKE that says all of its letters."""
    return re.sub(r"([\\%_])", r"\\\1", text)


def _like(subject: FoundColumn | Applied, pattern: str, escape: str, text: str) -> Truth:
    prefix, wildcards = split_like(pattern, escape)
    whole = _value_test(subject, "LIKE", [text_literal(pattern)], text, escape)
    if isinstance(subject, Applied):
        return whole
    if not wildcards:
        return subject.truth(lambda value_type: set_tests([text_literal(prefix)], value_type), text)
    starts = prefix_test(subject, text_literal(prefix), text)
    if wildcards.strip("%") == "":
        return starts
    return Truth(nodes.joined([starts.yes, whole.yes], is_and=True), whole.no, whole.null)
