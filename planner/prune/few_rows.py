"""Row groups of whose pages few have a row that can match."""

from typing import Final

import numpy as np

from planner.prune.row_sets import RowSets
from puffin_index.kinds.base import RowSet
from puffin_index.storage.arrays import Floats, Ints

PAGE_ROWS: Final = 20_000
"""The most rows of a page, unless a writer is told otherwise. A page of wide values has fewer."""

MOST_PAGES: Final = 0.5
"""With a greater share of the pages, reading a row group as a whole takes no longer."""

_MOST_ROWS = 0.05
"""With a greater share of the rows, copying them takes as long as decoding all of them."""

_MOST_ROWS_IN_ALL = 8_000_000
"""Rows of one plan, which travel to executors, take two bytes each."""


def share_of_pages(rows: Floats | Ints, row_counts: Ints) -> Floats:
    """The share of a row group's pages that some rows are expected to lie in, if they lie anywhere; 1 for many rows."""
    pages = np.ceil(row_counts / PAGE_ROWS)
    # Each row misses a page with a chance of 1 - 1 / pages.
    share = 1 - np.exp(rows * np.log1p(-1 / np.maximum(pages, 1.0001)))
    return np.where(rows > _MOST_ROWS * row_counts, 1.0, np.maximum(share, 1 / np.maximum(pages, 1)))


def few_rows(row_sets: RowSets, row_groups: Ints, row_counts: Ints) -> dict[int, RowSet]:
    """The rows of row groups (int64, with their numbers of rows) that have few pages with one, by row group.

    These rows are all that can match, within the most rows of one plan.
    """
    found: dict[int, RowSet] = {}
    left = _MOST_ROWS_IN_ALL
    some = row_counts > PAGE_ROWS
    if row_sets.found is not None and not row_sets.given:
        counts = row_sets.found.counts(row_groups)
        some &= (counts >= 0) & (counts <= _MOST_ROWS * row_counts)
    for row_group, row_count in zip(row_groups[some].tolist(), row_counts[some].tolist(), strict=True):
        rows = row_sets.of(row_group)
        if rows is None or len(rows.rows) > _MOST_ROWS * row_count:
            continue
        pages = np.unique(np.frombuffer(rows.rows.to_array(), np.uint32) // PAGE_ROWS)
        if len(pages) > MOST_PAGES * -(-row_count // PAGE_ROWS):
            continue
        left -= len(rows.rows)
        if left < 0:
            break
        found[row_group] = rows
    return found
