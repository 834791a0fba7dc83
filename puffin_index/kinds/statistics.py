"""Statistics of one column in one row group, for the planner's zone maps and estimates."""

from dataclasses import dataclass

import numpy as np

from puffin_index.keys.columns import SortedColumn, chosen_keys, tuple_of_keys
from puffin_index.keys.leaf import Key
from puffin_index.keys.value_types import NAN_KEY

QUANTILE_COUNT = 32


@dataclass(frozen=True, slots=True, eq=False)
class ColumnStatistics:
    """The statistics of a column's keys in one row group; NaN is a value, the greatest.

    Quantiles are the keys at evenly spaced ranks, from the first to the last, or none if there are no keys. Rows that
    contain several keys have as many, which are counted each.
    """

    row_count: int
    null_count: int
    nan_count: int
    distinct_count: int
    minimum: Key | None
    maximum: Key | None
    quantiles: tuple[int, ...] | tuple[bytes, ...]


def statistics_of(ordered: SortedColumn) -> ColumnStatistics:
    """Return the statistics of a column."""
    column, keys, starts = ordered.column, ordered.keys, ordered.starts
    valid_count = column.valid_count
    if not valid_count:
        return ColumnStatistics(ordered.row_count, ordered.null_count, 0, 0, None, None, ())
    # Ranks of another type would make the search copy the starts to a wider type.
    ranks = np.linspace(0, valid_count - 1, QUANTILE_COUNT).round().astype(starts.dtype)
    quantiles = tuple_of_keys(chosen_keys(keys, np.searchsorted(starts, ranks, "right") - 1))
    return ColumnStatistics(
        ordered.row_count,
        ordered.null_count,
        int(starts[-1] - starts[-2]) if column.value_type.is_floating and quantiles[-1] == NAN_KEY else 0,
        ordered.distinct_count,
        quantiles[0],
        quantiles[-1],
        quantiles,
    )
