"""Filters of Iceberg's JSON read as SQL."""

from __future__ import annotations

import json

import pytest

from planner.spark.requests.filter_text import sql_of_filter
from planner.where.parser import parse_where
from planner.where.unknown import Unknown


@pytest.mark.parametrize(
    ("node", "sql"),
    [
        ({"type": "eq", "term": "s", "value": "it's \\"}, r"s = 'it\'s \\'"),
        ({"type": "not-eq", "term": "b", "value": True}, "b <> TRUE"),
        ({"type": "gt-eq", "term": "p", "value": 1.5}, "p >= 1.5"),
        ({"type": "in", "term": "i", "values": [1, 2]}, "i IN (1, 2)"),
        ({"type": "not-in", "term": "s", "values": ["a"]}, "s NOT IN ('a')"),
        ({"type": "is-null", "term": "i"}, "i IS NULL"),
        ({"type": "not-null", "term": "i"}, "i IS NOT NULL"),
        ({"type": "not-nan", "term": "d"}, "NOT isnan(d)"),
        ({"type": "starts-with", "term": "s", "value": "a"}, "startswith(s, 'a')"),
        ({"type": "not-starts-with", "term": "s", "value": "a"}, "NOT startswith(s, 'a')"),
        (True, "TRUE"),
    ],
)
def test_leaves(node: object, sql: str) -> None:
    assert sql_of_filter(json.dumps(node)) == sql
    assert not isinstance(parse_where(sql), Unknown)


def test_junctions_of_any_depth() -> None:
    leaf = {"type": "lt", "term": "i", "value": 3}
    both = {"type": "and", "left": leaf, "right": {"type": "not", "child": {"type": "or", "left": leaf, "right": leaf}}}
    assert sql_of_filter(json.dumps(both)) == "(i < 3 AND NOT ((i < 3 OR i < 3)))"
    deep = '{"type":"not","child":' * 900 + json.dumps(leaf) + "}" * 900
    assert sql_of_filter(deep).count("NOT") == 900


def test_what_is_no_sql_stays() -> None:
    year = {"type": "transform", "transform": "year", "term": "t"}
    assert sql_of_filter(json.dumps({"type": "eq", "term": year, "value": 54})) == "year(t) = 54"
    assert sql_of_filter("not json") == "not json"
    assert sql_of_filter('{"type": "new"}') == '{"type": "new"}'
    long = {"type": "in", "term": "i", "values": list(range(1_000))}
    assert sql_of_filter(json.dumps(long)).endswith(", 49, ... 950 more)")
