"""Planning ends when its time is over: what is not decided by then is kept, counts stay exact; its steps are few."""

import math
import time
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import planner
from planner.arrow.plan import plan, plan_scan
from planner.clock import Clock, _waiting_here
from planner.condition.tree.nodes import Conjunction, Disjunction, Leaf, Nothing
from planner.prune.distributed import prune_row_groups
from planner.prune.estimate import JoinedEstimates
from planner.prune.gate import Limits
from planner.prune.leaf_search import LeafSearch
from planner.prune.verdicts import Reason
from planner.prune.zone_map import JoinedVerdicts
from puffin_index import IndexDefinition, TableIndex
from puffin_index.keys.asked import AskedTest
from puffin_index.keys.leaf import SetTest
from puffin_index.storage.arrays import Ints
from tests.conftest import amount, temporary_catalog
from tests.planner.ten_rows import build_index, view_of_index

ROWS, ROW_GROUP_ROWS = 4_000, 200
KINDS = ["bitmap", "postings", "bsi", "bloom"]
PAIRS = amount(200, 2_000)


@pytest.fixture(scope="module")
def index(request: pytest.FixtureRequest) -> Iterator[TableIndex]:
    chooser = np.random.default_rng(9)
    data = pa.table({"k": chooser.permutation(ROWS) * 7, "id": chooser.permutation(ROWS) * 3})
    layout = {f"{column}.layout": "postings" for column in ("k", "id")} if request.param == "postings" else {}
    kind = "bitmap" if request.param == "postings" else request.param
    with temporary_catalog() as catalog:
        yield build_index(catalog, data, ROW_GROUP_ROWS, IndexDefinition.of(**{kind: ["k", "id"]}, options=layout))


@pytest.mark.parametrize("index", KINDS, indirect=True)
@pytest.mark.parametrize("where", ["k = 7007", "k = 7007 OR id = 300", "k > 7 AND id < 2"])
def test_without_time_all_is_kept_for_that_reason_and_counted_rightly(index: TableIndex, where: str) -> None:
    scan_plan = plan(index, where, planning_milliseconds=0)
    assert scan_plan.reason_counts() == {"time-budget": ROWS // ROW_GROUP_ROWS}
    assert scan_plan.index_reads == 0
    assert scan_plan.late == f"the time was over, {scan_plan.row_groups} of {scan_plan.row_groups} row groups were left"
    assert scan_plan.late in scan_plan.note
    assert scan_plan.late in str(scan_plan.describe())
    assert not plan(index, where).late
    assert all(split.rows is None for split in scan_plan.splits)
    counted = planner.count(index, where, planning_milliseconds=0)
    assert counted.rows == planner.count(index, where).rows
    assert counted.row_groups_read == counted.row_groups
    assert planner.scan(index, where, planning_milliseconds=0).read_all().num_rows == counted.rows


@pytest.mark.parametrize("index", ["bsi"], indirect=True)
def test_what_nothing_has_to_be_read_for_is_decided_without_time(index: TableIndex) -> None:
    view = view_of_index(index)
    pruned = prune_row_groups(view, Nothing(), np.arange(view.row_group_count), Limits(seconds=0))
    assert not pruned.kept.any()


def over_after(looks: int) -> property:
    in_time = repeat(False, looks)
    return property(lambda _: next(in_time, True))


@pytest.mark.parametrize("index", KINDS, indirect=True)
@pytest.mark.parametrize("where", ["k = 7007", "(k = 7007 OR id < 300) AND id <> 3", "k IN (7, 14) AND id < 6000"])
def test_whenever_time_is_over_no_match_is_dropped_and_counts_are_exact(index: TableIndex, where: str) -> None:
    rows = planner.count(index, where, planning_milliseconds=60_000).rows
    matching = {
        split.row_group for split in plan(index, where, planning_milliseconds=60_000).splits if split.verdict == "kept"
    }
    decided = []
    for looks in [*range(amount(3, 12)), 20, 40, 80, 1_000]:
        for check in (planner.count, plan):
            with patch.object(Clock, "is_over", over_after(looks)):
                result = check(index, where)
            if isinstance(result, planner.RowCount):
                assert result.rows == rows
                continue
            kept = {split.row_group for split in result.splits if split.verdict == "kept"}
            assert matching <= kept
            decided.append(len(kept))
    assert decided[-1] == len(matching)


@pytest.fixture
def joins() -> Iterator[list[str]]:
    """What is joined anew of trees, one element for each node."""
    joined: list[str] = []

    def counting(kind: type[JoinedVerdicts] | type[JoinedEstimates]) -> object:
        plain = kind._join

        def join(*args: object, **kwargs: object) -> object:
            joined.append(kind.__name__)
            return plain(*args, **kwargs)

        return join

    with (
        patch.object(JoinedVerdicts, "_join", counting(JoinedVerdicts)),
        patch.object(JoinedEstimates, "_join", counting(JoinedEstimates)),
    ):
        yield joined


@pytest.mark.parametrize("index", ["bsi"], indirect=True)
def test_pairs_are_planned_in_steps_that_grow_little_faster_than_they(index: TableIndex, joins: list[str]) -> None:
    view = view_of_index(index)
    leaves = [[Leaf(field, SetTest((number,)), "long") for field in (1, 2)] for number in range(PAIRS)]
    predicate = Disjunction(tuple(Conjunction(tuple(pair)) for pair in leaves))
    pruned = prune_row_groups(view, predicate, np.arange(view.row_group_count), Limits(seconds=600))
    assert Reason.TIME_BUDGET not in pruned.reasons
    # What a leaf's look-up says changes what stands above the leaf: so many nodes of a balanced tree.
    height = math.ceil(math.log2(2 * PAIRS))
    assert 0 < len(joins) <= 4 * 2 * PAIRS * height


@pytest.mark.parametrize("index", ["bitmap"], indirect=True)
def test_deep_conditions_are_planned(index: TableIndex) -> None:
    left_deep = alternating = "k = 7"
    for number in range(amount(300, 1_000)):
        left_deep = f"({left_deep} OR k = {7 * number} AND id = -1)"
        alternating = f"(id = {-1 - number} OR (k > {-number} AND {alternating}))"
    right = {split.row_group for split in plan(index, "k = 7").splits if split.verdict == "kept"}
    for where in (left_deep, alternating):
        planned = plan_scan(index, where, None, Limits(seconds=600)).plan
        assert right <= {split.row_group for split in planned.splits if split.verdict == "kept"}


def test_what_was_opened_in_time_is_read_as_well(local_catalog: SqlCatalog) -> None:
    data = pa.table({"k": np.arange(100) * 7})
    index = build_index(local_catalog, data, 100, IndexDefinition.of(bitmap=["k"], options={"k.layout": "postings"}))
    for _ in range(7):
        index.data_table.refresh().append(data)
        index.refresh()
        index.build(workers=1)
    index.refresh()
    now, opened = [0.0], LeafSearch.prepare

    def slow(self: LeafSearch, work: tuple[int, Ints, AskedTest]) -> object:
        now[0] += 1
        return opened(self, work)

    limits, predicate = Limits(seconds=4, rows_wanted=True), Leaf(1, SetTest((8,)), "long")
    with (
        patch.object(LeafSearch, "prepare", slow),
        patch("planner.clock._Waiting.seconds", lambda *_: 0.0),
        patch("planner.clock.time.monotonic", lambda: now[0]),
    ):
        reasons = prune_row_groups(view_of_index(index), predicate, np.arange(8), limits).reasons.tolist()
    assert set(reasons) == {Reason.ROWS_EMPTY, Reason.TIME_BUDGET}


def test_waiting_for_a_processor_does_not_count_up_to_a_bound() -> None:
    waited, now = [0.0], [0.0]
    with (
        patch("planner.clock._Waiting.seconds", lambda *_: waited[0]),
        patch("planner.clock.time.monotonic", lambda: now[0]),
    ):
        clock = Clock(2.0)
        now[0] = 2.5
        assert clock.is_over
        waited[0] = 1.5
        assert (clock.is_over, clock.seconds_left) == (False, 1.0)
        waited[0], now[0] = 100.0, 7.5
        assert clock.seconds_left == 0.5
        now[0] = 8.0
        assert clock.is_over


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="Linux tells how long threads wait")
def test_linux_tells_how_long_a_thread_waits() -> None:
    assert 0 < _waiting_here().seconds(time.monotonic()) < 3_600
