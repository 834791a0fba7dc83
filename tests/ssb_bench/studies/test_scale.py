"""Simulated indexes are real ones: the planner finds the needle in them, and drops the rest."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import feather
from pyiceberg.io.pyarrow import PyArrowFileIO

from planner.view.index_view import IndexView
from puffin_index.formats.puffin import read_blob, read_footer
from puffin_index.storage.files import FileReader
from ssb_bench.data.layout import BenchError, Layout
from ssb_bench.spark_runs.bench import Bench
from ssb_bench.studies import scale
from ssb_bench.studies.scale import SCENARIOS, SEGMENT_ROW_GROUPS, measure, probe, simulate


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    return simulate(tmp_path_factory.mktemp("scale") / "segments", 3_000, different=1)


def test_linked_segments_are_whole_and_have_numbers_of_their_own(simulated: pa.Table) -> None:
    view = IndexView("simulated", simulated, PyArrowFileIO())

    assert view.row_group_count == 3 * SEGMENT_ROW_GROUPS
    assert len(view.segments) == 3
    assert len(set(view.paths)) == len(view.paths)
    location, size = view.segments[-1]
    with FileReader(PyArrowFileIO(), location, size) as reader:
        for blob in read_footer(reader).blobs:
            read_blob(reader, blob)


@pytest.fixture(scope="module")
def entries(simulated: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The file of the entries."""
    file = str(tmp_path_factory.mktemp("scale") / "entries.arrow")
    feather.write_feather(simulated, file)
    return file


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_planner_finds_the_needle_and_little_else(entries: str, scenario: str) -> None:
    probed, again = (probe(entries, scenario) for _ in range(2))

    assert (
        again.counts["first reads"] == probed.counts["first reads"] == probed.counts["reads"] >= again.counts["reads"]
    )
    assert probed.counts["kept"] <= 300
    assert len([name for name in probed.counts if name.endswith(" seconds")]) > 1


def test_a_lost_needle_is_a_failure(entries: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "NEEDLE_ROW_GROUP", dict.fromkeys(scale.NEEDLE, 999))

    with pytest.raises(BenchError, match="the matching row group was dropped"):
        probe(entries, "postings, equality")


@pytest.mark.nightly
def test_every_scenario_is_measured(tmp_path: Path) -> None:
    bench = Bench(Layout.of(tmp_path, 1))
    measure(bench, row_groups=(1_000,), repeats=1)

    assert sorted(step.name for step in bench.steps) == sorted(SCENARIOS)
    assert all(step.counts["first read bytes"] > 0 for step in bench.steps)
    assert bench.record("scale", "Scale").failures == []
    assert [*(bench.layout.root / "scale").iterdir()] == [], "segments are deleted again"


def test_a_merged_index_answers_as_the_single_ones_do_with_few_reads(entries: str, tmp_path: Path) -> None:
    not_merged = str(tmp_path / "entries.arrow")
    feather.write_feather(simulate(tmp_path / "index", 3_000, different=1, is_compacted=False), not_merged)
    # The first plan of each reads the directories, too.
    (_, single), (_, merged) = ([probe(index, "bloom, equality") for _ in range(2)] for index in (not_merged, entries))

    assert merged.counts["kept"] == single.counts["kept"]
    assert single.counts["reads"] == 3 * SEGMENT_ROW_GROUPS
    assert merged.counts["reads"] <= 4 * 3
