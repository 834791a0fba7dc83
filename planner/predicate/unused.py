"""The parts of a WHERE text that the planner cannot judge rows by, each with the reason, for people."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from pyiceberg.expressions import BooleanExpression, Reference, UnboundPredicate
from pyiceberg.schema import Schema

from planner.predicate.found_column import find_column, find_in
from planner.where.leaf_text import leaf_text
from planner.where.terms import FieldTerm, MapElement
from planner.where.unknown import Unknown, ValueTest
from puffin_index.errors import NotFoundError

_STRINGS: Final = re.compile(r"""'(?:[^'\\]|\\.|'')*'|"(?P<double>(?:[^"\\]|\\.|"")*)\"""", re.DOTALL)
_FUNCTION: Final = re.compile(
    r"\b(?!(?:AND|OR|NOT|IN|BETWEEN|LIKE|ILIKE|RLIKE|IS)\b)([A-Za-z_]\w*)\s*\(", re.IGNORECASE
)
_ARITHMETIC: Final = re.compile(r"[-+*/%|&^~]|\bDIV\b|::|\bINTERVAL\b|\bCASE\b|\bCURRENT_", re.IGNORECASE)
_TWO_NAMES: Final = re.compile(
    r"(?:NOT\s+)?(?P<left>[A-Za-z_][\w.]*)\s*(?:<=>|<>|<=|>=|==|!=|=|<|>)\s*(?P<right>[A-Za-z_][\w.]*)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Unused:
    """A part of a predicate that drops nothing.

    Attributes:
        text: The part.
        reason: Why the planner cannot use the part.
    """

    text: str
    reason: str

    def __str__(self) -> str:
        return f"{self.text}: {self.reason}"


def unused_leaf(leaf: BooleanExpression, schema: Schema) -> Unused:
    """Say why a leaf could not be bound.

    Raises:
        NotFoundError: If the leaf compares a column with a name that the schema lacks.
    """
    if isinstance(leaf, ValueTest):
        return Unused(leaf.text, f"Spark would convert {leaf.column} first, or takes the pattern otherwise")
    if isinstance(leaf, Unknown):
        return Unused(leaf.text, _reason_of_text(leaf.text, schema))
    text = leaf_text(leaf)
    if not isinstance(leaf, UnboundPredicate) or not isinstance(leaf.term, Reference | MapElement | FieldTerm):
        return Unused(text, "the planner has no such test")
    found = find_column(schema, leaf.term)
    if found is None or found.value_type is None:
        return Unused(text, f"no index can be of {'a part of a list or map' if found is None else f'a {found.type}'}")
    return Unused(
        text, f"the literal is of another kind than the column, a {found.type}: Spark converts one of them first"
    )


def _reason_of_text(text: str, schema: Schema) -> str:
    blank = _STRINGS.sub("''", text)
    if names := _TWO_NAMES.fullmatch(blank.strip()):
        for name, other in ((names["left"], names["right"]), (names["right"], names["left"])):
            if find_in(schema, name) is None:
                hint = f"; did you mean the text '{name}'?" if find_in(schema, other) is not None else ""
                columns = ", ".join(field.name for field in schema.fields)
                raise NotFoundError(f"there is no column {name!r}; the table has: {columns}{hint}")
        return "a column is compared with a column, and an index knows one column"
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
