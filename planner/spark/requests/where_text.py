"""What a request says about the rows as SQL text: for reports, audits and the query log; with literals or without."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, TypeAlias

from pyiceberg.schema import Schema

from planner.spark.requests import condition_nodes as nodes
from planner.spark.requests.condition_nodes import quoted
from planner.spark.requests.hook_filters import schema_of
from planner.spark.requests.wire import Request, RuntimeKeys

_MOST_CHARACTERS: Final = 10_000
_MOST_DEPTH: Final = 100
_MOST_MEMBERS: Final = 50
_HIDDEN: Final = "?"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_COMPARISONS: Final = {"eq": "=", "not-eq": "<>", "lt": "<", "lt-eq": "<=", "gt": ">", "gt-eq": ">="}
_TESTS: Final = {
    "is-null": "{} IS NULL",
    "not-null": "{} IS NOT NULL",
    "is-nan": "isnan({})",
    "not-nan": "NOT isnan({})",
}
_MOMENTS: Final = {"date": "DATE", "time": "TIME", "timestamp": "TIMESTAMP_NTZ", "timestamptz": "TIMESTAMP"}
"""The words before literals that Iceberg's JSON has as ISO 8601."""

_PREFIXES: Final = {"starts-with": "LIKE", "not-starts-with": "NOT LIKE"}

_QUOTED = re.compile(r"""[xX]?'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*\"""", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w`.])[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?[a-zA-Z]{0,2}(?![\w`])")

_Value: TypeAlias = object
"""A literal as PyIceberg has it, or as a node has it."""


def where_of(request: Request, *, literals: bool, for_people: bool = False) -> str:
    """Return what a request says about the rows, each conjunct once; `TRUE` if it says nothing.

    Args:
        request: The request.
        literals: Whether literals are in the text; otherwise each is a `?`.
        for_people: Whether to say what SQL cannot: how many keys of a join there are, what is not understood, and how
            many members of a long list are left out. Otherwise keys and what is not understood are a `?`.
    """
    text = _Text(schema_of(request.columns), literals, for_people)
    # With such a wish, the conditions are the whole filter above the scan.
    filters = request.filters if not request.conditions or (request.wanted or request.aggregates) is None else ()
    parts = [conjunct for one in filters for conjunct in text.of_filter(one)]
    parts += [conjunct for one in request.conditions for conjunct in text.of_condition(one)]
    parts += [str(one) if for_people else _of_keys(one) for one in request.runtime_keys]
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
        for_people: See `where_of`.
    """

    def __init__(self, schema: Schema, literals: bool, for_people: bool) -> None:
        self._schema = schema
        self._literals = literals
        self._for_people = for_people

    def of_filter(self, text: str) -> list[str]:
        """Give the conjuncts of a filter in Iceberg's JSON."""
        # JSON and not PyIceberg's expressions: to bind a list of 10,000 values takes half a second.
        try:
            pending, conjuncts = [json.loads(text)], list[str]()
        except (json.JSONDecodeError, RecursionError):
            return [self._not_understood(text)]
        while pending:
            match pending.pop():
                case {"type": "and", "left": left, "right": right}:
                    pending += [right, left]
                case one:
                    conjuncts.append(self._filter(one))
        return conjuncts

    def of_condition(self, condition: nodes.ConditionNode) -> list[str]:
        """Give the conjuncts of a condition of Spark's."""
        parts = condition.parts if isinstance(condition, nodes.Junction) and condition.node == "and" else (condition,)
        return [self._condition(part) for part in parts]

    def _condition(self, node: nodes.Node) -> str:
        try:
            return self._node(node, 0)
        except ArithmeticError:
            return self._not_understood(str(node))

    def _not_understood(self, text: str) -> str:
        return text if self._for_people else _HIDDEN

    def _filter(self, filter_node: Any) -> str:
        # An explicit stack, because generated predicates nest deeper than Python can recurse. Text is a list of one.
        pending: list[Any] = [filter_node]
        pieces: list[str] = []
        while pending:
            match pending.pop():
                case [str() as piece]:
                    pieces.append(piece)
                case {"type": "not", "child": child}:
                    pending += [[")"], child, ["NOT ("]]
                case {"type": "and" | "or" as word, "left": left, "right": right}:
                    pending += [[")"], right, [f" {word.upper()} "], left, ["("]]
                case leaf:
                    pieces.append(self._leaf(leaf))
        return "".join(pieces)

    def _leaf(self, leaf: Any) -> str:
        try:
            match leaf:
                case bool():
                    return str(leaf).upper()
                case {"type": str() as test, "term": str() as term} if test in _TESTS:
                    return _TESTS[test].format(self._column(term)[0])
                case {"type": str() as operator, "term": str() as term, "value": value} if operator in _COMPARISONS:
                    name, type_name = self._column(term)
                    return f"{name} {_COMPARISONS[operator]} {self._literal(value, type_name)}"
                case {"type": str() as test, "term": str() as term, "value": str() as prefix} if test in _PREFIXES:
                    return f"{self._column(term)[0]} {_PREFIXES[test]} {self._prefix(prefix)}"
                case {"type": "in" | "not-in" as operator, "term": str() as term, "values": list() as values}:
                    name, type_name = self._column(term)
                    members = self._members([self._literal(one, type_name) for one in self._first(values)], len(values))
                    return f"{name} {'NOT IN' if operator == 'not-in' else 'IN'} ({members})"
        except (ValueError, TypeError, ArithmeticError):
            pass
        return self._not_understood(json.dumps(leaf, ensure_ascii=False))

    def _first(self, members: Sequence[Any]) -> Sequence[Any]:
        return members[:_MOST_MEMBERS] if self._for_people else members

    def _members(self, written: list[str], count: int) -> str:
        """Join the members of a list; the log has them in one order, whichever they came in."""
        if not self._literals:
            return _HIDDEN
        if not self._for_people:
            return ", ".join(sorted(written))
        return ", ".join(written) + (f", ... {count - len(written)} more" if count > len(written) else "")

    def _column(self, term: str) -> tuple[str, str]:
        """Give the name of a filter's column as SQL, and the name of its type."""
        field = self._schema.find_field(term)
        is_top = any(one.name == term for one in self._schema.fields)
        return name_text([term] if is_top else term.split(".")), str(field.field_type).replace(", ", ",")

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
                return f"{self._node(left, depth + 1)} LIKE {self._prefix(prefix.decode(errors='replace'))}"
            case nodes.Comparison(left=left, operator=operator, right=right):
                return f"{self._node(left, depth + 1)} {operator} {self._node(right, depth + 1)}"
            case nodes.Membership(value=value, members=members):
                written = [self._node(one, depth + 1) for one in self._first(members)]
                return f"{self._node(value, depth + 1)} IN ({self._members(written, len(members))})"
            case nodes.Test(node="is-nan", value=value):
                return f"isnan({self._node(value, depth + 1)})"
            case nodes.Test(node=kind, value=value):
                return f"{self._node(value, depth + 1)} {kind.replace('-', ' ').upper()}"
            case nodes.Function(name=name):
                return name if self._literals else without_literals(name)
            case nodes.LiteralNode():
                return self._node_literal(node)
            case _:
                return self._not_understood(str(node))

    def _node_literal(self, node: nodes.LiteralNode) -> str:
        if not self._literals:
            return _HIDDEN
        match node:
            case nodes.Floating(number=number):
                return _plain(number, node.type)
            case nodes.Bytes(type="string", content=content):
                return quoted(content.decode(errors="replace"))
            case nodes.Null():
                return "NULL"
            case nodes.Boolean() | nodes.Integer() | nodes.DecimalNumber() | nodes.Bytes():
                return _plain(node.content, node.type)
            case _:
                return _HIDDEN

    def _prefix(self, prefix: str) -> str:
        if not self._literals:
            return _HIDDEN
        return quoted(re.sub(r"([\\%_])", r"\\\1", prefix) + "%")

    def _literal(self, value: Any, type_name: str) -> str:
        """Write a literal of Iceberg's JSON, which has numbers, truth values, and everything else as text."""
        if not self._literals:
            return _HIDDEN
        match value:
            case str() if type_name in ("float", "double"):
                return _plain(float(value), type_name)
            case int() | float() if type_name in ("float", "double"):
                return _plain(float(value), type_name)
            case str() if type_name.startswith("decimal("):
                return format(Decimal(value), "f")
            case str() if type_name in _MOMENTS:
                return f"{_MOMENTS[type_name]} '{value.replace('T', ' ', 1)}'"
            case str() if type_name == "binary" or type_name.startswith("fixed["):
                return _plain(bytes.fromhex(value), type_name)
            case bool() | int() | str():
                return _plain(value, type_name if isinstance(value, str) else "")
            case _:
                raise ValueError(f"{value!r} is no literal of a {type_name} column")


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
        case _:
            return quoted(str(value))


def _moment(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)
