"""Operator precedence: the tokens of a WHERE text become a condition.

From tightest to loosest: arithmetic, `::` and `[...]` (not evaluated, so their own order does not matter); comparisons,
from left to right; `IS`, `IN`, `BETWEEN` and `LIKE`, one for each side of AND and OR; `NOT`; `AND`; `OR`.

Neither nesting nor length costs recursion: a reading of one level is a generator that yields the readings it waits
for. `parser` beside promises that values and operators take turns; this module checks the rest.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any, Final, Literal as TypingLiteral, NoReturn, TypeAlias, TypeVar, cast

from pyiceberg.schema import Schema
from pyiceberg.types import UnknownType

from planner.condition.columns import FoundColumn, find_column
from planner.condition.comparisons import (
    ARITHMETIC,
    Column,
    Comparison,
    Computed,
    Value,
    as_condition,
    between,
    compare,
    like,
    nan_test,
    null_test,
    one_of,
    truth_test,
    why,
)
from planner.condition.literals import Literal
from planner.condition.truth import Truth, join, unknown
from puffin_index.errors import NotFoundError, WhereSyntaxError

T = TypeVar("T")
Reading: TypeAlias = Generator[Any, Any, T]

Kind: TypeAlias = (
    TypingLiteral["NOT", "OPEN", "SIGN"]  # before a value
    | TypingLiteral["VALUE"]
    | TypingLiteral["AND", "OR", "COMMA", "COMPARISON", "ARITHMETIC", "LIKE", "BETWEEN", "DISTINCT", "IN"]  # between
    | TypingLiteral["CLOSE", "ACCESS", "IS", "ESCAPE", "IN_LIST"]  # behind a value
    | TypingLiteral["END"]
)
ENDS_VALUE: Final = ("VALUE", "CLOSE", "ACCESS", "IS", "ESCAPE", "IN_LIST")
"""Behind these, an operator follows; behind all others, a value."""


@dataclass(slots=True)
class Columns:
    """Finds the columns that a text names, and keeps why some are missing: first the text has to be a condition."""

    schema: Schema
    zone: tzinfo
    missing: dict[str, NotFoundError] = field(default_factory=dict)

    def find(self, name: str, key: Literal | None = None) -> Column:
        """Return the column of a dotted name, or what a map column holds for a key."""
        try:
            return Column(find_column(self.schema, name, key), self.zone)
        except NotFoundError as error:
            self.missing.setdefault(name, error)
            return Column(FoundColumn(name, 0, UnknownType(), None), self.zone)

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


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the text: an operator in capitals (of ESCAPE the text behind it), or what gives values."""

    kind: Kind
    start: int
    end: int
    word: str = ""
    negated: bool = False
    values: Callable[[Columns], Sequence[Value]] = lambda _: (Computed(),)


def read_condition(tokens: Sequence[Token], text: str, schema: Schema, zone: tzinfo) -> Truth:
    """Read the condition that tokens, the last an END, make up.

    Raises WhereSyntaxError if they make up none, NotFoundError if the schema lacks a column.
    """
    columns = Columns(schema, zone)
    reader = _Reader(tokens, text, columns)
    condition = reader.as_condition(_run(reader.value("END")), tokens[0].start)
    for error in columns.missing.values():
        raise error
    return condition


def _run(reading: Reading[T]) -> T:
    """Finish a reading, and each that it waits for before."""
    waiting: list[Reading[Any]] = [reading]
    result: Any = None
    while waiting:
        try:
            inner = waiting[-1].send(result)
        except StopIteration as end:
            result = end.value
            waiting.pop()
        else:
            result = None
            waiting.append(inner)
    return cast(T, result)


_AFTER_VALUE = "a comparison operator or IN, BETWEEN, LIKE, IS"


@dataclass(slots=True)
class _Reader:
    """Reads tokens, each once; `place` is the next one's."""

    tokens: Sequence[Token]
    text: str
    columns: Columns
    place: int = 0

    @property
    def next(self) -> Token:
        """The next token."""
        return self.tokens[self.place]

    def take(self) -> Token:
        """Take the next token."""
        self.place += 1
        return self.tokens[self.place - 1]

    def value(self, bracket: Kind) -> Reading[Value]:
        """Read what ANDs and ORs join in a bracket, or in the text as a whole (END); a value alone stays as it is."""
        alternatives: list[list[Truth]] = [[]]
        while True:
            negated = False
            while self.next.kind == "NOT":
                self.take()
                negated = not negated
            start = self.next.start
            value: Value = yield self.predicate()
            self.check_end(value, bracket)
            is_last = self.next.kind not in ("AND", "OR")
            if is_last and not negated and alternatives == [[]]:
                return value
            condition = self.as_condition(value, start)
            alternatives[-1].append(~condition if negated else condition)
            if is_last:
                return join([join(parts, conjunctive=True) for parts in alternatives], conjunctive=False)
            if self.take().kind == "OR":
                alternatives.append([])

    def check_end(self, value: Value, bracket: Kind) -> None:
        """Refuse a token that cannot stand behind a side of AND and OR."""
        token = self.next
        is_end = token.kind == "END" and token.start == len(self.text)
        if token.kind in ("AND", "OR") or (is_end if bracket == "END" else token.kind in ("COMMA", "CLOSE")):
            return
        if bracket == "IN":
            self.fail(token, "',' or ')'")
        if is_end:
            self.fail(token, "')'")
        if not isinstance(value, Truth):
            self.fail(token, _AFTER_VALUE)
        self.fail(token, "AND or OR" if bracket == "END" else "AND, OR or ')'")

    def as_condition(self, value: Value, start: int) -> Truth:
        """Return a value that begins at an offset, and was read last, as a condition."""
        # Nested brackets repeat the text inside, so it is cut out only where somebody uses it.
        condition = value if isinstance(value, Truth) else as_condition(value, self.text_since(start))
        if condition is None:
            self.fail(self.next, _AFTER_VALUE)
        return condition

    def predicate(self) -> Reading[Value]:
        """Read one side of AND and OR, after any NOT."""
        start = self.next.start
        subject: Value = yield self.comparison()
        token = self.next
        if token.kind not in ("IS", "IN_LIST", "IN", "BETWEEN", "DISTINCT", "LIKE"):
            return subject
        self.take()
        truth: Truth
        match token.kind:
            case "IS" if token.word in ("NULL", "UNKNOWN"):
                truth = null_test(subject, self.text_since(start))
            case "IS" if token.word == "NAN":
                truth = nan_test(subject, self.text_since(start))
            case "IS":
                truth = truth_test(subject, token.word == "TRUE", self.text_since(start))
            case "IN_LIST":
                truth = one_of(subject, token.values(self.columns), self.text_since(start))
            case "IN":
                members = yield self.members("IN")
                truth = one_of(subject, members, self.text_since(start))
            case "BETWEEN":
                low = yield self.comparison()
                if self.next.kind != "AND":
                    self.fail(self.next, "AND")
                self.take()
                high = yield self.comparison()
                truth = between(subject, low, high, self.text_since(start))
            case "DISTINCT":
                other = yield self.comparison()
                truth = ~compare(subject, "<=>", other, self.text_since(start))
            case _:
                truth = yield self.pattern(subject, token.word, start)
        return ~truth if token.negated else truth

    def pattern(self, subject: Value, word: str, start: int) -> Reading[Truth]:
        """Read what stands behind LIKE, ILIKE or RLIKE."""
        place = self.next.start
        pattern: Value = yield self.comparison()
        escape = self.take() if self.next.kind == "ESCAPE" else None
        if escape and len(escape.word) != 1:
            self.fail(escape, "ESCAPE with one character")
        text = self.text_since(start)
        if escape and word in ("RLIKE", "REGEXP"):
            return unknown(text, why(subject, pattern))
        try:
            return like(subject, word, pattern, escape.word if escape else "\\", text)
        except ValueError as error:
            raise WhereSyntaxError(self.text, place, str(error)) from error

    def comparison(self) -> Reading[Value]:
        """Read a value, or values between comparison operators."""
        start = self.next.start
        left: Value = yield self.operand()
        while self.next.kind == "COMPARISON":
            operator = cast(Comparison, self.take().word)
            right: Value = yield self.operand()
            self.columns.hint_at_text(left, right)
            left = compare(left, operator, right, self.text_since(start))
        return left

    def operand(self) -> Reading[Value]:
        """Read a value, with the arithmetic around it."""
        values: list[Value] = []
        operations: list[Computed] = []
        while True:
            token = self.take()
            match token.kind:
                case "SIGN":
                    operations.append(ARITHMETIC)
                    continue
                case "OPEN":
                    members = yield self.members("OPEN")
                    # (a, b) is a row.
                    values.append(members[0] if len(members) == 1 else Computed())
                case "VALUE":
                    values += token.values(self.columns)
                case _:
                    self.fail(token, "a value")
            while self.next.kind == "ACCESS":
                operations.append(ARITHMETIC if self.take().word.startswith("::") else Computed())
            if self.next.kind != "ARITHMETIC":
                return Computed(why(*values, *operations)) if operations else values[0]
            self.take()
            operations.append(ARITHMETIC)

    def members(self, bracket: Kind) -> Reading[list[Value]]:
        """Read the values of a bracket, behind the token that opened it, up to its end."""
        members: list[Value] = []
        while True:
            members.append((yield self.value(bracket)))
            if self.take().kind == "CLOSE":
                return members

    def text_since(self, start: int) -> str:
        """Return the text from an offset to the token that was taken last."""
        return self.text[start : self.tokens[self.place - 1].end]

    def fail(self, token: Token, expected: str) -> NoReturn:
        """Refuse a token."""
        raise WhereSyntaxError(self.text, token.start, expected)
