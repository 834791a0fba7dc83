"""The indexes that a question names: definitions to add, and `column.kind` of indexes to leave out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema

from planner.predicate.bind import bind
from planner.predicate.found_column import find_column
from planner.predicate.nodes import UNKNOWN, Leaf, Predicate, leaves
from planner.where.unknown import Unknown, ValueTest
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


def tests_of(expression: BooleanExpression, schema: Schema) -> tuple[Leaf, ...]:
    """Return the tests of single columns in an expression; functions and patterns count as tests of their column.

    Raises:
        NotFoundError: If the expression names a column that the table lacks.
    """

    def as_leaf(leaf: Unknown) -> Predicate:
        found = find_column(schema, leaf.term) if isinstance(leaf, ValueTest) else None
        if found is None or found.value_type is None:
            return UNKNOWN
        # Which values satisfy a function is not known yet. Whatever answers tests of NULL holds all values.
        return Leaf(found.column, NullTest(is_null=False), found.value_type.name)

    return tuple(leaves(bind(expression, schema, evaluate=as_leaf)))


def columns_of(expression: BooleanExpression, schema: Schema) -> frozenset[ColumnId]:
    """Return the columns that an expression tests."""
    return frozenset(leaf.field_id for leaf in tests_of(expression, schema))


def kinds_for(leaf: Leaf) -> tuple[str, ...]:
    """Return the kinds that answer a test."""
    return tuple(name for name, kind in KINDS.items() if kind.answers(leaf.test))
