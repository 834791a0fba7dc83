"""What the statistics of row groups tell of a question.

Statistics answer for row groups all of whose rows match, the first bucket: a count needs the NULL count, a minimum or
maximum the bounds; a sum, and a column to group by, need a column of one value. Statistics also say whether the
question of a Spark query is worth asking: if the index answers too little, Spark plans once more.
"""

import math
from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from planner.aggregates.partial import Partial, group_name, sum_columns
from planner.aggregates.question import MOST_GROUPS, AskedColumn, Question
from planner.condition.tree.nodes import Predicate, is_exact
from planner.condition.value_tests import flags_of
from planner.prune.estimate import most_distinct
from planner.prune.statistics_search import expected_matches
from planner.view.directories import FieldStatistics, IndexReads
from planner.view.index_view import IndexView
from puffin_index.keys.arrow_keys import key_array
from puffin_index.keys.columns import Column, chosen_keys
from puffin_index.keys.map_key import ColumnId
from puffin_index.keys.value_types import floats_of_keys
from puffin_index.storage.arrays import Flags, Ints

_FEW_GROUPS: Final = 10_000
"""A column with at most this many values in each row group is tried, whatever the number of matching rows."""

_BITS_OF_DOUBLES: Final = 53


def settle(view: IndexView, question: Question, row_groups: Ints, reads: IndexReads) -> tuple[list[Partial], Flags]:
    """Answer for row groups all of whose rows match; return what the settled ones give, and which they are."""
    is_settled = np.ones(len(row_groups), np.bool_)
    found: dict[ColumnId, FieldStatistics] = {}
    groups = {group.column for group in question.groups}
    for asked in question.every_column:
        statistics = view.statistics(asked.column, asked.value_type.name, reads)
        if statistics is None or asked.needs_distinct:
            return [], np.zeros(len(row_groups), np.bool_)
        found[asked.column] = statistics
        is_settled &= statistics.known[row_groups]
        is_settled &= _can_settle(asked, asked.column in groups, statistics, row_groups)
    # A row group without rows has no group of rows.
    chosen = row_groups[is_settled & (view.row_counts[row_groups] > 0)]
    return [_partial(question, found, chosen, view.row_counts[chosen])] if len(chosen) else [], is_settled


def _can_settle(asked: AskedColumn, is_group: bool, statistics: FieldStatistics, row_groups: Ints) -> Flags:
    nulls, values = statistics.null_count[row_groups], statistics.value_count[row_groups]
    least, greatest = chosen_keys(statistics.minimum, row_groups), chosen_keys(statistics.maximum, row_groups)
    can = np.ones(len(row_groups), np.bool_)
    if is_group or asked.needs_sum:
        is_equal = least == greatest if isinstance(least, np.ndarray) else flags_of(pc.equal(least, greatest))
        is_one = np.asarray(is_equal, np.bool_) & (values > 0)
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
        table[group_name(number)] = key_array(_ends(found[group.column], row_groups)["least"])
    table["rows"] = pa.array(row_counts)
    for number, asked in enumerate(question.columns):
        ends, values = _ends(found[asked.column], row_groups), found[asked.column].value_count[row_groups]
        table[f"values {number}"] = pa.array(values)
        if asked.needs_sum:
            table |= sum_columns(number, ends["least"], values)
        table |= {f"{end} {number}": key_array(ends[end]) for end in asked.ends}
    return Partial.of_table(question, table)


def _ends(statistics: FieldStatistics, row_groups: Ints) -> dict[str, Column]:
    has_values = statistics.value_count[row_groups] > 0
    valid, ends = None if has_values.all() else has_values, dict[str, Column]()
    for end, every in (("least", statistics.minimum), ("greatest", statistics.maximum)):
        keys = chosen_keys(every, row_groups)
        if not isinstance(keys, np.ndarray):
            keys = pc.if_else(pa.array(has_values), keys, pa.scalar(None, pa.large_binary()))
        ends[end] = Column(statistics.value_type, len(keys), keys, valid)
    return ends


def most_rows(view: IndexView, predicate: Predicate, question: Question, row_groups: Ints) -> float | None:
    """How many matching rows an answer may be of, infinite without a bound; None if the index is not to be asked."""
    reads = IndexReads()
    found = {one.column: view.statistics(one.column, one.value_type.name, reads) for one in question.every_column}
    known = {column: own for column, own in found.items() if own is not None and own.known[row_groups].any()}
    if not is_exact(predicate) or len(known) < len(found):
        return None
    added = {question.groups[place].column for place in question.added_doubles}
    if any(_lose_bits(known[column], row_groups) for column in added):
        return None
    if not any(_has_many_values(known[group.column], row_groups) for group in question.groups):
        return math.inf
    # Rows bound the number of groups.
    return None if expected_matches(view, predicate, row_groups) > MOST_GROUPS else MOST_GROUPS


def _has_many_values(statistics: FieldStatistics, row_groups: Ints) -> bool:
    """Whether a column to group by may have more values than the answer may have groups."""
    # Of bytes, the number over all row groups may count a value once for each.
    most = int(statistics.distinct_count[row_groups[statistics.known[row_groups]]].max())
    return most > _FEW_GROUPS and most_distinct(statistics) > MOST_GROUPS


def _lose_bits(statistics: FieldStatistics, row_groups: Ints) -> bool:
    """Whether a sum of doubles most likely loses bits, to judge by the ends of row groups: reading would be wasted."""
    keys = (statistics.minimum, statistics.maximum)
    known = row_groups[statistics.known[row_groups]]
    values = np.concatenate([floats_of_keys(key[known]) for key in keys if isinstance(key, np.ndarray)])
    values = values[np.isfinite(values) & (values != 0)]
    fractions, exponents = np.frexp(values)
    integers = np.ldexp(np.abs(fractions), _BITS_OF_DOUBLES).astype(np.int64)
    lowest = exponents - _BITS_OF_DOUBLES + np.log2(integers & -integers)
    rows = float(statistics.value_count[known].sum())
    # Most values are smaller than the ends.
    magnitude = float(np.abs(values).mean()) / 4 * rows if len(values) else 0.0
    return bool(magnitude > np.exp2(lowest.min(initial=np.inf) + _BITS_OF_DOUBLES))
