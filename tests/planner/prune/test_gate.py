"""The cost gate: what costs more than it saves, or more than the budget, is not read and not dropped."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import LongType

from planner.prune.gate import DEFAULT_BYTE_BUDGET, Limits
from planner.scans.plan import plan, plan_scan
from planner.scans.scan_plan import ScanPlan
from puffin_index import IndexDefinition, TableIndex
from tests.conftest import create_table

ROWS, ROW_GROUP_ROWS = 20_000, 1_000


@pytest.fixture
def index(local_catalog: SqlCatalog, request: pytest.FixtureRequest) -> TableIndex:
    chooser = np.random.default_rng(9)
    data = pa.table(
        {
            "k": pa.array(chooser.permutation(ROWS) * 7, pa.int64()),
            "few": pa.array(chooser.integers(0, 5, ROWS), pa.int32()),
        }
    )
    create_table(local_catalog, "t", data, ROW_GROUP_ROWS)
    kind, _, compression = request.param.partition(" ")
    options = {f"{column}.compression": compression for column in ("k", "few") if compression}
    index = TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(**{kind: ["k", "few"]}, options=options))
    index.build(workers=1)
    return index


@pytest.mark.parametrize("index", ["bitmap", "bsi", "bsi none", "bloom"], indirect=True)
def test_what_the_budget_does_not_suffice_for_is_kept(index: TableIndex) -> None:
    free = plan(index, "k = 70007")
    assert free.kept == 1
    assert free.index_bytes_read > 0
    none = plan(index, "k = 70007", byte_budget=0)
    assert none.kept == none.row_groups
    assert sum(stage.bytes_read for stage in none.funnel[2:]) == 0


@pytest.mark.parametrize("index", ["bsi none"], indirect=True)
def test_part_of_the_budget_answers_part_of_the_row_groups(index: TableIndex) -> None:
    whole = plan(index, "k = 70007").funnel[-1].bytes_read
    part = plan(index, "k = 70007", byte_budget=whole // 2)
    reasons = part.reason_counts()
    assert reasons["over-budget"] > 0
    assert reasons["rows-empty"] > 0
    assert part.funnel[-1].bytes_read <= whole // 2 + 16_384


@pytest.mark.parametrize("index", ["bsi"], indirect=True)
def test_one_read_answers_for_all_small_row_groups(index: TableIndex) -> None:
    plan(index, "k = 7")  # reads the directory
    for where, kept in (("k = 70007", 1), ("k IN (70007, 3)", 1), ("k BETWEEN 70001 AND 70013", 1), ("k = 70008", 0)):
        found = plan(index, where)
        rows = found.funnel[-1]
        assert (rows.name, rows.reads, found.kept) == ("rows", 1, kept)
        assert 8 * rows.bytes_read <= 19 * ROWS
        assert set(found.reason_counts()) <= {"rows-match", "rows-empty"}


@pytest.mark.parametrize("index", ["bitmap", "bsi", "bsi none"], indirect=True)
def test_nothing_but_directories_is_read_where_every_row_group_has_a_match(index: TableIndex) -> None:
    wide = plan(index, "few >= 1 AND k > 700")
    assert wide.kept == wide.row_groups
    assert sum(stage.bytes_read for stage in wide.funnel) <= 16_384
    assert set(wide.reason_counts()) <= {"not-worth-reading", "may-match"}
    again = plan(index, "few >= 1 AND k > 700")
    assert again.index_reads == 0


@pytest.mark.parametrize("index", ["bsi"], indirect=True)
def test_indexes_from_before_a_promotion_still_answer(index: TableIndex, local_catalog: SqlCatalog) -> None:
    with index.data_table.update_schema() as update:
        update.update_column("few", LongType())
    table = local_catalog.load_table("ns.t")
    table.append(pa.table({"k": pa.array(range(100), pa.int64()), "few": pa.array([9] * 100, pa.int64())}))
    index.build(workers=1)
    # Only with statistics of both types can all rows be known to match.
    assert plan(index, "few >= 0").reason_counts() == {"all-rows-match": 21}
    assert plan(index, "few = 4 AND k = 70007").kept <= 1


@pytest.mark.parametrize("index", ["bsi"], indirect=True)
def test_what_postings_answered_takes_nothing_more_of_the_budget(index: TableIndex, local_catalog: SqlCatalog) -> None:
    both = IndexDefinition.of(bitmap=["k"], bsi=["k", "few"], options={"k.layout": "postings"})
    index = TableIndex.create(local_catalog, "ns.t", both)
    index.build(workers=1)

    def counted(byte_budget: int) -> ScanPlan:
        limits = Limits(rows_wanted=True, byte_budget=byte_budget)
        return plan_scan(index, "k BETWEEN 7000 AND 70000 AND few < 3", None, limits).plan

    free = counted(DEFAULT_BYTE_BUDGET)
    assert free.reason_counts() == {"rows-match": 20}
    assert free.funnel[1].bytes_read > 0
    bounded = counted(sum(stage.bytes_read for stage in free.funnel) + 16_384)
    assert bounded.reason_counts() == {"rows-match": 20}
    assert (bounded.matches == free.matches).all()
