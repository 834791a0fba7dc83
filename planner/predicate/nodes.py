"""The predicate tree that the planner evaluates: leaf tests by field id under AND and OR. NOT is at the leaves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from puffin_index.keys.leaf import LeafTest
from puffin_index.keys.map_key import ColumnId


@dataclass(frozen=True, slots=True)
class Leaf:
    """A test of one column.

    Attributes:
        field_id: The column, or a key of a map.
        test: In the key domain of the column's type.
        value_type: Name of the type that the keys belong to. An index of another key domain can't answer.
    """

    field_id: ColumnId
    test: LeafTest
    value_type: str


@dataclass(frozen=True, slots=True)
class Everything:
    """All rows match; or, where `exact` is false, any row may (an upper bound)."""

    exact: bool


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


Predicate: TypeAlias = Leaf | Everything | Nothing | Conjunction | Disjunction

UNKNOWN = Everything(exact=False)


def leaves(predicate: Predicate) -> Iterator[Leaf]:
    """Yield the leaves, left to right."""
    pending = [predicate]
    while pending:
        match pending.pop():
            case Leaf() as leaf:
                yield leaf
            case Conjunction(children) | Disjunction(children):
                pending.extend(reversed(children))
            case Everything() | Nothing():
                pass


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
    match predicate:
        case Everything(exact):
            return exact
        case Conjunction(children) | Disjunction(children):
            return all(map(is_exact, children))
        case _:
            return True
