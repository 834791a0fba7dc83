"""Partial answers: what they hold, and that joining them loses nothing."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from planner.aggregates.partial import SUM, Partial, table_of
from planner.aggregates.question import ask
from puffin_index.keys.arrow_keys import NEGATIVE_ZERO_KEY, column_of
from puffin_index.keys.columns import Column
from puffin_index.keys.value_types import value_type_named
from puffin_index.kinds.held_keys import Totals

SCHEMA = Schema(
    NestedField(1, "k", "long", required=False),
    NestedField(2, "g", "string", required=False),
    NestedField(3, "x", "double", required=False),
)
QUESTION = ask("count(*), sum(k), min(k), max(k), count(DISTINCT k)", "g", SCHEMA)


def columns(k: list[int | None], g: list[str | None]) -> dict[int, Column]:
    return {1: column_of(pa.array(k, pa.int64()), value_type_named("long")), 2: column_of(pa.array(g), STRING)}


STRING = value_type_named("string")


def test_positive_and_negative_values_are_summed_apart() -> None:
    partial = Partial.of_rows(QUESTION, columns([5, -3, None, 7], ["a", "a", "a", None]), 4)
    rows = {row["group 0"]: row for row in partial.groups.to_pylist()}
    assert rows[b"a"] == {
        "group 0": b"a",
        "rows": 3,
        "values 0": 2,
        "positive 0": Decimal(5),
        "negative 0": Decimal(-3),
        "least 0": -3,
        "greatest 0": 5,
    }
    assert rows[None]["rows"] == 1
    assert partial.groups.schema.field("positive 0").type == SUM
    found = {(row["group 0"], row["key"]) for row in partial.distinct[0].to_pylist()}
    assert found == {(b"a", 5), (b"a", -3), (None, 7)}


def test_joined_parts_are_the_whole() -> None:
    values = [5, -3, None, 7, 2**63 - 1, 2**63 - 1, 7, -(2**63)]
    names = ["a", "a", "a", None, "b", "b", None, "c"]
    whole = Partial.of_rows(QUESTION, columns(values, names), 8)
    parts = [
        Partial.of_rows(QUESTION, columns(values[at : at + 3], names[at : at + 3]), len(values[at : at + 3]))
        for at in (0, 3, 6)
    ]
    joined = Partial.merged(QUESTION, parts)
    order = [("group 0", "ascending")]
    assert joined.groups.sort_by(order).equals(whole.groups.sort_by(order))
    assert sorted(map(str, joined.distinct[0].to_pylist())) == sorted(map(str, whole.distinct[0].to_pylist()))
    assert {row["group 0"]: row["positive 0"] for row in joined.groups.to_pylist()}[b"b"] == 2 * (2**63 - 1)


def test_rows_may_stand_for_several() -> None:
    weighed = Partial.of_rows(QUESTION, columns([5, -3], ["a", None]), 2, np.array([3, 2]))
    repeated = Partial.of_rows(QUESTION, columns([5, 5, 5, -3, -3], ["a"] * 3 + [None] * 2), 5)
    assert weighed.groups.equals(repeated.groups)


def test_totals_of_several_sets_are_one_group() -> None:
    question = ask("sum(k), max(k), count(k)", (), SCHEMA)
    totals = [Totals(2, 2**70, -1, -1, 9), Totals(0)]
    assert table_of(Partial.of_totals(question, [2, 3], {1: [Totals(2, 8, -1, -1, 9), Totals(0)]}, {})).to_pylist() == [
        {"sum(k)": 7, "max(k)": 9, "count(k)": 2}
    ]
    partial = Partial.of_totals(question, [2, 3], {1: totals}, {})
    assert partial.groups["positive 0"].to_pylist() == [Decimal(2**70)]


def test_no_rows_are_one_group_of_nothing_or_no_group() -> None:
    assert Partial.merged(QUESTION, []).groups.num_rows == 0
    question = ask("count(*), sum(k), min(k)", (), SCHEMA)
    assert table_of(Partial.merged(question, [])).to_pylist() == [{"count(*)": 0, "sum(k)": None, "min(k)": None}]


def test_a_negative_zero_keeps_its_sign() -> None:
    question = ask("min(x), max(x)", (), SCHEMA)
    zeros = {3: column_of(pa.array([0.0, -0.0]), value_type_named("double"))}
    partial = Partial.of_rows(question, zeros, 2, signed_zeros={3: np.array([False, True])})
    assert (partial.groups["least 0"].to_pylist(), partial.groups["greatest 0"].to_pylist()) == (
        [NEGATIVE_ZERO_KEY],
        [0],
    )
    assert str(table_of(partial).to_pylist()) == "[{'min(x)': -0.0, 'max(x)': 0.0}]"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("count(*)", ["count(*)"]),
        (" SUM ( k ) , min(g) as `the least`", ["sum(k)", "the least"]),
        ("count( distinct `x` )", ["count(DISTINCT x)"]),
    ],
)
def test_names_of_results(text: str, names: list[str]) -> None:
    assert [one.name for one in ask(text, "", SCHEMA).aggregates] == names
