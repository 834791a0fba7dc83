"""Rows are joined across segments and kinds: a row group has all of its matches, and only these where that is said."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from planner.condition.sql.parser import read_where
from planner.condition.tree.simplify import simplified
from planner.prune.gate import Limits
from planner.prune.search import prune
from planner.prune.verdicts import Reason
from puffin_index import IndexDefinition, TableIndex
from tests.conftest import amount
from tests.planner.prune import test_several_look_ups as tables
from tests.planner.prune.test_several_look_ups import PREDICATES, ROW_GROUP_ROWS, due
from tests.planner.ten_rows import view_of_index

IN_TURN = [
    IndexDefinition.of(bitmap=["a"], bsi=["up"], options={"a.layout": "bitmaps", "up.compression": "none"}),
    IndexDefinition.of(bitmap=["a", "b"], bsi=["up"]),
    IndexDefinition.of(bitmap=["a", "b"], bloom=["up"]),
]

NUMBERED = pa.concat_tables([tables.rows_of(number) for number in range(tables.APPENDS)])
NUMBERED = NUMBERED.append_column("row_group", [np.arange(len(NUMBERED)) // ROW_GROUP_ROWS])
NUMBERED = NUMBERED.append_column("row", [np.arange(len(NUMBERED)) % ROW_GROUP_ROWS])


@pytest.fixture(scope="module")
def mixed() -> Iterator[TableIndex]:
    """An append and a definition in turn: payloads of one row group and of several, each column in segments of its own.

    `b` of the first append is in another segment than `a`, and no index tells the rows of `up` in the last append.
    """
    with tables.built_in_turn(IN_TURN) as index:
        yield index


@settings(max_examples=amount(60, 2_000), deadline=None, suppress_health_check=list(HealthCheck))
@example(where="a < 500 AND b < 500 AND up > 700", rows_wanted=True, few=0)
@example(where="(a = 5 OR up = 800) AND b < 900", rows_wanted=True, few=1000)
@given(where=PREDICATES, rows_wanted=st.booleans(), few=st.sampled_from([0, 2, 1000]))
def test_rows_of_row_groups_hold_all_matches_and_only_these_if_exact(
    mixed: TableIndex, where: str, rows_wanted: bool, few: int
) -> None:
    view, schema = view_of_index(mixed), mixed.data_table.schema()
    predicate = simplified(read_where(where, schema))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("planner.prune.leaf_payloads._FEW_ROWS", few)
        pruned = prune(view, predicate, np.arange(view.row_group_count), Limits(rows_wanted=rows_wanted))

    found = due(NUMBERED, where)
    matching = set(zip(found["row_group"].to_pylist(), found["row"].to_pylist(), strict=True))
    for row_group, matches in enumerate(pruned.matches.tolist()):
        expected = {row for own, row in matching if own == row_group}
        rows = pruned.rows_of(row_group, row_group, ROW_GROUP_ROWS, predicate)
        said = f"{where}: row group {row_group}, {Reason(int(pruned.reasons[row_group])).code}"
        assert matches in (-1, len(expected)), said
        assert rows is None or expected <= set(rows.rows), said
        assert rows is None or not rows.exact or expected == set(rows.rows), said


def test_upper_bounds_are_kept_where_one_column_is_not_known(mixed: TableIndex) -> None:
    view, schema = view_of_index(mixed), mixed.data_table.schema()
    predicate = simplified(read_where("a < 500 AND b < 500 AND up > 700", schema))

    pruned = prune(view, predicate, np.arange(view.row_group_count), Limits(rows_wanted=True))

    found = [pruned.row_sets.of(row_group) for row_group in range(view.row_group_count)]
    unsure = [rows for rows in found if rows is not None and not rows.exact]
    assert unsure
    assert all(0 < len(rows.rows) < ROW_GROUP_ROWS for rows in unsure)
