"""Picks the row groups whose matching rows lie in few pages."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from planner.prune.row_sets import RowSets
from puffin_index.kinds.base import RowSet
from puffin_index.storage.arrays import Floats, Ints, distinct

PAGE_ROWS: Final = 20_000
"""The most rows of a page, unless a writer is told otherwise. A page of wide values has fewer."""

MOST_PAGES: Final = 0.5
"""With a greater share of the pages, reading a row group as a whole takes no longer."""

_MOST_ROWS = 0.05
"""With a greater share of the rows, copying them takes as long as decoding all of them."""

_MOST_ROWS_IN_ALL = 8_000_000
"""Rows of one plan, which travel to executors, take two bytes each."""


def pages_of(rows: Ints) -> Ints:
    """How many pages row groups of some rows have, if each but the last has the most rows."""
    return np.asarray(-(-rows // PAGE_ROWS), np.int64)


def share_of_pages(rows: Floats | Ints, row_counts: Ints) -> Floats:
    """Estimate in which share of a row group's pages some rows lie, at least one of them; 1 for many rows."""
    pages = pages_of(row_counts)
    # Each row misses a page with a chance of 1 - 1 / pages.
    share = 1 - np.exp(rows * np.log1p(-1 / np.maximum(pages, 1.0001)))
    return np.where(rows > _MOST_ROWS * row_counts, 1.0, np.maximum(share, 1 / np.maximum(pages, 1)))


@dataclass(frozen=True, slots=True)
class FewRows:
    """Rows that can match, by row group of the view, for those with few such pages; and the numbers of these pages."""

    rows: dict[int, RowSet] = field(default_factory=dict)
    pages: dict[int, int] = field(default_factory=dict)


def few_rows(row_sets: RowSets, row_groups: Ints, row_counts: Ints) -> FewRows:
    """Find the row groups (int64, with their numbers of rows) whose matching rows lie in few pages.

    Ends before the rows of one plan would be too many.
    """
    few = FewRows()
    is_known = np.isin(row_groups, list(row_sets.given))
    if row_sets.found is not None:
        # Cutting out the rows of a row group takes longer than counting those of all.
        counts = row_sets.found.counts(row_groups)
        is_known |= (counts >= 0) & (counts <= _MOST_ROWS * row_counts)
    some = is_known & (row_counts > PAGE_ROWS)
    rows_left, pages = _MOST_ROWS_IN_ALL, pages_of(row_counts[some]).tolist()
    for row_group, row_count, most in zip(row_groups[some].tolist(), row_counts[some].tolist(), pages, strict=True):
        rows = row_sets.of(row_group)
        if rows is None or len(rows.rows) > _MOST_ROWS * row_count:
            continue
        wanted = len(distinct(np.frombuffer(rows.rows.to_array(), np.uint32) // np.uint32(PAGE_ROWS)))
        if wanted > MOST_PAGES * most:
            continue
        rows_left -= len(rows.rows)
        if rows_left < 0:
            break
        few.rows[row_group], few.pages[row_group] = rows, wanted
    return few
