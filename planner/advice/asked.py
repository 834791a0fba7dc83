"""The indexes that a question names: definitions to add, and `column.kind` of indexes to leave out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from planner.condition.tree.nodes import Leaf, Predicate, leaves
from planner.condition.tree.simplify import simplified
from puffin_index.definition.index_definition import ResolvedColumn
from puffin_index.errors import DefinitionError
from puffin_index.keys.leaf import NullTest
from puffin_index.keys.map_key import ColumnId
from puffin_index.kinds.registry import KINDS
from puffin_index.segments.directory import FieldKind


def keys_of(columns: Iterable[ResolvedColumn]) -> frozenset[FieldKind]:
    """Return field id and stored kind of all indexes of a definition."""
    return frozenset((column.field_id, column.stored_kind(kind)) for column in columns for kind in column.kinds)


def names_of(columns: Iterable[ResolvedColumn]) -> dict[FieldKind, str]:
    """Return `column.kind` of all indexes of a definition."""
    return {
        (column.field_id, column.stored_kind(kind)): f"{column.name}.{kind}"
        for column in columns
        for kind in column.kinds
    }


def find_named(names: Sequence[str], columns: Sequence[ResolvedColumn]) -> frozenset[FieldKind]:
    """Find the indexes of a definition that `column.kind` names; letters of either case.

    Raises:
        DefinitionError: If the definition has no such index.
    """
    known = names_of(columns)
    by_name = {name.lower(): key for key, name in known.items()}
    for name in names:
        if name.lower() not in by_name:
            there = ", ".join(sorted(known.values())) or "none"
            raise DefinitionError(f"{name!r} is no index of the table: name column.kind; the table has: {there}")
    return frozenset(by_name[name.lower()] for name in names)


def remaining(columns: Iterable[ResolvedColumn], left_out: Collection[FieldKind]) -> tuple[ResolvedColumn, ...]:
    """Leave indexes out of a definition."""
    left = (
        replace(
            column,
            kinds={
                kind: options
                for kind, options in column.kinds.items()
                if (column.field_id, column.stored_kind(kind)) not in left_out
            },
        )
        for column in columns
    )
    return tuple(column for column in left if column.kinds)


def tests_of(condition: Predicate) -> tuple[Leaf, ...]:
    """Return the tests of single columns in a condition; functions and patterns count as tests of their column."""
    # Which values satisfy a function is not known yet. Whatever answers tests of NULL holds all values.
    some_value = NullTest(is_null=False)
    return tuple(leaves(simplified(condition, lambda test: Leaf(test.field_id, some_value, test.value_type))))


def columns_of(condition: Predicate) -> frozenset[ColumnId]:
    """Return the columns that a condition tests."""
    return frozenset(leaf.field_id for leaf in tests_of(condition))


def kinds_for(leaf: Leaf) -> tuple[str, ...]:
    """Return the kinds that answer a test."""
    return tuple(name for name, kind in KINDS.items() if kind.answers(leaf.test))
