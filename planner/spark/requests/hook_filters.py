"""Turn a request into what the planner judges by: a scan, a predicate, how many rows are wanted; and into SQL text."""

import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, NestedField, UUIDType
from pyroaring import BitMap

from planner.condition.as_sql import HIDDEN, conjuncts_as_sql, name_text
from planner.condition.spark.nodes import content_of
from planner.condition.spark.read import read_node, spark_type
from planner.condition.tree.nodes import UNKNOWN, ByValue, Leaf, Predicate, leaves
from planner.condition.tree.simplify import MOST_KEYS, among_keys, conjunction, simplified, undecided
from planner.first_rows.search import FirstRows, Order
from planner.prune.estimate import key_presence, most_distinct
from planner.snapshot.files import FileWithDeletes
from planner.snapshot.scan import Scan
from planner.spark.requests.wire import Request, RuntimeKeys, Wanted, WantedAggregates
from planner.spark.settings import Settings
from planner.view.directories import FieldStatistics, IndexReads
from planner.view.index_view import IndexView
from puffin_index.data.data_table import DataFile
from puffin_index.data.deletes import DeleteColumn, DeleteFile, EqualityDelete
from puffin_index.errors import UnsupportedError
from puffin_index.keys.arrow_keys import column_of
from puffin_index.keys.leaf import NullTest, RangeTest, SetTest
from puffin_index.keys.value_types import value_type_named, value_type_of
from puffin_index.storage.arrays import Flags, Ints

_log = logging.getLogger(__name__)

_MOST_CHARACTERS: Final = 10_000


def read_conditions(request: Request, *, filters: bool = True) -> list[Predicate]:
    """Read the conditions above the scan of a request, and its filters if wanted. All hold together."""
    schema = schema_of(request.columns)
    every = (*request.filters, *request.conditions) if filters else request.conditions
    return [read_node(node, schema) for node in every]


def bind_filters(request: Request, decide: Callable[[ByValue], Predicate] = undecided) -> Predicate:
    """Return what the filters of a request, the conditions above its scan, and the keys of joins say of rows.

    `decide` says what a function among the conditions means.
    """
    schema = schema_of(request.columns)
    conditions = (simplified(condition, decide) for condition in read_conditions(request))
    joins = (bind_runtime_keys(keys, schema) for keys in request.runtime_keys)
    return conjunction([*conditions, *joins])


@lru_cache(maxsize=256)
def schema_of(text: str) -> Schema:
    """Read a schema of Iceberg's JSON; kept, because scans of the same columns send the same text."""
    return Schema(*map(NestedField.model_validate, json.loads(text, object_hook=_with_known_types)["fields"]))


def _with_known_types(node: dict[str, object]) -> dict[str, object]:
    """Let types that no index can be of become `unknown`, also those that PyIceberg knows."""
    # A field has an ID. A nested type says of itself by `type` what it is.
    for part in node.keys() & ({"type"} if "id" in node else {"element", "key", "value"}):
        name = node[part]
        if isinstance(name, str):
            with suppress(UnsupportedError):
                value_type_named(name)
                continue
            node[part] = "unknown"
    return node


def first_rows(wanted: Wanted | None, schema: Schema, settings: Settings) -> FirstRows | None:
    """Return how many rows are wanted, and in what order; None if all are, or if the order is by no known column."""
    if wanted is None or not (settings.limit if wanted.order is None else settings.top_k):
        return None
    if wanted.order is None:
        return FirstRows(wanted.rows, None, str(wanted))
    field, column = wanted.order.field, wanted.order
    column_type = schema.find_type(field)
    if spark_type(column_type) != column.type:
        return None
    order = Order(field, value_type_of(column_type).name, column.descending, column.nulls_first)
    return FirstRows(wanted.rows, order, str(wanted))


def scan_of(request: Request, view: IndexView, numbers: Ints) -> Scan:
    """Return the scan of a request, which has some row groups of the view."""
    files = None
    # Spark's tasks hold the delete files: where the request does not speak of them, any row may be deleted.
    has_deletes: Flags | None = np.ones(len(numbers), np.bool_)
    if request.aggregates is not None:
        files, has_deletes = _files_with_deletes(view, request.aggregates), None
    elif request.wanted is not None:
        deleted = BitMap.deserialize(request.wanted.deleted)
        has_deletes = np.isin(numbers, np.frombuffer(deleted.to_array(), np.uint32).astype(np.int64))
    scan = Scan.of_view(view, numbers, files, has_deletes)
    return replace(
        scan,
        table=request.table,
        snapshot_id=request.snapshot,
        unlisted=request.unindexed,
        unlisted_files=request.unindexed_files,
    )


def _files_with_deletes(view: IndexView, wanted: WantedAggregates) -> dict[int, FileWithDeletes]:
    by_equality = [
        EqualityDelete(
            *own.file, tuple(DeleteColumn(number, name or "", name is not None) for number, name in own.columns)
        )
        for own in wanted.equality_deletes
    ]
    files: dict[int, FileWithDeletes] = {}
    for own in wanted.deletes:
        number = int(view.file_of[own.first])
        file = DataFile(view.paths[number], int(view.file_sizes[number]), int(view.record_counts[number]), ())
        by_position = tuple(DeleteFile(*one) for one in own.files)
        files[number] = FileWithDeletes(file, by_position, tuple(by_equality[place] for place in own.equality))
    return files


def where_of(request: Request, *, literals: bool, for_people: bool = False) -> str:
    """Return what a request says about the rows as SQL text, each conjunct once; `TRUE` if it says nothing.

    Without `literals`, each literal is a `?`. A text for people also says what SQL cannot: how many keys of a join
    there are, what is not understood, and how many members of a long list are left out. Otherwise these are a `?`.
    """
    schema = schema_of(request.columns)
    # With such a wish, the conditions are the whole filter above the scan.
    is_whole = bool(request.conditions) and (request.wanted or request.aggregates) is not None
    parts = [
        part
        for condition in read_conditions(request, filters=not is_whole)
        for part in conjuncts_as_sql(condition, schema, literals=literals, for_people=for_people)
    ]
    parts += [str(keys) if for_people else _of_keys(keys) for keys in request.runtime_keys]
    joined = " AND ".join(dict.fromkeys(parts)) or "TRUE"
    return joined if len(joined) <= _MOST_CHARACTERS else joined[:_MOST_CHARACTERS] + "..."


def _of_keys(keys: RuntimeKeys) -> str:
    name = name_text([keys.name])
    return f"{name} IN ({HIDDEN})" if keys.operator == "=" else f"{name} {keys.operator} {HIDDEN}"


MOST_PRESENCE: Final = 0.5
"""A column is not worth waiting for if one of its keys occurs in this share of the row groups."""


def wanted_runtime_fields(
    fields: Mapping[int, int | None], predicate: Predicate, schema: Schema, view: IndexView, *, pages: bool
) -> list[int]:
    """Return those columns whose keys could drop more row groups, or pages, than the predicate does before.

    Each column has the rows of the table whose keys it is compared with, None if not known. Skips columns without an
    index, and columns with no more values than the joined table has rows: that table may well have them all. Skips the
    only column of a scan without any other test, if one key alone occurs in most row groups, or most pages where the
    scan reads pages: waiting for such keys takes time and drops nothing.
    """
    indexed = {field_id for field_id, _ in view.placements}
    wanted: dict[int, FieldStatistics | None] = {}
    for field, rows in fields.items():
        field_type = schema.find_type(field)
        if field not in indexed or isinstance(field_type, UUIDType):
            continue
        statistics = view.statistics(field, value_type_of(field_type).name, IndexReads())
        if statistics is None or rows is None or most_distinct(statistics) > rows:
            wanted[field] = statistics
    if len(wanted) == 1 and all(isinstance(leaf.test, NullTest) for leaf in leaves(predicate)):
        (statistics,) = wanted.values()
        has_pages = view.has_pages & pages
        if statistics is not None and key_presence(statistics, has_pages) >= MOST_PRESENCE:
            return []
    return [*wanted]


def bind_runtime_keys(keys: RuntimeKeys, schema: Schema) -> Predicate:
    """Return the predicate that a column satisfies; unknown if the keys are not of the column's type."""
    try:
        column_type = schema.find_type(keys.field)
        if spark_type(column_type) != keys.type or isinstance(column_type, UUIDType):
            raise UnsupportedError(f"keys of type {keys.type} for a column of type {column_type}")
        value_type = value_type_of(column_type)
        one_of = among_keys(keys.field, column_of(_values(keys, column_type), value_type), MOST_KEYS)
        if keys.operator == "=" or not isinstance(one_of, Leaf):
            return one_of
        if not isinstance(one_of.test, SetTest) or len(one_of.test.keys) > 1:
            raise UnsupportedError(f"{len(keys.keys)} values where one is compared with")
        (key,), is_inclusive = one_of.test.keys, keys.operator.endswith("=")
        if keys.operator.startswith("<"):
            return replace(one_of, test=RangeTest(None, key, high_inclusive=is_inclusive))
        return replace(one_of, test=RangeTest(key, None, low_inclusive=is_inclusive))
    except (UnsupportedError, ValueError, ArithmeticError, pa.ArrowException) as error:
        _log.warning("keys not understood, all rows are kept: %s", error)
        return UNKNOWN


def _values(keys: RuntimeKeys, column_type: IcebergType) -> pa.Array:
    if keys.type in ("string", "binary"):
        texts = [key if isinstance(key, bytes) else content_of(keys.type, key) for key in keys.keys]
        return pa.array(texts, pa.binary())
    # Whole numbers are contents already, and there may be many.
    contents = keys.keys if keys.type in ("int", "long") else [content_of(keys.type, key) for key in keys.keys]
    return pa.array(contents, schema_to_pyarrow(column_type, include_field_ids=False))
