"""Rows of a segment belong to their row groups."""

import numpy as np
import pytest
from pyroaring import BitMap

from planner.prune.row_sets import FoundRows
from planner.view.directories import KindDirectory
from puffin_index.keys.value_types import value_type_named


@pytest.mark.parametrize("many", [0, 512])
def test_row_groups_get_their_rows_up_to_the_end_of_the_row_space(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.prune.row_sets._MANY_ROWS", many)
    bases, row_counts = np.array([0, 65_536, 2**32 - 65_536]), np.array([0, 10, 65_536])
    here = np.zeros(3, np.int32)
    directory = KindDirectory(
        1, "bitmap", value_type_named("long"), here, bases, here, bases, bases, np.ones(3, np.bool_)
    )
    rows = BitMap([65_536, 65_545, 2**32 - 65_536, 2**32 - 2, 2**32 - 1])
    found = FoundRows(directory, row_counts, {int(directory.blob[0]): rows})

    assert found.counts(np.arange(3)).tolist() == [0, 2, 3]
    assert [list(found.of(row_group) or ()) for row_group in range(3)] == [[], [0, 9], [0, 65_534, 65_535]]
