"""Queries of one or two columns whose keys come in bursts: as SQL for the planner, and as a test of Arrow columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ssb_bench.studies.clustered_tables import BURSTS, Kind, Order, column_name, draw_keys, keys_of

FIRST_ROWS: Final = 10
_LISTED_KEYS: Final = 3
_FEW_KEYS: Final = 4
_MANY_KEYS: Final = 64
_PREFIX_LENGTH: Final = 6
"""A prefix of an `u` and five of eight digits has four keys."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison of a column with values of its type: one, a list, or the two ends of a range."""

    column: str
    operator: Literal["=", "IN", "BETWEEN", "LIKE"]
    values: pa.Array

    @property
    def sql(self) -> str:
        """The condition as SQL."""
        is_timestamp = pa.types.is_timestamp(self.values.type)
        texts = [value if isinstance(value, int) else f"'{value}'" for value in self.values.to_pylist()]
        literals = [f"TIMESTAMP {text}" if is_timestamp else str(text) for text in texts]
        match self.operator:
            case "BETWEEN":
                return f"{self.column} BETWEEN {' AND '.join(literals)}"
            case "IN":
                return f"{self.column} IN ({', '.join(literals)})"
            case "LIKE":
                return f"{self.column} LIKE {literals[0][:-1]}%'"
            case "=":
                return f"{self.column} = {literals[0]}"

    def holds(self, column: pa.Array) -> pa.Array:
        """Say of each row of the column whether the condition holds."""
        match self.operator:
            case "BETWEEN":
                low, high = self.values
                return pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high))
            case "IN":
                return pc.is_in(column, self.values)
            case "LIKE":
                return pc.starts_with(column, self.values[0].as_py())
            case "=":
                return pc.equal(column, self.values[0])


@dataclass(frozen=True, slots=True)
class Query:
    """Rows for which all conditions hold; of these the first ten, latest first, if there is an order.

    Attributes:
        conditions: The conditions; none for all rows.
        order_by: The column of the order; None for all rows.
    """

    conditions: Sequence[Condition]
    order_by: str | None = None

    @property
    def where(self) -> str | None:
        """The conditions as SQL; None if there is none."""
        return " AND ".join(condition.sql for condition in self.conditions) or None

    @property
    def order(self) -> str | None:
        """The order as SQL."""
        return None if self.order_by is None else f"{self.order_by} DESC"

    def holds(self, columns: Mapping[str, pa.Array]) -> pa.Array:
        """Say of each row whether all conditions hold."""
        masks = [condition.holds(columns[condition.column]) for condition in self.conditions]
        if not masks:
            return pa.array(np.ones(len(next(iter(columns.values()))), np.bool_))
        return masks[0] if len(masks) == 1 else pc.and_(*masks)


def draw_queries(
    random: np.random.Generator, order: Order, kind: Kind, burst: int, rows: int
) -> Iterator[tuple[str, Query]]:
    """Draw a query of each sort around a row of the table, with its name.

    `range` and `prefix` have four keys, `both` 64 of one column and 64 of another, whose bursts are of another length.
    """
    column, beside = column_name(order, kind, burst), BURSTS[BURSTS.index(burst) - 1]
    other, row = column_name(order, kind, beside), int(random.integers(rows))
    keys, other_keys = draw_keys(order, burst, rows), draw_keys(order, beside, rows)
    listed = keys[random.integers(0, rows, _LISTED_KEYS)]
    many = Condition(column, "BETWEEN", _ends(kind, int(keys[row]), _MANY_KEYS))
    of_other = Condition(other, "BETWEEN", _ends(kind, int(other_keys[row]), _MANY_KEYS))
    yield "needle", Query([Condition(column, "=", keys_of(kind, keys[[row]]))])
    yield "absent", Query([Condition(column, "=", keys_of(kind, keys[[row]], beside=1))])
    yield "list", Query([Condition(column, "IN", keys_of(kind, listed))])
    yield "range", Query([Condition(column, "BETWEEN", _ends(kind, int(keys[row]), _FEW_KEYS))])
    if kind == "string":
        prefix = keys_of(kind, keys[[row]])[0].as_py()[:_PREFIX_LENGTH]
        yield "prefix", Query([Condition(column, "LIKE", pa.array([prefix]))])
    yield "both", Query([many, of_other])
    yield "first", Query([], order_by=column)
    yield "first of range", Query([many], order_by=other)


def _ends(kind: Kind, key: int, count: int) -> pa.Array:
    """Give the first and the last of so many keys around a key."""
    first = max(0, key - count // 2)
    return keys_of(kind, np.array([first, first + count - 1]))


def matching_rows(query: Query, columns: Mapping[str, pa.Array]) -> tuple[pa.Array, pa.Array]:
    """Say of each row whether the answer may hold it, and whether it must.

    With an order, the last of the first rows may be any of those that are equal to it.
    """
    holds = query.holds(columns)
    if query.order_by is None:
        return holds, holds
    column = columns[query.order_by]
    found = column.filter(holds)
    last = found.take(pc.select_k_unstable(found, FIRST_ROWS, [("", "descending")]))[-1]
    return pc.and_(holds, pc.greater_equal(column, last)), pc.and_(holds, pc.greater(column, last))
