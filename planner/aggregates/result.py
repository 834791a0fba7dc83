"""The answer as a table: the values and types that Spark's aggregates have."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow

from planner.aggregates.partial import Partial, group_name, join_groups
from planner.aggregates.question import Aggregate, AskedColumn
from puffin_index.errors import PuffinIndexError
from puffin_index.keys.arrow_values import arrow_of_keys, with_scale
from puffin_index.keys.value_types import MAXIMUM_DECIMAL_PRECISION


class AggregateOverflowError(PuffinIndexError, OverflowError):
    """Say that a result does not fit its type, as Spark does in ANSI mode."""


def table_of(partial: Partial) -> pa.Table:
    """Return the columns to group by, then the aggregates, one row per group, in ascending order of the groups.

    Raises:
        AggregateOverflowError: If a sum or an average does not fit the type that it has in Spark.
    """
    question = partial.question
    keys = [group_name(number) for number in range(len(question.groups))]
    groups = _with_distinct_counts(partial, keys)
    if keys:
        # Arrow's releases differ in how they are told that NULL comes first.
        ranked = {f"{key} is known": pc.is_valid(groups[key]).cast(pa.int8()) for key in keys}
        order = [(name, "ascending") for key in keys for name in (f"{key} is known", key)]
        groups = groups.take(pc.sort_indices(pa.table({**ranked, **{key: groups[key] for key in keys}}), order))
    arrays = [_values(group, groups[key]) for key, group in zip(keys, question.groups, strict=True)]
    arrays += [_aggregate(one, partial, groups) for one in question.aggregates]
    names = [group.name for group in question.groups] + [one.name for one in question.aggregates]
    return pa.table(arrays, names=names)


def _with_distinct_counts(partial: Partial, keys: Sequence[str]) -> pa.Table:
    """The groups with one more column for each column whose distinct values count."""
    groups = partial.groups
    for number, table in partial.distinct.items():
        name = f"distinct {number}"
        counted = table.append_column(name, pa.array(np.ones(len(table), np.int64))).drop_columns(["key"])
        groups = join_groups(pa.concat_tables([groups, counted], promote_options="default"), keys)
    return groups


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _values(asked: AskedColumn, keys: pa.ChunkedArray) -> pa.Array:
    return arrow_of_keys(_one(keys), asked.value_type, schema_to_pyarrow(asked.type, include_field_ids=False))


def _aggregate(aggregate: Aggregate, partial: Partial, groups: pa.Table) -> pa.Array:
    number = aggregate.column
    if number is None:
        return _one(groups["rows"])
    asked = partial.question.columns[number]
    match aggregate.function:
        case "count":
            return _one(groups[f"distinct {number}" if aggregate.is_distinct else f"values {number}"])
        case "min" | "bool_and":
            return _values(asked, groups[f"least {number}"])
        case "max" | "bool_or":
            return _values(asked, groups[f"greatest {number}"])
    counts = _one(groups[f"values {number}"])
    total = pc.add(_one(groups[f"positive {number}"]), _one(groups[f"negative {number}"]))
    total = pc.if_else(pc.greater(counts, 0), total, pa.scalar(None, total.type))
    try:
        if aggregate.function == "sum":
            return _sum(asked, total)
        return _average(asked, total, counts)
    except pa.ArrowInvalid as error:
        raise AggregateOverflowError(f"{aggregate.name} does not fit the type of its result: {error}") from error


def _sum(asked: AskedColumn, total: pa.Array) -> pa.Array:
    if asked.value_type.is_floating:
        return total
    if not asked.value_type.is_decimal:
        return total.cast(pa.int64())
    precision = min(MAXIMUM_DECIMAL_PRECISION, asked.value_type.decimal_precision + 10)
    return with_scale(_narrowed(total), pa.decimal128(precision, asked.value_type.decimal_scale))


def _narrowed(total: pa.Array) -> pa.Array:
    return total.cast(pa.decimal128(MAXIMUM_DECIMAL_PRECISION, 0))


def _average(asked: AskedColumn, total: pa.Array, counts: pa.Array) -> pa.Array:
    if asked.value_type.is_floating:
        return pc.divide(total, counts.cast(pa.float64()))
    known = total.is_valid().to_numpy(zero_copy_only=False)
    sums = _integers(total.drop_null())
    count = counts.filter(pa.array(known)).to_numpy(zero_copy_only=False).astype(object)
    if not asked.value_type.is_decimal:
        # Python divides integers of any size to the nearest double.
        averages = np.zeros(len(total), np.float64)
        averages[known] = (sums / count).astype(np.float64)
        return pa.array(averages, mask=~known)
    scale = min(MAXIMUM_DECIMAL_PRECISION, asked.value_type.decimal_scale + 4)
    precision = min(MAXIMUM_DECIMAL_PRECISION, asked.value_type.decimal_precision + 4)
    quotients = np.full(len(total), None, object)
    quotients[known] = [Decimal(one) for one in _divided(sums, count, scale - asked.value_type.decimal_scale)]
    unscaled = pa.array(quotients, pa.decimal256(76, 0))
    return with_scale(_narrowed(unscaled), pa.decimal128(precision, scale))


def _integers(numbers: pa.Array) -> npt.NDArray[Any]:
    found = np.empty(len(numbers), object)
    found[:] = [int(number) for number in numbers.to_pylist()]
    return found


def _divided(sums: npt.NDArray[Any], counts: npt.NDArray[Any], more_digits: int) -> npt.NDArray[Any]:
    """Divide unscaled decimals by counts, with more digits behind the point, rounded half up as in Spark."""
    shifted = abs(sums) * 10**more_digits
    rounded = (2 * shifted + counts) // (2 * counts)
    signed: npt.NDArray[Any] = np.where(sums < 0, -rounded, rounded)
    return signed
