"""The parts of a condition that the planner cannot judge rows by, each with the reason, for people."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from pyiceberg.schema import Schema

from planner.condition.columns import find_in
from planner.condition.tree.nodes import Everything, Predicate, unknown_parts

_STRINGS: Final = re.compile(r"""'(?:[^'\\]|\\.|'')*'|"(?P<double>(?:[^"\\]|\\.|"")*)\"""", re.DOTALL)
_FUNCTION: Final = re.compile(
    r"\b(?!(?:AND|OR|NOT|IN|BETWEEN|LIKE|ILIKE|RLIKE|IS)\b)([A-Za-z_]\w*)\s*\(", re.IGNORECASE
)
_ARITHMETIC: Final = re.compile(r"[-+*/%|&^~]|\bDIV\b|::|\bINTERVAL\b|\bCASE\b|\bCURRENT_", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Unused:
    """A part of a condition that drops nothing.

    Attributes:
        text: The part.
        reason: Why the planner cannot use the part.
    """

    text: str
    reason: str

    def __str__(self) -> str:
        return f"{self.text}: {self.reason}"


def unused_parts(condition: Predicate) -> tuple[Unused, ...]:
    """Name the parts of a condition that nothing is known of, each once."""
    return tuple(dict.fromkeys(_unused(part) for part in unknown_parts(condition)))


def _unused(part: Everything) -> Unused:
    return Unused(part.text, part.reason or _reason_of_text(part.text))


def _reason_of_text(text: str) -> str:
    blank = _STRINGS.sub("''", text)
    if function := _FUNCTION.search(blank):
        return f"the planner does not evaluate {function[1]}(...) here"
    if _ARITHMETIC.search(blank):
        return "the planner does not evaluate arithmetic, casts, CASE and the clock"
    return "Spark converts one side first, or only Spark evaluates the test"


def quoted_names(where: str, schema: Schema) -> tuple[Unused, ...]:
    """Name the texts in double quotes that are names of columns: Spark takes double quotes for strings."""
    names = {match["double"] for match in _STRINGS.finditer(where) if match["double"]}
    return tuple(
        Unused(f'"{name}"', f"double quotes make a text, as in Spark; the column is {name} or `{name}`")
        for name in sorted(names)
        if find_in(schema, name) is not None
    )
