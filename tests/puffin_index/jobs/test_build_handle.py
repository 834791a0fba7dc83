"""Builds in the background of local processes: how they stand, how they end, how they are cancelled."""

import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from puffin_index import BuildHandle, BuildReport, IndexDefinition, TableIndex
from puffin_index.data.column_source import reading_of
from puffin_index.data.data_table import list_data_files
from puffin_index.errors import BuildError
from puffin_index.index_table.entries import find_missing
from puffin_index.index_table.status import read_lag
from puffin_index.index_table.table import read_entries, segments_folder
from puffin_index.jobs.build_job import ProgressListener, build
from puffin_index.jobs.engine import LocalEngine, write_in_background
from puffin_index.segments.segment import SegmentTask, write_segment
from tests.conftest import create_table


@pytest.fixture
def index(local_catalog: SqlCatalog) -> TableIndex:
    """Two data files without an index."""
    data = pa.table({"k": pa.array(range(2_000), pa.int64())})
    create_table(local_catalog, "t", data, 500).append(data)
    return TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bsi=["k"]))


def test_a_cancel_before_the_first_segment_is_not_lost(index: TableIndex) -> None:
    engine = LocalEngine(1)
    engine.cancel()

    def run(listener: ProgressListener) -> BuildReport:
        return build(index.data_table, index.index_table, index.columns, engine, listener)

    handle = BuildHandle(run, engine.cancel)
    handle.cancel()
    handle.join()

    assert handle.status() == "cancelled"
    with pytest.raises(BuildError, match="was cancelled"):
        handle.wait()
    assert index.build(workers=1).files == 2


def test_a_failure_is_told_with_its_cause(index: TableIndex) -> None:
    def run(_: ProgressListener) -> BuildReport:
        raise OSError("disk full")

    handle = BuildHandle(run, lambda: None)
    handle.join()

    assert handle.status() == "failed"
    with pytest.raises(BuildError, match="disk full") as failure:
        handle.wait()
    assert isinstance(failure.value.__cause__, OSError)
    assert index.status().indexed_data_files == 0


def test_a_task_that_is_run_again_writes_a_segment_of_its_own_also_at_low_priority(index: TableIndex) -> None:
    """Spark does so when an executor is lost, whose half-written file stays, and with a slow task while it runs."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    missing = find_missing(list_data_files(index.data_table), index.columns, read_entries(index.index_table), 1)
    batch = missing.batches[0]
    folder = segments_folder(index.index_table)
    task = SegmentTask(
        batch.files, batch.columns, index.data_table.io, index.index_table.io, folder, reading_of(index.data_table)
    )

    first, second = write_segment(task), write_in_background(task)

    assert os.getpriority(os.PRIO_PROCESS, 0) == before
    assert first.location != second.location
    contents = [Path(one.location.removeprefix("file://")).read_bytes() for one in (first, second)]
    assert contents[0] == contents[1]
    for one in (first, second):
        assert [covered.file for covered in one.covered] == list(batch.files)
        assert len(contents[0]) == one.size


def test_a_build_that_stays_in_the_background_finishes(index: TableIndex) -> None:
    report = build(index.data_table, index.index_table, index.columns, LocalEngine(1, in_background=True))

    assert (report.files, report.skipped) == (2, ())
    assert not read_lag(index.data_table, index.index_table, index.columns).files


def test_a_build_without_refresh_indexes_what_the_index_knows(index: TableIndex, local_catalog: SqlCatalog) -> None:
    index.build_async(workers=1).wait()
    index.refresh()
    known = index.data_table.current_snapshot()
    TableIndex.open(local_catalog, index.name).data_table.append(index.data_table.scan(limit=10).to_arrow())

    assert index.build_async(workers=1, refresh=False).wait().files == 0
    assert index.build_async(workers=1).wait().files == 1
    assert index.data_table.current_snapshot() == known, "the build has tables of its own"


def test_one_worker_does_seconds_of_work_in_one_task(index: TableIndex) -> None:
    entries, columns = read_entries(index.index_table), index.columns
    files = [replace(file, record_count=1_500_000) for file in list_data_files(index.data_table)]

    assert len(find_missing(files, columns, entries, 1).batches) == 1
    assert len(find_missing(files, columns, entries, 2).batches) == 2
