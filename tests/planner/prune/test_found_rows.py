"""Rows of a segment belong to their row groups."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from pyroaring import BitMap

from planner.prune.row_sets import FoundRows


def found_in(bases: np.ndarray, row_counts: np.ndarray, rows: BitMap) -> FoundRows:
    """Rows of row groups that lie in one segment."""
    found, every = FoundRows.nothing(row_counts), np.arange(len(bases))
    found.add(every, np.zeros(len(bases), np.int64), bases, {0: [rows]})
    return found


@pytest.mark.parametrize("many", [0, 512])
def test_row_groups_get_their_rows_up_to_the_end_of_the_row_space(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.prune.row_sets._MANY_ROWS", many)
    bases, row_counts = np.array([0, 65_536, 2**32 - 65_536]), np.array([0, 10, 65_536])
    found = found_in(bases, row_counts, BitMap([65_536, 65_545, 2**32 - 65_536, 2**32 - 2, 2**32 - 1]))

    assert found.counts(np.arange(3)).tolist() == [0, 2, 3]
    assert [list(found.of(row_group) or ()) for row_group in range(3)] == [[], [0, 9], [0, 65_534, 65_535]]


@given(
    row_groups=st.lists(st.tuples(st.sampled_from([0, 0, 3, 50]), st.integers(1, 30)), min_size=1, max_size=6),
    rows=st.sets(st.integers(0, 250)),
)
def test_the_widest_gap_of_a_row_group_is_the_most_rows_in_a_row_without_a_match(
    row_groups: list[tuple[int, int]], rows: set[int]
) -> None:
    between, row_counts = np.array(row_groups).T
    bases = np.cumsum(between + row_counts) - row_counts

    gaps = found_in(bases, row_counts, BitMap(rows)).widest_gaps(np.arange(len(bases)))

    texts = [
        "".join("x" if base + row in rows else " " for row in range(count))
        for base, count in zip(bases, row_counts, strict=True)
    ]
    assert gaps.tolist() == [max(map(len, text.split("x"))) for text in texts]
