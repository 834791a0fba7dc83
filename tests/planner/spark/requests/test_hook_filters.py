"""What the hook hands over is bound as Spark means it; other types than the column's, and lost bytes, are unknown."""

import logging
from typing import Any

import pytest

from planner.condition.tree.nodes import UNKNOWN, Conjunction, Disjunction, Leaf, Predicate
from planner.spark.requests.hook_filters import bind_filters
from puffin_index.keys.leaf import LeafTest, RangeTest, SetTest
from tests.planner.spark.requests.jvm_messages import column, comparison, literal, request_of, text


def bound(*conditions: dict[str, Any], filters: tuple[dict[str, Any], ...] = ()) -> Predicate:
    return bind_filters(request_of(filters=filters, conditions=conditions))


def element(type_name: str, key: dict[str, Any]) -> dict[str, Any]:
    return {"node": "column", "type": type_name, "field": 4, "path": ["m"], "key": key}


S = column(2, "string")
ONE_HALF = literal(0x3FE0000000000000, "double")


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (comparison(S, "=", text(b"a\xff")), SetTest((b"a\xff",))),
        (comparison(text(b"a\xff"), "<", S), RangeTest(b"a\xff", None, low_inclusive=False)),
        (comparison(S, "starts with", text(b"a\xff")), RangeTest(b"a\xff", b"b", high_inclusive=False)),
        (comparison(S, "starts with", text(b"\xff\xff")), RangeTest(b"\xff\xff", None, high_inclusive=False)),
        ({"node": "in", "value": S, "members": [text(b"b"), text(b"a\xff")]}, SetTest((b"a\xff", b"b"))),
        ({"node": "not", "part": comparison(S, "=", text(b"a\xff"))}, SetTest((b"a\xff",), True)),
        (comparison(column(1, "int"), "=", literal(5)), SetTest((5,))),
    ],
)
def test_bytes_and_numbers_arrive_as_they_are(node: dict[str, Any], expected: LeafTest) -> None:
    predicate = bound(node)

    assert isinstance(predicate, Leaf)
    assert predicate.test == expected


@pytest.mark.parametrize(
    "node",
    [
        comparison(column(1, "long"), "=", literal(5, "long")),
        comparison(column(1, "int"), "=", literal(5, "date")),
        comparison(column(3, "string"), "=", text(b"a")),
        comparison(column(6, "binary"), "=", literal("", "binary")),
        comparison(column(99, "int"), "=", literal(5)),
        comparison(column(5, "string"), "<", text(b"\xff")),
        comparison(S, "=", S),
        comparison(literal(5), "=", literal(5)),
        comparison(element("int", text(b"k")), "=", literal(5)),
        comparison(element("double", literal(5)), "=", ONE_HALF),
        comparison(element("double", text(b"k\xff")), "=", ONE_HALF),
        comparison(element("double", text(b"k")), "=", literal(0x7FF8000000000000, "double")),
        {"node": "in", "value": S, "members": [text(b"a"), literal(5)]},
        {"node": "is-null", "value": literal(5)},
        {"node": "unknown", "name": "cast"},
        S,
    ],
)
def test_other_types_than_the_columns_are_unknown(node: dict[str, Any]) -> None:
    assert bound(node) == UNKNOWN
    assert bound({"node": "not", "part": node}) == UNKNOWN


def test_the_known_rest_of_a_conjunction_stays() -> None:
    known = comparison(column(1, "int"), "=", literal(5))
    rest = {"node": "and", "parts": [{"node": "unknown", "name": "cast"}, known]}

    assert isinstance(bound(rest), Conjunction)
    assert isinstance(bound({"node": "or", "parts": [rest, comparison(S, "=", text(b"b"))]}), Disjunction)
    assert bound({"node": "or", "parts": [{"node": "unknown", "name": "cast"}, known]}) == UNKNOWN


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
def test_a_condition_that_does_not_parse_is_all_that_is_unknown(node: Any, caplog: pytest.LogCaptureFixture) -> None:
    known = comparison(column(1, "int"), "=", literal(5))

    with caplog.at_level(logging.WARNING):
        assert bound(node) == UNKNOWN
        assert isinstance(bound(known, node), Conjunction)
        assert isinstance(bound(known, filters=(node,)), Conjunction)
    assert "condition not understood, all its rows are kept" in caplog.text
