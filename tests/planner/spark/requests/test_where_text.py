"""What reports and the log say of a WHERE: SQL that reads back, and no literal where literals are not wanted."""

from random import Random
from typing import Any

import pytest
from pydantic import TypeAdapter
from pyiceberg.catalog.sql import SqlCatalog

from planner.condition.as_sql import without_literals
from planner.condition.spark.nodes import ConditionNode
from planner.condition.spark.read import read_node
from planner.condition.sql.parser import read_where
from planner.condition.tree.nodes import Leaf
from planner.condition.tree.simplify import simplified
from planner.spark.requests.hook_filters import schema_of, where_of
from tests.planner.laws.random_predicates import random_predicate
from tests.planner.laws.random_tables import RandomTable
from tests.planner.spark.requests.jvm_messages import (
    column,
    columns_of,
    comparison,
    condition_node,
    encoded,
    literal,
    packed,
    request_of,
)


def _where(*, literals: bool, **parts: Any) -> str:
    return where_of(request_of(**parts), literals=literals)


@pytest.mark.parametrize(
    ("type_name", "content", "sql"),
    [
        ("string", encoded(b"it's \\"), r"c = 'it\'s \\'"),
        ("boolean", True, "c = TRUE"),
        ("long", -3, "c = -3"),
        ("double", 0x3FF8000000000000, "c = 1.5D"),
        ("float", 0x4000000000000000, "c = 2.0F"),
        ("double", 0x7FF8000000000000, "?"),
        ("decimal(9,2)", "1.50", "c = 1.50"),
        ("date", 18_321, "c = DATE '2020-02-29'"),
        ("timestamp", 1_582_979_400_000_001, "c = TIMESTAMP_NTZ '2020-02-29 12:30:00.000001'"),
        ("timestamptz", 1_582_979_400_000_000, "c = TIMESTAMP '2020-02-29 12:30:00+00:00'"),
        ("binary", encoded(b"\0\xff"), "c = X'00ff'"),
    ],
)
def test_literals_are_those_of_the_columns_type(type_name: str, content: object, sql: str) -> None:
    columns = columns_of((1, "c", type_name))
    node = comparison(column(1, type_name), "=", literal(content, type_name))
    said = _where(literals=True, filters=(node,), columns=columns)

    assert said == sql
    assert sql == "?" or isinstance(read_where(said, schema_of(columns)), Leaf)


def test_each_conjunct_is_said_once() -> None:
    """Spark pushes a condition as a filter, and the rule sends the same condition."""
    i = column(1, "int")
    three, five = comparison(i, ">", literal(3)), comparison(i, "<=>", literal(5))
    both = {"node": "and", "parts": [three, five, three]}
    condition = {"node": "and", "parts": [comparison(i, "=", literal(5)), {"node": "is-not-null", "value": i}]}
    said = {"filters": (both, five), "conditions": (condition,)}

    assert _where(literals=True, **said) == "i > 3 AND i = 5 AND i IS NOT NULL"
    assert _where(literals=False, **said) == "i > ? AND i = ? AND i IS NOT NULL"


def test_people_are_told_what_sql_cannot_say() -> None:
    unknown = {"node": "unknown", "name": "equalto"}
    keys = {"field": 1, "name": "i", "type": "int", "operator": "=", "keys": [1, 2], "source": "join"}
    parts = {
        "filters": ({"node": "unknown", "name": "EQ"}, "no node"),
        "conditions": (unknown,),
        "runtime_keys": (keys,),
    }
    request = request_of(**parts)

    assert _where(literals=True) == "TRUE"
    # The keys of joins are never in SQL text.
    assert where_of(request, literals=True) == "? AND i IN (?)"
    told = where_of(request, literals=True, for_people=True)
    assert told == "EQ(...) AND unreadable(...) AND equalto(...) AND i in 2 keys"
    long = request_of(filters=({"node": "in", "value": column(1, "int"), "members": packed([*range(1_000)], "N")},))
    assert where_of(long, literals=True, for_people=True).endswith(", 49, ... 950 more)")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(upper(s) LIKE '%SECRET%')", "(upper(s) LIKE ?)"),
        ("((lo_2 % 7) = 3)", "((lo_2 % ?) = ?)"),
        (r"(s = 'it\'s 5')", "(s = ?)"),
        ("(price > 1.5D)", "(price > ?)"),
        ("(d = -12.50BD)", "(d = ?)"),
        ("(x = 'open", "?"),
    ],
)
def test_functions_lose_their_literals(text: str, expected: str) -> None:
    assert without_literals(text) == expected


def test_conditions_read_back_and_hide_what_they_compare_with(local_catalog: SqlCatalog) -> None:
    random = Random(7)
    table = RandomTable.make(7, local_catalog)
    schema = table.index.data_table.schema()
    columns = schema.model_dump_json()
    for _ in range(200):
        node = condition_node(random_predicate(random, table), schema)
        text = _where(literals=True, conditions=(node,), columns=columns)
        condition = read_node(TypeAdapter[ConditionNode](ConditionNode).validate_python(node), schema)
        # `NOT isnan(c)` is true for NULL, so the text of such a test has two parts.
        if "?" not in text and "isnan" not in text:
            assert simplified(read_where(text, schema)) == simplified(condition), text
        hidden = _where(literals=False, conditions=(node,), columns=columns)
        assert not any(character.isdigit() for character in hidden.replace(") = 0", ""))
        assert "'" not in hidden.replace("m[?]", "")
