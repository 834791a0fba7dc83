"""The tree of a condition: leaf tests by field id under AND and OR. NOT is at the leaves.

A tree is read from SQL text, from Iceberg's filters or from Spark's nodes. `flattened` bounds its depth, so code that
walks it may recurse. A tree that was read has all its parts; `planner.condition.tree.simplify` makes of it what drops
row groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from puffin_index.keys.leaf import LeafTest
from puffin_index.keys.map_key import ColumnId


@dataclass(frozen=True, slots=True)
class Leaf:
    """A test of one column, or key of a map, in the domain of its keys. An index of another domain can't answer."""

    field_id: ColumnId
    test: LeafTest
    value_type: str


TextFunction: TypeAlias = Literal["upper", "lower", "trim", "ltrim", "rtrim"]
NumberFunction: TypeAlias = Literal["length", "year", "month", "day", "quarter"]
ValueOperator: TypeAlias = Literal["=", "<", "<=", ">", ">=", "IN", "LIKE", "ILIKE", "RLIKE"]

PATTERN_OPERATORS: Final = ("LIKE", "ILIKE", "RLIKE")


@dataclass(frozen=True, slots=True)
class ValueTest:
    """`[NOT] function(value) operator literals`. NULL satisfies neither the test nor its opposite.

    Literals are texts, or integers beside a function that gives integers. A pattern is as written, with its escapes.
    """

    function: TextFunction | NumberFunction | None
    operator: ValueOperator
    literals: tuple[str | int, ...]
    escape: str = "\\"
    negated: bool = False

    def __invert__(self) -> ValueTest:
        """Return the opposite test."""
        return replace(self, negated=not self.negated)


@dataclass(frozen=True, slots=True)
class EngineTest:
    """A test that an engine evaluates, by its number among those of its query."""

    number: int


@dataclass(frozen=True, slots=True)
class ByValue:
    """A test of one column, or key of a map, decided value by value; until then, any row may match."""

    field_id: ColumnId
    test: ValueTest | EngineTest
    value_type: str
    text: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Everything:
    """All rows match; or, where `exact` is false, any row may (an upper bound), and the text or reason says why."""

    exact: bool
    text: str = field(default="", compare=False)
    reason: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Nothing:
    """No row matches."""


@dataclass(frozen=True, slots=True)
class Conjunction:
    """All children hold."""

    children: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Disjunction:
    """At least one child holds."""

    children: tuple[Predicate, ...]


Part: TypeAlias = Leaf | ByValue | Everything | Nothing
"""What ANDs and ORs join."""

Predicate: TypeAlias = Part | Conjunction | Disjunction

EVERY_ROW: Final = Everything(exact=True)
NO_ROW: Final = Nothing()
UNKNOWN: Final = Everything(exact=False)

MAX_ALTERNATIONS: Final = 100
"""AND within OR within AND ... beyond this depth becomes an upper bound, because code that walks a tree may recurse."""


def joined(parts: Sequence[Predicate], *, is_and: bool) -> Predicate:
    """AND or OR as written: AND within AND (OR within OR) is one, and what is always true or false is left out."""
    kind, decisive = (Conjunction, Nothing) if is_and else (Disjunction, Everything)
    kept, seen = list[Predicate](), set[Predicate]()
    for part in parts:
        for child in part.children if isinstance(part, kind) else (part,):
            if not isinstance(child, Everything | Nothing) or child == UNKNOWN:
                # A pattern and its prefix say the same of words.
                if not isinstance(child, ByValue) or child not in seen:
                    kept.append(child)
                if isinstance(child, ByValue):
                    seen.add(child)
            elif isinstance(child, decisive):
                return NO_ROW if is_and else EVERY_ROW
    return (kept[0] if kept else EVERY_ROW if is_and else NO_ROW) if len(kept) < 2 else kind(tuple(kept))


def flattened(predicate: Predicate, level: int = 0) -> Predicate:
    """Join what was nested as it was read, of whatever depth."""
    kind = Disjunction if isinstance(predicate, Disjunction) else Conjunction
    pending, done = [predicate], list[Predicate]()
    while pending:
        match pending.pop():
            case Conjunction(children) | Disjunction(children) as part if isinstance(part, kind):
                pending.extend(reversed(children))
            case Conjunction() | Disjunction() as part if level < MAX_ALTERNATIONS:
                done.append(flattened(part, level + 1))
            case Conjunction() | Disjunction():
                done.append(Everything(False, f"conditions nested more than {MAX_ALTERNATIONS} levels deep"))
            case part:
                done.append(part)
    return joined(done, is_and=kind is Conjunction)


def parts(predicate: Predicate) -> Iterator[Part]:
    """Yield what ANDs and ORs join, left to right."""
    match predicate:
        case Conjunction(children) | Disjunction(children):
            for child in children:
                yield from parts(child)
        case part:
            yield part


def leaves(predicate: Predicate) -> Iterator[Leaf]:
    """Yield the leaves, left to right."""
    return (part for part in parts(predicate) if isinstance(part, Leaf))


def necessary_leaves(predicate: Predicate) -> tuple[Leaf, ...]:
    """Return leaves that every matching row satisfies."""
    match predicate:
        case Leaf():
            return (predicate,)
        case Conjunction(children):
            return tuple(leaf for child in children for leaf in necessary_leaves(child))
        case _:
            return ()


def is_exact(predicate: Predicate) -> bool:
    """Whether all of a predicate is known."""
    return all(isinstance(part, Leaf | Nothing) or part == EVERY_ROW for part in parts(predicate))
