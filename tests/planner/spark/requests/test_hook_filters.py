"""What the hook hands over is bound as Spark means it; other types than the column's, and lost bytes, are unknown."""

import json
import logging
from base64 import b64encode
from typing import Any

import pytest

from planner.condition.tree.nodes import UNKNOWN, Conjunction, Disjunction, Leaf, Predicate
from planner.spark.requests.hook_filters import bind_filters
from planner.spark.requests.wire import Request
from puffin_index.keys.leaf import LeafTest, RangeTest, SetTest
from puffin_index.keys.map_key import MapKey

_MAP = {"type": "map", "key-id": 7, "key": "string", "value-id": 8, "value": "double", "value-required": False}
SCHEMA = json.dumps(
    {
        "type": "struct",
        "schema-id": 0,
        "fields": [
            {"id": field_id, "name": name, "required": False, "type": field_type, "initial-default": None}
            for field_id, name, field_type in (
                (1, "i", "int"),
                (2, "s.t", "string"),
                (3, "v", "variant"),
                (4, "m", _MAP),
                (5, "key", "uuid"),
                (6, "place", "geometry(srid:3857)"),
            )
        ],
    }
)


REQUEST = {
    "table": "lake.ns.t",
    "uuid": "u",
    "snapshot": None,
    "runtime_fields": {},
    "runtime_keys": [],
    "wanted": None,
    "aggregates": None,
    "sql": None,
    "columns": SCHEMA,
    "name_mapping": None,
    "catalog": {},
    "settings": {},
    "session": "s",
    "thread": 1,
    "version": "",
    "unindexed": 0,
    "unindexed_files": 0,
}


def bound(*conditions: dict[str, Any], filters: tuple[str, ...] = ()) -> Predicate:
    return bind_filters(Request.model_validate(REQUEST | {"filters": filters, "conditions": conditions}))


def column(field: int, type_name: str) -> dict[str, Any]:
    return {"node": "column", "type": type_name, "field": field, "path": ["a", "b.c"]}


def text(content: bytes) -> dict[str, Any]:
    return {"node": "literal", "type": "string", "content": b64encode(content).decode()}


def integer(content: int, type_name: str = "int") -> dict[str, Any]:
    return {"node": "literal", "type": type_name, "content": content}


def comparison(left: dict[str, Any], operator: str, right: dict[str, Any]) -> dict[str, Any]:
    return {"node": "comparison", "left": left, "operator": operator, "right": right}


def floating(bits: int) -> dict[str, Any]:
    return {"node": "literal", "type": "double", "content": bits}


def element(type_name: str, key: dict[str, Any]) -> dict[str, Any]:
    return {"node": "column", "type": type_name, "field": 4, "path": ["m"], "key": key}


S = column(2, "string")
ONE_HALF = floating(0x3FE0000000000000)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (comparison(S, "=", text(b"a\xff")), SetTest((b"a\xff",))),
        (comparison(text(b"a\xff"), "<", S), RangeTest(b"a\xff", None, low_inclusive=False)),
        (comparison(S, "starts with", text(b"a\xff")), RangeTest(b"a\xff", b"b", high_inclusive=False)),
        (comparison(S, "starts with", text(b"\xff\xff")), RangeTest(b"\xff\xff", None, high_inclusive=False)),
        ({"node": "in", "value": S, "members": [text(b"b"), text(b"a\xff")]}, SetTest((b"a\xff", b"b"))),
        ({"node": "not", "part": comparison(S, "=", text(b"a\xff"))}, SetTest((b"a\xff",), True)),
        (comparison(column(1, "int"), "=", integer(5)), SetTest((5,))),
    ],
)
def test_bytes_and_numbers_arrive_as_they_are(node: dict[str, Any], expected: LeafTest) -> None:
    predicate = bound(node)

    assert isinstance(predicate, Leaf)
    assert predicate.test == expected


@pytest.mark.parametrize(
    "node",
    [
        comparison(column(1, "long"), "=", integer(5, "long")),
        comparison(column(1, "int"), "=", integer(5, "date")),
        comparison(column(3, "string"), "=", text(b"a")),
        comparison(column(6, "binary"), "=", {"node": "literal", "type": "binary", "content": ""}),
        comparison(column(99, "int"), "=", integer(5)),
        comparison(column(5, "string"), "<", text(b"\xff")),
        comparison(S, "=", S),
        comparison(integer(5), "=", integer(5)),
        comparison(element("int", text(b"k")), "=", integer(5)),
        comparison(element("double", integer(5)), "=", ONE_HALF),
        comparison(element("double", text(b"k\xff")), "=", ONE_HALF),
        comparison(element("double", text(b"k")), "=", floating(0x7FF8000000000000)),
        {"node": "in", "value": S, "members": [text(b"a"), integer(5)]},
        {"node": "is-null", "value": integer(5)},
        {"node": "unknown", "name": "cast"},
        S,
    ],
)
def test_other_types_than_the_columns_are_unknown(node: dict[str, Any]) -> None:
    assert bound(node) == UNKNOWN
    assert bound({"node": "not", "part": node}) == UNKNOWN


def test_a_key_of_a_map_is_found() -> None:
    predicate = bound(comparison(element("double", text(b"k")), "=", ONE_HALF))

    assert isinstance(predicate, Leaf)
    assert predicate.field_id == MapKey(4, "k")


def test_the_known_rest_of_a_conjunction_stays() -> None:
    known = comparison(column(1, "int"), "=", integer(5))
    rest = {"node": "and", "parts": [{"node": "unknown", "name": "cast"}, known]}

    assert isinstance(bound(rest), Conjunction)
    assert isinstance(bound({"node": "or", "parts": [rest, comparison(S, "=", text(b"b"))]}), Disjunction)
    assert bound({"node": "or", "parts": [{"node": "unknown", "name": "cast"}, known]}) == UNKNOWN


def test_icebergs_filters_lose_only_what_is_unknown() -> None:
    number = '{"type":"eq","term":"i","value":5}'
    for lost in (
        '{"type":"eq","term":"s.t","value":"a\ufffd"}',
        '{"type":"not-eq","term":"s.t","value":"a\ufffd"}',
        '{"type":"starts-with","term":"s.t","value":"a\ufffd"}',
        '{"type":"in","term":"s.t","values":["b","a\ufffd"]}',
        '{"type":"is-null","term":"v"}',
        '{"type":"eq","term":{"type":"transform","transform":"year","term":"i"},"value":5}',
    ):
        assert bound(filters=(lost,)) == UNKNOWN
        assert bound(filters=(f'{{"type":"not","child":{lost}}}',)) == UNKNOWN
        assert isinstance(bound(filters=(lost, number)), Conjunction)
        assert isinstance(bound(filters=(f'{{"type":"and","left":{lost},"right":{number}}}',)), Conjunction)
        assert bound(filters=(f'{{"type":"or","left":{lost},"right":{number}}}',)) == UNKNOWN


@pytest.mark.parametrize(
    "node",
    [
        {"node": "cast"},
        {"node": "not", "part": {"node": "comparison", "left": S, "operator": "~", "right": S}},
        comparison(S, "=", text(b"a")) | {"collation": "de"},
        {"node": "literal", "type": "string", "content": 5},
        "a > 5",
        None,
    ],
)
def test_a_condition_that_does_not_parse_is_unknown_and_loses_nothing_else(
    node: Any, caplog: pytest.LogCaptureFixture
) -> None:
    known = comparison(column(1, "int"), "=", integer(5))

    with caplog.at_level(logging.WARNING):
        assert bound(node) == UNKNOWN
        assert isinstance(bound(known, node), Conjunction)
    assert "condition not understood, all its rows are kept" in caplog.text


@pytest.mark.parametrize("broken", ["", '{"type":"eq","term":"i"', "i = 5"])
def test_a_filter_that_does_not_parse_is_unknown_and_loses_nothing_else(
    broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert bound(filters=(broken,)) == UNKNOWN
        assert isinstance(bound(filters=(broken, '{"type":"eq","term":"i","value":5}')), Conjunction)
    assert "filter not understood, all its rows are kept" in caplog.text
