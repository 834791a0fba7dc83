"""What equality deletes say of the rows of a data file: as a predicate for the index, and as a test of values."""

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from cachetools import cached
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import NestedField

from planner.condition.rows import ReadColumn
from planner.condition.tree.nodes import UNKNOWN, Leaf, Predicate
from planner.condition.tree.simplify import MOST_KEYS, conjunction, disjunction
from puffin_index.data.deletes import DeleteColumn, EqualityDelete, are_among, distinct_rows, read_equality_delete
from puffin_index.keys.arrow_keys import NEGATIVE_ZERO_KEY, signed_keys
from puffin_index.keys.leaf import LeafTest, NullTest, RangeTest, SetTest
from puffin_index.storage.arrays import Flags
from puffin_index.storage.caches import shared_cache

_CACHE_BYTES: Final = 64 << 20

_MOST_ALTERNATIVES: Final = 64
"""With several columns, each combination of values of all columns but one is a part of an OR, up to this number."""


def delete_columns(table: Table, schema: Schema, field_ids: Iterable[int]) -> tuple[DeleteColumn, ...]:
    """Describe the columns of an equality delete file by a schema, or by an older one of the table if it lacks one."""
    live = {field.field_id for field in schema.fields}
    fields = ((field_id, field_of(table, schema, field_id)) for field_id in sorted(field_ids))
    return tuple(
        # Iceberg's readers do not add fields of structs for deletes either.
        DeleteColumn(field_id, str(field.field_type) if field else "nested", field_id in live)
        for field_id, field in fields
    )


def field_of(table: Table, schema: Schema, field_id: int) -> NestedField | None:
    """Find a top-level column in a schema, or else in the latest schema of the table that has the column."""
    older = sorted(table.schemas().values(), key=lambda one: -one.schema_id)
    every = (field for one in (schema, *older) for field in one.fields)
    return next((field for field in every if field.field_id == field_id), None)


def with_dropped_columns(table: Table, schema: Schema, deletes: Iterable[EqualityDelete]) -> Schema:
    """Return a schema that also has those columns of deletes that were dropped; names tell them by their ids."""
    dropped = {column.field_id for delete in deletes for column in delete.columns if not column.is_live}
    fields = [field for field_id in sorted(dropped) if (field := field_of(table, schema, field_id))]
    renamed = (field.model_copy(update={"name": f"field {field.field_id}, dropped"}) for field in fields)
    return Schema(*schema.fields, *renamed) if dropped else schema


def deleting(io: FileIO, deletes: tuple[EqualityDelete, ...]) -> Predicate:
    """Return the predicate of the rows that equality deletes delete; inexact where more rows satisfy it."""
    return disjunction([_of_rows(columns, keys) for columns, keys in _by_columns(io, deletes)])


_Keys: TypeAlias = list[tuple[tuple[DeleteColumn, ...], pa.Table]]

_joined, _joined_lock = shared_cache(_CACHE_BYTES, lambda known: 64 + sum(keys.nbytes for _, keys in known))


@cached(_joined, key=lambda _, deletes: deletes, lock=_joined_lock)
def _by_columns(io: FileIO, deletes: tuple[EqualityDelete, ...]) -> _Keys:
    """The distinct rows of keys of delete files, by their columns; kept for other row groups with the same deletes."""
    parts: dict[tuple[DeleteColumn, ...], list[tuple[pa.Array, ...]]] = {}
    for delete in deletes:
        parts.setdefault(delete.columns, []).append(read_equality_delete(io, delete))
    return [(columns, distinct_rows(own)) for columns, own in parts.items()]


def _of_rows(columns: Sequence[DeleteColumn], keys: pa.Table) -> Predicate:
    """The rows that have the keys of one of some rows, with each combination of values but those of one column."""
    several = [column.unique() for column in keys.columns]
    if len(columns) == 1:
        return _among(columns[0], several[0])
    widest = max(range(len(columns)), key=lambda place: len(several[place]))
    others = [name for name in keys.column_names if name != str(widest)]
    grouped = keys.group_by(others).aggregate([(str(widest), "list")])
    if len(grouped) > _MOST_ALTERNATIVES:
        tests = [_among(column, own) for column, own in zip(columns, several, strict=True)]
        return conjunction([*tests, UNKNOWN])
    lists = grouped[f"{widest}_list"].combine_chunks()
    alternatives = [
        conjunction(
            [
                *(_among(columns[int(name)], grouped[name].slice(at, 1)) for name in others),
                _among(columns[widest], lists[at].values),
            ]
        )
        for at in range(len(grouped))
    ]
    return disjunction(alternatives)


def _among(column: DeleteColumn, keys: pa.Array | pa.ChunkedArray) -> Predicate:
    """The rows that have one of some keys, NULL included, as an index knows them: it does not tell zeros apart."""
    value_type, exact = column.value_type, True
    found = set(keys.drop_null().to_pylist())
    if value_type.is_floating and found & {0, NEGATIVE_ZERO_KEY}:
        found, exact = found - {NEGATIVE_ZERO_KEY} | {0}, False
    tests: list[LeafTest] = [NullTest(is_null=True)] if keys.null_count else []
    if len(found) > MOST_KEYS:
        tests.append(RangeTest(min(found), max(found)))
        exact = False
    elif found:
        tests.append(SetTest(tuple(sorted(found))))
    some = disjunction([Leaf(column.field_id, test, value_type.name) for test in tests])
    return some if exact else conjunction([some, UNKNOWN])


def deleted_rows(io: FileIO, deletes: tuple[EqualityDelete, ...], read_column: ReadColumn, row_count: int) -> Flags:
    """Say which of some rows of a data file equality deletes delete, by the values of their columns."""
    deleted = np.zeros(row_count, np.bool_)
    for columns, keys in _by_columns(io, deletes):
        rows = [signed_keys(read_column(column.field_id), column.value_type) for column in columns]
        # One value stands for all rows where the file lacks the column.
        deleted |= are_among([own if len(own) == row_count else pa.repeat(own[0], row_count) for own in rows], keys)
    return deleted
