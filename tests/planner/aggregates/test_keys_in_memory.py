"""Keys of rows out of postings: data is read until decoding has paid, then the decoded keys stay in memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from planner.aggregates.answer import Answer, aggregate_with_plan, answer
from planner.aggregates.known_rows import KnownRows
from planner.aggregates.question import ask
from planner.prune.gate import Limits
from planner.scans.plan import plan_scan
from planner.view.index_view import CACHE
from puffin_index import IndexDefinition, TableIndex
from tests.conftest import create_table

ROWS = 8_000
NUMBERS = np.random.default_rng(3)
DATA = pa.table(
    {
        "k": pa.array(NUMBERS.integers(0, 4_000, ROWS), mask=NUMBERS.random(ROWS) < 0.05),
        "s": pa.array(NUMBERS.integers(0, 4_000, ROWS).astype(str)),
        "v": pa.array(NUMBERS.integers(-100, 10_000, ROWS)),
        "w": pa.array(NUMBERS.integers(0, 1_000, ROWS)),
    }
)
WHERE = "w BETWEEN 10 AND 19"


@pytest.fixture
def index(local_catalog: SqlCatalog) -> TableIndex:
    CACHE.clear()
    create_table(local_catalog, "t", DATA, row_group_rows=2_000)
    found = TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bitmap=["k", "s"], bsi=["v", "w"]))
    found.build(workers=1)
    return found


def expected(group: str) -> list[tuple[object, ...]]:
    groups: dict[object, list[int]] = {}
    for row in DATA.to_pylist():
        if 10 <= row["w"] <= 19:
            groups.setdefault(row[group], []).append(row["v"])
    return sorted(((key, sum(of), len(of)) for key, of in groups.items()), key=repr)


@pytest.mark.parametrize("group", ["k", "s"])
def test_groups_by_a_column_of_postings(index: TableIndex, group: str) -> None:
    for _ in range(2):
        found = aggregate_with_plan(index, WHERE, "sum(v), count(*)", group)
        assert sorted((tuple(row.values()) for row in found.table.to_pylist()), key=repr) == expected(group)
        assert found.row_groups_read == 0
    again = aggregate_with_plan(index, WHERE, "count(*)", group)
    # Postings of `w` are not read: `w` has bit slices, and the keys to group by are in memory.
    assert again.index_bytes_read == plan_scan(index, WHERE, limits=Limits(rows_wanted=True)).plan.index_bytes_read


def test_decoding_waits_until_data_has_cost_as_much(index: TableIndex) -> None:
    def asked(cost: float) -> Answer:
        planned = plan_scan(index, WHERE, limits=Limits(rows_wanted=True))
        rows = KnownRows.of_scan(planned, index.data_table.io)
        question = ask("count(*)", "k", index.data_table.schema())
        return answer(planned.view, rows, question, np.full(planned.plan.row_groups, cost))

    assert len(asked(1.0).unread) == 4
    found = next(cost for cost in 2.0 ** np.arange(1, 40) if not len(asked(float(cost)).unread))
    # Whoever asks for less later finds the keys in memory.
    assert found > 2
    assert not len(asked(1.0).unread)
    CACHE.clear()
    share = found * 0.3
    counts = [len(asked(share).unread) for _ in range(8)]
    assert counts[0] == 4
    assert counts[-1] == 0
    assert sorted(counts, reverse=True) == counts


def test_keys_without_room_are_not_kept(index: TableIndex) -> None:
    limit = CACHE.limit
    CACHE.resize(10_000)
    try:
        found = [aggregate_with_plan(index, WHERE, "sum(v), count(*)", "k") for _ in range(2)]
    finally:
        CACHE.resize(limit)
    assert found[0].table.equals(found[1].table)
    assert found[0].index_bytes_read == found[1].index_bytes_read > 8_000
