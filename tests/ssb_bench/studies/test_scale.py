"""Simulated indexes are real ones: the planner finds the needle in them, and drops the rest."""

from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from planner.prune.distributed import prune_row_groups
from planner.prune.gate import Limits
from planner.view.index_view import IndexView
from puffin_index.formats.puffin import read_blob, read_footer
from puffin_index.storage.files import FileReader
from ssb_bench.data.layout import Layout
from ssb_bench.spark_runs.bench import Bench
from ssb_bench.studies import scale
from ssb_bench.studies.scale import SCENARIOS, SEGMENT_ROW_GROUPS, Simulated, measure, probe, simulate


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

    assert probed.failure is None
    assert probed.counts["kept"] <= 0.1 * simulated.row_groups
    assert probed.counts["first reads"] >= probed.counts["reads"]
    assert len([name for name in probed.counts if name.endswith(" seconds")]) > 1


def test_without_a_needle_an_exact_index_keeps_nothing(simulated: Simulated) -> None:
    import numpy as np

    view = IndexView("simulated", simulated.entries, PyArrowFileIO())
    others = np.arange(SEGMENT_ROW_GROUPS, view.row_group_count)

    assert not prune_row_groups(view, SCENARIOS["postings, equality"], others, Limits(strict=True)).kept.any()


def test_a_lost_needle_is_a_failure(simulated: Simulated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "NEEDLE_ROW_GROUP", dict.fromkeys(scale.NEEDLE, 999))

    assert probe(simulated.entries, "postings, equality", 1).failure == "the matching row group was dropped"


@pytest.mark.nightly
def test_every_scenario_is_measured(tmp_path: Path) -> None:
    bench = Bench(Layout.of(tmp_path, 1))
    measure(bench, row_groups=(1_000,), repeats=1)

    assert [step.name for step in bench.steps] == [*SCENARIOS]
    assert all(step.counts["first read bytes"] > 0 for step in bench.steps)
    assert bench.record("scale", "Scale").failures == []
    assert [*(bench.layout.root / "scale").iterdir()] == [], "segments are deleted again"


def test_a_merged_index_answers_as_the_single_ones_do_with_few_reads(simulated: Simulated) -> None:
    single, merged = (probe(simulated.entries, name, 1) for name in ("bloom, equality", "merged bloom, equality"))

    assert merged.counts["kept"] == single.counts["kept"]
    assert single.counts["reads"] == simulated.row_groups
    assert merged.counts["reads"] <= 4 * (simulated.row_groups // SEGMENT_ROW_GROUPS)
