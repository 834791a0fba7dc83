"""Turn a request into what the planner judges by: a scan, a predicate, and how many rows the query wants.

A filter that is not understood keeps all rows.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from pyiceberg.expressions import And, BooleanExpression, Not, Or
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType, UnknownType
from pyroaring import BitMap

from planner.first_rows.search import FirstRows, Order
from planner.predicate.bind import bind
from planner.predicate.nodes import UNKNOWN, Predicate
from planner.predicate.simplify import conjunction
from planner.snapshot.scan import Scan
from planner.snapshot.snapshot_files import FileWithDeletes
from planner.spark.requests.conditions import expression_of, spark_type
from planner.spark.requests.runtime_keys import bind_runtime_keys
from planner.spark.requests.wire import FileDeletes, Request, Wanted
from planner.spark.settings import Settings
from planner.view.index_view import IndexView
from planner.where.unknown import Unknown
from puffin_index.data.data_table import DataFile
from puffin_index.data.deletes import DeleteFile
from puffin_index.errors import NotFoundError, UnsupportedError
from puffin_index.keys.value_types import value_type_named, value_type_of
from puffin_index.storage.arrays import Flags, Ints

_log = logging.getLogger(__name__)

_LOST = "\N{REPLACEMENT CHARACTER}"
"""The character that Iceberg's filters have in place of bytes that are not UTF-8."""


def bind_filters(request: Request, evaluate: Callable[[Unknown], Predicate] = lambda _: UNKNOWN) -> Predicate:
    """Bind the filters of a request, the conditions above its scan, and the keys of joins.

    Args:
        request: The request.
        evaluate: Gives the predicate of a function among the conditions.
    """
    schema = schema_of(request.columns)
    filters = (_bind_filter(text, schema) for text in request.filters)
    conditions = (bind(expression_of(node, schema), schema, evaluate=evaluate) for node in request.conditions)
    joins = (bind_runtime_keys(keys, schema) for keys in request.runtime_keys)
    return conjunction([*filters, *conditions, *joins])


def _bind_filter(text: str, schema: Schema) -> Predicate:
    try:
        return bind(read_filter(text), schema, "iceberg")
    except (NotFoundError, RecursionError) as error:
        _log.debug("filter not understood, all its rows are kept: %s (%s)", text, error)
    except json.JSONDecodeError as error:
        _log.warning("filter not understood, all its rows are kept: %s (%s)", text, error)
    return UNKNOWN


def read_filter(text: str) -> BooleanExpression:
    """Read a filter of Iceberg's JSON; a leaf is unknown if PyIceberg cannot read it or if it has lost bytes.

    Raises:
        JSONDecodeError: If the text is no JSON.
    """
    # An explicit stack, because generated predicates nest deeper than Python can recurse.
    pending: list[tuple[Any, bool]] = [(json.loads(text), False)]
    done: list[BooleanExpression] = []
    while pending:
        node, visited = pending.pop()
        match node:
            case {"type": "not", "child": child}:
                if visited:
                    done.append(Not(done.pop()))
                else:
                    pending += [(node, True), (child, False)]
            case {"type": "and" | "or" as kind, "left": left, "right": right}:
                if visited:
                    last, first = done.pop(), done.pop()
                    done.append(And(first, last) if kind == "and" else Or(first, last))
                else:
                    pending += [(node, True), (right, False), (left, False)]
            case _:
                done.append(_read_leaf(node))
    return done.pop()


def _read_leaf(node: Any) -> BooleanExpression:
    values = [node.get("value"), *node.get("values", ())] if isinstance(node, dict) else []
    if any(isinstance(value, str) and _LOST in value for value in values):
        return Unknown(text=str(node))
    try:
        return BooleanExpression.model_validate(node)
    except (ValueError, TypeError) as error:
        _log.debug("filter not understood, all its rows are kept: %s (%s)", node, error)
        return Unknown(text=str(node))


@lru_cache(maxsize=256)
def schema_of(text: str) -> Schema:
    """Read a schema of Iceberg's JSON; kept, because scans of the same columns send the same text."""
    return Schema(*map(_known_field, json.loads(text)["fields"]))


def _known_type(node: Any) -> IcebergType:
    """Read a type; a primitive type that no index can be of becomes `unknown`, also if PyIceberg knows it."""
    match node:
        case {"type": "struct", "fields": fields}:
            return StructType(*map(_known_field, fields))
        case {"type": "list", "element-id": element_id, "element": element}:
            return ListType(element_id, _known_type(element), element_required=False)
        case {"type": "map", "key-id": key_id, "key": key, "value-id": value_id, "value": value}:
            return MapType(key_id, _known_type(key), value_id, _known_type(value), value_required=False)
        case str():
            try:
                value_type_named(node)
            except UnsupportedError:
                return UnknownType()
            return IcebergType.model_validate(node)
        case _:
            return UnknownType()


def _known_field(node: Mapping[str, Any]) -> NestedField:
    return NestedField(
        node["id"],
        node["name"],
        _known_type(node["type"]),
        required=node["required"],
        initial_default=node.get("initial-default"),
    )


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
    """Return the scan of a request.

    Args:
        request: The request.
        view: The index.
        numbers: The row groups of the view that the scan has.
    """
    files = None
    # Spark's tasks hold the delete files: where the request does not speak of them, any row may be deleted.
    has_deletes: Flags | None = np.ones(len(numbers), np.bool_)
    if request.aggregates is not None:
        files, has_deletes = dict(_with_deletes(view, own) for own in request.aggregates.deletes), None
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


def _with_deletes(view: IndexView, deletes: FileDeletes) -> tuple[int, FileWithDeletes]:
    number = int(view.file_of[deletes.first])
    file = DataFile(view.paths[number], int(view.file_sizes[number]), int(view.record_counts[number]), ())
    return number, FileWithDeletes(file, tuple(DeleteFile(*one) for one in deletes.files), deletes.others)
