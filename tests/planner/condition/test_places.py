"""Literals are placed on the scale of their column as Spark compares them, or the test is unknown."""

import math
from decimal import Decimal

import pytest
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    Not,
    NotEqualTo,
    NotStartsWith,
    Or,
    StartsWith,
)
from pyiceberg.expressions.literals import StringLiteral
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType

from planner.condition.iceberg_filters import file_filter
from planner.condition.sql.parser import read_where
from planner.condition.tree.nodes import EVERY_ROW, NO_ROW, UNKNOWN, Conjunction, Disjunction, Leaf, Predicate
from planner.condition.tree.simplify import simplified
from puffin_index.errors import DefinitionError, NotFoundError
from puffin_index.keys.leaf import LeafTest, NullTest, RangeTest, SetTest
from puffin_index.keys.value_types import value_type_named
from puffin_index.keys.values import key_of
from tests.planner.condition.iceberg_json import read_expression

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


def of_iceberg(expression: BooleanExpression) -> Predicate:
    return simplified(read_expression(expression, SCHEMA))


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


def test_a_float_column_compares_as_double_in_sql_and_as_float_in_icebergs_filters() -> None:
    in_sql, in_iceberg = of_sql("f = 0.1D"), of_iceberg(EqualTo("f", 0.1))

    assert isinstance(in_sql, Leaf)
    assert in_sql.test == SetTest((key_of(0.1, DOUBLE),))
    assert isinstance(in_iceberg, Leaf)
    assert in_iceberg.test == SetTest((key_of(0.10000000149011612, DOUBLE),))


def test_a_decimal_comes_as_a_string_in_icebergs_filters() -> None:
    assert of_iceberg(EqualTo("m", "12.30")) == Leaf(6, SetTest((1230,)), "decimal(10,2)")
    assert of_iceberg(EqualTo("m", "twelve")) == UNKNOWN
    assert of_iceberg(EqualTo("m", "NaN")) == UNKNOWN
    assert of_iceberg(LessThan("m", Decimal("1e1000"))) == Leaf(6, RangeTest(None, None), "decimal(10,2)")


def test_icebergs_negations_keep_null_rows() -> None:
    """`NOT (i <=> 5)` reaches Iceberg as `not (i = 5)` and is true for NULL."""
    expected = Disjunction((Leaf(1, SetTest((5,), negated=True), "int"), Leaf(1, NullTest(is_null=True), "int")))

    assert of_iceberg(Not(EqualTo("i", 5))) == of_iceberg(NotEqualTo("i", 5)) == expected
    assert of_iceberg(Not(NotEqualTo("i", 5))) == of_iceberg(EqualTo("i", 5)) == Leaf(1, SetTest((5,)), "int")


def test_half_a_character_in_icebergs_filters_is_unknown() -> None:
    """Java writes `?` for it, other writers bytes of their own: no key stands for it."""
    half = StringLiteral("\ud800")
    for compare in (EqualTo, NotEqualTo, LessThan, GreaterThanOrEqual, StartsWith, NotStartsWith):
        assert of_iceberg(compare("s", half)) == UNKNOWN, compare
    assert of_iceberg(In("s", {half, StringLiteral("word")})) == UNKNOWN


def test_what_lies_very_deep_is_unknown() -> None:
    expression: BooleanExpression = EqualTo("i", 0)
    for number in range(150):
        expression = Or(EqualTo("l", number), And(GreaterThan("i", number), expression))
    bound, depth = of_iceberg(expression), 0
    while isinstance(bound, Conjunction | Disjunction):
        bound, depth = bound.children[-1], depth + 1

    assert bound == UNKNOWN
    assert 90 < depth < 110


def test_an_unknown_column_is_named_with_those_that_are_there() -> None:
    for read in (lambda: of_sql("x = 1"), lambda: of_iceberg(EqualTo("x", 1))):
        with pytest.raises(NotFoundError, match="there is no column 'x'; the table has: i, l, s"):
            read()


def test_only_icebergs_json_says_bytes_in_hexadecimal() -> None:
    schema = Schema(NestedField(1, "raw", "binary"))
    assert read_expression(EqualTo("raw", "00fF"), schema) == Leaf(1, SetTest((b"\x00\xff",)), "binary")
    assert read_expression(EqualTo("raw", "0g"), schema) == read_where("raw = '00fF'", schema) == UNKNOWN


@pytest.mark.parametrize("dialect", ["sql", "iceberg"])
def test_a_uuid_is_its_text_in_lower_case(dialect: str) -> None:
    text = "00000002-ac00-0000-0000-00000000000f"
    key = bytes.fromhex(text.replace("-", ""))

    def equals(*values: str) -> Predicate:
        members = ", ".join(f"'{value}'" for value in values)
        return of_sql(f"u IN ({members})") if dialect == "sql" else of_iceberg(In("u", set(values)))

    def less(value: str) -> Predicate:
        return of_sql(f"u < '{value}'") if dialect == "sql" else of_iceberg(LessThan("u", value))

    assert equals(text) == Leaf(12, SetTest((key,)), "uuid")
    assert less(text) == Leaf(12, RangeTest(None, key, high_inclusive=False), "uuid")
    for other in (text.upper(), text.replace("-", ""), "{" + text + "}", "00000002-a", ""):
        assert equals(other) == Leaf(12, SetTest(()), "uuid")
        assert equals(other, text) == Leaf(12, SetTest((key,)), "uuid")
        assert less(other) == UNKNOWN
    # As a test it holds for all rows but NULL; from Iceberg it holds for those, too.
    assert of_sql(f"u <> '{text.upper()}'") == Leaf(12, SetTest((), negated=True), "uuid")


@pytest.mark.parametrize(
    "text",
    [
        "i = 5",
        "i IN (3, 7) OR l IS NULL",
        "i > 3 AND i <= 9",
        "s = 'é'",
        "m = 1.25 OR big >= -3",
        "d < 1.5D",
        "day = DATE '1970-01-02'",
        "at >= TIMESTAMP_NTZ '1970-01-01 00:00:01'",
        "st.leaf IS NOT NULL",
        "TRUE",
        "FALSE",
    ],
)
def test_what_is_written_for_iceberg_says_the_same(text: str) -> None:
    assert of_iceberg(file_filter(read_where(text, SCHEMA), SCHEMA)) == of_sql(text)


def test_what_iceberg_cannot_say_keeps_all_files_that_may_match() -> None:
    for text, name in (("f > 0.1D", "f"), ("NOT (s LIKE 'a%')", "s"), ("isnan(d)", "d")):
        assert of_iceberg(file_filter(read_where(text, SCHEMA), SCHEMA)) == of_sql(f"{name} IS NOT NULL")
    for text in ("upper(s) = 'X'", "i = 5 OR i = l", "i = '5'"):
        with pytest.raises(DefinitionError, match="Iceberg cannot choose data files by this predicate"):
            file_filter(read_where(text, SCHEMA), SCHEMA)
