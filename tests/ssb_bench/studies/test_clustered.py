"""Keys in bursts on small tables: truth is that of the data files, and a row group that is dropped wrongly is found."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from puffin_index import TableIndex
from ssb_bench.data.layout import Layout
from ssb_bench.spark_runs.bench import Bench
from ssb_bench.spark_runs.session import open_catalog
from ssb_bench.studies.clustered import (
    BURSTS,
    FIRST_ROWS,
    Grid,
    Query,
    RowGroups,
    judge,
    make_table,
    measure,
    measure_cells,
)

ROWS = 500
SMALL = "500 rows"
GRID = Grid(8_000, 4_000, ["random"], ["long", "timestamp"])
STRINGS = Grid(2_000, 1_000, ["sorted"], ["string"])


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> TableIndex:
    return make_table(open_catalog(tmp_path_factory.mktemp("clustered")), SMALL, ROWS, GRID)


@pytest.fixture(scope="module")
def groups(index: TableIndex) -> RowGroups:
    return RowGroups.of(index.data_table)


def test_no_row_group_with_a_match_is_dropped(index: TableIndex, groups: RowGroups) -> None:
    troubles: list[str] = []
    steps = list(measure_cells(index, groups, SMALL, GRID, 1, troubles))
    bounds, kept = steps[::2], steps[1::2]

    assert troubles == []
    assert len(kept) == 2 * len(BURSTS) * 7
    assert {step.counts["row groups"] for step in steps} == {16}
    assert [step.title for step in steps if step.failure] == []
    assert all(one.counts["kept"] <= other.counts["kept"] for one, other in zip(kept, bounds, strict=True))
    assert {step.counts["matching"] for step in kept if step.name == "needle, random"} >= {2, 3}
    for step in kept:
        is_selective = 2 * step.counts["matching"] < 16
        assert step.most == ({"kept": 1.1 * step.counts["matching"]} if is_selective else {})


def test_a_row_group_that_is_dropped_wrongly_is_found(tmp_path: Path) -> None:
    """Data files that change behind the index's back stand for an index that is wrong."""
    index = make_table(open_catalog(tmp_path), SMALL, ROWS, STRINGS)
    for task in index.data_table.scan().plan_files():
        path = task.file.file_path.removeprefix("file://")
        rows = pq.read_table(path)
        pq.write_table(rows.take(np.arange(len(rows))[::-1]), path, row_group_size=ROWS)
    groups = RowGroups.of(index.data_table)

    steps = measure_cells(index, groups, SMALL, STRINGS, 1, [])
    assert {step.name for step in steps if step.failure} >= {"needle, sorted", "first, sorted"}


def test_first_rows_may_be_any_of_equal_ones_but_have_to_be_enough(groups: RowGroups) -> None:
    name = "random_long_500"
    rows = groups.read([name])
    query = Query(None, order_by=name)
    kept = np.zeros(len(groups.rows), np.bool_)

    assert judge(query, rows, kept) == (1, 1)
    kept[int(np.argmax(rows[name])) // ROWS] = True
    assert judge(query, rows, kept) == (1, 0)
    assert np.sum(np.asarray(rows[name]) == np.max(rows[name])) >= FIRST_ROWS, "the ten are equal: any may be kept"


def test_a_whole_study_leaves_nothing_but_its_record(tmp_path: Path) -> None:
    bench = Bench(Layout.of(tmp_path, 1))
    measure(bench, STRINGS, {SMALL: ROWS}, trials=1)

    assert bench.record("clustered", "Clustered").failures == []
    names = {step.name.partition(",")[0] for step in bench.steps}
    assert names >= {"needle", "absent", "list", "range", "prefix", "both", "first", "first of range"}
    planned = {step.name: step.counts["dropped"] for step in bench.steps if step.side == "planning"}
    assert planned == {"100 strings": 0, "20,000 strings": 0}
    assert bench.facts["row groups of 500 rows"]["row groups"] == 4
    assert not (bench.layout.root / "clustered").exists()
