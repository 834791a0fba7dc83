"""A condition that was read, evaluated on a row by a way of its own; what the condition leaves open stays open."""

import re
from collections.abc import Callable

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
from puffin_index.keys.map_key import Contents
from puffin_index.keys.value_types import value_type_named
from puffin_index.keys.values import key_of
from tests.oracle import Row
from tests.puffin_index.kinds.columns import holds


def selects(condition: Predicate, row: Row, schema: Schema) -> bool | None:
    """Return whether a condition selects a row; None if it does not say."""

    def ask(leaf: Leaf | ByValue) -> bool | None:
        if isinstance(leaf.field_id, Contents):
            # It follows from the test beside it, which says all.
            return True
        assert isinstance(leaf.field_id, int)
        value = row[schema.find_field(leaf.field_id).name]
        match leaf:
            case Leaf(test=test, value_type=value_type):
                return holds(test, None if value is None else key_of(value, value_type_named(value_type)))
            case ByValue(test=ValueTest(function=None, operator="LIKE") as like):
                return value is not None and _matches(like, value) is not like.negated
            case _:
                return None

    return joined_truth(condition, ask)


def without_words(condition: Predicate) -> Predicate:
    """Return a single test of a text without what follows of its words."""
    match condition:
        case Conjunction((own, ByValue(field_id=Contents()))):
            return own
        case _:
            return condition


def joined_truth(condition: Predicate, ask: Callable[[Leaf | ByValue], bool | None]) -> bool | None:
    """Return what a condition says if its leaves say this; None if it does not say."""
    match condition:
        case Everything(exact):
            return True if exact else None
        case Nothing():
            return False
        case Conjunction(children) | Disjunction(children):
            sides = [joined_truth(child, ask) for child in children]
            decisive = isinstance(condition, Disjunction)
            return decisive if decisive in sides else None if None in sides else not decisive
        case Leaf() | ByValue():
            return ask(condition)


def _matches(like: ValueTest, value: str) -> bool:
    escape = re.escape(like.escape)
    parts = re.findall(rf"{escape}.|.", str(like.literals[0]), re.DOTALL)
    wildcards = {"%": ".*", "_": "."}
    pattern = "".join(re.escape(part[1]) if len(part) == 2 else wildcards.get(part, re.escape(part)) for part in parts)
    return re.fullmatch(pattern, value, re.DOTALL) is not None
