"""SearchState ten rows in five row groups (`tests.planner.ten_rows`): which stage drops which row group, and why."""

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from planner.condition.tree.nodes import Conjunction, Disjunction
from planner.prune.gate import Limits
from planner.prune.search import prune
from planner.prune.verdicts import Pruned, Reason
from puffin_index import IndexDefinition
from puffin_index.keys.leaf import RangeTest, SetTest
from tests.planner.ten_rows import BITMAPS, EVERY, POSTINGS, c, k, view_of_ten_rows

IS_5 = k(SetTest((5,)))
FROM_7 = k(RangeTest(7, None))


def reasons(pruned: Pruned) -> list[str]:
    return [Reason(reason).code for reason in pruned.reasons.tolist()]


def dropped(pruned: Pruned) -> dict[str, int]:
    return {stage.name: stage.dropped for stage in pruned.stages}


@pytest.mark.parametrize(
    ("definition", "stage", "reason"),
    [
        (POSTINGS, "postings", "rows-empty"),
        (BITMAPS, "postings", "rows-empty"),
        (IndexDefinition.of(bsi=["k"]), "rows", "rows-empty"),
        (IndexDefinition.of(bloom=["k"]), "bloom", "bloom"),
    ],
)
def test_zone_maps_settle_what_they_can_and_an_index_the_rest(
    local_catalog: SqlCatalog, definition: IndexDefinition, stage: str, reason: str
) -> None:
    pruned = prune(view_of_ten_rows(local_catalog, definition), IS_5, EVERY)

    # Row groups 0 to 2 span 5 without having it, 3 has nothing else, 4 has no value at all.
    assert reasons(pruned) == [reason, reason, reason, "all-rows-match", "zone-map"]
    assert pruned.matches.tolist() == [0, 0, 0, 2, 0]
    none = dict.fromkeys(("postings", "bloom", "rows"), 0)
    assert dropped(pruned) == none | {"zone-map": 1, stage: 3}


def test_a_stage_sees_what_the_ones_before_left_alive(local_catalog: SqlCatalog) -> None:
    pruned = prune(view_of_ten_rows(local_catalog, POSTINGS), IS_5, EVERY)

    assert [(stage.name, stage.entered) for stage in pruned.stages] == [
        ("zone-map", 5),
        ("postings", 3),
        ("bloom", 0),
        ("rows", 0),
    ]
    # Statistics are one read; postings are a directory in the segment, the payload's own directory, and a block.
    assert [stage.reads for stage in pruned.stages] == [1, 3, 0, 0]


def test_an_exact_index_also_says_which_rows_match(local_catalog: SqlCatalog) -> None:
    pruned = prune(view_of_ten_rows(local_catalog), FROM_7, EVERY, Limits(rows_wanted=True))

    assert reasons(pruned) == ["rows-match", "rows-match", "rows-match", "zone-map", "zone-map"]
    assert pruned.matches.tolist() == [1, 1, 1, 0, 0]
    sets = [pruned.row_sets.of(row_group) for row_group in range(5)]
    assert [None if one is None else (list(one.rows), one.exact) for one in sets] == [
        ([1], True),
        ([1], True),
        ([1], True),
        None,
        None,
    ]


def test_a_column_without_an_index_leaves_upper_bounds(local_catalog: SqlCatalog) -> None:
    view = view_of_ten_rows(local_catalog)

    both = prune(view, Conjunction((IS_5, c(SetTest((0,))))), EVERY)
    assert reasons(both) == ["rows-empty", "rows-empty", "rows-empty", "may-match", "zone-map"]
    either = prune(view, Disjunction((IS_5, c(SetTest((0,))))), EVERY)
    # Whatever the bitmap of `k` said, `c` might match: no row group could be dropped. Where `k = 5` holds for all rows,
    # `c` does not matter.
    assert reasons(either) == [*["not-worth-reading"] * 3, "all-rows-match", "may-match"]
