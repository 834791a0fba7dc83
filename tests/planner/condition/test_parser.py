"""WHERE text to conditions: tests and typed literals, errors and their place, size, the three-valued law."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings, strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import MapType, NestedField, StructType

from planner.condition.as_sql import as_sql
from planner.condition.literals import Literal, instant_at
from planner.condition.sql.parser import read_where
from planner.condition.tree.nodes import MAX_ALTERNATIONS, Conjunction, Disjunction, Everything, Leaf, Predicate
from planner.condition.tree.simplify import simplified
from puffin_index.errors import NotFoundError, WhereSyntaxError
from puffin_index.keys.leaf import SetTest
from tests import oracle
from tests.conftest import amount
from tests.planner.condition.where_text import predicates, render, rows
from tests.planner.laws.expression_oracle import selects

MICROS = timedelta(microseconds=1)
_NAMES: dict[str, str] = {
    **dict.fromkeys(("a", "b", "c", "AND", "date", "end", "case", "interval", "timestamp", "start"), "long"),
    **dict.fromkeys(("_1", "1a", "größe", "current_date"), "long"),
    "dec": "decimal(38,2)",
    "wide": "decimal(38,0)",
    "d": "double",
    "f": "float",
    "s": "string",
    "s2": "string",
    "x": "binary",
    "flag": "boolean",
    "day": "date",
    "at": "timestamp",
    "ts": "timestamptz",
}
_NESTED = (NestedField(60, "and", "long"), NestedField(61, "day", "date"))
SCHEMA = Schema(
    *(NestedField(number, name, found) for number, (name, found) in enumerate(_NAMES.items(), start=1)),
    NestedField(50, "a b", StructType(NestedField(51, "c`d", "long"))),
    NestedField(52, "m", MapType(53, "string", 54, "string")),
    NestedField(55, "t", StructType(*_NESTED, NestedField(62, "n", StructType(NestedField(63, "c", "long"))))),
)
"""Beside `a`, `b` and `c`, a column for each kind of literal, and some with names that are hard to read."""

LAW = Schema(
    NestedField(1, "i", "long"),
    NestedField(2, "d", "decimal(10,2)"),
    NestedField(3, "f", "double"),
    NestedField(4, "s", "string"),
    NestedField(5, "b", "boolean"),
    NestedField(6, "dt", "date"),
    NestedField(7, "nt", "timestamp"),
    NestedField(8, "ts", "timestamptz"),
)
"""The columns of the rows that laws are about."""


def micros(year: int, month: int, day: int, *clock: int) -> int:
    hour, minute, second, microsecond = (*clock, 0, 0, 0, 0)[:4]
    moment = datetime(year, month, day, hour, minute, second, microsecond, tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // MICROS


def said(text: str) -> str:
    return as_sql(read_where(text, SCHEMA), SCHEMA, for_people=True)


def of_file(name: str) -> list[Any]:
    """A JSON value a line."""
    path = Path(__file__).with_name(f"{name}.jsonl")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").rstrip().split("\n")]


ERRORS: list[tuple[str, str]] = of_file("errors")
"""Texts with the mark ^, which is no part of them, where the error is; and what was expected there."""


@pytest.mark.parametrize(("text", "expected"), of_file("written"), ids=lambda value: value)
def test_text_is_read_and_what_is_written_of_it_reads_back_as_the_same(text: str, expected: str) -> None:
    assert said(text) == expected
    condition = read_where(text, SCHEMA)
    written = as_sql(condition, SCHEMA)
    # `NOT isnan(c)` is true for NULL, so the text of such a test has two parts.
    if "?" not in written and "isnan" not in written:
        assert simplified(read_where(written, SCHEMA), lambda test: test) == simplified(condition, lambda test: test)


@pytest.mark.parametrize("text", of_file("open"))
def test_what_is_not_evaluated_is_open_and_keeps_its_text(text: str) -> None:
    read = read_where(text, SCHEMA)
    assert isinstance(read, Everything)
    assert not read.exact
    assert read.text == text.removeprefix("NOT ")
    assert read_where(f"NOT ({text})", SCHEMA) == read


@pytest.mark.parametrize(("marked", "expected"), ERRORS, ids=[text for text, _ in ERRORS])
def test_error_says_where_and_what_was_expected(marked: str, expected: str) -> None:
    position = marked.index("^")
    text = marked.replace("^", "", 1)
    with pytest.raises(WhereSyntaxError) as caught:
        read_where(text, SCHEMA)
    assert (caught.value.text, caught.value.position, caught.value.expected) == (text, position, expected)


@pytest.mark.parametrize("marked", ["s = '^\ud800'", "s LIKE 'x^\udcff%'", "s IN ('word', '^\udcff')", "`^\ud800` = 5"])
def test_half_a_character_is_an_error_that_prints(marked: str) -> None:
    with pytest.raises(WhereSyntaxError, match="UTF-8") as caught:
        read_where(marked.replace("^", ""), SCHEMA)
    assert caught.value.position == marked.index("^")
    assert str(caught.value).encode()


def test_error_shows_the_line_with_a_caret() -> None:
    with pytest.raises(WhereSyntaxError) as caught:
        read_where("a = 1\n\tAND b = 'x' -- why\n\tAND c LIKE", SCHEMA)
    assert str(caught.value) == f"expected a value\n  \tAND c LIKE\n  {' ' * 11}^"


@pytest.mark.parametrize(
    ("wall", "instant"),
    [
        pytest.param((2024, 3, 31, 2, 30), (2024, 3, 31, 1, 30), id="skipped: goes on from before"),
        pytest.param((2024, 10, 27, 2, 30), (2024, 10, 27, 0, 30), id="twice: the earlier"),
    ],
)
def test_session_timestamp_at_a_clock_change_is_that_of_java(wall: tuple[int, ...], instant: tuple[int, ...]) -> None:
    assert instant_at(micros(*wall), ZoneInfo("Europe/Berlin")) == Literal("timestamptz", micros(*instant))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("(" * 2_000 + "a = 1" + ")" * 2_000, "a = 1", id="parentheses"),
        pytest.param("NOT " * 2_001 + "a = 1", "a <> 1", id="NOTs"),
        pytest.param("NOT (" * 2_000 + "a = 1" + ")" * 2_000, "a = 1", id="NOTs in parentheses"),
        pytest.param("NOT (flag AND NOT (flag AND a = 1))", "flag = FALSE OR (flag = TRUE AND a = 1)", id="two levels"),
        pytest.param("f(" * 2_000 + "a" + ")" * 2_000, "f(" * 2_000 + "a" + ")" * 2_000, id="functions"),
        pytest.param("a" + " + 1" * 2_000 + " = 1", "a" + " + 1" * 2_000 + " = 1", id="sums"),
        pytest.param("s = '" + "x''" * 100_000 + "'", "s = '" + "x\\'" * 100_000 + "'", id="string"),
    ],
)
def test_size_costs_no_recursion(text: str, expected: str) -> None:
    assert said(text) == expected


@pytest.mark.parametrize("word", ["AND", "OR"])
@pytest.mark.parametrize(("length", "nested"), [(2_000, False), (1_001, True)])
def test_chain_becomes_one_junction(word: str, length: int, nested: bool) -> None:
    first, *others = (f"a <> {number}" for number in range(length))
    text = "(" * len(others) + first + "".join(f" {word} {other})" for other in others)
    read = read_where(text if nested else f" {word} ".join([first, *others]), SCHEMA)
    assert isinstance(read, Conjunction if word == "AND" else Disjunction)
    assert [leaf.test for leaf in read.children if isinstance(leaf, Leaf)] == [
        SetTest((number,), negated=True) for number in range(length)
    ]


def test_list_of_very_many_literals() -> None:
    numbers = range(amount(20_000, 100_000))
    parsed = read_where(f"a IN ({', '.join(map(str, numbers))})", SCHEMA)
    assert parsed == Leaf(1, SetTest(tuple(numbers)), "long")
    strings = read_where("s NOT IN (" + ",".join(f"'{number}'" for number in numbers) + ")", SCHEMA)
    assert isinstance(strings, Leaf)
    assert isinstance(strings.test, SetTest)
    assert (len(strings.test.keys), strings.test.negated) == (len(numbers), True)
    assert said(f"a IN ({', '.join(map(str, numbers))})").endswith(f", 49, ... {len(numbers) - 50} more)")


def test_list_with_a_member_that_is_no_plain_literal_is_read_to_its_end() -> None:
    assert said("a IN (" + "1, " * 500 + "(2), - 3)") == "a IN (-3, 1, 2)"


def test_alternation_beyond_the_limit_is_left_open_at_the_bottom() -> None:
    """Readers may recurse: the tree stays shallow, and what it says of the levels above stays true."""
    levels = 1_000
    parsed = read_where("(i = 1 AND (s = '2' OR " * levels + "i = 3" + "))" * levels, LAW)
    assert _depth(parsed) <= MAX_ALTERNATIONS + 2
    rows = [{"i": i, "s": s} for i, s in ((0, "0"), (1, "2"), (1, "0"))]
    assert [selects(parsed, row, LAW) for row in rows] == [False, True, None]


def _depth(condition: Predicate) -> int:
    children = condition.children if isinstance(condition, Conjunction | Disjunction) else ()
    return 1 + max(map(_depth, children), default=0)


@settings(max_examples=amount(60, 1_000))
@given(st.data(), predicates, rows)
def test_law_text_selects_the_oracles_rows(data: st.DataObject, predicate: oracle.Predicate, row: oracle.Row) -> None:
    text = data.draw(render(predicate))
    truth = oracle.evaluate(predicate, row)
    assert selects(read_where(text, LAW), row, LAW) is (truth is True)
    assert selects(read_where(f"NOT ({text})", LAW), row, LAW) is (truth is False)


@given(st.data(), predicates, st.integers(0, 200), st.sampled_from("'\"`()=<>!-/*\\.,x5 "))
def test_law_damaged_text_parses_or_gives_a_syntax_error_inside_of_it(
    data: st.DataObject, predicate: oracle.Predicate, position: int, character: str
) -> None:
    text = data.draw(render(predicate))
    assert_parses_or_points_inside(text[:position] + character + text[position + 1 :])


@given(st.text(st.sampled_from("aAnNdDoOrRiIsSlLeE019.'\"`()[]=<>!-+/*%\\,: \n"), max_size=30))
def test_law_any_text_parses_or_gives_a_syntax_error(text: str) -> None:
    assert_parses_or_points_inside(text)


def assert_parses_or_points_inside(text: str) -> None:
    try:
        read_where(text, LAW)
    except NotFoundError:
        return
    except WhereSyntaxError as found:
        error = found
    else:
        return
    assert error.text == text
    assert 0 <= error.position <= len(text)
    assert error.expected
