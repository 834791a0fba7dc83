"""Turn what a request wants of a scan's rows into first rows of the planner's."""

from __future__ import annotations

import numpy as np
from pyiceberg.schema import Schema
from pyroaring import BitMap

from planner.prune.first_rows import FirstRows, Order
from planner.spark.conditions import spark_type
from planner.spark.settings import Settings
from planner.spark.wire import Wanted
from puffin_index.keys.value_types import value_type_of
from puffin_index.storage.arrays import Flags, Ints


def first_rows(wanted: Wanted | None, schema: Schema, settings: Settings) -> FirstRows | None:
    """Return how many rows are wanted, and in what order; None if all are, or if the order is by no known column."""
    if wanted is None or not (settings.limit if wanted.order is None else settings.top_k):
        return None
    if wanted.order is None:
        return FirstRows(wanted.rows, None)
    field, column = wanted.order.field, wanted.order
    column_type = schema.find_type(field)
    if spark_type(column_type) != column.type:
        return None
    order = Order(field, value_type_of(column_type).name, column.descending, column.nulls_first)
    return FirstRows(wanted.rows, order)


def without_deletes(wanted: Wanted, numbers: Ints) -> Flags:
    """Return for each row group, by its number in the view, whether none of its rows is deleted."""
    deleted = BitMap.deserialize(wanted.deleted)
    return ~np.isin(numbers, np.frombuffer(deleted.to_array(), np.uint32).astype(np.int64))
