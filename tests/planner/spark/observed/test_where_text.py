"""What the log says of a WHERE: SQL that reads back, and no literal where literals are not wanted."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest

from planner.spark.observe.where_text import where_of, without_literals
from planner.spark.requests.wire import Request
from planner.where.parser import parse_where
from tests.planner.laws.random_tables import RandomTable, random_predicate
from tests.planner.spark.observed.hook_requests import condition_node
from tests.planner.spark.requests.test_hook_filters import REQUEST

_FILTERS = {
    '{"type": "eq", "term": "i", "value": 5}': ("i = 5", "i = ?"),
    '{"type": "not-null", "term": "i"}': ("i IS NOT NULL", "i IS NOT NULL"),
    '{"type": "in", "term": "i", "values": [7, 8]}': ("i IN (7, 8)", "i IN (?)"),
    '{"type": "starts-with", "term": "s.t", "value": "a%"}': ("`s.t` LIKE 'a\\\\%%'", "`s.t` LIKE ?"),
    '{"type": "not", "child": {"type": "lt", "term": "i", "value": 5}}': ("NOT (i < 5)", "NOT (i < ?)"),
}


def _where(*, literals: bool, **parts: Any) -> str:
    request = Request.model_validate(REQUEST | {"filters": (), "conditions": ()} | parts)
    return where_of(request, literals=literals)


@pytest.mark.parametrize("text", _FILTERS)
def test_filters_are_sql(text: str) -> None:
    assert (_where(literals=True, filters=(text,)), _where(literals=False, filters=(text,))) == _FILTERS[text]


def test_nothing_said_is_true() -> None:
    assert _where(literals=True) == "TRUE"


def test_keys_of_joins_are_never_in_the_text() -> None:
    keys = {"field": 1, "name": "i", "type": "int", "operator": "=", "keys": [4711], "source": "join"}
    assert _where(literals=True, runtime_keys=(keys,)) == "i IN (?)"


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


def test_conditions_read_back_and_hide_what_they_compare_with(tmp_path: Path) -> None:
    random = Random(7)
    table = RandomTable.make(7, tmp_path)
    schema = table.index.data_table.schema()
    columns = schema.model_dump_json()
    for _ in range(200):
        node = condition_node(random_predicate(random, table), schema)
        text = _where(literals=True, conditions=(node,), columns=columns)
        if "?" not in text:
            parse_where(text)
        hidden = _where(literals=False, conditions=(node,), columns=columns)
        assert not any(character.isdigit() for character in hidden.replace("?", ""))
        assert "'" not in hidden.replace("m[?]", "")
    table.close()


def test_decimals_keep_their_digits() -> None:
    literal = {"node": "decimal", "type": "decimal(30,4)", "content": str(Decimal("1.5000"))}
    column = {"node": "column", "type": "decimal(30,4)", "field": 1, "path": ["i"]}
    node = {"node": "comparison", "left": column, "operator": "<", "right": literal}
    assert _where(literals=True, conditions=(node,)) == "i < 1.5000"
