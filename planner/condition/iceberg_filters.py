"""Iceberg's filters: read as conditions, and written for Iceberg's own pruning of files.

A filter of Iceberg's has `not-eq`, `not-in` and `not-starts-with` match NULL as well, because Spark hands
`NOT (a <=> 5)` down as `not-eq`.
"""

from __future__ import annotations

import json
import logging
import math
from typing import Any, Final, cast

import numpy as np
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    LiteralPredicate,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    Or,
    Reference,
    StartsWith,
    UnboundPredicate,
)
from pyiceberg.expressions.literals import DateLiteral, TimeLiteral, TimestampLiteral, literal
from pyiceberg.schema import Schema
from pyiceberg.typedef import LiteralValue

from planner.condition.columns import FoundColumn, find_column
from planner.condition.packed import Contents, unpacked
from planner.condition.places import (
    Operator,
    Pair,
    Scale,
    content_tests,
    nan_tests,
    prefix_tests,
    range_tests,
    set_tests,
)
from planner.condition.tree.nodes import (
    NO_ROW,
    ByValue,
    Conjunction,
    Disjunction,
    Everything,
    Leaf,
    Nothing,
    Predicate,
    flattened,
    joined,
)
from planner.condition.truth import ALWAYS_FALSE, ALWAYS_TRUE, Truth, join, unknown
from puffin_index.errors import DefinitionError
from puffin_index.keys.leaf import Key, NullTest, RangeTest, SetTest
from puffin_index.keys.value_types import ValueType, value_type_named
from puffin_index.keys.values import value_of

_log = logging.getLogger(__name__)

_LOST: Final = "\N{REPLACEMENT CHARACTER}"
"""The character that Iceberg's filters have in place of bytes that are not UTF-8."""

_LOST_BYTES: Final = _LOST.encode()

_RANGES: Final[dict[type[BooleanExpression], Operator]] = {
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
}
_NULL_TESTS: Final[Pair] = (NullTest(is_null=True), NullTest(is_null=False))


def read_filter(text: str, schema: Schema) -> Predicate:
    """Read a filter of Iceberg's JSON. A leaf that PyIceberg cannot read, or that has lost bytes, is unknown.

    Raises ValueError if the text is no JSON, or a long list in it none, RecursionError if it nests too deep,
    NotFoundError if it names a column that the schema lacks.
    """
    return flattened(_condition(json.loads(text), schema).yes)


def _condition(node: Any, schema: Schema) -> Truth:
    match node:
        case {"type": "not", "child": child}:
            return ~_condition(child, schema)
        case {"type": "and" | "or" as kind, "left": left, "right": right}:
            return join([_condition(left, schema), _condition(right, schema)], conjunctive=kind == "and")
        case {"type": "in" | "not-in" as kind, "term": str(name), "values": str(packed)}:
            truth = _packed(name, contents := unpacked(packed), schema)
            if truth is not None:
                return truth if kind == "in" else ~truth
            node = node | {"values": [one.decode() if isinstance(one, bytes) else one for one in contents]}
    values = [node.get("value"), *node.get("values", ())] if isinstance(node, dict) else []
    if not any(isinstance(value, str) and _LOST in value for value in values):
        try:
            leaf = BooleanExpression.model_validate(node)
        except (ValueError, TypeError) as error:
            _log.debug("filter not understood, all its rows are kept: %s (%s)", node, error)
        else:
            return _leaf(leaf, schema, str(leaf))
    return unknown(json.dumps(node, ensure_ascii=False))


def _packed(name: str, contents: Contents, schema: Schema) -> Truth | None:
    """Make a condition of a long list without a literal for each value; None where literals are converted."""
    found = find_column(schema, name)
    if found.value_type is None or any(isinstance(one, bytes) and _LOST_BYTES in one for one in contents):
        return None
    pair = content_tests(contents, Scale(found.type, found.value_type, dialect="iceberg"))
    return None if pair is None else _of_tests(found, pair, denies_null=True)


def _leaf(node: BooleanExpression, schema: Schema, text: str) -> Truth:
    """Make a condition of a leaf. It is never NULL: a row satisfies the leaf or its opposite."""
    match node:
        case AlwaysTrue() | AlwaysFalse():
            return ALWAYS_TRUE if isinstance(node, AlwaysTrue) else ALWAYS_FALSE
        case NotEqualTo() | NotIn() | NotStartsWith() | NotNull() | NotNaN():
            return ~_leaf(~node, schema, text)
        case UnboundPredicate(term=Reference(name=name)):
            found = find_column(schema, name)
        case _:
            return unknown(text)
    if found.value_type is None:
        return unknown(text)
    pair = _tests(node, Scale(found.type, found.value_type, dialect="iceberg"))
    if pair is None:
        return unknown(text)
    return _of_tests(found, pair, denies_null=isinstance(node, EqualTo | In | StartsWith))


def _of_tests(found: FoundColumn, pair: Pair, *, denies_null: bool) -> Truth:
    assert found.value_type is not None
    yes, no, is_null = (Leaf(found.column, test, found.value_type.name) for test in (*pair, NullTest(is_null=True)))
    return Truth(yes, joined([no, is_null], is_and=False) if denies_null else no, NO_ROW)


def _tests(node: BooleanExpression, scale: Scale) -> Pair | None:
    """Make the test that a leaf says, and the opposite of the test; None if no test says the same."""
    match node:
        case IsNull():
            return _NULL_TESTS
        case IsNaN():
            return nan_tests(scale)
        case In():
            return set_tests(node.literals, scale)
        case EqualTo():
            return set_tests([node.literal], scale)
        case StartsWith():
            return prefix_tests(node.literal, scale)
        case LiteralPredicate() if type(node) in _RANGES:
            return range_tests(_RANGES[type(node)], node.literal, scale)
        case _:
            return None


def file_filter(predicate: Predicate, schema: Schema) -> BooleanExpression:
    """Write a condition for Iceberg's own pruning of files. What is true for a row is true of the row's file.

    Raises DefinitionError if files say nothing of a part of the condition.
    """
    match predicate:
        case Conjunction(children):
            return _all(And, [file_filter(child, schema) for child in children])
        case Disjunction(children):
            return _all(Or, [file_filter(child, schema) for child in children])
        case Everything(exact=True) | Nothing():
            return AlwaysTrue() if isinstance(predicate, Everything) else AlwaysFalse()
        case Leaf(int() as field_id, test, value_type):
            term = Reference(schema.find_column_name(field_id) or "")
            return _written(term, test, value_type_named(value_type))
        case Everything(text=text) | ByValue(text=text):
            raise DefinitionError(f"Iceberg cannot choose data files by this predicate: {text}")
        case _:
            raise DefinitionError("Iceberg cannot choose data files by a key of a map")


def _all(node: Any, parts: list[BooleanExpression]) -> BooleanExpression:
    first, *others = parts
    return cast(BooleanExpression, node(first, *others)) if others else first


def _written(term: Any, test: NullTest | SetTest | RangeTest, value_type: ValueType) -> BooleanExpression:
    not_null: BooleanExpression = NotNull(term=term)
    match test:
        case NullTest(is_null):
            return IsNull(term=term) if is_null else not_null
        case SetTest(keys, negated):
            members = [_iceberg_literal(key, value_type) for key in keys]
            known = {member for member in members if member is not None}
            if len(known) < len(members):
                return not_null
            if negated:
                return And(NotIn(term=term, values=known), not_null) if known else not_null
            return In(term=term, values=known) if known else AlwaysFalse()
        case RangeTest(negated=True):
            return not_null
        case RangeTest(low, high):
            lower = GreaterThanOrEqual if test.low_inclusive else GreaterThan
            upper = LessThanOrEqual if test.high_inclusive else LessThan
            bounds: list[BooleanExpression] = [
                leaf(term=term, value=value)
                for leaf, key in ((lower, low), (upper, high))
                if key is not None and (value := _iceberg_literal(key, value_type)) is not None
            ]
            return _all(And, bounds or [not_null])


def _iceberg_literal(key: Key, value_type: ValueType) -> LiteralValue | None:
    """Return a key as a literal of the column's own type; None if Iceberg has none."""
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
    is_lost = isinstance(value, str) and _LOST in value
    is_rounded = value_type.name == "float" and float(np.float32(value)) != value
    return None if is_lost or is_rounded or (isinstance(value, float) and not math.isfinite(value)) else literal(value)
