"""Conditions written as Iceberg's filters, for its own pruning of files."""

import math
from typing import Any, cast

import numpy as np
from pyiceberg import expressions as iceberg
from pyiceberg.expressions.literals import DateLiteral, TimeLiteral, TimestampLiteral, literal
from pyiceberg.schema import Schema
from pyiceberg.typedef import LiteralValue

from planner.condition.tree import nodes
from puffin_index.errors import DefinitionError
from puffin_index.keys.leaf import Key, NullTest, RangeTest, SetTest
from puffin_index.keys.value_types import ValueType, value_type_named
from puffin_index.keys.values import value_of


def file_filter(predicate: nodes.Predicate, schema: Schema) -> iceberg.BooleanExpression:
    """Write a condition for Iceberg's pruning of files, or raise DefinitionError if files say nothing of a part."""
    match predicate:
        case nodes.Conjunction(children):
            return _all(iceberg.And, [file_filter(child, schema) for child in children])
        case nodes.Disjunction(children):
            return _all(iceberg.Or, [file_filter(child, schema) for child in children])
        case nodes.Everything(exact=True) | nodes.Nothing():
            return iceberg.AlwaysTrue() if isinstance(predicate, nodes.Everything) else iceberg.AlwaysFalse()
        case nodes.Leaf(int() as field_id, test, value_type):
            term = iceberg.Reference(schema.find_column_name(field_id) or "")
            return _written(term, test, value_type_named(value_type))
        case nodes.Everything(text=text) | nodes.ByValue(text=text):
            raise DefinitionError(f"Iceberg cannot choose data files by this predicate: {text}")
        case _:
            raise DefinitionError("Iceberg cannot choose data files by a key of a map")


def _all(node: Any, parts: list[iceberg.BooleanExpression]) -> iceberg.BooleanExpression:
    first, *others = parts
    return cast(iceberg.BooleanExpression, node(first, *others)) if others else first


def _written(term: Any, test: NullTest | SetTest | RangeTest, value_type: ValueType) -> iceberg.BooleanExpression:
    not_null: iceberg.BooleanExpression = iceberg.NotNull(term=term)
    match test:
        case NullTest(is_null):
            return iceberg.IsNull(term=term) if is_null else not_null
        case SetTest(keys, negated):
            members = [_iceberg_literal(key, value_type) for key in keys]
            known = {member for member in members if member is not None}
            if len(known) < len(members):
                return not_null
            if negated:
                return iceberg.And(iceberg.NotIn(term=term, values=known), not_null) if known else not_null
            return iceberg.In(term=term, values=known) if known else iceberg.AlwaysFalse()
        case RangeTest(negated=True):
            return not_null
        case RangeTest(low, high):
            lower = iceberg.GreaterThanOrEqual if test.low_inclusive else iceberg.GreaterThan
            upper = iceberg.LessThanOrEqual if test.high_inclusive else iceberg.LessThan
            bounds: list[iceberg.BooleanExpression] = [
                leaf(term=term, value=value)
                for leaf, key in ((lower, low), (upper, high))
                if key is not None and (value := _iceberg_literal(key, value_type)) is not None
            ]
            return _all(iceberg.And, bounds or [not_null])


def _iceberg_literal(key: Key, value_type: ValueType) -> LiteralValue | None:
    match value_type.name, key:
        case "date", int():
            return DateLiteral(key)
        case "time", int():
            return TimeLiteral(key)
        case "timestamp" | "timestamptz", int():
            return TimestampLiteral(key)
    if value_type.name.endswith("_ns"):
        return None
    value: Any = value_of(key, value_type)
    # It stands for bytes that are not UTF-8.
    is_lost = isinstance(value, str) and "\N{REPLACEMENT CHARACTER}" in value
    is_rounded = value_type.name == "float" and float(np.float32(value)) != value
    return None if is_lost or is_rounded or (isinstance(value, float) and not math.isfinite(value)) else literal(value)
