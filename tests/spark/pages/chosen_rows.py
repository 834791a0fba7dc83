"""Rows of row groups that a test chooses to be read by pages, whatever an index says."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import pytest
from pyroaring import BitMap

from planner.aggregates.answer import Answer
from planner.prune.few_rows import FewRows
from planner.prune.verdicts import Pruned
from planner.query import QueryAnswer, QueryRequest, _answer_of as answer_of
from puffin_index.kinds.base import RowSet

LISTS = "md5(CAST(id AS STRING)) AS text, transform(sequence(0, id % 4), i -> id + i) AS list"
"""Columns of a table: texts that differ, and lists of one to four numbers."""

Said: TypeAlias = dict[tuple[str, int], tuple[int, BitMap]]


@contextmanager
def reading_only(
    choose: Callable[[int], BitMap | None], when: Callable[[QueryRequest], bool] = lambda _: True
) -> Iterator[Said]:
    """Let the planner say, for some requests, that only chosen rows of each row group can match.

    `choose` gets the number of rows of a row group; where it gives None, the row group stays as it is. Gives what was
    said: by file and first row of a row group, its number of rows and the chosen ones.
    """
    said: Said = {}

    def with_chosen_rows(request: QueryRequest, pruned: Pruned, aggregates: Answer | None = None) -> QueryAnswer:
        answer, given = answer_of(request, pruned, aggregates), dict[int, RowSet]()
        scan = answer.scan
        if not when(request):
            return answer
        for at in np.flatnonzero(answer.plan.kept_mask & scan.is_indexed).tolist():
            rows = choose(int(scan.row_counts[at]))
            if rows is not None:
                given[int(scan.numbers[at])] = RowSet(rows, exact=False)
                place = scan.paths[scan.file_of[at]], int(scan.first_rows[at])
                said[place] = (int(scan.row_counts[at]), rows)
        return replace(answer, few=FewRows(given))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("planner.query._answer_of", with_chosen_rows)
        yield said
