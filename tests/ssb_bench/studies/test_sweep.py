"""The sweep on small tables: the planner never keeps too few, and keeps about what theory says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssb_bench.data.records import read_record, write_record
from ssb_bench.studies.sweep import (
    Grid,
    Sweep,
    SweepPoint,
    draw_where,
    make_columns,
    run_sweep,
    theory,
    where_text,
)

GRID = Grid(
    rows=40_000,
    clusterings=("sorted", "random"),
    row_group_rows=(2_000,),
    selectivities=(1e-4, 0.5),
    predicates=(1, 2),
    file_rows=10_000,
)


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> list[SweepPoint]:
    return run_sweep(tmp_path_factory.mktemp("sweep") / "warehouse", GRID)


def test_every_point_of_the_grid_is_there(points: list[SweepPoint]) -> None:
    assert len(points) == 2 * 1 * 2 * 2
    assert {point.row_groups for point in points} == {20}


def test_no_row_group_with_a_match_is_missing(points: list[SweepPoint]) -> None:
    assert all(point.holding <= point.kept <= 1 for point in points)


def test_sorted_rows_need_fewer_row_groups_than_theory_says_for_unsorted_ones(points: list[SweepPoint]) -> None:
    (ordered,) = [p for p in points if p.clustering == "sorted" and p.predicates == 1 and p.selectivity == 0.5]

    assert ordered.kept < 0.7 < ordered.theory


def test_a_sweep_survives_its_json(points: list[SweepPoint], tmp_path: Path) -> None:
    sweep = Sweep(GRID.rows, {"cores": 2}, tuple(points))
    write_record(tmp_path / "sweep.json", sweep)

    assert read_record(tmp_path / "sweep.json", Sweep) == sweep


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.sampled_from([1e-6, 1e-3, 0.1, 1.0]))
def test_ranges_have_the_selectivity_that_was_asked_for(seed: int, predicates: int, selectivity: float) -> None:
    where = draw_where(np.random.default_rng(seed), predicates, selectivity)

    share = np.prod([(high - low) / 2**31 for low, high in where])
    assert len(where) == predicates
    assert all(0 <= low < high <= 2**31 for low, high in where)
    assert share == pytest.approx(selectivity, rel=0.01)
    assert where_text(where).count(" >= ") == predicates


def test_theory_is_exact_where_powers_would_round() -> None:
    assert theory(1e-12, 1) == pytest.approx(1e-12)
    assert theory(0.5, 1) == 0.5
    assert theory(0.1, 10**6) == 1


def test_half_sorted_rows_are_the_sorted_ones_in_another_order() -> None:
    half, whole = make_columns("half-sorted", 1_000)[0], make_columns("sorted", 1_000)[0]

    assert np.array_equal(np.sort(half), whole)
    assert np.array_equal(half[1::2], whole[1::2])
    assert not np.array_equal(half, whole)
