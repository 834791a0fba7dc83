"""A condition that was read, evaluated on a row by a way of its own; what the condition leaves open stays open."""

import re
from typing import Any

from pyiceberg.schema import Schema

from planner.condition.tree.nodes import (
    ByValue,
    Conjunction,
    Disjunction,
    Everything,
    Leaf,
    Nothing,
    Predicate,
    ValueTest,
)
from puffin_index.keys.leaf import Key, LeafTest, NullTest, RangeTest, SetTest
from puffin_index.keys.value_types import value_type_named
from puffin_index.keys.values import key_of
from tests.oracle import Row


def selects(condition: Predicate, row: Row, schema: Schema) -> bool | None:
    """Return whether a condition selects a row; None if it does not say."""
    match condition:
        case Everything(exact):
            return True if exact else None
        case Nothing():
            return False
        case Conjunction(children) | Disjunction(children):
            sides = [selects(child, row, schema) for child in children]
            decisive = isinstance(condition, Disjunction)
            return decisive if decisive in sides else None if None in sides else not decisive
        case ByValue(int() as field_id, ValueTest(function=None, operator="LIKE") as like):
            value = row[schema.find_field(field_id).name]
            return value is not None and _matches(like, value) is not like.negated
        case ByValue():
            return None
        case Leaf(int() as field_id, test, value_type):
            value = row[schema.find_field(field_id).name]
            return _leaf_selects(test, None if value is None else key_of(value, value_type_named(value_type)))
        case _:
            raise AssertionError(condition)


def _leaf_selects(test: LeafTest, key: Any) -> bool:
    if isinstance(test, NullTest):
        return test.is_null is (key is None)
    return key is not None and _inside(test, key) is not test.negated


def _inside(test: SetTest | RangeTest, key: Key | Any) -> bool:
    if isinstance(test, SetTest):
        return key in test.keys
    above = test.low is None or key > test.low or (test.low_inclusive and key == test.low)
    return above and (test.high is None or key < test.high or (test.high_inclusive and key == test.high))


def _matches(like: ValueTest, value: str) -> bool:
    escape = re.escape(like.escape)
    parts = re.findall(rf"{escape}.|.", str(like.literals[0]), re.DOTALL)
    wildcards = {"%": ".*", "_": "."}
    pattern = "".join(re.escape(part[1]) if len(part) == 2 else wildcards.get(part, re.escape(part)) for part in parts)
    return re.fullmatch(pattern, value, re.DOTALL) is not None
