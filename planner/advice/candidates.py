"""The indexes that could help a workload, by column and kind, or that a question names to add or leave out."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyiceberg.schema import Schema

from planner.advice.workload import Query
from planner.condition.columns import find_column
from planner.condition.sql.parser import read_where
from planner.condition.tree.nodes import EVERY_ROW, Leaf, Predicate, is_exact, leaves
from planner.condition.tree.simplify import simplified
from puffin_index.definition.index_definition import IndexDefinition, IndexedColumn, ResolvedColumn, resolve
from puffin_index.errors import DefinitionError, NotFoundError, WhereSyntaxError
from puffin_index.keys.leaf import NullTest
from puffin_index.keys.map_key import SEPARATOR, ColumnId, column_and_key, stored_kind
from puffin_index.kinds.kind import Answer
from puffin_index.kinds.registry import KINDS, kinds_answering, kinds_holding_keys
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

    Raises DefinitionError if the definition has no such index.
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


@dataclass(frozen=True, slots=True)
class ReadQuery:
    """A query whose WHERE was read.

    Attributes:
        answered_by: For each column that the answer needs, and each test of the WHERE, the indexes that have it: an
            index of each of them answers the query. Empty if it wants rows, or what no index says exactly.
    """

    query: Query
    condition: Predicate
    candidates: frozenset[FieldKind]
    columns: frozenset[ColumnId]
    answered_by: tuple[frozenset[FieldKind], ...] = ()
    groups: tuple[Leaf, ...] = ()


@dataclass(frozen=True, slots=True)
class Candidates:
    """The indexes that could help, and why some queries or indexes were skipped."""

    queries: tuple[ReadQuery, ...]
    columns: tuple[ResolvedColumn, ...]
    skipped: tuple[str, ...]


def find_candidates(queries: Iterable[Query], schema: Schema) -> Candidates:
    """Read the WHERE of each query, and find the indexes that could answer a part of it."""
    skipped: list[str] = []
    read: list[_Read] = []
    for query in queries:
        if query.where is None and not query.held:
            continue
        try:
            # Times without a zone are those of the sessions that asked. What lies near is as good for advice.
            condition = EVERY_ROW if query.where is None else read_where(query.where, schema)
            held = {name: _test_of(name, schema) for name in query.held}
            is_answerable = bool(held) and all(held.values()) and is_exact(simplified(condition))
            read.append(_Read(query, condition, tests_of(condition), held if is_answerable else {}))
        except (WhereSyntaxError, NotFoundError) as error:
            skipped.append(f"WHERE {query.where}: {str(error).splitlines()[0]}")
    kinds: dict[ColumnId, set[str]] = {}
    for one in read:
        for test, some in one.wanted:
            kinds.setdefault(test.field_id, set()).update(some)
    columns: list[ResolvedColumn] = []
    for column, wanted in kinds.items():
        resolved, reasons = _buildable(column, wanted, schema)
        columns += resolved
        skipped += reasons
    usable = {(own.column_id, kind) for own in columns for kind in own.kinds}
    found = [_read_query(one, usable) for one in read]
    return Candidates(tuple(one for one in found if one.candidates), tuple(columns), tuple(dict.fromkeys(skipped)))


def _test_of(name: str, schema: Schema) -> tuple[Leaf, ...]:
    """Any test of a column, as an index answers it; none if an index cannot hold the column's values."""
    found = find_column(schema, name)
    if found.value_type is None:
        return ()
    return (Leaf(found.column, NullTest(is_null=False), found.value_type.name),)


@dataclass(frozen=True, slots=True)
class _Read:
    query: Query
    condition: Predicate
    tests: tuple[Leaf, ...]
    held: Mapping[str, tuple[Leaf, ...]]

    @property
    def wanted(self) -> list[tuple[Leaf, frozenset[str]]]:
        """The columns, as tests, and the kinds that each wants."""
        holders = frozenset(kind.name for kind in kinds_holding_keys())
        held = [(leaf, holders) for some in self.held.values() for leaf in some]
        return [*((test, frozenset(kinds_for(test))) for test in self.tests), *held]

    @property
    def needed(self) -> list[tuple[Leaf, frozenset[str]]]:
        """The same where all are needed exactly, for an answer."""
        exact = [
            (test, frozenset(kind.name for kind in kinds_answering(test.test, Answer.EXACT))) for test in self.tests
        ]
        return [*exact, *self.wanted[len(self.tests) :]] if self.held else []


def _read_query(one: _Read, usable: set[tuple[ColumnId, str]]) -> ReadQuery:
    def keys(test: Leaf, kinds: Iterable[str]) -> frozenset[FieldKind]:
        return frozenset(_key(test.field_id, kind) for kind in kinds if (test.field_id, kind) in usable)

    pairs = {(test.field_id, kind) for test, kinds in one.wanted for kind in kinds} & usable
    return ReadQuery(
        one.query,
        one.condition,
        frozenset(_key(*pair) for pair in pairs),
        frozenset(column for column, _ in pairs),
        tuple(keys(*need) for need in one.needed),
        tuple(leaf for name in sorted(one.query.groups) for leaf in one.held.get(name, ())),
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
