"""The indexes that could help a workload, by column and kind, or that a question names to add or leave out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from pyiceberg.schema import Schema

from planner.advice.workload import Query
from planner.aggregates.question import AskedColumn, find_asked
from planner.condition.columns import find_column
from planner.condition.sql.parser import read_where
from planner.condition.tree.nodes import EVERY_ROW, ByValue, Leaf, Predicate, is_exact, leaves, parts
from planner.condition.tree.simplify import simplified
from puffin_index.definition import index_definition
from puffin_index.definition.column_names import spelled_like
from puffin_index.definition.index_definition import IndexDefinition, IndexedColumn, ResolvedColumn
from puffin_index.errors import DefinitionError, NotFoundError, WhereSyntaxError
from puffin_index.keys.leaf import NullTest
from puffin_index.keys.map_key import ColumnId, FieldKind, field_of, index_of, suffix_of
from puffin_index.kinds.kind import Answer, IndexKind
from puffin_index.kinds.registry import KINDS, kinds_answering, kinds_holding_keys


def names_of(columns: Iterable[ResolvedColumn]) -> dict[FieldKind, str]:
    """Return `column.kind` of all indexes of a definition, by field id and stored kind."""
    return {index_of(column.column_id, kind): f"{column.name}.{kind}" for column in columns for kind in column.kinds}


def find_named(names: Sequence[str], columns: Sequence[ResolvedColumn]) -> frozenset[FieldKind]:
    """Find the indexes of a definition that `column.kind` names.

    Raises DefinitionError if the definition has no such index, or none is spelled so and several differ in case only.
    """
    known = {name: key for key, name in names_of(columns).items()}
    for name in names:
        if len(spelled_like(name, known)) != 1:
            there = ", ".join(sorted(known)) or "none"
            raise DefinitionError(f"{name!r} is no index of the table: name column.kind; the table has: {there}")
    return frozenset(known[one] for name in names for one in spelled_like(name, known))


def tests_of(condition: Predicate) -> tuple[Leaf, ...]:
    """Return the tests of single columns in a condition; functions and patterns count as tests of their column."""
    # Which values satisfy a function is not known yet. Whatever answers tests of NULL holds all values.
    some_value = NullTest(is_null=False)
    return tuple(leaves(simplified(condition, lambda test: Leaf(test.field_id, some_value, test.value_type))))


@dataclass(frozen=True, slots=True)
class ReadQuery:
    """A query whose WHERE was read.

    Attributes:
        ways: Sets of candidates that do the same for a plan: one of a set is as good as all of it.
        answered_by: For each column that the answer needs, and each test of the WHERE, the indexes that have it: an
            index of each of them answers the query. Empty if it wants rows, or what no index says exactly.
    """

    query: Query
    condition: Predicate
    candidates: frozenset[FieldKind]
    ways: tuple[frozenset[FieldKind], ...] = ()
    answered_by: tuple[frozenset[FieldKind], ...] = ()
    groups: tuple[AskedColumn, ...] = ()

    def with_idle(self, chosen: frozenset[FieldKind]) -> frozenset[FieldKind]:
        """Add the candidates that do nothing for a plan beside those chosen: sets that plan alike become equal."""
        open_ways = [way for way in self.ways if not way & chosen]
        return self.candidates.difference(*open_ways)


@dataclass(frozen=True, slots=True)
class Candidates:
    """The indexes that could help, and why some queries or indexes were skipped."""

    queries: tuple[ReadQuery, ...]
    columns: tuple[ResolvedColumn, ...]
    skipped: tuple[str, ...]


def find_candidates(queries: Iterable[Query], schema: Schema) -> Candidates:
    """Read the WHERE of each query, and find the indexes that could answer a part of it."""
    skipped: list[str] = []
    read: list[ReadQuery] = []
    indexes = _Indexes(schema, skipped)
    for query in queries:
        if query.where is None and not query.held:
            continue
        try:
            read.append(_read(query, schema, indexes))
        except (WhereSyntaxError, NotFoundError) as error:
            skipped.append(f"WHERE {query.where}: {str(error).splitlines()[0]}")
    usable = tuple(one for one in read if one.candidates)
    return Candidates(usable, indexes.columns, tuple(dict.fromkeys(skipped)))


class _Indexes:
    """The indexes that columns of a schema can have, as far as they were asked for; `skipped` gets reasons."""

    def __init__(self, schema: Schema, skipped: list[str]) -> None:
        self.columns: tuple[ResolvedColumn, ...] = ()
        self._schema = schema
        self._skipped = skipped
        self._known = cache(self._resolve)

    def of(self, column: ColumnId, kinds: Iterable[IndexKind]) -> frozenset[FieldKind]:
        """Find those of some kinds that a column can have."""
        return frozenset(key for kind in kinds for key in self._known(column, kind.name))

    def _resolve(self, column: ColumnId, kind: str) -> tuple[FieldKind, ...]:
        name = f"{self._schema.find_column_name(field_of(column)) or ''}{suffix_of(column)}"
        try:
            found = index_definition.resolve(IndexDefinition((IndexedColumn(name, {kind: {}}),)), self._schema)
        except DefinitionError as error:
            self._skipped.append(str(error))
            return ()
        self.columns = index_definition.unite(self.columns, found)
        return tuple(names_of(found))


def _read(query: Query, schema: Schema, indexes: _Indexes) -> ReadQuery:
    # Times without a zone are those of the sessions that asked. What lies near is as good for advice.
    condition = EVERY_ROW if query.where is None else read_where(query.where, schema)
    tests = tests_of(condition)
    held = [find_column(schema, name) for name in query.held]
    asked = [indexes.of(one.field_id, (kind for kind in KINDS.values() if kind.answers(one.test))) for one in tests]
    exact = [indexes.of(one.field_id, kinds_answering(one.test, Answer.EXACT)) for one in tests]
    candidates = frozenset().union(*asked)
    # Not every kind lists the values of a column, which tests by value are tried on.
    listed = {part.field_id for part in parts(condition) if isinstance(part, ByValue)}
    alone = [indexes.of(column, [kind]) & candidates for column in listed for kind in KINDS.values()]
    ways = tuple({*asked, *exact, *alone})
    if not held or any(own.value_type is None for own in held) or not is_exact(simplified(condition)):
        return ReadQuery(query, condition, candidates, ways)
    holders = [indexes.of(own.column, kinds_holding_keys()) for own in held]
    groups = tuple(find_asked(schema, name) for name in sorted(query.groups))
    return ReadQuery(query, condition, candidates.union(*holders), ways, (*exact, *holders), groups)
