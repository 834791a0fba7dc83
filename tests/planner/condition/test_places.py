"""Literals are placed on the scale of their column as Spark compares them, or the test is unknown."""

import math
from decimal import Decimal

import pytest
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    NotEqualTo,
    NotNull,
    Or,
)
from pyiceberg.expressions.literals import DateLiteral, TimestampLiteral
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType

from planner.condition.iceberg_filters import file_filter
from planner.condition.sql.parser import read_where
from planner.condition.tree.nodes import EVERY_ROW, NO_ROW, UNKNOWN, Conjunction, Disjunction, Leaf, Predicate
from planner.condition.tree.simplify import simplified
from puffin_index.errors import DefinitionError, NotFoundError
from puffin_index.keys.leaf import LeafTest, RangeTest, SetTest
from puffin_index.keys.value_types import value_type_named
from puffin_index.keys.values import key_of

SCHEMA = Schema(
    NestedField(1, "i", "int"),
    NestedField(2, "l", "long"),
    NestedField(3, "s", "string"),
    NestedField(4, "f", "float"),
    NestedField(5, "d", "double"),
    NestedField(6, "m", "decimal(10,2)"),
    NestedField(7, "big", "decimal(38,2)"),
    NestedField(8, "day", "date"),
    NestedField(9, "at", "timestamp"),
    NestedField(10, "st", StructType(NestedField(11, "leaf", "int"))),
    NestedField(12, "u", "uuid"),
)
DOUBLE = value_type_named("double")


def of_sql(text: str) -> Predicate:
    return simplified(read_where(text, SCHEMA))


@pytest.mark.parametrize(
    ("text", "test"),
    [
        ("I = 5", SetTest((5,))),
        ("i < 1.5", RangeTest(None, 1)),
        ("i > 1.5", RangeTest(1, None, low_inclusive=False)),
        ("i >= -1.5", RangeTest(-2, None, low_inclusive=False)),
        ("i = 1.5", SetTest(())),
        ("i = 5.0", SetTest((5,))),
        ("l < 1.5D", RangeTest(None, 1)),
        ("l = 1180591620717411303424", SetTest(())),
        ("m < 1180591620717411303424", RangeTest(None, None)),
        ("m > 1180591620717411303424", SetTest(())),
        ("m > -1180591620717411303424", RangeTest(None, None)),
        # Whatever Spark rounds, all of the type is on one side.
        ("l < 1e20", RangeTest(None, None)),
        ("l <= -1e300", SetTest(())),
        ("l = 9.3e18", SetTest(())),
        ("i >= -1e10F", RangeTest(None, None)),
        ("i <> 1e20", SetTest((), negated=True)),
        ("m = 1e20", SetTest(())),
        ("m > -100000002D", RangeTest(None, None)),
        ("big < 1e37", RangeTest(None, None)),
        ("big < 99999999999999999999999999999999999999", RangeTest(None, None)),
        ("big > -9999999999999999999999999999999999999.9", RangeTest(None, None)),
        ("at = DATE '1970-01-02'", SetTest((86_400_000_000,))),
        ("s = 'é'", SetTest(("é".encode(),))),
        ("s LIKE 'ab%'", RangeTest(b"ab", b"ac", high_inclusive=False)),
        ("m = 1.255", SetTest(())),
        ("m < 1.255", RangeTest(None, 125)),
        ("m = 3", SetTest((300,))),
        ("d = 0D", SetTest((key_of(-0.0, DOUBLE),))),
        ("d = 3", SetTest((key_of(3.0, DOUBLE),))),
        ("isnan(d)", SetTest((key_of(math.nan, DOUBLE),))),
        ("day = '1970-01-02'", SetTest((1,))),
        ("at = '1970-01-01T00:00:01'", SetTest((1_000_000,))),
    ],
)
def test_a_literal_is_placed_exactly(text: str, test: LeafTest) -> None:
    bound = of_sql(text)
    assert isinstance(bound, Leaf), bound
    assert bound.test == test


@pytest.mark.parametrize(
    "text",
    [
        "i = '5'",
        "s = 5",
        "l < 9.2e18",
        "l < 9223372036854775808D",
        "m = 1.25D",
        "m < 1e8",
        "big < 1e36",
        "big < 1000000000000000000000000000000000000.5",
        "at = '1970-01-01T00:00:01+02:00'",
        # Spark has the text of a uuid.
        "u = X'00000002ac000000000000000000000f'",
        "i LIKE '5'",
        "day LIKE '1970-01-01'",
        "day = TIMESTAMP_NTZ '1970-01-01 00:00:00'",
        # Spark rounds these to the type it compares in, and finds 0.
        "l = 1e-19BD",
        "i = 1e-29BD",
        "big = 0.001",
        "day = 'yesterday'",
        "st IS NOT NULL",
        "isnan(i)",
        # Spark decides some of these without the value, or has NULL for all rows.
        "(i = '5') IS NULL",
    ],
)
def test_what_cannot_be_placed_for_certain_is_unknown_also_under_not(text: str) -> None:
    assert of_sql(text) == UNKNOWN
    assert of_sql(f"NOT ({text})") == UNKNOWN


@pytest.mark.parametrize("column", ["i", "l", "length(s)", "year(day)", "st.leaf"])
def test_order_by_a_number_beyond_64_bits_is_decided_without_the_value(column: str) -> None:
    for text in ("< 9223372036854775808", "<= 1e20BD", ">= -9223372036854775808.5"):
        assert (of_sql(f"{column} {text}"), of_sql(f"NOT {column} {text}")) == (EVERY_ROW, NO_ROW)
        assert of_sql(f"({column} {text}) IS NULL") == NO_ROW
    assert of_sql(f"-9223372036854775809 > {column}") == NO_ROW


def test_what_lies_very_deep_is_unknown() -> None:
    text = "i = 0"
    for number in range(150):
        text = f"l = {number} OR (i > {number} AND ({text}))"
    bound, depth = of_sql(text), 0
    while isinstance(bound, Conjunction | Disjunction):
        bound, depth = bound.children[-1], depth + 1

    assert bound == UNKNOWN
    assert 90 < depth < 110


def test_an_unknown_column_is_named_with_those_that_are_there() -> None:
    with pytest.raises(NotFoundError, match="there is no column 'x'; the table has: i, l, s"):
        of_sql("x = 1")


def test_a_uuid_is_its_text_in_lower_case() -> None:
    text = "00000002-ac00-0000-0000-00000000000f"
    key = bytes.fromhex(text.replace("-", ""))

    def equals(*values: str) -> Predicate:
        members = ", ".join(f"'{value}'" for value in values)
        return of_sql(f"u IN ({members})")

    def less(value: str) -> Predicate:
        return of_sql(f"u < '{value}'")

    assert equals(text) == Leaf(12, SetTest((key,)), "uuid")
    assert less(text) == Leaf(12, RangeTest(None, key, high_inclusive=False), "uuid")
    for other in (text.upper(), text.replace("-", ""), "{" + text + "}", "00000002-a", ""):
        assert equals(other) == Leaf(12, SetTest(()), "uuid")
        assert equals(other, text) == Leaf(12, SetTest((key,)), "uuid")
        assert less(other) == UNKNOWN
    # As a test it holds for all rows but NULL.
    assert of_sql(f"u <> '{text.upper()}'") == Leaf(12, SetTest((), negated=True), "uuid")


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("i = 5", EqualTo(term="i", value=5)),
        ("i IN (3, 7) OR l IS NULL", Or(In(term="i", values={3, 7}), IsNull(term="l"))),
        ("i > 3 AND i <= 9", And(GreaterThan(term="i", value=3), LessThanOrEqual(term="i", value=9))),
        ("s = 'é'", EqualTo(term="s", value="é")),
        (
            "m = 1.25 OR big >= -3",
            Or(EqualTo(term="m", value=Decimal("1.25")), GreaterThanOrEqual(term="big", value=Decimal("-3.00"))),
        ),
        ("d < 1.5D", LessThan(term="d", value=1.5)),
        ("i <> 5", And(NotEqualTo(term="i", value=5), NotNull(term="i"))),
        ("day = DATE '1970-01-02'", EqualTo(term="day", value=DateLiteral(1))),
        ("at >= TIMESTAMP_NTZ '1970-01-01 00:00:01'", GreaterThanOrEqual(term="at", value=TimestampLiteral(1_000_000))),
        ("st.leaf IS NOT NULL", NotNull(term="st.leaf")),
        ("TRUE", AlwaysTrue()),
        ("FALSE", AlwaysFalse()),
        # What Iceberg cannot say keeps all files that may match.
        ("f > 0.1D", NotNull(term="f")),
        ("NOT (s LIKE 'a%')", NotNull(term="s")),
        ("isnan(d)", NotNull(term="d")),
    ],
)
def test_what_is_written_for_iceberg_says_the_same(text: str, written: BooleanExpression) -> None:
    assert file_filter(read_where(text, SCHEMA), SCHEMA) == written


@pytest.mark.parametrize("text", ["upper(s) = 'X'", "i = 5 OR i = l", "i = '5'"])
def test_what_files_say_nothing_of_is_refused(text: str) -> None:
    with pytest.raises(DefinitionError, match="Iceberg cannot choose data files by this predicate"):
        file_filter(read_where(text, SCHEMA), SCHEMA)
