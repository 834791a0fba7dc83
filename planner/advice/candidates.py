"""The indexes that could help a workload: for each column that a WHERE tests, the kinds that answer the test."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC

from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema

from planner.advice.asked import kinds_for, tests_of
from planner.advice.queries.workload import Query
from planner.predicate.nodes import Leaf
from planner.where.parser import parse_where
from puffin_index.definition.index_definition import IndexDefinition, IndexedColumn, ResolvedColumn, resolve
from puffin_index.errors import DefinitionError, NotFoundError, WhereSyntaxError
from puffin_index.keys.map_key import SEPARATOR, ColumnId, column_and_key, stored_kind
from puffin_index.segments.directory import FieldKind


@dataclass(frozen=True, slots=True)
class ReadQuery:
    """A query whose WHERE was read.

    Attributes:
        query: The query.
        expression: Its WHERE.
        candidates: The indexes that could answer a part of it.
        columns: The columns of these indexes.
    """

    query: Query
    expression: BooleanExpression
    candidates: frozenset[FieldKind]
    columns: frozenset[ColumnId]


@dataclass(frozen=True, slots=True)
class Candidates:
    """The indexes that could help.

    Attributes:
        queries: The queries with a WHERE that an index could answer a part of.
        columns: The columns and kinds.
        skipped: Queries that cannot be read, and indexes that cannot be built, with the reasons.
    """

    queries: tuple[ReadQuery, ...]
    columns: tuple[ResolvedColumn, ...]
    skipped: tuple[str, ...]


def find_candidates(queries: Iterable[Query], schema: Schema) -> Candidates:
    """Read the WHERE of each query, and find the indexes that could answer a part of it."""
    skipped: list[str] = []
    read: list[tuple[Query, BooleanExpression, tuple[Leaf, ...]]] = []
    for query in queries:
        if query.where is None:
            continue
        try:
            # Times without a zone are those of the sessions that asked. What lies near is as good for advice.
            expression = parse_where(query.where, session_zone=UTC)
            read.append((query, expression, tests_of(expression, schema)))
        except (WhereSyntaxError, NotFoundError) as error:
            skipped.append(f"WHERE {query.where}: {str(error).splitlines()[0]}")
    kinds: dict[ColumnId, set[str]] = {}
    for _, _, tests in read:
        for test in tests:
            kinds.setdefault(test.field_id, set()).update(kinds_for(test))
    columns: list[ResolvedColumn] = []
    for column, wanted in kinds.items():
        resolved, reasons = _buildable(column, wanted, schema)
        columns += resolved
        skipped += reasons
    usable = {(own.column_id, kind) for own in columns for kind in own.kinds}
    found = [_read_query(query, expression, tests, usable) for query, expression, tests in read]
    return Candidates(tuple(one for one in found if one.candidates), tuple(columns), tuple(dict.fromkeys(skipped)))


def _read_query(
    query: Query, expression: BooleanExpression, tests: tuple[Leaf, ...], usable: set[tuple[ColumnId, str]]
) -> ReadQuery:
    pairs = {(test.field_id, kind) for test in tests for kind in kinds_for(test)} & usable
    return ReadQuery(
        query, expression, frozenset(_key(*pair) for pair in pairs), frozenset(column for column, _ in pairs)
    )


def _key(column: ColumnId, kind: str) -> FieldKind:
    field_id, map_key = column_and_key(column)
    return field_id, stored_kind(kind, map_key)


def _buildable(column: ColumnId, wanted: set[str], schema: Schema) -> tuple[list[ResolvedColumn], list[str]]:
    field_id, map_key = column_and_key(column)
    name = schema.find_column_name(field_id) or ""
    name = name if map_key is None else f"{name}{SEPARATOR}{map_key}"
    kinds: dict[str, dict[str, str]] = {}
    reasons: list[str] = []
    for kind in sorted(wanted):
        try:
            resolve(IndexDefinition((IndexedColumn(name, {kind: {}}),)), schema)
            kinds[kind] = {}
        except DefinitionError as error:
            reasons.append(str(error))
    if not kinds:
        return [], reasons
    return list(resolve(IndexDefinition((IndexedColumn(name, kinds),)), schema)), reasons
