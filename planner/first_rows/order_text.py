"""The rows that a query wants, as text: `limit 10`, and `order by c DESC NULLS LAST limit 10`."""

import re

from pyiceberg.schema import Schema

from planner.condition.columns import find_column
from planner.first_rows.search import FirstRows, Order
from puffin_index.errors import PuffinIndexError, UnsupportedError
from puffin_index.keys.value_types import value_type_of

_ORDER = re.compile(
    r"\s*(?:`((?:[^`]|``)+)`|([^\s`]+))(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?\s*", re.IGNORECASE
)


class OrderSyntaxError(PuffinIndexError):
    """Say that a text is no order."""


def read_first_rows(order_by: str | None, limit: int | None, schema: Schema) -> FirstRows | None:
    """Read which rows are wanted, by a top-level column as in SQL: `c`, `c DESC`, `c ASC NULLS LAST`; None if all are.

    As in Spark, NULL is less than all values unless the text says where NULL goes. Raises OrderSyntaxError if the text
    is no order, or has no limit or a negative one, NotFoundError without such a column, UnsupportedError if its values
    have no order.
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
