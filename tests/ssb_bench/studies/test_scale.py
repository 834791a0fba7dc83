"""Simulated indexes are real ones: the planner finds the needle in them, and drops the rest."""

from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from planner.prune.distributed import prune_row_groups
from planner.prune.gate import Limits
from planner.view.index_view import IndexView
from puffin_index.formats.puffin import read_blob, read_footer
from puffin_index.storage.files import FileReader
from ssb_bench.data.layout import read_record, write_record
from ssb_bench.results.studies import Probe, Scale, ScalePoint
from ssb_bench.studies.scale import SCENARIOS, SEGMENT_ROW_GROUPS, Simulated, measure_scale, probe, simulate


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    return simulate(tmp_path_factory.mktemp("scale") / "segments", 3_000, different=1)


def test_linked_segments_are_whole_and_have_numbers_of_their_own(simulated: Simulated) -> None:
    view = IndexView("simulated", simulated.entries, PyArrowFileIO())

    assert simulated.row_groups == view.row_group_count == 3 * SEGMENT_ROW_GROUPS
    assert len(view.segments) == 3
    assert len(set(view.paths)) == len(view.paths)
    location, size = view.segments[-1]
    with FileReader(PyArrowFileIO(), location, size) as reader:
        for blob in read_footer(reader).blobs:
            read_blob(reader, blob)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_planner_finds_the_needle_and_little_else(simulated: Simulated, scenario: str) -> None:
    probed = probe(simulated.entries, scenario, 1)

    assert probed.needle_kept
    assert probed.kept <= 0.1 * simulated.row_groups
    assert probed.cold_requests >= probed.warm_requests
    assert probed.stage_seconds


def test_without_a_needle_an_exact_index_keeps_nothing(simulated: Simulated) -> None:
    import numpy as np

    view = IndexView("simulated", simulated.entries, PyArrowFileIO())
    others = np.arange(SEGMENT_ROW_GROUPS, view.row_group_count)

    assert not prune_row_groups(view, SCENARIOS["postings, equality"], others, Limits(strict=True)).kept.any()


def test_a_lost_needle_and_a_failed_probe_are_failures() -> None:
    found = Probe(0.1, 0.1, (0.1,), 1, 1, 1, 1, 1, True, 1, {})
    good = ScalePoint("bloom", 1000, 1, found, None)
    lost = replace(good, probe=replace(found, needle_kept=False))
    broken = replace(good, probe=None, failure="out of memory")

    assert len(Scale({}, (good, lost, broken)).failures) == 2


@pytest.mark.nightly
def test_a_measurement_survives_its_json(tmp_path: Path) -> None:
    path, scale = tmp_path / "scale.json", measure_scale(tmp_path / "scratch", [1_000], repeats=1)

    assert [point.scenario for point in scale.points] == [*SCENARIOS]
    assert all(point.probe is not None and point.probe.cold_bytes > 0 for point in scale.points)
    assert scale.failures == []
    write_record(path, scale)
    assert read_record(path, Scale) == scale
    assert [*(tmp_path / "scratch").iterdir()] == [], "segments are deleted again"


def test_a_merged_index_answers_as_the_single_ones_do_with_few_reads(simulated: Simulated) -> None:
    single, merged = (probe(simulated.entries, name, 1) for name in ("bloom, equality", "merged bloom, equality"))

    assert merged.kept == single.kept
    assert single.warm_requests == simulated.row_groups
    assert merged.warm_requests <= 4 * (simulated.row_groups // SEGMENT_ROW_GROUPS)
