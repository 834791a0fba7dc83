"""What a query without Spark says besides its WHERE: keys of other tables, and how many rows it wants."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyiceberg.expressions import AlwaysFalse, And, BooleanExpression, In, IsNaN, Or, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.schema import Schema

from planner.scans.first_rows import order_field

Keys: TypeAlias = Mapping[str, Any]
"""Values by column name: Arrow arrays, numpy arrays or lists."""


@dataclass(frozen=True, slots=True, eq=False)
class Wanted:
    """The rows that are wanted among those that satisfy a WHERE.

    Attributes:
        keys: For each column named, the wanted rows have one of these values.
        order_by: The column whose first rows are wanted, as text; None if any rows will do.
        limit: How many rows are wanted; None for all.
    """

    keys: Keys
    order_by: str | None = None
    limit: int | None = None

    def restricted(self, expression: BooleanExpression, schema: Schema) -> BooleanExpression:
        """An expression that also says which keys are wanted.

        Raises:
            NotFoundError: If the schema has no such column.
        """
        for name, values in self.keys.items():
            expression = And(expression, _one_of(order_field(schema, name).name, values))
        return expression

    def texts(self, first_rows: str) -> tuple[str, ...]:
        """What is implied besides the WHERE, for people."""
        keys = tuple(f"{name} in {len(values)} keys" for name, values in self.keys.items())
        order = "any rows" if self.order_by is None else f"order by {self.order_by}"
        return (*keys, f"{order} limit {self.limit}: {first_rows}") if first_rows else keys


ALL_ROWS: Final = Wanted({})


def _one_of(name: str, values: Any) -> BooleanExpression:
    """The expression that a column has one of some values. NULL equals nothing, and NaN equals NaN, as in a join."""
    array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
    members = array.drop_null().to_pylist()
    term = Reference(name=name)
    numbers = [value for value in members if not (isinstance(value, float) and math.isnan(value))]
    one_of: BooleanExpression = In(term=term, values=set(map(literal, numbers))) if numbers else AlwaysFalse()
    return one_of if len(numbers) == len(members) else Or(one_of, IsNaN(term=term))
