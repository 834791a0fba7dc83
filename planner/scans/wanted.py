"""What a query without Spark says besides its WHERE: keys of other tables, and how many rows it wants."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from pyiceberg.expressions.literals import literal
from pyiceberg.schema import Schema

from planner.condition.columns import FoundColumn, find_column
from planner.condition.comparisons import nan_test
from planner.condition.implied import Implied
from planner.condition.operands import Column
from planner.condition.places import set_tests
from planner.condition.tree.nodes import NO_ROW, Predicate, joined
from planner.first_rows.search import FirstRows, Order
from puffin_index.errors import PuffinIndexError, UnsupportedError
from puffin_index.keys.arrow_keys import column_of
from puffin_index.keys.columns import SortedColumn
from puffin_index.keys.value_types import value_type_of

Keys: TypeAlias = Mapping[str, Any]
"""Values by column name: Arrow arrays, numpy arrays or lists."""


def with_keys(condition: Predicate, keys: Keys, schema: Schema) -> tuple[Predicate, list[Implied]]:
    """A condition that also says which keys are wanted, and what they imply."""
    tests = [_one_of(find_column(schema, name), values) for name, values in keys.items()]
    implied = [Implied("keys", f"{name} in {len(values)} keys") for name, values in keys.items()]
    return joined([condition, *tests], is_and=True), implied


def _one_of(found: FoundColumn, values: Any) -> Predicate:
    """The condition that a column has one of some values. NULL equals nothing, and NaN equals NaN, as in a join."""
    array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
    members = array.drop_null().to_pylist()
    column = Column(found)
    numbers = [value for value in members if not (isinstance(value, float) and math.isnan(value))]
    text = f"{found.name} IN ({len(members)} keys)"
    test = column.truth(lambda scale: set_tests(map(literal, numbers), scale), text).yes if numbers else NO_ROW
    return test if len(numbers) == len(members) else joined([test, nan_test(column, text).yes], is_and=False)


_ORDER = re.compile(
    r"\s*(?:`((?:[^`]|``)+)`|([^\s`]+))(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?\s*", re.IGNORECASE
)


class OrderSyntaxError(PuffinIndexError):
    """Say that a text is no order."""


def first_rows(order_by: str | None, limit: int | None, schema: Schema) -> FirstRows | None:
    """Read which rows are wanted; None if all are.

    The order is by a top-level column as in SQL: `c`, `c DESC`, `c ASC NULLS LAST`. As in Spark, NULL is less than all
    values unless the text says where NULL goes.

    Raises:
        OrderSyntaxError: If the text is no order, there is an order without a limit, or a negative limit.
        NotFoundError: If the schema has no such column.
        UnsupportedError: If values of the column are not ordered.
    """
    if limit is None:
        if order_by is not None:
            raise OrderSyntaxError("an order needs a limit: without one, all rows are wanted")
        return None
    if limit < 0:
        raise OrderSyntaxError(f"a limit of {limit} rows")
    if order_by is None:
        return FirstRows(limit, None, f"any rows limit {limit}")
    found = _ORDER.fullmatch(order_by)
    if found is None:
        raise OrderSyntaxError(f"ORDER BY one column, as `c DESC NULLS LAST`, and not {order_by!r}")
    quoted, plain, direction, nulls = found.groups()
    name = quoted.replace("``", "`") if quoted else plain
    column = find_column(schema, name).column
    field = next((one for one in schema.fields if one.field_id == column), None)
    if field is None:
        raise UnsupportedError(f"ORDER BY {name}: only whole columns are ordered")
    descending = (direction or "asc").lower() == "desc"
    nulls_first = not descending if nulls is None else nulls.lower() == "first"
    order = Order(field.field_id, value_type_of(field.field_type).name, descending, nulls_first)
    return FirstRows(limit, order, f"order by {order_by} limit {limit}")


def first_of(table: pa.Table, order: Order, schema: Schema, count: int) -> pa.Table:
    """The first rows of a table in an order; among equal ones those that come first in the table."""
    field = next(field for field in schema.fields if field.field_id == order.field_id)
    column = column_of(table.column(field.name), value_type_of(field.field_type))
    ranks = SortedColumn(column).codes.astype(np.int64)
    ranks = -ranks if order.descending else ranks
    if column.valid is not None:
        ranks[~column.valid] = -len(ranks) if order.nulls_first else len(ranks)
    return table.take(pa.array(np.argsort(ranks, kind="stable")[:count]))
