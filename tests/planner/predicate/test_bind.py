"""Literals are placed on the scale of their column as Spark compares them, or the leaf is unknown."""

from __future__ import annotations

import math
from datetime import date
from decimal import Decimal
from typing import Literal

import pytest
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    LessThan,
    LessThanOrEqual,
    Not,
    NotEqualTo,
    NotNull,
    Or,
    StartsWith,
)
from pyiceberg.expressions.literals import literal
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    UUIDType,
)

from planner.predicate.bind import bind
from planner.predicate.nodes import UNKNOWN, Conjunction, Disjunction, Leaf
from puffin_index.errors import NotFoundError
from puffin_index.keys.leaf import LeafTest, NullTest, RangeTest, SetTest
from puffin_index.keys.value_types import value_type_named
from puffin_index.keys.values import key_of

SCHEMA = Schema(
    NestedField(1, "i", IntegerType()),
    NestedField(2, "l", LongType()),
    NestedField(3, "s", StringType()),
    NestedField(4, "f", FloatType()),
    NestedField(5, "d", DoubleType()),
    NestedField(6, "m", DecimalType(10, 2)),
    NestedField(7, "big", DecimalType(38, 2)),
    NestedField(8, "day", DateType()),
    NestedField(9, "at", TimestampType()),
    NestedField(10, "st", StructType(NestedField(11, "leaf", IntegerType()))),
    NestedField(12, "u", UUIDType()),
)
DOUBLE = value_type_named("double")


def leaf_test_of(expression: BooleanExpression) -> LeafTest:
    bound = bind(expression, SCHEMA)
    assert isinstance(bound, Leaf), bound
    return bound.test


@pytest.mark.parametrize(
    ("expression", "test"),
    [
        (EqualTo("i", 5), SetTest((5,))),
        (NotEqualTo("i", 5), SetTest((5,), negated=True)),
        (EqualTo("I", 5), SetTest((5,))),
        (LessThan("i", Decimal("1.5")), RangeTest(None, 1)),
        (GreaterThan("i", Decimal("1.5")), RangeTest(1, None, low_inclusive=False)),
        (GreaterThanOrEqual("i", Decimal("-1.5")), RangeTest(-2, None, low_inclusive=False)),
        (EqualTo("i", Decimal("1.5")), SetTest(())),
        (EqualTo("i", Decimal("5.0")), SetTest((5,))),
        (LessThan("l", 1.5), RangeTest(None, 1)),
        (EqualTo("l", 2**70), SetTest(())),
        (LessThan("l", 2**70), RangeTest(None, None)),
        (GreaterThan("l", 2**70), SetTest(())),
        (GreaterThan("l", -(2**70)), RangeTest(None, None)),
        (LessThan("l", Decimal("1e1000")), RangeTest(None, None)),
        (EqualTo("at", literal(date(1970, 1, 2))), SetTest((86_400_000_000,))),
        (LessThan("d", math.inf), RangeTest(None, key_of(math.inf, DOUBLE), high_inclusive=False)),
        (In("i", [7, 3, 3]), SetTest((3, 7))),
        (EqualTo("s", "é"), SetTest(("é".encode(),))),
        (StartsWith("s", "ab"), RangeTest(b"ab", b"ac", high_inclusive=False)),
        (EqualTo("m", Decimal("1.25")), SetTest((125,))),
        (EqualTo("m", Decimal("1.255")), SetTest(())),
        (LessThan("m", Decimal("1.255")), RangeTest(None, 125)),
        (EqualTo("m", 3), SetTest((300,))),
        (EqualTo("d", 0.0), SetTest((key_of(-0.0, DOUBLE),))),
        (EqualTo("d", 3), SetTest((key_of(3.0, DOUBLE),))),
        (IsNaN("d"), SetTest((key_of(math.nan, DOUBLE),))),
        (EqualTo("day", "1970-01-02"), SetTest((1,))),
        (EqualTo("at", "1970-01-01T00:00:01"), SetTest((1_000_000,))),
        (NotNull("st.leaf"), NullTest(is_null=False)),
    ],
)
def test_a_literal_is_placed_exactly(expression: BooleanExpression, test: LeafTest) -> None:
    assert leaf_test_of(expression) == test


@pytest.mark.parametrize(
    "expression",
    [
        EqualTo("i", "5"),
        EqualTo("s", 5),
        LessThan("l", 1e300),
        EqualTo("m", 1.25),
        EqualTo("at", "1970-01-01T00:00:01+02:00"),
        # Spark rounds these to the type it compares in, and finds 0.
        EqualTo("l", Decimal("1e-19")),
        EqualTo("i", Decimal("1e-29")),
        EqualTo("big", Decimal("0.001")),
        EqualTo("day", "yesterday"),
        NotNull("st"),
        IsNaN("i"),
    ],
)
def test_what_cannot_be_placed_for_certain_is_unknown_also_under_not(expression: BooleanExpression) -> None:
    assert bind(expression, SCHEMA) == UNKNOWN
    assert bind(Not(expression), SCHEMA) == UNKNOWN


def test_a_float_column_compares_as_double_in_sql_and_as_float_in_icebergs_filters() -> None:
    in_sql, in_iceberg = bind(EqualTo("f", 0.1), SCHEMA), bind(EqualTo("f", 0.1), SCHEMA, "iceberg")

    assert isinstance(in_sql, Leaf)
    assert in_sql.test == SetTest((key_of(0.1, DOUBLE),))
    assert isinstance(in_iceberg, Leaf)
    assert in_iceberg.test == SetTest((key_of(0.10000000149011612, DOUBLE),))


def test_a_decimal_comes_as_a_string_in_icebergs_filters() -> None:
    bound = bind(EqualTo("m", "12.30"), SCHEMA, "iceberg")

    assert bound == Leaf(6, SetTest((1230,)), "decimal(10,2)")
    assert bind(EqualTo("m", "twelve"), SCHEMA, "iceberg") == UNKNOWN
    assert bind(EqualTo("m", "NaN"), SCHEMA, "iceberg") == UNKNOWN


def test_icebergs_negations_keep_null_rows() -> None:
    """`NOT (i <=> 5)` reaches Iceberg as `not (i = 5)` and is true for NULL."""
    bound = bind(Not(EqualTo("i", 5)), SCHEMA, "iceberg")

    assert bound == Disjunction((Leaf(1, SetTest((5,), negated=True), "int"), Leaf(1, NullTest(is_null=True), "int")))


def test_not_is_pushed_through_and_and_or() -> None:
    inner = And(EqualTo("i", 1), Or(LessThan("l", 2), NotNull("s")))

    bound = bind(Not(inner), SCHEMA)

    assert bound == Disjunction(
        (
            Leaf(1, SetTest((1,), negated=True), "int"),
            Conjunction((Leaf(2, RangeTest(2, None), "long"), Leaf(3, NullTest(is_null=True), "string"))),
        )
    )


def test_ranges_of_one_column_become_one_and_not_null_is_implied() -> None:
    expression: BooleanExpression = And(
        And(NotNull("i"), GreaterThan("i", 3)), And(LessThanOrEqual("i", 9), LessThan("i", 20))
    )

    assert bind(expression, SCHEMA) == Leaf(1, RangeTest(3, 9, low_inclusive=False), "int")


def test_sets_of_one_column_become_one() -> None:
    either: BooleanExpression = Or(Or(EqualTo("i", 5), EqualTo("l", 1)), Or(In("i", {7, 5}), NotEqualTo("i", 9)))
    neither: BooleanExpression = And(And(NotEqualTo("i", 5), EqualTo("i", 1)), NotEqualTo("i", 4))

    assert bind(either, SCHEMA) == Disjunction(
        (Leaf(1, SetTest((5, 7)), "int"), Leaf(2, SetTest((1,)), "long"), Leaf(1, SetTest((9,), negated=True), "int"))
    )
    assert bind(neither, SCHEMA) == Leaf(1, SetTest((1,)), "int")


def test_what_lies_very_deep_is_unknown() -> None:
    expression: BooleanExpression = EqualTo("i", 0)
    for number in range(5_000):
        expression = Or(EqualTo("l", number), And(GreaterThan("i", number), expression))
    bound, depth = bind(expression, SCHEMA), 0
    while isinstance(bound, Conjunction | Disjunction):
        bound, depth = bound.children[-1], depth + 1

    assert bound == UNKNOWN
    assert 90 < depth < 110


def test_deep_trees_bind() -> None:
    expression: BooleanExpression = EqualTo("i", 0)
    for number in range(5_000):
        expression = Not(expression) if number % 2 else Not(Not(expression))

    assert isinstance(bind(expression, SCHEMA), Leaf)


def test_an_unknown_column_is_named_with_those_that_are_there() -> None:
    with pytest.raises(NotFoundError, match="there is no column 'x'; the table has: i, l, s"):
        bind(EqualTo("x", 1), SCHEMA)


@pytest.mark.parametrize(
    ("dialect", "text", "known"), [("iceberg", "00fF", True), ("iceberg", "0g", False), ("sql", "00fF", False)]
)
def test_only_icebergs_json_says_bytes_in_hexadecimal(
    dialect: Literal["iceberg", "sql"], text: str, known: bool
) -> None:
    schema = Schema(NestedField(1, "raw", BinaryType()))
    bound = bind(EqualTo("raw", text), schema, dialect)
    assert bound == (Leaf(1, SetTest((b"\x00\xff",)), "binary") if known else UNKNOWN)


@pytest.mark.parametrize("dialect", ["sql", "iceberg"])
def test_a_uuid_is_its_text_in_lower_case(dialect: Literal["sql", "iceberg"]) -> None:
    text = "00000002-ac00-0000-0000-00000000000f"
    key = bytes.fromhex(text.replace("-", ""))
    assert bind(EqualTo("u", text), SCHEMA, dialect=dialect) == Leaf(12, SetTest((key,)), "uuid")
    assert bind(LessThan("u", text), SCHEMA, dialect=dialect) == Leaf(
        12, RangeTest(None, key, high_inclusive=False), "uuid"
    )
    for other in (text.upper(), text.replace("-", ""), "{" + text + "}", "00000002-a", ""):
        assert bind(EqualTo("u", other), SCHEMA, dialect=dialect) == Leaf(12, SetTest(()), "uuid")
        assert bind(In("u", {other, text}), SCHEMA, dialect=dialect) == Leaf(12, SetTest((key,)), "uuid")
        assert bind(LessThan("u", other), SCHEMA, dialect=dialect) == UNKNOWN
    # As a leaf it holds for all rows but NULL; from Iceberg it holds for those, too.
    assert bind(NotEqualTo("u", text.upper()), SCHEMA) == Leaf(12, SetTest((), negated=True), "uuid")
