"""Tests of values: what is certain is what Spark says, and the rest is open."""

import operator
import re
from collections.abc import Callable
from datetime import date, datetime
from typing import Any, Literal, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import MapType, NestedField, StructType

from planner.condition.rows import Residual, leaf_mask
from planner.condition.sql.parser import read_where
from planner.condition.tree.nodes import ByValue, Leaf, ValueTest
from planner.condition.value_tests import like_regex, rlike_regex, split_like, verdicts
from puffin_index.errors import UnsupportedError
from puffin_index.keys.arrow_keys import column_of
from puffin_index.keys.columns import Column
from puffin_index.keys.map_key import MapKey
from puffin_index.keys.value_types import value_type_named
from tests.planner.laws.expression_oracle import without_words

LETTERS = "aZ \n\u0085\u2028ßİ😀%_"


def schema_of(value_type: str) -> Schema:
    return Schema(NestedField(1, "a", value_type))


def decided(where: str, values: pa.Array, value_type: str) -> list[bool | None]:
    """What a test says of each value; None where the answer is open."""
    column = column_of(values, value_type_named(value_type))
    read = without_words(read_where(where, schema_of(value_type)))
    if isinstance(read, Leaf):
        return leaf_mask(read.test, column).tolist()
    assert isinstance(read, ByValue)
    assert isinstance(read.test, ValueTest)
    matching, certain = verdicts(read.test, column)
    assert matching[~certain].all()
    return [bool(match) if sure else None for match, sure in zip(matching, certain, strict=True)]


TEXTS = ["Ab", " ab ", "", "äb", "a\nb", None]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("upper(a) = 'AB'", [True, False, False, None, False, False]),
        ("trim(a) IN ('ab', '')", [False, True, True, False, False, False]),
        ("NOT trim(a) >= 'a'", [True, False, True, False, False, False]),
        ("length(a) NOT IN (2, 4)", [False, False, True, False, True, False]),
        ("a NOT LIKE '%b'", [False, True, True, False, False, False]),
        ("a ILIKE 'aB'", [True, False, False, None, False, False]),
        ("a RLIKE '^.b$'", [True, False, False, True, None, False]),
        ("NOT a RLIKE 'b'", [False, False, True, False, None, False]),
        ("upper(a) RLIKE 'B$'", [True, False, False, None, None, False]),
        ("upper(a) IS NULL", [False, False, False, False, False, True]),
        ("length(a) IS NOT NULL", [True, True, True, True, True, False]),
    ],
)
def test_texts(where: str, expected: list[bool | None]) -> None:
    assert decided(where, pa.array(TEXTS), "string") == expected
    assert decided(where, pa.array(TEXTS).dictionary_encode(), "string") == expected
    assert decided(where, pa.array(TEXTS)[2:], "string") == expected[2:]
    assert decided(where, pa.array(["x" * 100] * 64 + TEXTS)[64:], "string") == expected
    assert decided(where, pa.array([], pa.string()), "string") == []
    assert decided(where, pa.nulls(1), "string") == expected[-1:]


def test_bytes_that_are_not_utf8_are_open_and_all_others_are_not() -> None:
    bad = [b"\xff", b"a\x80", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe4\xb8"]
    good = [b"", b"a", "\x7f\x80\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff".encode()]
    values = pa.array([*bad, *good, None], pa.binary())

    assert decided("length(a) < 2", values, "string") == [None] * len(bad) + [True, True, False, False]
    assert decided("length(a) >= 2", values, "string") == [None] * len(bad) + [False, False, True, False]
    assert decided("trim(a) LIKE '%'", values, "string") == [None] * len(bad) + [True, True, True, False]


@pytest.mark.parametrize("where", ["a LIKE 'a_'", "a LIKE '%d'", "a NOT LIKE '%d'"])
def test_a_row_that_is_not_utf8_is_refused_without_spark(where: str) -> None:
    residual = Residual.certain(read_where(where, schema_of("string")))
    assert not residual.matching(lambda _: pa.array([b"word", None], pa.binary()), 2).all()
    with pytest.raises(UnsupportedError, match="not UTF-8"):
        residual.matching(lambda _: pa.array([b"word", b"a\xff"], pa.binary()), 2)


DAYS = [date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(2024, 2, 29), date(9999, 12, 31), None]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("year(a) = 2024", [date(2024, 2, 29)]),
        ("month(a) IN (2, 12)", [date(1969, 12, 31), date(2024, 2, 29), date(9999, 12, 31)]),
        ("dayofmonth(a) > 29", [date(1969, 12, 31), date(9999, 12, 31)]),
        ("quarter(a) <> 1", [date(1969, 12, 31), date(9999, 12, 31)]),
        ("year(a) < 1970", [date(1, 1, 1), date(1969, 12, 31)]),
    ],
)
def test_dates_and_timestamps(where: str, expected: list[date]) -> None:
    last_moments = [day and datetime(day.year, day.month, day.day, 23, 59, 59, 999_999) for day in DAYS]
    flags = [day in expected for day in DAYS]

    assert decided(where, pa.array(DAYS), "date") == flags
    assert decided(where, pa.array(last_moments, pa.timestamp("us")), "timestamp") == flags


def test_years_of_more_than_four_digits() -> None:
    days = pa.array([-(2**31), 2**31 - 1, -719_529, -719_528], pa.int32()).cast(pa.date32())

    assert decided("year(a) IN (-5877641, 5881580, -1)", days, "date") == [True, True, True, False]
    assert decided("day(a) IN (23, 11, 31)", days, "date") == [True, True, True, False]


@pytest.mark.parametrize("value_type", ["date", "timestamp"])
@pytest.mark.parametrize("comparison", ["=", "<>", "<", "<=", ">", ">="])
@pytest.mark.parametrize("year", [-290_000, -1, 0, 1, 1969, 1970, 2024, 9999, 290_000])
def test_years_are_ranges_of_keys(
    value_type: str, comparison: Literal["=", "<>", "<", "<=", ">", ">="], year: int
) -> None:
    same = ValueTest("year", "=" if comparison == "<>" else comparison, (year,), negated=comparison == "<>")
    for where, test in ((f"year(a) {comparison} {year}", same), (f"NOT year(a) {comparison} {year}", ~same)):
        read = read_where(where, schema_of(value_type))
        assert isinstance(read, Leaf)
        borders = np.arange(year - 1, year + 3, dtype=np.int64) - 1970
        days = borders.astype("datetime64[Y]").astype("datetime64[D]").astype(np.int64)
        firsts = days * (86_400_000_000 if value_type == "timestamp" else 1)
        keys = np.concatenate([firsts - 1, firsts, firsts + 1])
        column = Column(value_type_named(value_type), len(keys), keys, None)

        assert leaf_mask(read.test, column).tolist() == verdicts(test, column)[0].tolist()


@pytest.mark.parametrize(
    "where", ["month(a) = 3", "year(a) IN (1, 2)", "year(a) = 290001", "year(a) > -9223372036854775808"]
)
def test_other_tests_are_no_range_of_keys(where: str) -> None:
    assert isinstance(read_where(where, schema_of("timestamp")), ByValue)


SCHEMA = Schema(
    NestedField(1, "s", "string"),
    NestedField(2, "day", "date"),
    NestedField(3, "at", "timestamp"),
    NestedField(4, "zoned", "timestamptz"),
    NestedField(5, "l", "long"),
    NestedField(6, "id", "uuid"),
    NestedField(7, "raw", "binary"),
    NestedField(8, "st", StructType(NestedField(9, "s", "string"))),
    NestedField(10, "m", MapType(11, "string", 12, "string")),
)


@pytest.mark.parametrize(
    ("where", "column"),
    [
        ("upper(s) = 'X'", 1),
        ("S NOT RLIKE 'x'", 1),
        ("length(st.s) = 1", 9),
        ("trim(m['k']) = 'x'", MapKey(10, "k")),
        ("trim(m.k) = 'x'", MapKey(10, "k")),
        ("year(day) = 1", 2),
        ("month(at) = 1", 3),
        ("month(zoned) = 1", None),
        ("year(s) IS NULL", None),
        ("upper(day) = 'X'", None),
        ("length(l) = 1", None),
        ("length(raw) = 1", None),
        ("id ILIKE 'x'", None),
        ("l ILIKE '1%'", None),
        ("s RLIKE '((a{100}){100}){100}'", None),
    ],
)
def test_the_column_has_a_type_that_spark_does_not_convert(where: str, column: int | MapKey | None) -> None:
    read = without_words(read_where(where, SCHEMA))
    assert isinstance(read, Leaf | ByValue) is (column is not None)
    assert not isinstance(read, Leaf | ByValue) or read.field_id == column


FUNCTIONS: dict[str, Callable[[str], Any]] = {
    "upper": str.upper,
    "lower": str.lower,
    "trim": lambda text: text.strip(" "),
    "ltrim": lambda text: text.lstrip(" "),
    "rtrim": lambda text: text.rstrip(" "),
    "length": len,
}
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "IN": operator.eq,
}


@given(
    st.sampled_from([*FUNCTIONS]),
    st.sampled_from([*COMPARE, "LIKE", "RLIKE"]),
    st.lists(st.one_of(st.none(), st.text(LETTERS, max_size=4)), max_size=20),
    st.text("aZ %_", max_size=3),
    st.booleans(),
)
def test_law_what_is_certain_is_what_python_says(
    function: str, word: str, values: list[str | None], literal: str, negated: bool
) -> None:
    pattern = word in ("LIKE", "RLIKE")
    right: Any = len(literal) if function == "length" else literal
    if pattern and function == "length":
        return
    test = ValueTest(cast(Any, function), cast(Any, word), (right,), negated=negated)
    matching, certain = verdicts(test, column_of(pa.array(values, pa.string()), value_type_named("string")))

    def satisfies(value: str | None) -> bool:
        if value is None:
            return False
        result = FUNCTIONS[function](value)
        if word == "LIKE":
            regex = "".join({"%": ".*", "_": "."}.get(c, re.escape(c)) for c in right)
            return (re.fullmatch(regex, result, re.DOTALL) is not None) is not negated
        if word == "RLIKE":
            return (re.search(re.escape(right), result) is not None) is not negated
        left, beside = (result, right) if function == "length" else (result.encode(), right.encode())
        return COMPARE[word](left, beside) is not negated

    expected = np.array([satisfies(value) for value in values], np.bool_)
    assert (matching == expected)[certain].all()
    assert matching[~certain].all()
    folds = function in ("upper", "lower")
    breaks = re.compile("[\n\r\u0085\u2028\u2029]")
    for value, is_certain in zip(values, certain.tolist(), strict=True):
        is_open = value is not None and (
            (folds and not value.isascii()) or (word == "RLIKE" and breaks.search(value) is not None)
        )
        assert is_certain is not is_open


def matched(regex: str, texts: list[str]) -> list[str]:
    flags = pc.match_substring_regex(pa.array(texts), regex).to_pylist()
    return [text for text, flag in zip(texts, flags, strict=True) if flag]


def test_an_escape_may_be_any_character() -> None:
    assert matched(like_regex(".%.._", "."), ["%.x", "%.", ".%.x"]) == ["%.x"]
    assert split_like("ab.%c%d", ".") == ("ab%c", "%d")


@pytest.mark.parametrize(
    "pattern",
    [
        *(r"\s", r"\b", r"\W", r"\1", r"\Q", r"\p{L}", r"\x41", "a\\"),
        *("a*?", "a*+", "a**", "*a", "^*", "|*", "(*a)", "a{,3}", "a{3,2}", "a{101}", "a{2,101}", "a{", "a}", "]"),
        *("(?i)a", "(?:a)", "(a", "a)", "[]a]", "[^]", "[a&&b]", "[[a]]", "[a-]", "[z-a]", "[!-/]", "[", "[a\\s]"),
        *("(a|^)+", "(a*)*", "(a?b?){2}", "(^|b)?", "((a|)b*)+", "($)*", "()*", "((a*)){2}", "(a{0,2}|b)*"),
        *("ä", "[ä]", "a\n", "😀"),
    ],
)
def test_what_java_may_read_in_another_way_has_no_expression(pattern: str) -> None:
    assert rlike_regex(pattern) is None
