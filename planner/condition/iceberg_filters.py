"""Iceberg's filters: read as conditions, and written for Iceberg's own pruning of files.

A filter of Iceberg's has `not-eq`, `not-in` and `not-starts-with` match NULL as well, because Spark hands
`NOT (a <=> 5)` down as `not-eq`.
"""

import json
import logging
import math
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final, cast

import numpy as np
from pyiceberg import expressions as iceberg
from pyiceberg.expressions.literals import DateLiteral, TimeLiteral, TimestampLiteral, literal
from pyiceberg.schema import Schema
from pyiceberg.typedef import LiteralValue
from pyiceberg.types import IcebergType

from planner.condition.columns import FoundColumn, find_column
from planner.condition.literals import Literal, text_literal
from planner.condition.packed import unpacked
from planner.condition.places import Operator, Pair, content_tests, nan_tests, prefix_tests, range_tests, set_tests
from planner.condition.tree import nodes
from planner.condition.truth import ALWAYS_FALSE, ALWAYS_TRUE, Truth, join, unknown
from puffin_index.errors import DefinitionError
from puffin_index.keys.leaf import Key, NullTest, RangeTest, SetTest
from puffin_index.keys.value_types import ValueType, value_type_named
from puffin_index.keys.values import value_of

_log = logging.getLogger(__name__)

_LOST: Final = "\N{REPLACEMENT CHARACTER}"
"""The character that Iceberg's filters have in place of bytes that are not UTF-8."""

_RANGES: Final[dict[str, Operator]] = {"lt": "<", "lt-eq": "<=", "gt": ">", "gt-eq": ">="}
_NEGATED: Final = {
    "not-null": "is-null",
    "not-nan": "is-nan",
    "not-eq": "eq",
    "not-in": "in",
    "not-starts-with": "starts-with",
}


def read_filter(text: str, schema: Schema) -> nodes.Predicate:
    """Read a filter of Iceberg's JSON. A leaf that is not understood, or that has lost bytes, is unknown.

    Raises ValueError if the text is no JSON, RecursionError if it nests too deep, NotFoundError for a missing column.
    """
    return nodes.flattened(_condition(json.loads(text), schema).yes)


def _condition(node: Any, schema: Schema) -> Truth:
    match node:
        case True | False:
            return ALWAYS_TRUE if node else ALWAYS_FALSE
        case {"type": "not", "child": child}:
            return ~_condition(child, schema)
        case {"type": "and" | "or" as kind, "left": left, "right": right}:
            return join([_condition(left, schema), _condition(right, schema)], conjunctive=kind == "and")
        case {"type": str(kind), "term": str(name)}:
            column, positive = find_column(schema, name), _NEGATED.get(kind, kind)
            sent = node.get("values") if positive == "in" else [node.get("value")]
            pair = _tests(positive, unpacked(sent) if isinstance(sent, str) else sent, column)
            if pair is not None:
                # Never NULL: a row satisfies a leaf or its opposite.
                truth = Truth(column.leaf(pair[0]), column.leaf(pair[1]), column.is_null)
                denies_null = positive in ("eq", "in", "starts-with")
                truth = truth.or_false() if denies_null else replace(truth, null=nodes.NO_ROW)
                return truth if kind == positive else ~truth
    return unknown(json.dumps(node, ensure_ascii=False))


def _tests(kind: str, sent: Any, found: FoundColumn) -> Pair | None:
    """Make the test that a leaf says, and the opposite of the test; None if no test says the same."""
    value_type = found.value_type
    if value_type is None or not isinstance(sent, list | tuple):
        return None
    if kind == "is-null":
        return NullTest(is_null=True), NullTest(is_null=False)
    if kind == "is-nan":
        return nan_tests(value_type)
    contents = [one.decode() if isinstance(one, bytes) else one for one in sent]
    if any(isinstance(one, str) and _LOST in one for one in contents):
        return None
    # A tuple is a long list: without a literal for each value, unless these are converted.
    pair = content_tests(sent, value_type) if isinstance(sent, tuple) else None
    if pair is not None:
        return pair
    literals = [one for content in contents if (one := _literal(content, found.type, value_type))]
    if len(literals) < len(contents):
        return None
    if kind in ("eq", "in"):
        return set_tests(literals, value_type)
    if kind == "starts-with":
        return prefix_tests(literals[0], value_type)
    return range_tests(_RANGES[kind], literals[0], value_type) if kind in _RANGES else None


def _literal(content: Any, column_type: IcebergType, value_type: ValueType) -> Literal | None:
    """A literal as it compares with a column, None without one: JSON has texts for decimals, times and bytes."""
    try:
        match value_type.name, content:
            case _, bool():
                return Literal("boolean", content)
            case "date" | "time" | "timestamp" | "timestamptz" as name, _:
                return Literal(name, literal(content).to(column_type).value)
            case "string" | "uuid", str():
                return text_literal(content)
            case _, str() if value_type.is_decimal:
                return Literal("decimal", Decimal(content))
            case _, str():
                return Literal("binary", bytes.fromhex(content))
            case name, int():
                return Literal("float" if name == "float" else "long", content)
            case name, float() if not math.isnan(content):
                return Literal("float" if name == "float" else "double", content)
    except (ValueError, TypeError, ArithmeticError):
        _log.debug("literal not understood: %r for a %s", content, value_type.name)
    return None


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
    is_lost = isinstance(value, str) and _LOST in value
    is_rounded = value_type.name == "float" and float(np.float32(value)) != value
    return None if is_lost or is_rounded or (isinstance(value, float) and not math.isfinite(value)) else literal(value)
