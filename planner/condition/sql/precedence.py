"""Operator precedence: the tokens of a WHERE text, read once with an explicit stack of brackets, become a condition.

| binds | operators |
| --- | --- |
| tightest | arithmetic, `::`, `[...]` (the result is not evaluated, so their own order does not matter) |
| | comparisons, from left to right |
| | `IS`, `IN`, `BETWEEN`, `LIKE`: one for each side of AND and OR |
| | `NOT` |
| | `AND` |
| loosest | `OR` |

Neither nesting nor length costs recursion. `parser` beside promises that values and operators take turns; this module
checks the rest, and finds the columns.

The columns that a WHERE text names, found in a schema.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import NoReturn, cast

from pyiceberg.expressions.literals import StringLiteral
from pyiceberg.schema import Schema
from pyiceberg.types import UnknownType

from planner.condition.columns import FoundColumn, find_column
from planner.condition.comparisons import (
    Applied,
    Column,
    Comparison,
    Computed,
    Constant,
    Value,
    as_condition,
    between,
    compare,
    like,
    nan_test,
    null_test,
    one_of,
    prefix_test,
    truth_test,
)
from planner.condition.sql.tokens import Called, Kind, Named, Operand, Token
from planner.condition.truth import Truth, join, unknown
from puffin_index.errors import NotFoundError, WhereSyntaxError


@dataclass(slots=True)
class NamedColumns:
    """Finds columns.

    Attributes:
        missing: Why there are no columns of some names. First the text has to be a condition.
    """

    schema: Schema
    zone: tzinfo
    missing: dict[str, NotFoundError] = field(default_factory=dict)

    def find(self, operand: Operand) -> Value:
        """Return what an operand means."""
        match operand:
            case Named(name, key):
                try:
                    return Column(find_column(self.schema, name, key), self.zone)
                except NotFoundError as error:
                    self.missing.setdefault(name, error)
                    return Column(FoundColumn(name, 0, UnknownType(), None), self.zone)
            case Called():
                return self._call(operand, self.find(operand.column))
            case _:
                return operand

    def _call(self, call: Called, column: Value) -> Value:
        match call.function:
            case "isnan":
                return nan_test(column, call.text)
            case "isnull":
                return null_test(column, call.text)
            case "isnotnull":
                return ~null_test(column, call.text)
            case "startswith":
                return prefix_test(column, call.prefix, call.text)
            case function:
                return Applied(function, column) if isinstance(column, Column) else column

    def hint_at_text(self, left: Value, right: Value) -> None:
        """Say of a missing name beside a column that it may be meant as a text."""
        if not isinstance(left, Column) or not isinstance(right, Column):
            return
        missing = [side.found.name for side in (left, right) if side.found.name in self.missing]
        if len(missing) == 1:
            (name,) = missing
            columns = ", ".join(column.name for column in self.schema.fields)
            hint = f"did you mean the text '{name}'?"
            self.missing[name] = NotFoundError(f"there is no column {name!r}; the table has: {columns}; {hint}")

    def check(self) -> None:
        """Refuse a name that no column has, or raise NotFoundError if there is such a name."""
        for error in self.missing.values():
            raise error


_AFTER_VALUE = "a comparison operator or IN, BETWEEN, LIKE, IS"


@dataclass(slots=True)
class _Clause:
    """What stands between two ANDs, ORs, commas or brackets: `[NOT] value [comparison value ...] [predicate]`.

    Attributes:
        start: Offset of its first value; -1 before.
        value_start: Offset of the latest value.
        computed: The next value is part of arithmetic.
        left: Left side and operator of a comparison; `value` is the right side, once there.
        predicate: A predicate such as BETWEEN; `value` is the operand, once there.
        low: The lower bound of BETWEEN.
        complete: The predicate is done; only AND, OR, a comma or a closing bracket can follow.
    """

    start: int = -1
    negated: bool = False
    value: Value | None = None
    value_start: int = -1
    computed: bool = False
    left: tuple[Value, str] | None = None
    subject: Value | None = None
    predicate: Token | None = None
    low: Value | None = None
    escape: str | None = None
    complete: bool = False


@dataclass(slots=True)
class _Bracket:
    """An open bracket, or the text as a whole, with what stands between its commas, ORs and ANDs so far."""

    start: int = 0
    is_list: bool = False
    members: list[Value] = field(default_factory=list)
    alternatives: list[Truth] = field(default_factory=list)
    conjuncts: list[Truth] = field(default_factory=list)
    clause: _Clause = field(default_factory=_Clause)


def read_condition(tokens: Iterable[Token], text: str, schema: Schema, zone: tzinfo) -> Truth:
    """Read the condition that tokens, the last an END, make up.

    Raises WhereSyntaxError if they make up none, NotFoundError if the schema lacks a column.
    """
    reader = _Reader(text, NamedColumns(schema, zone))
    for token in tokens:
        reader.take(token)
    return reader.condition()


class _Reader:
    """Takes tokens one by one, and knows the open brackets, outermost first."""

    def __init__(self, text: str, columns: NamedColumns) -> None:
        self.text = text
        self.columns = columns
        self.brackets = [_Bracket()]
        self.end = 0

    def take(self, token: Token) -> None:
        """Take the next token."""
        clause = self.brackets[-1].clause
        match token.kind:
            case Kind.NOT:
                if clause.left or clause.predicate or clause.computed:
                    self._fail(token, "a value")
                clause.negated = not clause.negated
            case Kind.VALUE:
                self._take_value(self.columns.find(token.values[0]), token.start)
            case Kind.OPEN | Kind.SIGN:
                self._take_prefix(token)
            case Kind.AND | Kind.OR:
                self._take_connective(token)
            case Kind.COMMA | Kind.CLOSE:
                self._take_bracket_end(token)
            case Kind.END:
                self._take_end(token)
            case Kind.COMPARISON:
                self._take_comparison(token)
            case Kind.ARITHMETIC | Kind.ACCESS:
                self._check_open(token)
                clause.value, clause.computed = Computed(), token.kind is Kind.ARITHMETIC
            case Kind.ESCAPE:
                self._take_escape(token)
            case _:
                self._take_predicate(token)
        self.end = token.end

    def condition(self) -> Truth:
        """Return what all tokens made up."""
        self.columns.check()
        (condition,) = self.brackets[0].alternatives
        return condition

    def _take_value(self, value: Value, start: int) -> None:
        clause = self.brackets[-1].clause
        clause.value, clause.value_start, clause.computed = Computed() if clause.computed else value, start, False
        if clause.start < 0:
            clause.start = start

    def _take_prefix(self, token: Token) -> None:
        clause = self.brackets[-1].clause
        if clause.start < 0:
            clause.start = token.start
        if token.kind is Kind.OPEN:
            self.brackets.append(_Bracket(token.start))
        else:
            clause.computed = True

    def _take_connective(self, token: Token) -> None:
        bracket = self.brackets[-1]
        clause = bracket.clause
        if token.kind is Kind.AND and self._awaits_and(clause):
            self._settle_comparison(clause)
            clause.low, clause.value = clause.value, None
            return
        self._finish_clause(token)
        if token.kind is Kind.OR:
            self._finish_alternative()

    def _take_comparison(self, token: Token) -> None:
        clause = self.brackets[-1].clause
        self._check_open(token)
        left = self._settle_comparison(clause)
        clause.left, clause.value = (left, token.word), None

    def _take_predicate(self, token: Token) -> None:
        clause = self.brackets[-1].clause
        if clause.predicate:
            self._fail(token, self._expected_next())
        self._check_open(token)
        subject = self._settle_comparison(clause)
        text = self._text(clause, token.end)
        match token.kind:
            case Kind.IS:
                self._complete(clause, _is_test(subject, token.word, text), token.negated)
            case Kind.IN_LIST:
                members = [self.columns.find(member) for member in token.values]
                self._complete(clause, one_of(subject, members, text), token.negated)
            case _:
                clause.subject, clause.predicate, clause.value = subject, token, None
                if token.kind is Kind.IN:
                    self.brackets.append(_Bracket(token.start, is_list=True))

    def _take_escape(self, token: Token) -> None:
        clause = self.brackets[-1].clause
        if clause.escape is not None or clause.predicate is None or clause.predicate.kind is not Kind.LIKE:
            self._fail(token, self._expected_next())
        match token.values:
            case (Constant(StringLiteral() as literal),) if len(literal.value) == 1:
                clause.escape = literal.value
            case _:
                self._fail(token, "ESCAPE with one character")

    def _take_bracket_end(self, token: Token) -> None:
        if len(self.brackets) == 1:
            self._fail(token, self._expected_next())
        bracket = self.brackets[-1]
        value = self._bracket_value(token)
        if token.kind is Kind.COMMA:
            bracket.members.append(value)
            bracket.alternatives, bracket.clause = [], _Clause()
            return
        self.brackets.pop()
        outer = self.brackets[-1].clause
        if bracket.is_list and outer.predicate is not None and outer.subject is not None:
            condition = one_of(outer.subject, [*bracket.members, value], self._text(outer, token.end))
            self._complete(outer, condition, outer.predicate.negated)
        else:
            # (a, b) is a row.
            self._take_value(Computed() if bracket.members else value, bracket.start)

    def _take_end(self, token: Token) -> None:
        if token.start < len(self.text):
            self._fail(token, self._expected_next())
        if len(self.brackets) > 1:
            self._fail(token, "',' or ')'" if self.brackets[-1].is_list else "')'")
        self._finish_clause(token)
        self._finish_alternative()
        bracket = self.brackets[0]
        bracket.alternatives = [join(bracket.alternatives, conjunctive=False)]

    def _bracket_value(self, token: Token) -> Value:
        """Return what stands in the innermost bracket, since its last comma."""
        bracket = self.brackets[-1]
        clause = bracket.clause
        if not (bracket.alternatives or bracket.conjuncts or clause.negated):
            return self._settle(clause, token)
        self._finish_clause(token)
        self._finish_alternative()
        return join(bracket.alternatives, conjunctive=False)

    def _finish_alternative(self) -> None:
        bracket = self.brackets[-1]
        bracket.alternatives.append(join(bracket.conjuncts, conjunctive=True))
        bracket.conjuncts = []

    def _finish_clause(self, token: Token) -> None:
        bracket = self.brackets[-1]
        clause = bracket.clause
        value = self._settle(clause, token)
        # Nested brackets repeat the text inside, so it is cut out only where somebody uses it.
        condition = as_condition(
            value, self._text(clause, self.end) if isinstance(value, Column | Applied | Computed) else ""
        )
        if condition is None:
            self._fail(token, _AFTER_VALUE)
        bracket.conjuncts.append(~condition if clause.negated else condition)
        bracket.clause = _Clause()

    def _settle(self, clause: _Clause, token: Token) -> Value:
        """Return the value of a clause that ends before `token`; the caller applies NOT."""
        value = self._settle_comparison(clause)
        predicate, subject = clause.predicate, clause.subject
        if predicate is None or subject is None:
            return value
        text = self._text(clause, self.end)
        if self._awaits_and(clause):
            self._fail(token, "AND")
        condition: Truth
        match predicate.kind, predicate.word:
            case Kind.BETWEEN, _:
                assert clause.low is not None, "BETWEEN with a value after AND has one before it"
                condition = between(subject, clause.low, value, text)
            case Kind.DISTINCT, _:
                condition = ~compare(subject, "<=>", value, text)
            case Kind.LIKE, "RLIKE" | "REGEXP" if clause.escape is not None:
                condition = unknown(text)
            case Kind.LIKE, word:
                condition = self._like(clause, subject, word, value, text)
            case _:
                condition = unknown(text)
        return self._complete(clause, condition, predicate.negated)

    def _like(self, clause: _Clause, subject: Value, word: str, pattern: Value, text: str) -> Truth:
        try:
            return like(subject, word, pattern, clause.escape or "\\", text)
        except ValueError as error:
            raise WhereSyntaxError(self.text, clause.value_start, str(error)) from error

    def _settle_comparison(self, clause: _Clause) -> Value:
        value = clause.value
        assert value is not None, "values and operators take turns"
        if clause.left is not None:
            left, word = clause.left
            self.columns.hint_at_text(left, value)
            value = clause.value = compare(left, cast(Comparison, word), value, self._text(clause, self.end))
            clause.left = None
        return value

    def _complete(self, clause: _Clause, condition: Truth, negated: bool) -> Truth:
        value = clause.value = ~condition if negated else condition
        clause.predicate, clause.complete = None, True
        return value

    def _awaits_and(self, clause: _Clause) -> bool:
        return clause.predicate is not None and clause.predicate.kind is Kind.BETWEEN and clause.low is None

    def _text(self, clause: _Clause, end: int) -> str:
        return self.text[clause.start : end]

    def _check_open(self, token: Token) -> None:
        clause = self.brackets[-1].clause
        if clause.complete or clause.escape is not None:
            self._fail(token, self._expected_next())

    def _expected_next(self) -> str:
        bracket = self.brackets[-1]
        clause = bracket.clause
        if self._awaits_and(clause):
            return "AND"
        if bracket.is_list:
            return "',' or ')'"
        if isinstance(clause.value, Column | Applied | Constant | Computed) and not (clause.left or clause.predicate):
            return _AFTER_VALUE
        return "AND or OR" if len(self.brackets) == 1 else "AND, OR or ')'"

    def _fail(self, token: Token, expected: str) -> NoReturn:
        raise WhereSyntaxError(self.text, token.start, expected)


def _is_test(subject: Value, word: str, text: str) -> Truth:
    match word:
        case "NULL" | "UNKNOWN":
            return null_test(subject, text)
        case "NAN":
            return nan_test(subject, text)
        case _:
            return truth_test(subject, word == "TRUE", text)
