"""Spark's nodes, read as a condition: a test is unknown if the node has another type than Spark gives the column."""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, MapType

from planner.condition import comparisons
from planner.condition.as_sql import name_text, quoted
from planner.condition.columns import FoundColumn, column_of_field, value_type_or_none
from planner.condition.literals import Literal
from planner.condition.places import content_tests, set_tests
from planner.condition.spark import nodes
from planner.condition.tree.nodes import ByValue, EngineTest, Predicate, ValueTest, flattened, joined
from planner.condition.truth import Truth, join, unknown
from planner.condition.value_tests import rlike_regex, split_like

_TESTS: Final[dict[str, Callable[[comparisons.Value, str], Truth]]] = {
    "is-null": comparisons.null_test,
    "is-not-null": lambda value, text: ~comparisons.null_test(value, text),
    "is-nan": comparisons.nan_test,
}


def read_node(node: nodes.ConditionNode, schema: Schema) -> Predicate:
    """Return the rows for which a condition is true."""
    return flattened(_condition(node, schema).yes)


def _condition(node: nodes.ConditionNode, schema: Schema) -> Truth:
    match node:
        case nodes.Junction(node=kind, parts=parts):
            return join([_condition(part, schema) for part in parts], conjunctive=kind == "and")
        case nodes.Negation(part=part):
            return ~_condition(part, schema)
        case nodes.Function():
            return _function(node, schema)
        case nodes.Test(node=kind, value=value):
            (tested,) = _values([value], schema)
            return _TESTS[kind](tested, text_of(node))
        case nodes.Membership(value=value, members=members):
            literals = [one for one in members if isinstance(one, nodes.LiteralNode)]
            contents = [one for one in members if not isinstance(one, nodes.LiteralNode)]
            tested, *listed = _values([value, *literals], schema)
            if contents:
                return _among(tested, value.type, contents, text_of(node))
            return comparisons.one_of(tested, listed, text_of(node))
        case nodes.Contains():
            return _contains(node, schema)
        case nodes.Comparison(left=left, operator=operator, right=right):
            one, other = _values([left, right], schema)
            if operator == "starts with":
                return comparisons.prefix_test(one, other, text_of(node))
            return comparisons.compare(one, operator, other, text_of(node))
        case nodes.Column() | nodes.LiteralNode():
            alone = _find(node, schema) if isinstance(node, nodes.Column) else _literal(node, "boolean")
            return comparisons.as_condition(alone, text_of(node)) or unknown(text_of(node))
        case _:
            return unknown(text_of(node))


def _contains(node: nodes.Contains, schema: Schema) -> Truth:
    column, text = node.value, text_of(node)
    try:
        field = schema.find_field(column.field)
    except ValueError:
        return unknown(text)
    whole = column_of_field(field, name_text(column.path))
    contained = whole.contents(node.part)
    if contained is None or spark_type(contained.type) != column.type:
        return unknown(text)
    if node.test == "is-empty":
        return comparisons.is_empty(whole, text)
    if node.test in _TESTS:
        return _TESTS[node.test](whole, text)
    members = [_literal(member, column.type) for member in node.members]
    truth = comparisons.contains(whole, node.part, members, text)
    # By a setting of Spark, `exists` is false and not NULL where a row contains NULL and nothing else that matters.
    return truth if node.test == "overlaps" else replace(truth, no=unknown(text).no)


def _among(tested: comparisons.Value, type_name: str, contents: Sequence[int | bytes], text: str) -> Truth:
    if not isinstance(tested, FoundColumn):
        return unknown(text)
    return tested.truth(
        lambda kind: content_tests(contents, kind) or set_tests([Literal(type_name, one) for one in contents], kind),
        text,
    )


def _function(node: nodes.Function, schema: Schema) -> Truth:
    """Make a condition of a function; its opposite is unknown, for NULL satisfies neither."""
    found, opposite = found_column(node.column, schema), unknown(f"NOT {node.name}")
    if found is None or found.value_type is None:
        return replace(opposite, yes=unknown(node.name).yes)
    yes = ByValue(found.column, EngineTest(node.number), found.value_type.name, node.name)
    words, searched = found.contents("words"), None if node.pattern is None else searched_text(node.pattern)
    if words is None or searched is None:
        return replace(opposite, yes=yes)
    of_words = ByValue(words.column, searched, found.value_type.name, node.name)
    return replace(opposite, yes=joined([yes, of_words], is_and=True))


def searched_text(pattern: nodes.Pattern) -> ValueTest | None:
    """Return a search as a test of values; None if it is for no text, or one that is not read."""
    try:
        text = pattern.text.decode()
    except UnicodeDecodeError:
        return None
    if pattern.operator == "RLIKE":
        return ValueTest(pattern.function, "RLIKE", (text,)) if rlike_regex(text) is not None else None
    if pattern.operator == "LIKE":
        with suppress(ValueError):
            split_like(text, pattern.escape)
            return ValueTest(pattern.function, "LIKE", (text,), pattern.escape)
        # Spark raises an error where it meets a row.
        return None
    letters = comparisons.without_wildcards(text)
    return ValueTest(pattern.function, "LIKE", (f"%{letters}{'%' if pattern.operator == 'contains' else ''}",))


def _values(operands: Sequence[nodes.LiteralNode | nodes.Column], schema: Schema) -> list[comparisons.Value]:
    found = [_find(one, schema) if isinstance(one, nodes.Column) else one for one in operands]
    column_type = next((spark_type(one.type) for one in found if isinstance(one, FoundColumn)), None)
    return [_literal(one, column_type) if isinstance(one, nodes.LiteralNode) else one for one in found]


def _find(node: nodes.Column, schema: Schema) -> FoundColumn | comparisons.Computed:
    try:
        field = schema.find_field(node.field)
    except ValueError:
        return comparisons.Computed()
    key_type = spark_type(field.field_type.key_type) if isinstance(field.field_type, MapType) else None
    key = None if node.key is None else _literal(node.key, key_type)
    if isinstance(key, comparisons.Computed) or (key is None and node.key is not None):
        return comparisons.Computed()
    found = column_of_field(field, name_text(node.path), key)
    return found if spark_type(found.type) == node.type else comparisons.Computed()


def found_column(node: nodes.Column, schema: Schema) -> FoundColumn | None:
    """Find the column of a node; None if no index could be of that, or the schema has another type."""
    column = _find(node, schema)
    return None if isinstance(column, comparisons.Computed) or column.value_type is None else column


def spark_type(field_type: IcebergType) -> str | None:
    """Return the type that Spark has for a type of Iceberg's, by Iceberg's name; None if no index can be of it."""
    value_type = value_type_or_none(field_type)
    if value_type is not None and value_type.fixed_length is not None:
        return "string" if value_type.name == "uuid" else "binary"
    return None if value_type is None else value_type.name


def _literal(node: nodes.LiteralNode, column_type: str | None) -> Literal | comparisons.Computed | None:
    """Make a literal to compare a column with, None for NULL; unknown for NaN and for other types than the column's."""
    if node.type != column_type or (isinstance(node.content, float) and math.isnan(node.content)):
        return comparisons.Computed()
    kind = "long" if node.type == "int" else node.type.partition("(")[0]
    return None if node.content is None else Literal(kind, node.content)


def text_of(node: nodes.Message) -> str:
    """A node without parts as text, for reports only."""
    match node:
        case nodes.Column(path=path, key=key):
            return name_text(path) + (f"[{text_of(key)}]" if key is not None else "")
        case nodes.Comparison(left=left, operator=operator, right=right):
            return f"{text_of(left)} {operator} {text_of(right)}"
        case nodes.Membership(value=value, members=members):
            return f"{text_of(value)} IN ({len(members)} literals)"
        case nodes.Contains(part=part, value=value, members=members):
            return f"{text_of(value)} {part} {node.test} ({len(members)} literals)"
        case nodes.Test(node=kind, value=value):
            return f"{text_of(value)} {kind.replace('-', ' ').upper()}"
        case nodes.LiteralNode(content=None):
            return "NULL"
        case nodes.LiteralNode(content=bytes() as content):
            return quoted(content.decode(errors="replace"))
        case nodes.LiteralNode(content=content):
            return str(content)
        case nodes.Unknown(name=name):
            return f"{name}(...)"
        case _:
            return node.__class__.__name__.lower()
