"""Questions about whatever columns a table has just then, as Hypothesis strategies."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from hypothesis import strategies as st
from pyiceberg.types import StringType, TimestamptzType

from tests.oracle import Among, And, Between, Compare, IsNull, Like, Not, Or, Predicate
from tests.planner.laws.iceberg_reading import LeafColumn

Question: TypeAlias = Callable[[Sequence[LeafColumn]], Predicate]
"""From columns of numbers, texts and moments to a predicate about some of them."""

places = st.integers(0, 2**16)
numbers = st.integers(-2, 4)
texts = st.sampled_from(["", "a", "b", "ab", "c", "ü"])


def moment_of(number: int) -> datetime:
    """The moment that stands for a number in columns of timestamps."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(hours=number)


@st.composite
def leaf_questions(draw: st.DrawFn) -> Question:
    """One test of the column at some place."""
    place, number, other, text, pieces = draw(
        st.tuples(places, numbers, numbers, texts, st.permutations(["a", None, ...]))
    )
    operator = draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"]))
    kind = draw(st.sampled_from(["compare", "compare", "in", "between", "null", "like"]))

    def ask(columns: Sequence[LeafColumn]) -> Predicate:
        column = columns[place % len(columns)]
        is_text = isinstance(column.field.field_type, StringType)
        first: Any
        second: Any
        first, second = (text, "b") if is_text else (number, other)
        if isinstance(column.field.field_type, TimestamptzType):
            first, second = moment_of(number), moment_of(other)
        match kind:
            case "in":
                return Among(column.name, (first, second))
            case "between":
                return Between(column.name, first, second)
            case "null":
                return IsNull(column.name)
            case "like" if is_text:
                return Like(column.name, tuple(pieces[:2]))
            case _:
                return Compare(column.name, operator, first)

    return ask


def combined(parts: st.SearchStrategy[Question]) -> st.SearchStrategy[Question]:
    return st.one_of(
        parts.map(lambda part: lambda columns: Not(part(columns))),
        st.tuples(parts, parts).map(lambda two: lambda columns: And((two[0](columns), two[1](columns)))),
        st.tuples(parts, parts).map(lambda two: lambda columns: Or((two[0](columns), two[1](columns)))),
    )


questions = st.recursive(leaf_questions(), combined, max_leaves=4)


def asked_columns(predicate: Predicate) -> set[str]:
    match predicate:
        case Not(part):
            return asked_columns(part)
        case And(parts) | Or(parts):
            return set().union(*(asked_columns(part) for part in parts))
        case leaf:
            return {leaf.column}
