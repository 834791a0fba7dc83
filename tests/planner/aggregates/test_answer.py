"""Aggregates of tables small enough to check by eye."""

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import planner
from planner.aggregates.answer import answer
from planner.aggregates.known_rows import KnownRows
from planner.aggregates.partial import AggregateOverflowError
from planner.aggregates.question import ask
from planner.arrow.aggregate import EXACT_ROWS, Aggregated, aggregate_with_plan
from planner.arrow.plan import plan_scan
from planner.prune.gate import Limits
from puffin_index import IndexDefinition, TableIndex
from tests.conftest import built, create_table, open_catalog
from tests.planner.ten_rows import ROWS, build_index

KINDS = [
    IndexDefinition.of(bitmap=["k", "c"], options={"k.layout": "bitmaps", "c.layout": "bitmaps"}),
    IndexDefinition.of(bitmap=["k", "c"], options={"k.layout": "postings", "c.layout": "postings"}),
    IndexDefinition.of(bsi=["k", "c"]),
    IndexDefinition.of(bsi=["k", "c"], options={"k.compression": "none", "c.compression": "none"}),
    IndexDefinition.of(bsi=["k"], bitmap=["c"], options={"c.layout": "postings"}),
]


@pytest.fixture(scope="module", params=range(len(KINDS)))
def ten_rows(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[TableIndex]:
    """An index that tests only read."""
    with open_catalog(tmp_path_factory.mktemp("ten_rows")) as catalog:
        yield build_index(catalog, ROWS, 2, KINDS[request.param])


def rows(found: Aggregated) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in found.table.to_pylist()]


EVERY = "count(*), count(k), sum(k), avg(k), min(k), max(k), count(DISTINCT k)"


@pytest.mark.parametrize(
    ("where", "asked", "group", "expected"),
    [
        (None, EVERY, "", [(10, 8, 40, 5.0, 1, 9, 7)]),
        ("k >= 7 OR k IS NULL", EVERY, "", [(5, 3, 24, 8.0, 7, 9, 3)]),
        ("k IS NULL", EVERY, "", [(2, 0, None, None, None, None, 0)]),
        ("k = 4", EVERY, "", [(0, 0, None, None, None, None, 0)]),
        ("k = 4", "count(*)", "", [(0,)]),
        ("k = 4", EVERY, "c", []),
        ("k > 1 OR k IS NULL", "count(*), sum(k), min(k), max(k)", "c", [(0, 4, 10, 2, 5), (1, 5, 29, 5, 9)]),
        ("k IN (1, 5)", ["count(*)"], ["c", "k"], [(0, 1, 1), (0, 5, 1), (1, 5, 1)]),
        # NULL is a group, and comes first.
        (
            "k >= 7 OR k IS NULL",
            "count(*), sum(k), count(k)",
            "k",
            [(None, 2, None, 0), *((k, 1, k, 1) for k in (7, 8, 9))],
        ),
    ],
)
def test_aggregates_need_no_data(
    ten_rows: TableIndex,
    where: str | None,
    asked: str | list[str],
    group: str | list[str],
    expected: list[tuple[object, ...]],
) -> None:
    found = aggregate_with_plan(ten_rows, where, asked, group)
    assert rows(found) == expected
    assert found.row_groups_read == 0
    if where is None:
        assert found.row_groups_settled + found.row_groups_indexed == 5


@pytest.mark.parametrize("limits", [Limits(byte_budget=0), Limits(seconds=0)], ids=["no-bytes", "no-time"])
def test_row_groups_beyond_the_bounds_are_unread(ten_rows: TableIndex, limits: Limits) -> None:
    question = ask("sum(k)", "c", ten_rows.data_table.schema())
    planned = plan_scan(ten_rows, "k > 1", limits=Limits(rows_wanted=True))
    plan = planned.plan
    known = KnownRows(planned.scan, planned.request.predicate, planned.pruned)

    dear = np.full(plan.row_groups, 1e18)
    found = answer(known, question, dear, limits)

    assert len(found.unread) == planned.plan.kept - found.row_groups_settled
    assert found.row_groups_indexed == 0
    assert not len(answer(known, question, dear).unread)


@pytest.mark.parametrize("definition", KINDS)
def test_files_of_many_rows_are_answered_in_turn(
    local_catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch, definition: IndexDefinition
) -> None:
    """What was answered before the budget was used up counts."""
    chance = np.random.default_rng(7)
    files = [pa.table({name: chance.integers(0, 50, 1_000) for name in ("k", "c")}) for _ in range(4)]
    index = build_index(local_catalog, files[0], 250, definition)
    for file in files[1:]:
        index.data_table.append(file)
    index.build()
    every, where, asked = pa.concat_tables(files), "k > 10 AND c < 40", "count(*), sum(k), count(DISTINCT c)"
    left = every.filter((pc.field("k") > 10) & (pc.field("c") < 40))
    due = [(len(left), pc.sum(left["k"]).as_py(), pc.count_distinct(left["c"]).as_py())]
    whole = aggregate_with_plan(index, where, asked)
    monkeypatch.setattr("planner.aggregates.answer._ROWS_AT_ONCE", 1_000)

    found = aggregate_with_plan(index, where, asked)
    assert (rows(found), rows(whole)) == (due, due)
    assert found.row_groups_read == whole.row_groups_read == 0
    assert found.plan.reason_counts() == whole.plan.reason_counts()

    some = aggregate_with_plan(
        index, where, asked, limits=replace(EXACT_ROWS, byte_budget=found.plan.index_bytes_read // 2)
    )
    assert rows(some) == due
    assert 0 < some.row_groups_read < some.row_groups


def test_counts_and_ends_of_whole_row_groups_come_from_statistics(ten_rows: TableIndex) -> None:
    found = aggregate_with_plan(ten_rows, "k IS NOT NULL", "count(*), count(k), min(k), max(k)")
    assert rows(found) == [(8, 8, 1, 9)]
    assert (found.row_groups_settled, found.row_groups_indexed, found.row_groups_read) == (4, 0, 0)


@pytest.mark.parametrize("definition", KINDS)
def test_a_settled_row_group_is_not_counted_in_groups_again(
    local_catalog: SqlCatalog, definition: IndexDefinition
) -> None:
    data = pa.table({"k": pa.array([1, None, 7, 2], pa.int64()), "c": pa.array([0, 1, 2, 3], pa.int64())})
    found = aggregate_with_plan(build_index(local_catalog, data, 3, definition), None, "count(*), sum(c)", "k")
    assert rows(found) == [(None, 1, 1), (1, 1, 0), (2, 1, 3), (7, 1, 2)]
    assert (found.row_groups_settled, found.row_groups_indexed) == (1, 1)


def test_a_column_without_an_index_is_read(local_catalog: SqlCatalog) -> None:
    index = build_index(local_catalog, ROWS, 2, IndexDefinition.of(bsi=["k"]))
    found = aggregate_with_plan(index, "k > 6", "sum(c), sum(k)")
    assert rows(found) == [(3, 24)]
    assert found.row_groups_read == 3
    found = aggregate_with_plan(index, "c = 1 AND k > 6", "count(*), sum(k)")
    assert rows(found) == [(3, 24)]


@pytest.mark.parametrize("kind", ["bitmap", "bsi"])
def test_long_strings_come_whole(local_catalog: SqlCatalog, kind: str) -> None:
    """Iceberg #16320, #16328: a minimum or maximum of strings was a truncated bound, or one that no row has."""
    values = [f"{'é' * 100}{n:03}{'😀' * 50}" for n in range(250)]
    index = build_index(local_catalog, pa.table({"s": values}), 100, IndexDefinition.of(**{kind: ["s"]}))
    between = f"s > '{values[40]}' AND s < '{values[60]}'"
    for where, expected in ((None, (values[0], values[-1], 250)), (between, (values[41], values[59], 19))):
        found = aggregate_with_plan(index, where, "min(s), max(s), count(*)")
        assert (rows(found), found.row_groups_read) == ([expected], 0)


def test_a_row_group_without_rows_has_no_group(local_catalog: SqlCatalog, tmp_path: Path) -> None:
    data = pa.table({"k": pa.array([n % 3 for n in range(30)], pa.int64()), "s": ["xyz"[n % 3] for n in range(30)]})
    with pq.ParquetWriter(tmp_path / "f.parquet", data.schema) as writer:
        for part in (data, data.slice(0, 0), data):
            writer.write_table(part)
    table = local_catalog.create_table("ns.t", data.schema)
    table.add_files([(tmp_path / "f.parquet").as_uri()])
    index = built(local_catalog, "ns.t", bsi=["k"], bitmap=["s"])

    for by, expected in (("s", {"x": 20, "y": 20, "z": 20}), ("k", {0: 20, 1: 20, 2: 20})):
        found = planner.aggregate(index, None, "count(*) AS n", by).to_pylist()
        assert {group[by]: group["n"] for group in found} == expected
    both = planner.aggregate(index, None, "count(*) AS n", ["s", "k"]).to_pylist()
    assert sorted((group["s"], group["k"], group["n"]) for group in both) == [("x", 0, 20), ("y", 1, 20), ("z", 2, 20)]


def test_averages_of_few_digits_are_rounded_as_spark_rounds_doubles(local_catalog: SqlCatalog) -> None:
    values = [Decimal("0.07"), *[Decimal("0.00")] * 159]
    create_table(local_catalog, "t", pa.table({"d": pa.array(values, pa.decimal128(7, 2))}), 50)
    index = built(local_catalog, "ns.t", bsi=["d"])

    # 0.0004375 as a double is a little less.
    assert planner.aggregate(index, None, "avg(d) AS a").to_pylist() == [{"a": Decimal("0.000437")}]


def test_an_average_fails_where_its_sum_does(local_catalog: SqlCatalog) -> None:
    values = pa.array([Decimal("0.9")] * 2, pa.decimal128(38, 38))
    create_table(local_catalog, "t", pa.table({"d": values}), 50)
    index = built(local_catalog, "ns.t", bsi=["d"])

    for asked in ("sum(d)", "avg(d)"):
        with pytest.raises(AggregateOverflowError):
            planner.aggregate(index, None, asked)
