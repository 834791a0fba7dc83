"""What reports and the log say of a WHERE: SQL that reads back, and no literal where literals are not wanted."""

import json
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
from tests.planner.laws.random_tables import RandomTable, random_predicate
from tests.planner.spark.requests.jvm_messages import (
    column,
    columns_of,
    comparison,
    condition_node,
    literal,
    request_of,
)

_FILTERS = {
    '{"type": "eq", "term": "i", "value": 5}': ("i = 5", "i = ?"),
    '{"type": "not-null", "term": "i"}': ("i IS NOT NULL", "i IS NOT NULL"),
    '{"type": "in", "term": "i", "values": [7, 8]}': ("i IN (7, 8)", "i IN (?)"),
    '{"type": "starts-with", "term": "s.t", "value": "a%"}': ("`s.t` LIKE 'a\\\\%%'", "`s.t` LIKE ?"),
    '{"type": "not", "child": {"type": "lt", "term": "i", "value": 5}}': ("i >= 5", "i >= ?"),
    # These match NULL in Iceberg.
    '{"type": "not-eq", "term": "i", "value": 1}': ("(i <> 1 OR i IS NULL)", "(i <> ? OR i IS NULL)"),
    '{"type": "not-in", "term": "i", "values": [2, 1]}': (
        "(i NOT IN (1, 2) OR i IS NULL)",
        "(i NOT IN (?) OR i IS NULL)",
    ),
    '{"type": "not-starts-with", "term": "s.t", "value": "a"}': (
        "(NOT (`s.t` LIKE 'a%') OR `s.t` IS NULL)",
        "(NOT (`s.t` LIKE ?) OR `s.t` IS NULL)",
    ),
    '{"type": "is-null", "term": "i"}': ("i IS NULL", "i IS NULL"),
    '{"type": "is-nan", "term": "i"}': ("?", "?"),
    "true": ("TRUE", "TRUE"),
}


def _where(*, literals: bool, **parts: Any) -> str:
    return where_of(request_of(**parts), literals=literals)


@pytest.mark.parametrize("text", _FILTERS)
def test_filters_are_sql(text: str) -> None:
    assert (_where(literals=True, filters=(text,)), _where(literals=False, filters=(text,))) == _FILTERS[text]


@pytest.mark.parametrize(
    ("type_name", "value", "sql"),
    [
        ("string", "it's \\", r"c = 'it\'s \\'"),
        ("boolean", True, "c = TRUE"),
        ("long", -3, "c = -3"),
        ("double", 1.5, "c = 1.5D"),
        ("float", 2, "c = 2.0F"),
        ("double", "NaN", "?"),
        ("decimal(9,2)", "1.50", "c = 1.50"),
        ("date", "2020-02-29", "c = DATE '2020-02-29'"),
        ("time", "12:30:00", "c = TIME '12:30:00'"),
        ("timestamp", "2020-02-29T12:30:00.000001", "c = TIMESTAMP_NTZ '2020-02-29 12:30:00.000001'"),
        ("timestamptz", "2020-02-29T12:30:00+00:00", "c = TIMESTAMP '2020-02-29 12:30:00+00:00'"),
        ("binary", "00FF", "c = X'00ff'"),
        ("fixed[2]", "00FF", "c = X'00ff'"),
        ("uuid", "f79c3e09-677c-4bbd-a479-3f349cb785e7", "c = 'f79c3e09-677c-4bbd-a479-3f349cb785e7'"),
        ("decimal(9,2)", "no number", "?"),
    ],
)
def test_literals_of_filters_are_those_of_the_columns_type(type_name: str, value: object, sql: str) -> None:
    columns = columns_of((1, "c", type_name))
    said = _where(literals=True, filters=(json.dumps({"type": "eq", "term": "c", "value": value}),), columns=columns)

    assert said == sql
    assert sql == "?" or isinstance(read_where(said, schema_of(columns)), Leaf)


def test_each_conjunct_is_said_once() -> None:
    """Spark pushes a condition as a filter, and the rule sends the same condition."""
    three, five = ({"type": operator, "term": "i", "value": n} for operator, n in (("gt", 3), ("eq", 5)))
    both = {"type": "and", "left": three, "right": {"type": "and", "left": five, "right": three}}
    i = column(1, "int")
    condition = {"node": "and", "parts": [comparison(i, "=", literal(5)), {"node": "is-not-null", "value": i}]}
    said = {"filters": (json.dumps(both), json.dumps(five)), "conditions": (condition,)}

    assert _where(literals=True, **said) == "i > 3 AND i = 5 AND i IS NOT NULL"
    assert _where(literals=False, **said) == "i > ? AND i = ? AND i IS NOT NULL"


def test_filters_of_any_depth() -> None:
    leaf = {"type": "lt", "term": "i", "value": 3}
    either = {
        "type": "not",
        "child": {"type": "or", "left": leaf, "right": {"type": "and", "left": leaf, "right": leaf}},
    }
    assert _where(literals=True, filters=(json.dumps(either),)) == "i >= 3 AND (i >= 3 OR i >= 3)"
    deep = '{"type":"not","child":' * 900 + json.dumps(leaf) + "}" * 900
    assert _where(literals=True, filters=(deep,)) == "i < 3"


def test_people_are_told_what_sql_cannot_say() -> None:
    year = json.dumps({"type": "eq", "term": {"type": "transform", "transform": "year", "term": "t"}, "value": 54})
    unknown = {"node": "unknown", "name": "equalto"}
    keys = {"field": 1, "name": "i", "type": "int", "operator": "=", "keys": [1, 2], "source": "join"}
    parts = {"filters": (year, "not json"), "conditions": (unknown,), "runtime_keys": (keys,)}
    request = request_of(**parts)

    assert _where(literals=True) == "TRUE"
    # The keys of joins are never in SQL text.
    assert where_of(request, literals=True) == "? AND i IN (?)"
    told = where_of(request, literals=True, for_people=True)
    assert told == f"{year} AND not json AND equalto(...) AND i in 2 keys"
    long = request_of(filters=(json.dumps({"type": "in", "term": "i", "values": list(range(1_000))}),))
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
        assert not any(character.isdigit() for character in hidden.replace("?", ""))
        assert "'" not in hidden.replace("m[?]", "")
