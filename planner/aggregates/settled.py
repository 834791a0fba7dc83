"""The first bucket: row groups whose part of the answer their statistics have.

All rows of such a row group match. A count needs the NULL count, a minimum or maximum the bounds. A sum, and a column
to group by, need a column of one value.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from planner.aggregates.partial import Partial, group_name, key_array, sum_columns
from planner.aggregates.question import AskedColumn, Question
from planner.condition.tree.nodes import Leaf
from planner.view.directories import FieldStatistics, IndexReads, KeyArray
from planner.view.index_view import IndexView
from puffin_index.keys.columns import Column
from puffin_index.keys.leaf import NullTest
from puffin_index.keys.map_key import ColumnId
from puffin_index.storage.arrays import Flags, Ints


def leaf_of(asked: AskedColumn) -> Leaf:
    """A leaf that names a column, for asking a view."""
    return Leaf(asked.column, NullTest(is_null=True), asked.value_type.name)


def settle(view: IndexView, question: Question, row_groups: Ints, reads: IndexReads) -> tuple[Partial | None, Flags]:
    """Answer from statistics.

    Args:
        view: The index.
        question: The question.
        row_groups: Row groups of the view all of whose rows match.
        reads: Takes down troubles.

    Returns:
        What the settled row groups give (None if there are none), and which of the row groups are settled.
    """
    is_settled = np.ones(len(row_groups), np.bool_)
    found: dict[ColumnId, FieldStatistics] = {}
    groups = {group.column for group in question.groups}
    for asked in question.every_column:
        statistics = view.statistics(leaf_of(asked), reads)
        if statistics is None or asked.needs_distinct:
            return None, np.zeros(len(row_groups), np.bool_)
        found[asked.column] = statistics
        is_settled &= statistics.known[row_groups]
        is_settled &= _can_settle(asked, asked.column in groups, statistics, row_groups)
    chosen = row_groups[is_settled]
    return (_partial(question, found, chosen, view.row_counts[chosen]) if len(chosen) else None), is_settled


def _can_settle(asked: AskedColumn, is_group: bool, statistics: FieldStatistics, row_groups: Ints) -> Flags:
    nulls, values = statistics.null_count[row_groups], statistics.value_count[row_groups]
    least, greatest = _taken(statistics.minimum, row_groups), _taken(statistics.maximum, row_groups)
    can = np.ones(len(row_groups), np.bool_)
    if is_group or asked.needs_sum:
        is_one = _are_equal(least, greatest) & (values > 0)
        can &= (is_one & (nulls == 0) if is_group else is_one) | (values == 0)
    for end in asked.ends if asked.value_type.is_floating else ():
        # 0.0 and -0.0 have one key.
        can &= np.asarray((least if end == "least" else greatest) != 0) | (values == 0)
    return can


def _partial(
    question: Question, found: Mapping[ColumnId, FieldStatistics], row_groups: Ints, row_counts: Ints
) -> Partial:
    table: dict[str, pa.Array] = {}
    for number, group in enumerate(question.groups):
        table[group_name(number)] = key_array(_ends(found[group.column], row_groups)[0])
    table["rows"] = pa.array(row_counts)
    for number, asked in enumerate(question.columns):
        ends = dict(zip(("least", "greatest"), _ends(found[asked.column], row_groups), strict=True))
        values = found[asked.column].value_count[row_groups]
        table[f"values {number}"] = pa.array(values)
        if asked.needs_sum:
            table |= sum_columns(number, ends["least"], values)
        table |= {f"{end} {number}": key_array(ends[end]) for end in asked.ends}
    return Partial.of_table(question, table)


def _ends(statistics: FieldStatistics, row_groups: Ints) -> tuple[Column, Column]:
    """The least and the greatest key of each row group; NULL where it has no values."""
    has_values = statistics.value_count[row_groups] > 0
    least, greatest = (
        _column(statistics, _taken(keys, row_groups), has_values) for keys in (statistics.minimum, statistics.maximum)
    )
    return least, greatest


def _column(statistics: FieldStatistics, keys: KeyArray, has_values: Flags) -> Column:
    if not isinstance(keys, np.ndarray):
        keys = pc.if_else(pa.array(has_values), keys, pa.scalar(None, pa.large_binary()))
    return Column(statistics.value_type, len(has_values), keys, None if has_values.all() else has_values)


def _taken(keys: KeyArray, row_groups: Ints) -> KeyArray:
    return keys[row_groups] if isinstance(keys, np.ndarray) else keys.take(pa.array(row_groups))


def _are_equal(least: KeyArray, greatest: KeyArray) -> Flags:
    if isinstance(least, np.ndarray):
        return np.asarray(least == greatest, np.bool_)
    return np.asarray(pc.equal(least, greatest).to_numpy(zero_copy_only=False), np.bool_)
