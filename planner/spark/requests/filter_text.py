"""Write filters of Iceberg's JSON as SQL text, for people only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

_COMPARISONS: Final = {"eq": "=", "not-eq": "<>", "lt": "<", "lt-eq": "<=", "gt": ">", "gt-eq": ">="}
_TESTS: Final = {"is-null": "IS NULL", "not-null": "IS NOT NULL"}
_NAN_TESTS: Final = {"is-nan": "isnan({})", "not-nan": "NOT isnan({})"}
_PREFIX_TESTS: Final = {"starts-with": "startswith({}, {})", "not-starts-with": "NOT startswith({}, {})"}
_MOST_MEMBERS: Final = 50


def sql_of_filter(text: str) -> str:
    """Return the SQL of a filter; what is no filter of Iceberg's stays as it is. Long lists are cut short."""
    try:
        node = json.loads(text)
    except json.JSONDecodeError:
        return text
    # An explicit stack, because generated predicates nest deeper than Python can recurse. Text waits as a list of one.
    pending: list[Any] = [node]
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
                pieces.append(_leaf(leaf))
    return "".join(pieces)


def _leaf(node: Any) -> str:
    match node:
        case bool():
            return str(node).upper()
        case {"type": str() as test, "term": term} if test in _TESTS:
            return f"{_term(term)} {_TESTS[test]}"
        case {"type": str() as test, "term": term} if test in _NAN_TESTS:
            return _NAN_TESTS[test].format(_term(term))
        case {"type": str() as operator, "term": term, "value": value} if operator in _COMPARISONS:
            return f"{_term(term)} {_COMPARISONS[operator]} {quoted(value)}"
        case {"type": str() as test, "term": term, "value": value} if test in _PREFIX_TESTS:
            return _PREFIX_TESTS[test].format(_term(term), quoted(value))
        case {"type": "in" | "not-in" as operator, "term": term, "values": list() as values}:
            return f"{_term(term)} {'NOT IN' if operator == 'not-in' else 'IN'} ({_members(values)})"
        case _:
            return json.dumps(node, ensure_ascii=False)


def _term(node: Any) -> str:
    match node:
        case str():
            return node
        case {"type": "transform", "transform": transform, "term": term}:
            return f"{transform}({term})"
        case _:
            return json.dumps(node, ensure_ascii=False)


def _members(values: Sequence[Any]) -> str:
    shown = ", ".join(map(quoted, values[:_MOST_MEMBERS]))
    return shown if len(values) <= _MOST_MEMBERS else f"{shown}, ... {len(values) - _MOST_MEMBERS} more"


def quoted(value: Any) -> str:
    """Return a JSON value as a literal of SQL; dates and times are strings in both."""
    if isinstance(value, str):
        return "'{}'".format(value.replace("\\", "\\\\").replace("'", "\\'"))
    return str(value).upper() if isinstance(value, bool) else json.dumps(value, ensure_ascii=False)
