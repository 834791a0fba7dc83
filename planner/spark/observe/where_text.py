"""What a request says about the rows as SQL text, for people and the query log; with literals or without."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Final, TypeAlias
from uuid import UUID

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    BoundEqualTo,
    BoundGreaterThan,
    BoundGreaterThanOrEqual,
    BoundIn,
    BoundIsNaN,
    BoundIsNull,
    BoundLessThan,
    BoundLessThanOrEqual,
    BoundLiteralPredicate,
    BoundNotEqualTo,
    BoundNotIn,
    BoundNotNaN,
    BoundNotNull,
    BoundNotStartsWith,
    BoundPredicate,
    BoundSetPredicate,
    BoundStartsWith,
    BoundUnaryPredicate,
    Not,
    Or,
    UnboundPredicate,
)
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, FixedType, IcebergType

from planner.spark.requests import condition_nodes as nodes
from planner.spark.requests.hook_filters import read_filter, schema_of
from planner.spark.requests.wire import Request, RuntimeKeys

_MOST_CHARACTERS: Final = 10_000
_MOST_DEPTH: Final = 100
_HIDDEN: Final = "?"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_OPERATORS = {
    BoundEqualTo: "=",
    BoundNotEqualTo: "<>",
    BoundLessThan: "<",
    BoundLessThanOrEqual: "<=",
    BoundGreaterThan: ">",
    BoundGreaterThanOrEqual: ">=",
    BoundIsNull: "IS NULL",
    BoundNotNull: "IS NOT NULL",
    BoundIsNaN: "is-nan",
    BoundNotNaN: "is-not-nan",
}

_QUOTED = re.compile(r"""[xX]?'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*\"""", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w`.])[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?[a-zA-Z]{0,2}(?![\w`])")

_Value: TypeAlias = object
"""A literal as PyIceberg has it, or as a node has it."""


def where_of(request: Request, *, literals: bool) -> str:
    """Return what a request says about the rows; `TRUE` if it says nothing.

    Args:
        request: The request.
        literals: Whether literals are in the text; otherwise each is a `?`. The keys of joins are a `?` always.
    """
    schema = schema_of(request.columns)
    text = _Text(schema, literals)
    # With such a wish, the conditions are the whole filter above the scan.
    filters = request.filters if not request.conditions or (request.wanted or request.aggregates) is None else ()
    parts = [text.of_filter(one) for one in filters]
    parts += [text.of_node(one) for one in request.conditions]
    parts += [_of_keys(one) for one in request.runtime_keys]
    joined = " AND ".join(dict.fromkeys(parts)) or "TRUE"
    return joined if len(joined) <= _MOST_CHARACTERS else joined[:_MOST_CHARACTERS] + "..."


def _of_keys(keys: RuntimeKeys) -> str:
    name = name_text([keys.name])
    return f"{name} IN ({_HIDDEN})" if keys.operator == "=" else f"{name} {keys.operator} {_HIDDEN}"


def name_text(path: Iterable[str]) -> str:
    """The name of a column or field as SQL: in backquotes where it is no plain word."""
    return ".".join(part if re.fullmatch(r"[A-Za-z_]\w*", part) else f"`{part.replace('`', '``')}`" for part in path)


def without_literals(text: str) -> str:
    """Replace the literals in a text of Spark's by `?`; a text that is not understood is `?` as a whole."""
    left = _NUMBER.sub(_HIDDEN, _QUOTED.sub(_HIDDEN, text))
    return _HIDDEN if "'" in left or '"' in left else left


class _Text:
    """Writes filters and conditions as SQL.

    Args:
        schema: The schema that has their columns.
        literals: Whether literals are in the text.
    """

    def __init__(self, schema: Schema, literals: bool) -> None:
        self._schema = schema
        self._literals = literals

    def of_filter(self, text: str) -> str:
        """A filter of Iceberg's."""
        try:
            return self._expression(read_filter(text), 0)
        except (ValueError, TypeError, ArithmeticError, RecursionError):
            return _HIDDEN

    def of_node(self, node: nodes.ConditionNode) -> str:
        """A condition of Spark's."""
        try:
            return self._node(node, 0)
        except ArithmeticError:
            return _HIDDEN

    def _expression(self, node: BooleanExpression, depth: int) -> str:
        if depth > _MOST_DEPTH:
            return _HIDDEN
        again = partial(self._expression, depth=depth + 1)
        match node:
            case And():
                return f"({again(node.left)} AND {again(node.right)})"
            case Or():
                return f"({again(node.left)} OR {again(node.right)})"
            case Not():
                return f"NOT ({again(node.child)})"
            case AlwaysTrue():
                return "TRUE"
            case AlwaysFalse():
                return "FALSE"
            case UnboundPredicate():
                return self._leaf(node.bind(self._schema, case_sensitive=True))
            case _:
                return _HIDDEN

    def _leaf(self, bound: BooleanExpression) -> str:
        if not isinstance(bound, BoundPredicate):
            return "TRUE" if isinstance(bound, AlwaysTrue) else "FALSE"
        field = bound.term.ref().field
        name = self._schema.find_column_name(field.field_id) or field.name
        column = name_text([name] if any(one.name == name for one in self._schema.fields) else name.split("."))
        operator = _OPERATORS.get(type(bound), "")
        match bound:
            case BoundIn() | BoundNotIn():
                values = sorted(self._literal(one, field.field_type) for one in _set_values(bound))
                own = ", ".join(values) if self._literals else _HIDDEN
                return f"{column} {'NOT ' if isinstance(bound, BoundNotIn) else ''}IN ({own})"
            case BoundStartsWith() | BoundNotStartsWith():
                prefix = str(bound.literal.value).encode(errors="replace")
                return f"{column} {'NOT ' if isinstance(bound, BoundNotStartsWith) else ''}LIKE {self._prefix(prefix)}"
            case BoundLiteralPredicate():
                return self._test(column, operator, self._literal(bound.literal.value, field.field_type))
            case BoundUnaryPredicate():
                return self._test(column, operator, "")
            case _:
                return _HIDDEN

    def _test(self, column: str, operator: str, literal: str) -> str:
        match operator:
            case "is-nan":
                return f"isnan({column})"
            case "is-not-nan":
                return f"NOT isnan({column})"
            case _:
                return f"{column} {operator} {literal}".rstrip()

    def _node(self, node: nodes.Node, depth: int) -> str:
        if depth > _MOST_DEPTH:
            return _HIDDEN
        match node:
            case nodes.Junction(node=kind, parts=parts):
                return "(" + f" {kind.upper()} ".join(self._node(part, depth + 1) for part in parts) + ")"
            case nodes.Negation(part=part):
                return f"NOT ({self._node(part, depth + 1)})"
            case nodes.Column():
                key = "" if node.key is None else f"[{self._node(node.key, depth + 1)}]"
                return name_text(node.path) + key
            case nodes.Comparison(left=left, operator="starts with", right=nodes.Bytes(content=prefix)):
                return f"{self._node(left, depth + 1)} LIKE {self._prefix(prefix)}"
            case nodes.Comparison(left=left, operator=operator, right=right):
                return f"{self._node(left, depth + 1)} {operator} {self._node(right, depth + 1)}"
            case nodes.Membership(value=value, members=members):
                own = ", ".join(self._node(one, depth + 1) for one in members) if self._literals else _HIDDEN
                return f"{self._node(value, depth + 1)} IN ({own})"
            case nodes.Test(node="is-nan", value=value):
                return f"isnan({self._node(value, depth + 1)})"
            case nodes.Test(node=kind, value=value):
                return f"{self._node(value, depth + 1)} {kind.replace('-', ' ').upper()}"
            case nodes.Function(name=name):
                return name if self._literals else without_literals(name)
            case nodes.LiteralNode():
                return self._node_literal(node)
            case _:
                return _HIDDEN

    def _node_literal(self, node: nodes.LiteralNode) -> str:
        if not self._literals:
            return _HIDDEN
        match node:
            case nodes.Floating(number=number):
                return _plain(number, node.type)
            case nodes.Bytes(type="string", content=content):
                return _quoted(content.decode(errors="replace"))
            case nodes.Null():
                return "NULL"
            case nodes.Boolean() | nodes.Integer() | nodes.DecimalNumber() | nodes.Bytes():
                return _plain(node.content, node.type)
            case _:
                return _HIDDEN

    def _prefix(self, prefix: bytes) -> str:
        if not self._literals:
            return _HIDDEN
        escaped = re.sub(r"([\\%_])", r"\\\1", prefix.decode(errors="replace"))
        return _quoted(f"{escaped}%")

    def _literal(self, value: _Value, column_type: IcebergType) -> str:
        if isinstance(value, bytes) and isinstance(column_type, BinaryType | FixedType):
            # Iceberg's JSON has bytes as hexadecimal digits, which PyIceberg takes for the bytes.
            value = bytes.fromhex(value.decode())
        return _plain(value, str(column_type)) if self._literals else _HIDDEN


def _set_values(bound: BoundSetPredicate) -> list[_Value]:
    return [literal.value for literal in bound.literals]


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _plain(value: _Value, type_name: str) -> str:
    """A literal as Spark reads it, by Iceberg's name of its type."""
    match value:
        case bool():
            return str(value).upper()
        case int() if type_name == "date":
            return f"DATE '{_moment(value * 86_400_000_000).date().isoformat()}'"
        case int() if type_name in ("timestamp", "timestamptz"):
            zone = "+00:00" if type_name == "timestamptz" else ""
            name = "TIMESTAMP" if zone else "TIMESTAMP_NTZ"
            return f"{name} '{_moment(value).replace(tzinfo=None).isoformat(' ')}{zone}'"
        case float():
            if not math.isfinite(value):
                return f"{type_name.upper()}('{value!r}')"
            return f"{value!r}{'F' if type_name == 'float' else 'D'}"
        case int() | Decimal():
            return str(value)
        case bytes():
            return f"X'{value.hex()}'"
        case UUID():
            return f"'{value}'"
        case _:
            return _quoted(str(value))


def _moment(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)
