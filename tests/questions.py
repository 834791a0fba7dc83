"""Rows of a small table and questions about them, as Hypothesis strategies: what table histories are made of."""

from collections.abc import Callable
from typing import TypeAlias

from hypothesis import strategies as st

from tests.oracle import Among, And, Compare, IsNull, Not, Or, Predicate

Rows: TypeAlias = list[tuple[int | None, str | None]]
Ask: TypeAlias = Callable[[str, str], tuple[str, Predicate]]
"""From the names of the columns k and s to a predicate about them, as text and as a tree."""

numbers = st.one_of(st.none(), st.integers(-2, 4))
texts = st.one_of(st.none(), st.sampled_from(["", "a", "b", "ab", "ü"]))
rows = st.tuples(numbers, texts)
bursts = st.lists(st.tuples(rows, st.integers(1, 6)), min_size=1, max_size=4)
batches = st.one_of(
    st.lists(rows, min_size=1, max_size=10), bursts.map(lambda some: [row for row, times in some for _ in range(times)])
)


@st.composite
def leaves(draw: st.DrawFn) -> Ask:
    number, text = draw(st.integers(-2, 4)), draw(st.sampled_from(["", "a", "b", "c"]))
    operator = draw(st.sampled_from(["=", "<>", "<", ">="]))
    make: list[Ask] = [
        lambda k, _: (f"{k} {operator} {number}", Compare(k, operator, number)),
        lambda _, s: (f"{s} {operator} '{text}'", Compare(s, operator, text)),
        lambda k, _: (f"{k} IN ({number}, 3)", Among(k, (number, 3))),
        lambda _, s: (f"{s} IS NULL", IsNull(s)),
    ]
    return draw(st.sampled_from(make))


@st.composite
def predicates(draw: st.DrawFn) -> Ask:
    one, other, how = draw(leaves()), draw(leaves()), draw(st.sampled_from(["AND", "OR", "AND NOT"]))

    def written(k: str, s: str) -> tuple[str, Predicate]:
        (left, left_tree), (right, right_tree) = one(k, s), other(k, s)
        trees: dict[str, Predicate] = {
            "AND": And((left_tree, right_tree)),
            "OR": Or((left_tree, right_tree)),
            "AND NOT": And((left_tree, Not(right_tree))),
        }
        return f"{left} {how} ({right})", trees[how]

    return written
