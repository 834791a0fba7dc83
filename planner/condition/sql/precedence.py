"""Operator precedence: the tokens of a WHERE text become a condition.

From tightest to loosest: arithmetic, `::` and `[...]` (not evaluated, so their own order does not matter); comparisons,
from left to right; `IS`, `IN`, `BETWEEN` and `LIKE`, one for each side of AND and OR; `NOT`; `AND`; `OR`.

Neither nesting nor length costs recursion: a reading of one level is a generator that yields the readings it waits
for. `parser` beside promises that values and operators take turns; this module checks the rest.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from typing import Any, Final, Literal as TypingLiteral, NoReturn, TypeAlias, TypeVar, cast

from pyiceberg.schema import Schema
from pyiceberg.types import UnknownType

from planner.condition import comparisons
from planner.condition.columns import FoundColumn, find_column
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

    def find(self, name: str, key: Literal | None = None) -> FoundColumn:
        """Return the column of a dotted name, or what a map column holds for a key."""
        try:
            return replace(find_column(self.schema, name, key), zone=self.zone)
        except NotFoundError as error:
            self.missing.setdefault(name, error)
            return FoundColumn(name, 0, UnknownType(), None)

    def hint_at_text(self, left: comparisons.Value, right: comparisons.Value) -> None:
        """Say of a missing name beside a column that it may be meant as a text."""
        if not isinstance(left, FoundColumn) or not isinstance(right, FoundColumn):
            return
        missing = [side.name for side in (left, right) if side.name in self.missing]
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
    values: Callable[[Columns], Sequence[comparisons.Value]] = lambda _: (comparisons.Computed(),)


def read_condition(tokens: Sequence[Token], text: str, schema: Schema, zone: tzinfo) -> Truth:
    """Read the condition that tokens, the last an END, make up; raises what `read_where` raises."""
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
        return self.tokens[self.place]

    def take(self) -> Token:
        self.place += 1
        return self.tokens[self.place - 1]

    def value(self, bracket: Kind) -> Reading[comparisons.Value]:
        """Read what ANDs and ORs join in a bracket, or in the text as a whole (END); a value alone stays as it is."""
        alternatives: list[list[Truth]] = [[]]
        while True:
            negated = False
            while self.next.kind == "NOT":
                self.take()
                negated = not negated
            start = self.next.start
            value: comparisons.Value = yield self.predicate()
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

    def check_end(self, value: comparisons.Value, bracket: Kind) -> None:
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

    def as_condition(self, value: comparisons.Value, start: int) -> Truth:
        # Nested brackets repeat the text inside, so it is cut out only where somebody uses it.
        condition = value if isinstance(value, Truth) else comparisons.as_condition(value, self.text_since(start))
        if condition is None:
            self.fail(self.next, _AFTER_VALUE)
        return condition

    def predicate(self) -> Reading[comparisons.Value]:
        """Read one side of AND and OR, after any NOT."""
        start = self.next.start
        subject: comparisons.Value = yield self.comparison()
        token = self.next
        if token.kind not in ("IS", "IN_LIST", "IN", "BETWEEN", "DISTINCT", "LIKE"):
            return subject
        self.take()
        truth: Truth
        match token.kind:
            case "IS" if token.word in ("NULL", "UNKNOWN"):
                truth = comparisons.null_test(subject, self.text_since(start))
            case "IS" if token.word == "NAN":
                truth = comparisons.nan_test(subject, self.text_since(start))
            case "IS":
                truth = comparisons.truth_test(subject, token.word == "TRUE", self.text_since(start))
            case "IN_LIST":
                truth = comparisons.one_of(subject, token.values(self.columns), self.text_since(start))
            case "IN":
                members = yield self.members("IN")
                truth = comparisons.one_of(subject, members, self.text_since(start))
            case "BETWEEN":
                low = yield self.comparison()
                if self.next.kind != "AND":
                    self.fail(self.next, "AND")
                self.take()
                high = yield self.comparison()
                truth = comparisons.between(subject, low, high, self.text_since(start))
            case "DISTINCT":
                other = yield self.comparison()
                truth = ~comparisons.compare(subject, "<=>", other, self.text_since(start))
            case _:
                truth = yield self.pattern(subject, token.word, start)
        return ~truth if token.negated else truth

    def pattern(self, subject: comparisons.Value, word: str, start: int) -> Reading[Truth]:
        place = self.next.start
        pattern: comparisons.Value = yield self.comparison()
        escape = self.take() if self.next.kind == "ESCAPE" else None
        if escape and len(escape.word) != 1:
            self.fail(escape, "ESCAPE with one character")
        text = self.text_since(start)
        if escape and word in ("RLIKE", "REGEXP"):
            return unknown(text, comparisons.why(subject, pattern))
        try:
            return comparisons.like(subject, word, pattern, escape.word if escape else "\\", text)
        except ValueError as error:
            raise WhereSyntaxError(self.text, place, str(error)) from error

    def comparison(self) -> Reading[comparisons.Value]:
        start = self.next.start
        left: comparisons.Value = yield self.operand()
        while self.next.kind == "COMPARISON":
            operator = cast(comparisons.Comparison, self.take().word)
            right: comparisons.Value = yield self.operand()
            self.columns.hint_at_text(left, right)
            left = comparisons.compare(left, operator, right, self.text_since(start))
        return left

    def operand(self) -> Reading[comparisons.Value]:
        """Read a value, with the arithmetic around it."""
        values: list[comparisons.Value] = []
        operations: list[comparisons.Computed] = []
        while True:
            token = self.take()
            match token.kind:
                case "SIGN":
                    operations.append(comparisons.ARITHMETIC)
                    continue
                case "OPEN":
                    members = yield self.members("OPEN")
                    # (a, b) is a row.
                    values.append(members[0] if len(members) == 1 else comparisons.Computed())
                case "VALUE":
                    values += token.values(self.columns)
                case _:
                    self.fail(token, "a value")
            while self.next.kind == "ACCESS":
                is_cast = self.take().word.startswith("::")
                operations.append(comparisons.ARITHMETIC if is_cast else comparisons.Computed())
            if self.next.kind != "ARITHMETIC":
                return comparisons.Computed(comparisons.why(*values, *operations)) if operations else values[0]
            self.take()
            operations.append(comparisons.ARITHMETIC)

    def members(self, bracket: Kind) -> Reading[list[comparisons.Value]]:
        """Read the values of a bracket, behind the token that opened it, up to its end."""
        members: list[comparisons.Value] = []
        while True:
            members.append((yield self.value(bracket)))
            if self.take().kind == "CLOSE":
                return members

    def text_since(self, start: int) -> str:
        return self.text[start : self.tokens[self.place - 1].end]

    def fail(self, token: Token, expected: str) -> NoReturn:
        raise WhereSyntaxError(self.text, token.start, expected)
