"""Turn what Spark finds while a query runs, such as the keys of a join, into a predicate."""

from __future__ import annotations

import logging
from base64 import b64decode
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, UUIDType

from planner.condition.spark.read import spark_type
from planner.condition.tree.key_lists import among, compared
from planner.condition.tree.nodes import UNKNOWN, Leaf, Predicate, leaves
from planner.prune.estimate import key_presence, most_distinct
from planner.spark.requests.wire import RuntimeKeys
from planner.view.directories import FieldStatistics, IndexReads
from planner.view.index_view import IndexView
from puffin_index.errors import UnsupportedError
from puffin_index.keys.leaf import NullTest
from puffin_index.keys.value_types import value_type_of

_log = logging.getLogger(__name__)

MOST_PRESENCE: Final = 0.5
"""A column one key of which occurs in a greater share of the row groups is not worth waiting for by itself."""

_INTEGERS = {
    "int": (np.int32, pa.int32()),
    "long": (np.int64, pa.int64()),
    "date": (np.int32, pa.date32()),
    "timestamp": (np.int64, pa.timestamp("us")),
    "timestamptz": (np.int64, pa.timestamp("us", "UTC")),
}


def wanted_runtime_fields(
    fields: Mapping[int, int | None], predicate: Predicate, schema: Schema, view: IndexView
) -> list[int]:
    """Return the columns of which more could drop row groups.

    A column that the index does not know is none, and neither is one with no more values than the table that it is
    joined with has rows: that table may well have them all. Neither is the only column of a scan without any other
    test, if one key alone occurs in most row groups: waiting for such keys takes time and drops nothing.

    Args:
        fields: The columns by ID: rows of the table whose keys they are compared with, None if not known.
        predicate: What is known of the scan before.
        schema: The schema that has the columns.
        view: The index.
    """
    indexed = {field_id for field_id, _ in view.placements}
    known = {
        field: _statistics(field, schema, view)
        for field in fields
        if field in indexed and not isinstance(schema.find_type(field), UUIDType)
    }
    wanted = [field for field, statistics in known.items() if not _has_at_most(statistics, fields[field])]
    has_tests = any(not isinstance(leaf.test, NullTest) for leaf in leaves(predicate))
    if len(wanted) != 1 or has_tests:
        return wanted
    statistics = known[wanted[0]]
    return [] if statistics is not None and key_presence(statistics) > MOST_PRESENCE else wanted


def _statistics(field: int, schema: Schema, view: IndexView) -> FieldStatistics | None:
    leaf = Leaf(field, NullTest(is_null=False), value_type_of(schema.find_type(field)).name)
    return view.statistics(leaf, IndexReads())


def _has_at_most(statistics: FieldStatistics | None, rows: int | None) -> bool:
    """Whether a column certainly has at most so many values."""
    return statistics is not None and rows is not None and most_distinct(statistics) <= rows


def bind_runtime_keys(keys: RuntimeKeys, schema: Schema) -> Predicate:
    """Return the predicate that a column satisfies; unknown if the keys are not of the column's type."""
    try:
        column_type = schema.find_type(keys.field)
        if spark_type(column_type) != keys.type:
            raise UnsupportedError(f"keys of type {keys.type} for a column of type {column_type}")
        values, value_type = _values(keys, column_type), value_type_of(column_type)
        if keys.operator == "=":
            return among(keys.field, values, value_type)
        return compared(keys.field, keys.operator, values, value_type)
    except (UnsupportedError, ValueError, ArithmeticError, pa.ArrowException) as error:
        _log.warning("keys not understood, all rows are kept: %s", error)
        return UNKNOWN


def _values(keys: RuntimeKeys, column_type: IcebergType) -> pa.Array:
    match keys.type:
        case "boolean":
            return pa.array(keys.keys, pa.bool_())
        case "int" | "long" | "date" | "timestamp" | "timestamptz":
            width, arrow_type = _INTEGERS[keys.type]
            return pa.array(np.array(keys.keys, width)).cast(arrow_type)
        case "float" | "double":
            return pa.array(np.array(keys.keys, np.int64).view(np.float64))
        case "string" | "binary" if not isinstance(column_type, UUIDType):
            return pa.array([b64decode(str(key)) for key in keys.keys], pa.binary())
        case _:
            value_type = value_type_of(column_type)
            if not value_type.is_decimal:
                raise UnsupportedError(f"keys of type {keys.type}")
            decimal = pa.decimal128(value_type.decimal_precision, value_type.decimal_scale)
            return pa.array([Decimal(str(key)) for key in keys.keys], decimal)
