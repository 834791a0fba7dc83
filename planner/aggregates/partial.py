"""Partial answers: what some rows give for each group, exact; joined, they become a table with the values of Spark.

Values are keys (`puffin_index.keys.values`), so that all comparisons are those of the planner. One exception: where a
minimum or maximum of doubles comes from data, the key of -0.0 is `NEGATIVE_ZERO_KEY`, one less than that of 0.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow

from planner.aggregates.question import Aggregate, AskedColumn, Question
from puffin_index.errors import PuffinIndexError
from puffin_index.keys.arrow_keys import NEGATIVE_ZERO_KEY, arrow_of_keys, column_of, key_array, with_scale
from puffin_index.keys.columns import Column, KeyArray
from puffin_index.keys.map_key import ColumnId
from puffin_index.keys.value_types import MAXIMUM_DECIMAL_PRECISION, ValueType, decimals_of_wide_keys, floats_of_keys
from puffin_index.kinds.held_keys import Totals
from puffin_index.storage.arrays import Flags, Ints

SUM: Final = pa.decimal256(75, 0)
"""The type of exact sums: it holds 38 digits for each of more rows than there can be."""

_INT64 = pa.decimal256(19, 0)


def group_name(number: int) -> str:
    """The name of a column of `Partial.groups`: the key of a group's column."""
    return f"group {number}"


@dataclass(frozen=True, slots=True, eq=False)
class Partial:
    """What some rows give for each of their groups.

    Attributes:
        groups: One row per group; without columns to group by, always one row. For each column n of
            `Question.groups`, `group n` is the key (int64 or large_binary; NULL is a group). `rows` counts the rows
            (int64). For each column n of `Question.columns`: `values n`, the rows that are not NULL (int64);
            `positive n` and `negative n`, the exact sums of the positive and of the negative values (`SUM`, a decimal's
            unscaled value; float64 for float and double), if a sum is needed; `least n` and `greatest n`, keys, each if
            needed, NULL without values.
        distinct: For each column of `Question.columns` whose distinct values are needed, by its number: one row per
            group and distinct key, `group 0` ... and `key`. NULL is no value.
    """

    question: Question
    groups: pa.Table
    distinct: Mapping[int, pa.Table]

    @classmethod
    def of_rows(
        cls,
        question: Question,
        columns: Mapping[ColumnId, Column],
        row_count: int,
        weights: Ints | None = None,
        signed_zeros: Mapping[ColumnId, Flags] | None = None,
    ) -> Partial:
        """Return what some rows give, from the keys of each column.

        Each row stands for as many rows as `weights` says. `signed_zeros` says which rows are -0.0, for each column of
        doubles whose least or greatest key is needed; an index does not know that, so its answer must not be a zero.
        """
        keys = {column: key_array(values) for column, values in columns.items()}
        arrays = {group_name(number): keys[group.column] for number, group in enumerate(question.groups)}
        counts = np.ones(row_count, np.int64) if weights is None else weights
        distinct: dict[int, pa.Table] = {}
        table = {**arrays, "rows": pa.array(counts)}
        for number, asked in enumerate(question.columns):
            own = keys[asked.column]
            known = columns[asked.column].valid
            table[f"values {number}"] = pa.array(counts if known is None else np.where(known, counts, 0))
            if asked.needs_sum:
                table |= sum_columns(number, columns[asked.column], weights)
            negative = (signed_zeros or {}).get(asked.column)
            signed = own if negative is None else pc.if_else(pa.array(negative), NEGATIVE_ZERO_KEY, own)
            table |= {f"{end} {number}": signed for end in asked.ends}
            if asked.needs_distinct:
                distinct[number] = pa.table({**arrays, "key": own})
        return cls.of_table(question, table, distinct)

    @classmethod
    def of_table(
        cls, question: Question, table: Mapping[str, pa.Array], distinct: Mapping[int, pa.Table] | None = None
    ) -> Partial:
        """Return what several sets of rows give: as `groups` and `distinct`, but any number of rows per group."""
        return cls(question, pa.table(table), distinct or {})._joined()

    @classmethod
    def of_totals(
        cls,
        question: Question,
        row_counts: Sequence[int],
        totals: Mapping[ColumnId, Sequence[Totals]],
        distinct: Mapping[ColumnId, Sequence[KeyArray]],
        groups: Column | None = None,
    ) -> Partial:
        """Return what the rows of each group give, `groups` the key of each; distinct keys come in parts."""
        table = {} if groups is None else {group_name(0): key_array(groups)}
        table["rows"] = pa.array(row_counts, pa.int64())
        tables: dict[int, pa.Table] = {}
        for number, asked in enumerate(question.columns):
            own, keys = totals[asked.column], key_type(asked.value_type)
            table[f"values {number}"] = pa.array([one.value_count for one in own], pa.int64())
            if asked.needs_sum:
                table[f"positive {number}"] = pa.array([Decimal(one.positive) for one in own], SUM)
                table[f"negative {number}"] = pa.array([Decimal(one.negative) for one in own], SUM)
            ends = {"least": [one.minimum for one in own], "greatest": [one.maximum for one in own]}
            table |= {f"{end} {number}": pa.array(ends[end], keys) for end in asked.ends}
            if asked.needs_distinct:
                tables[number] = pa.table({"key": pa.chunked_array(map(pa.array, distinct[asked.column]), keys)})
        # The keys of one payload are distinct.
        are_joined = all(own["key"].num_chunks < 2 for own in tables.values())
        return cls(question, pa.table(table), tables) if are_joined else cls.of_table(question, table, tables)

    @classmethod
    def merged(cls, question: Question, parts: Iterable[Partial]) -> Partial:
        """Return what all rows together give; without parts, what no rows give."""
        known = list(parts)
        if not known:
            none = {asked.column: asked.value_type for asked in question.every_column}
            return cls.of_rows(question, {column: column_of(pa.nulls(0), own) for column, own in none.items()}, 0)
        if len(known) == 1:
            return known[0]
        distinct = {number: pa.concat_tables([part.distinct[number] for part in known]) for number in known[0].distinct}
        return cls(question, pa.concat_tables([part.groups for part in known]), distinct)._joined()

    def _joined(self) -> Partial:
        """Return the same with one row per group, and sums of their final types."""
        keys = [group_name(number) for number in range(len(self.question.groups))]
        joined = join_groups(self.groups, keys)
        distinct = {number: _distinct(table.filter(table["key"].is_valid())) for number, table in self.distinct.items()}
        return Partial(self.question, joined, distinct)


def _distinct(table: pa.Table) -> pa.Table:
    """Return each row once. Byte strings are numbered first: Arrow groups numbers eight times as fast."""
    columns, strings = dict(zip(table.column_names, table.columns, strict=True)), dict[str, pa.Array]()
    for name, column in columns.items():
        if pa.types.is_large_binary(column.type):
            encoded = column.combine_chunks().dictionary_encode()
            columns[name], strings[name] = encoded.indices, encoded.dictionary
    found = pa.table(columns).group_by(table.column_names).aggregate([])
    return pa.table({name: strings[name].take(found[name]) if name in strings else found[name] for name in columns})


def join_groups(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Join rows of the same keys: least and greatest keys, sums of all other columns."""
    ends = {"least": "min", "greatest": "max"}
    functions = [(name, ends.get(name.split(" ")[0], "sum")) for name in table.column_names if name not in keys]
    is_one = table.num_rows == 1
    joined = table if is_one else table.group_by(keys).aggregate(functions)
    columns = {name: joined[name] for name in keys}
    for name, function in functions:
        column = joined[name if is_one else f"{name}_{function}"]
        if function == "sum":
            is_sum = name.startswith(("positive", "negative")) and not pa.types.is_floating(column.type)
            column = column.cast(SUM) if is_sum else column
            column = pc.fill_null(column, pa.scalar(0, pa.int64()).cast(column.type))
        columns[name] = column
    return pa.table(columns).select(table.column_names)


def key_type(value_type: ValueType) -> pa.DataType:
    """The Arrow type of a column's keys."""
    return pa.int64() if value_type.domain == "int64" else pa.large_binary()


def sum_columns(number: int, column: Column, weights: Ints | None) -> dict[str, pa.Array]:
    """The positive and the negative values of a column as two columns, each value as often as it counts."""
    addends = _addends(column, key_array(column), weights)
    zero = pa.scalar(0, pa.int64()).cast(addends.type)
    is_negative = pc.less(addends, zero)
    # NaN is not less than zero, so that it is taken as positive.
    return {
        f"positive {number}": pc.if_else(is_negative, zero, addends),
        f"negative {number}": pc.if_else(is_negative, addends, zero),
    }


def _addends(column: Column, keys: pa.Array, weights: Ints | None) -> pa.Array:
    """The values of a column, each as often as it counts, in a type that holds the sum of all."""
    value_type = column.value_type
    if value_type.is_floating:
        return pa.array(
            floats_of_keys(column.int_keys.astype(np.int64, copy=False)), mask=pc.is_null(keys).to_numpy(False)
        )
    if value_type.domain == "bytes":
        wide = decimals_of_wide_keys(keys, MAXIMUM_DECIMAL_PRECISION, 0)
        exact = wide.cast(pa.decimal256(MAXIMUM_DECIMAL_PRECISION, 0))
    else:
        ends = pc.min_max(keys).as_py()
        row_count = len(keys) if weights is None else int(weights.sum())
        if max(abs(ends["min"] or 0), abs(ends["max"] or 0)) * max(row_count, 1) < 2**63:
            return keys if weights is None else pc.multiply(keys, pa.array(weights))
        exact = keys.cast(_INT64)
    return exact.cast(SUM) if weights is None else pc.multiply(exact, pa.array(weights).cast(_INT64)).cast(SUM)


class AggregateOverflowError(PuffinIndexError, OverflowError):
    """Say that a result does not fit its type, as Spark does in ANSI mode."""


def table_of(partial: Partial) -> pa.Table:
    """Return one row per group, ascending: its columns, then the aggregates, or raise AggregateOverflowError."""
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


def _values(asked: AskedColumn, keys: pa.ChunkedArray) -> pa.Array:
    return arrow_of_keys(
        keys.combine_chunks(), asked.value_type, schema_to_pyarrow(asked.type, include_field_ids=False)
    )


def _aggregate(aggregate: Aggregate, partial: Partial, groups: pa.Table) -> pa.Array:
    number = aggregate.column
    if number is None:
        return groups["rows"].combine_chunks()
    asked = partial.question.columns[number]
    match aggregate.function:
        case "count":
            return groups[f"distinct {number}" if aggregate.is_distinct else f"values {number}"].combine_chunks()
        case "min" | "bool_and":
            return _values(asked, groups[f"least {number}"])
        case "max" | "bool_or":
            return _values(asked, groups[f"greatest {number}"])
    values, positive, negative = (groups[f"{name} {number}"] for name in ("values", "positive", "negative"))
    counts, total = values.combine_chunks(), pc.add(positive.combine_chunks(), negative.combine_chunks())
    total = pc.if_else(pc.greater(counts, 0), total, pa.scalar(None, total.type))
    try:
        return _sum(asked, total) if aggregate.function == "sum" else _average(asked, total, counts)
    except pa.ArrowInvalid as error:
        raise AggregateOverflowError(f"{aggregate.name} does not fit the type of its result: {error}") from error


def _sum(asked: AskedColumn, total: pa.Array) -> pa.Array:
    if asked.value_type.is_floating:
        return total
    if not asked.value_type.is_decimal:
        return total.cast(pa.int64())
    return _scaled(total, asked.value_type.decimal_precision + 10, asked.value_type.decimal_scale)


def _scaled(unscaled: pa.Array, precision: int, scale: int) -> pa.Array:
    narrowed = unscaled.cast(pa.decimal128(MAXIMUM_DECIMAL_PRECISION, 0))
    return with_scale(narrowed, pa.decimal128(min(MAXIMUM_DECIMAL_PRECISION, precision), scale))


def _average(asked: AskedColumn, total: pa.Array, counts: pa.Array) -> pa.Array:
    if asked.value_type.is_floating:
        return pc.divide(total, counts.cast(pa.float64()))
    pairs = list(zip(total.to_pylist(), counts.to_pylist(), strict=True))
    if not asked.value_type.is_decimal:
        # Python divides integers of any size to the nearest double.
        return pa.array([None if own is None else int(own) / count for own, count in pairs], pa.float64())
    precision, own_scale = asked.value_type.decimal_precision, asked.value_type.decimal_scale
    scale = min(MAXIMUM_DECIMAL_PRECISION, own_scale + 4)
    # Fails where Spark's sum does.
    _scaled(total, precision + 10, own_scale)

    def divided(unscaled: int, count: int) -> Decimal:
        # Spark divides decimals as doubles, if these have all digits of the quotient.
        if precision + 4 <= 15:
            quotient = Decimal(repr(unscaled / count / 10.0**own_scale))
            return quotient.scaleb(scale).quantize(Decimal(1), ROUND_HALF_UP)
        rounded = (2 * abs(unscaled) * 10 ** (scale - own_scale) + count) // (2 * count)
        return Decimal(-rounded if unscaled < 0 else rounded)

    quotients = [None if own is None else divided(int(own), count) for own, count in pairs]
    return _scaled(pa.array(quotients, pa.decimal256(76, 0)), precision + 4, scale)
