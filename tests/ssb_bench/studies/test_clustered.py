"""Keys in bursts on small tables: truth is that of the data files, and a row group that is dropped wrongly is found."""

from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest

from puffin_index import TableIndex
from ssb_bench.data.layout import read_record, write_record
from ssb_bench.results.studies import BurstCell, ClusteredRun
from ssb_bench.spark_runs.session import open_catalog
from ssb_bench.studies.clustered import (
    BURSTS,
    FIRST_ROWS,
    KINDS,
    Grid,
    Kind,
    Query,
    RowGroups,
    Size,
    draw_keys,
    judge,
    keys_of,
    literals,
    make_table,
    matching_rows,
    measure_cells,
    measure_clustered,
)

ROWS = 500
SMALL = Size("500 rows", ROWS)
GRID = Grid(8_000, 4_000, ["random"], ["long", "timestamp"])
STRINGS = Grid(2_000, 1_000, ["sorted"], ["string"])


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> TableIndex:
    return make_table(open_catalog(tmp_path_factory.mktemp("clustered")), SMALL, GRID)


@pytest.fixture(scope="module")
def groups(index: TableIndex) -> RowGroups:
    return RowGroups.of(index.data_table)


def test_no_row_group_with_a_match_is_dropped(index: TableIndex, groups: RowGroups) -> None:
    failures: list[str] = []
    cells = list(measure_cells(index, groups, SMALL, GRID, 1, failures))

    assert failures == []
    assert len(cells) == 2 * len(BURSTS) * 7
    assert {cell.row_groups for cell in cells} == {16}
    assert [cell.name for cell in cells if cell.wrong] == []
    assert all(cell.kept <= cell.without for cell in cells)
    assert {cell.matching for cell in cells if cell.query == "needle"} >= {2, 3}


def test_a_row_group_that_is_dropped_wrongly_is_found(tmp_path: Path) -> None:
    """Data files that change behind the index's back stand for an index that is wrong."""
    index = make_table(open_catalog(tmp_path), SMALL, STRINGS)
    for task in index.data_table.scan().plan_files():
        path = task.file.file_path.removeprefix("file://")
        rows = pq.read_table(path)
        pq.write_table(rows.take(np.arange(len(rows))[::-1]), path, row_group_size=ROWS)
    groups = RowGroups.of(index.data_table)

    cells = measure_cells(index, groups, SMALL, STRINGS, 1, [])
    assert {cell.query for cell in cells if cell.wrong} >= {"needle", "first"}


def test_first_rows_may_be_any_of_equal_ones_but_have_to_be_enough(groups: RowGroups) -> None:
    name = "random_long_500"
    table = groups.read([name])
    rows = duckdb.from_arrow(table)
    query = Query(None, order_by=name)
    kept = np.zeros(len(groups), np.bool_)

    assert judge(query, rows, groups, kept) == (1, 1)
    kept[int(np.argmax(table[name])) // ROWS] = True
    assert judge(query, rows, groups, kept) == (1, 0)
    may, must = matching_rows(query, rows)
    assert len(may) >= FIRST_ROWS
    assert not len(must)


@pytest.mark.parametrize("kind", KINDS)
def test_keys_keep_the_order_of_their_numbers_and_have_gaps(kind: Kind) -> None:
    numbers = np.arange(0, 7_000, 7, dtype=np.int64)
    pairs = zip(keys_of(kind, numbers).to_pylist(), keys_of(kind, numbers, beside=1).to_pylist(), strict=True)
    values = [value for pair in pairs for value in pair]

    assert values == sorted(set(values))


def test_keys_come_in_bursts_of_their_length() -> None:
    for burst in BURSTS:
        keys = draw_keys("random", burst, 6_000)
        starts = np.flatnonzero(np.diff(keys, prepend=-1))
        assert np.all(starts % burst == 0)
        assert np.bincount(keys).max() == 3 * burst


def test_keys_are_written_as_sql() -> None:
    assert literals("string", np.array([1, 2])) == ["'u000003f1'", "'u000007e2'"]
    assert literals("long", np.array([1]), beside=1) == ["1010"]
    assert literals("timestamp", np.array([0, 1])) == [
        "TIMESTAMP '2024-01-01 00:00:00'",
        "TIMESTAMP '2024-01-01 00:00:01.009000'",
    ]


def test_a_whole_run_survives_its_json(tmp_path: Path) -> None:
    run = measure_clustered(tmp_path / "warehouse", grid=STRINGS, sizes=[SMALL], trials=1)
    write_record(tmp_path / "clustered.json", run)

    assert run.failures == ()
    assert {cell.query for cell in run.cells} >= {"needle", "absent", "list", "range", "prefix", "both"}
    assert [(one.query, one.dropped) for one in run.regrets] == [("100 strings", 0), ("20,000 strings", 0)]
    assert all(len(one.planning_seconds) == len(one.scan_seconds) > 0 for one in run.regrets)
    assert not (tmp_path / "warehouse").exists()
    assert read_record(tmp_path / "clustered.json", ClusteredRun) == run


def test_a_cell_is_missed_where_few_row_groups_match_and_many_are_kept() -> None:
    cell = BurstCell("20,000 rows", "random", "long", 1, "needle", 100, 20, 22, 100, 0, 9, 900, 0.1)

    assert cell.is_selective
    assert not cell.is_missed
    assert replace(cell, kept=23).is_missed
    assert replace(cell, matching=0, kept=1).is_missed
    assert not replace(cell, matching=50, kept=100).is_missed
