"""Partial answers: what they hold, and that joining them loses nothing."""

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from planner.aggregates.partial import Partial, table_of
from planner.aggregates.question import ask
from puffin_index.keys.arrow_keys import NEGATIVE_ZERO_KEY, column_of
from puffin_index.keys.value_types import value_type_named

SCHEMA = Schema(
    NestedField(1, "k", "long", required=False),
    NestedField(2, "g", "string", required=False),
    NestedField(3, "x", "double", required=False),
)


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
