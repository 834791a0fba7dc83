"""Random predicates, rows they are about, and the many ways to write the one predicate as Spark SQL."""

import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Protocol, TypeVar

from hypothesis import strategies as st

from tests.oracle import (
    Among,
    And,
    Between,
    Beyond,
    Compare,
    Contains,
    IsEmpty,
    IsNan,
    IsNull,
    Like,
    Not,
    Operator,
    Or,
    Predicate,
)

_TEXT = st.one_of(
    st.sampled_from(["", "a", "ab", "abc", "a%", "%", "_", "it's", '"', "\\", "\\%", "a\nb", "ÄÖ", "😀", "--", "/*"]),
    st.text(st.sampled_from("ab%_\\'\"`n\n\tü😀"), max_size=4),
)
_MOMENTS = st.one_of(
    st.sampled_from([datetime(1, 1, 2), datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(9999, 12, 30)]),
    st.datetimes(datetime(2023, 12, 31, 22), datetime(2024, 1, 1, 2)).map(lambda moment: moment.replace(microsecond=0)),
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": st.one_of(st.integers(-3, 3), st.sampled_from([2**63 - 1, -(2**63), 2**31, -(2**31) - 1])),
    "d": st.one_of(st.decimals(-2, 2, places=2), st.sampled_from([Decimal("99999999.99"), Decimal("0.00")])),
    "f": st.one_of(
        st.sampled_from([0.0, -0.0, 0.1, 1.0, -1.5, 5e-324, 1.7976931348623157e308]), st.integers(-3, 3).map(float)
    ),
    "s": _TEXT,
    "b": st.booleans(),
    "dt": st.one_of(st.dates(date(2023, 12, 30), date(2024, 1, 2)), st.sampled_from([date(1, 1, 1), date.max])),
    "nt": _MOMENTS,
    "ts": _MOMENTS.map(lambda moment: moment.replace(tzinfo=UTC)),
}
COLUMNS = tuple(VALUES)
# What a literal can say but no column can hold, whatever Spark rounds.
FAR: dict[str, list[Any]] = {
    "i": [Beyond(2**63), Beyond(-(2**63) - 1), Beyond(10**20 - 1), 9.3e18, -1e20, 1e300],
    "d": [Decimal(2**63), Decimal("-" + "9" * 38), Decimal("9" * 37 + ".9"), 100000002.0, -1e20, 1e300],
}
# What a column can hold but no literal can say.
_UNSAYABLE: dict[str, list[Any]] = {"f": [math.nan, math.inf, -math.inf]}

rows: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {c: st.one_of(st.none(), values, st.sampled_from(_UNSAYABLE.get(c, [None]))) for c, values in VALUES.items()}
)


@st.composite
def _leaves(draw: st.DrawFn) -> Predicate:
    column = draw(st.sampled_from(COLUMNS))
    # NULL is rare, else nearly nothing is ever true.
    values = st.one_of(VALUES[column], VALUES[column], VALUES[column], st.none())
    operators: list[Operator] = ["=", "<>", "<", "<=", ">", ">=", "<=>"]
    kinds: list[Callable[[], Predicate]] = [
        lambda: Compare(column, draw(st.sampled_from(operators)), draw(values)),
        lambda: Compare(column, draw(st.sampled_from(operators)), draw(st.sampled_from(FAR.get(column, [None])))),
        lambda: Among(column, tuple(draw(st.lists(values, min_size=1, max_size=4)))),
        lambda: Between(column, draw(values), draw(st.sampled_from(FAR[column]) if column in FAR else values)),
        lambda: Between(column, draw(values), draw(values)),
        lambda: IsNull(column),
        lambda: IsNan("f"),
        lambda: Like("s", tuple(draw(st.lists(st.one_of(st.none(), st.just(...), _TEXT), max_size=3)))),
    ]
    return draw(st.sampled_from(kinds))()


def predicates_of(leaves: st.SearchStrategy[Predicate], max_leaves: int) -> st.SearchStrategy[Predicate]:
    """Leaves joined by AND and OR, and negated."""
    return st.recursive(
        leaves,
        lambda parts: st.one_of(
            parts.map(Not),
            st.lists(parts, min_size=2, max_size=3).map(lambda found: And(tuple(found))),
            st.lists(parts, min_size=2, max_size=3).map(lambda found: Or(tuple(found))),
        ),
        max_leaves=max_leaves,
    )


predicates = predicates_of(_leaves(), 8)


T = TypeVar("T")


class Choice(Protocol):
    def __call__(self, options: Sequence[T], /) -> T: ...


class Writer:
    def __init__(self, choose: Choice) -> None:
        self.choose = choose
        self.capitals = self.perhaps()

    def one(self, *spellings: str) -> str:
        return self.choose(spellings)

    def perhaps(self) -> bool:
        return self.choose((False, True))

    def join(self, *parts: str) -> str:
        gap = self.one(" ", " ", " ", "\n", "\t ", " /* it's */ ", " -- ( \n")
        return gap.join(part if self.capitals or not part.isalpha() else part.lower() for part in parts)

    def predicate(self, predicate: Predicate) -> str:
        match predicate:
            case Compare(column, operator, value):
                return self.compare(column, operator, value)
            case And(parts):
                # AND binds tighter than OR, NOT tighter than both.
                return self.joined("AND", [self.bracketed(part) if isinstance(part, Or) else part for part in parts])
            case Or(parts):
                return self.joined("OR", list(parts))
            case Not(Among() | Between() | Like() | IsNull() as leaf) if self.perhaps():
                return self.predicate_test(leaf, "NOT ")
            case Not(part):
                inner = self.bracketed(part) if isinstance(part, And | Or) else self.predicate(part)
                return self.one("NOT ", "!", "not ") + inner
            case _:
                return self.predicate_test(predicate, "")

    def joined(self, word: str, parts: list[Predicate | str]) -> str:
        texts = [part if isinstance(part, str) else self.predicate(part) for part in parts]
        return f" {word} ".join(self.one(text, text, f"({text})") for text in texts)

    def bracketed(self, part: Predicate) -> str:
        return f"({self.predicate(part)})"

    def compare(self, column: str, operator: Operator, value: Any) -> str:
        mirrored = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(operator, operator)
        spellings = {"=": ["=", "=="], "<>": ["<>", "!="], "<=": ["<=", "!>"], ">=": [">=", "!<"]}
        if self.perhaps():
            return self.join(self.literal(value), self.one(*spellings.get(mirrored, [mirrored])), self.column(column))
        return self.join(self.column(column), self.one(*spellings.get(operator, [operator])), self.literal(value))

    def predicate_test(self, predicate: Predicate, negation: str) -> str:
        match predicate:
            case Among(column, values):
                members = ",".join(self.one("", " ") + self.literal(value) for value in values)
                return self.join(self.column(column), negation + self.one("IN", "IN ") + f"({members})")
            case Between(column, low, high):
                return self.join(
                    self.column(column), negation + "BETWEEN", self.literal(low), "AND", self.literal(high)
                )
            case IsNull(column):
                return self.join(self.column(column), "IS", negation + "NULL")
            case IsNan(column):
                return f"isnan({self.column(column)})"
            case Contains(column, (value,)):
                return f"{self.one('array_contains', 'ARRAY_CONTAINS ')}({self.column(column)}, {self.literal(value)})"
            case Contains(column, values):
                members = self.one(",", ", ").join(map(self.literal, values))
                return f"arrays_overlap({self.column(column)}, array({members}))"
            case IsEmpty(column):
                return f"{self.one('size', 'cardinality')}({self.column(column)}) {self.one('=', '==')} 0"
            case Like(column, pieces):
                pattern, ending = self.pattern(pieces)
                return self.join(self.column(column), negation + "LIKE", pattern) + ending
            case _:
                raise AssertionError(predicate)

    def pattern(self, pieces: tuple[Any, ...]) -> tuple[str, str]:
        escape, ending = self.choose([("\\", ""), ("!", " ESCAPE '!'")])
        wildcards = {None: "%", ...: "_"}
        written = [
            wildcards[piece]
            if not isinstance(piece, str)
            else "".join(escape + character if character in ("%", "_", escape) else character for character in piece)
            for piece in pieces
        ]
        return self.text("".join(written)), ending

    def column(self, name: str) -> str:
        # Fields of structs and keys of maps are more than a name.
        return self.one(name, name, f"`{name}`") if name.isidentifier() else name

    def literal(self, value: Any) -> str:
        match value:
            case None | bool():
                return self.one("NULL", "null") if value is None else str(value)
            case Beyond():
                return self.one(str(value), f"{value}BD")
            case int():
                return self.one(str(value), f"{value}L") if value >= 0 else self.one(str(value), f"- {-value}")
            case Decimal():
                return self.one(f"{value:f}", f"{value:f}BD")
            case float():
                return f"{value!r}{self.one('D', 'd')}"
            case str():
                return self.text(value)
            case datetime():
                return self.moment(value)
            case date():
                return f"DATE{self.one('', ' ')}'{value.isoformat()}'"
            case _:
                raise AssertionError(value)

    def moment(self, value: datetime) -> str:
        if value.tzinfo is None:
            return f"TIMESTAMP_NTZ '{value.isoformat(self.one(' ', 'T'))}'"
        minutes = self.choose([0, 60, -330])
        near_the_end = not 2 <= value.year <= 9998
        shifted = value if near_the_end else value.astimezone(timezone(timedelta(minutes=minutes)))
        return f"TIMESTAMP '{shifted.isoformat(' ')}'"

    def text(self, value: str) -> str:
        cut = self.choose(range(len(value) + 1))
        if self.choose(range(4)) == 0:
            return f"{self.quoted(value[:cut])} {self.quoted(value[cut:])}"
        return self.quoted(value)

    def quoted(self, value: str) -> str:
        quote = self.one("'", '"')
        if quote not in value and self.perhaps():
            return f"r{quote}{value}{quote}"
        # A backslash before % or _ stays in the string, so it has to be doubled all the same.
        escaped = value.replace("\\", "\\\\").replace("\n", self.one("\n", "\\n", "\\u000A"))
        return quote + escaped.replace(quote, self.one(quote * 2, "\\" + quote)) + quote


@st.composite
def render(draw: st.DrawFn, predicate: Predicate) -> str:
    return Writer(lambda options: draw(st.sampled_from(options))).predicate(predicate)
