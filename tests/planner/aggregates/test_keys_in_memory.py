"""Keys of rows out of postings: data is read until decoding has paid, then the decoded keys stay in memory."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from planner.aggregates.answer import Answer, answer
from planner.aggregates.known_rows import KnownRows
from planner.aggregates.question import ask
from planner.arrow.aggregate import aggregate_with_plan
from planner.arrow.plan import plan_scan
from planner.prune.gate import Limits
from planner.view.cache import CACHE
from puffin_index import IndexDefinition, TableIndex
from tests.planner.ten_rows import build_index

ROWS = 40_000
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
    return build_index(local_catalog, DATA, 10_000, IndexDefinition.of(bitmap=["k", "s"], bsi=["v", "w"]))


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
    assert again.plan.index_bytes_read == plan_scan(index, WHERE, limits=Limits(rows_wanted=True)).plan.index_bytes_read


def test_decoding_waits_until_data_has_cost_as_much(index: TableIndex) -> None:
    def asked(cost: float) -> Answer:
        planned = plan_scan(index, WHERE, limits=Limits(rows_wanted=True))
        rows = KnownRows(planned.scan, planned.request.predicate, planned.pruned)
        question = ask("count(*)", "k", index.data_table.schema())
        return answer(rows, question, np.full(planned.plan.row_groups, cost))

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


@pytest.mark.parametrize(
    ("where", "holds"),
    [
        ("k BETWEEN 100 AND 109", lambda row: row["k"] is not None and 100 <= row["k"] <= 109),
        ("k IN (7, 8, 3999) AND v > 50", lambda row: row["k"] in (7, 8, 3999) and row["v"] > 50),
        ("k > 3990 AND (w < 300 OR v < 0)", lambda row: (row["k"] or 0) > 3990 and (row["w"] < 300 or row["v"] < 0)),
    ],
)
def test_few_rows_take_the_keys_of_tests(
    index: TableIndex, where: str, holds: Callable[[dict[str, int]], bool]
) -> None:
    keys = [row["k"] for row in DATA.to_pylist() if holds(row)]
    for group in ((), ("k",)):
        found = aggregate_with_plan(index, where, "sum(k), count(*), max(k)", group)
        assert sum(found.table["count(*)"].to_pylist()) == len(keys)
        assert sum(found.table["sum(k)"].to_pylist()) == sum(keys)
        assert max(found.table["max(k)"].to_pylist()) == max(keys)
        assert found.row_groups_read == 0
        # The postings take some 80 KB.
        assert found.plan.index_bytes_read - sum(stage.bytes_read for stage in found.plan.funnel) < 30_000


def test_slices_that_the_where_has_read_are_not_read_again(local_catalog: SqlCatalog) -> None:
    # Slices of smaller row groups share a payload, which is opened anew for each look.
    numbers = NUMBERS.integers(-100, 100_000, 300_000)
    index = build_index(local_catalog, pa.table({"v": numbers}), 150_000, IndexDefinition.of(bsi=["v"]), "large")
    found = aggregate_with_plan(index, "v > 40000", "sum(v), count(*)")
    values = numbers[numbers > 40_000]
    assert found.table.to_pylist() == [{"sum(v)": int(values.sum()), "count(*)": len(values)}]
    assert found.row_groups_read == 0
    every = aggregate_with_plan(index, None, "sum(v)")
    assert found.plan.index_bytes_read < every.plan.index_bytes_read + 5_000


def test_keys_without_room_are_not_kept(index: TableIndex) -> None:
    limit = CACHE.limit
    CACHE.resize(50_000)
    try:
        found = [aggregate_with_plan(index, WHERE, "sum(v), count(*)", "k") for _ in range(2)]
    finally:
        CACHE.resize(limit)
    assert found[0].table.equals(found[1].table)
    assert min(one.plan.index_bytes_read for one in found) > 150_000
