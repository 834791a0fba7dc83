"""What a failed write, build or compaction has not committed is gone when it ends: a full disk does not stay full."""

import os
import resource
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO

from puffin_index import IndexDefinition, TableIndex
from puffin_index.errors import BuildError
from puffin_index.index_table.stored_files import committed_segments
from puffin_index.jobs.build_handle import BuildHandle
from puffin_index.jobs.build_job import build
from puffin_index.jobs.engine import LocalEngine
from puffin_index.storage.files import NewFile
from tests.conftest import create_table
from tests.processes import wait_for
from tests.puffin_index.indexed_table import check_entries, indexed, make_table, rows, segment_files
from tests.puffin_index.jobs.upkeep_child import ROOT
from tests.shell import PROGRAM, catalog_options

_DEADLINE_SECONDS = 60.0


def uncommitted(index: TableIndex) -> set[str]:
    index.refresh()
    return segment_files(index) - committed_segments(index.index_table)


def run_command(folder: Path, most_bytes: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `puffin-index` where no file can become larger than so many bytes, as on a disk that is full."""
    return subprocess.run(
        [*PROGRAM, *arguments, *catalog_options(folder)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes)),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def large(catalog: SqlCatalog, files: int) -> TableIndex:
    """A table whose segments take a while to write."""
    table = create_table(catalog, "t", rows(1, 200_000), 50_000)
    for seed in range(2, files + 1):
        table.append(rows(seed, 200_000))
    kinds = {"bitmap": ["k", "s"], "bsi": ["k"], "bloom": ["k", "s"]}
    return TableIndex.create(catalog, "ns.t", IndexDefinition.of(**kinds))


def build_in_pool(index: TableIndex) -> BuildHandle:
    """Build in a process of its own, though there is but one segment."""
    engine = LocalEngine(1, in_background=True)
    return BuildHandle(
        lambda listener: build(index.data_table, index.index_table, index.columns, engine, listener), engine.cancel
    )


def wait_for_file(index: TableIndex) -> None:
    assert wait_for(lambda: bool(segment_files(index)), _DEADLINE_SECONDS, pause=0.001)


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    location = (tmp_path / "file").as_uri()
    with ExitStack() as stack:
        stack.enter_context(pytest.raises(ZeroDivisionError))
        stack.enter_context(NewFile(PyArrowFileIO(), location)).write(b"half")
        raise ZeroDivisionError
    assert not (tmp_path / "file").exists()
    with NewFile(PyArrowFileIO(), location) as stream:
        stream.write(b"whole")
    assert (tmp_path / "file").read_bytes() == b"whole"
    with pytest.raises(OSError, match="cannot be written"):
        NewFile(PyArrowFileIO(), location)
    assert (tmp_path / "file").read_bytes() == b"whole"


@pytest.mark.one_of(2)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_full_disk_is_one_line_and_stays_no_fuller(local_catalog: SqlCatalog, tmp_path: Path, workers: int) -> None:
    index = indexed(local_catalog, 1)
    index.data_table.append(rows(7, 20_000))

    result = run_command(tmp_path, 30_000, "build", "local.ns.t", "--engine", "local", "--workers", str(workers))

    assert result.returncode == 1
    # A progress bar stands before it.
    assert "Traceback" not in result.stderr
    assert result.stderr.count("error:") == 1
    assert "File too large" in result.stderr.splitlines()[-1]
    assert "_segments/" in result.stderr.splitlines()[-1]
    assert uncommitted(index) == set()
    index.build(workers=1)
    check_entries(index)


@pytest.mark.nightly
def test_a_full_disk_is_one_line_of_create_and_nothing_is_left(local_catalog: SqlCatalog, tmp_path: Path) -> None:
    make_table(local_catalog)
    before = set(tmp_path.rglob("*"))

    result = run_command(tmp_path, 500, "create", "local.ns.t", "--bsi", "k")

    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert "File too large" in result.stderr
    assert set(tmp_path.rglob("*")) == before
    assert run_command(tmp_path, 10**8, "create", "local.ns.t", "--bsi", "k").returncode == 0


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path, local_catalog: SqlCatalog) -> None:
    local_catalog.create_namespace("sealed", {"location": (tmp_path / "sealed").as_uri()})
    local_catalog.create_table("sealed.t", rows(0).schema, location=(tmp_path / "elsewhere").as_uri())
    # No permission stops root, but nobody makes a file below a file.
    (tmp_path / "sealed").write_text("no folder")

    result = run_command(tmp_path, 10**8, "create", "local.sealed.t", "--bsi", "k")

    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert "sealed" in result.stderr


def test_a_build_that_is_cancelled_leaves_no_part_of_a_segment(local_catalog: SqlCatalog) -> None:
    index = large(local_catalog, 4)

    handle = build_in_pool(index)
    wait_for_file(index)
    handle.cancel()
    handle.join()

    assert handle.status() == "cancelled"
    assert uncommitted(index) == set()


@pytest.mark.skipif(sys.platform != "linux", reason="finds the workers in /proc")
def test_a_build_whose_worker_is_killed_leaves_no_part_of_a_segment(local_catalog: SqlCatalog) -> None:
    index = large(local_catalog, 4)

    handle = build_in_pool(index)
    wait_for_file(index)
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            is_worker = b"loky.backend.popen_loky" in (path / "cmdline").read_bytes()
        except OSError:
            continue
        if parent == os.getpid() and is_worker:
            os.kill(int(path.name), signal.SIGKILL)

    with pytest.raises(BuildError):
        handle.wait(_DEADLINE_SECONDS)
    assert uncommitted(index) == set()


def test_an_index_that_is_dropped_in_the_midst_of_a_build_gets_no_leftovers(local_catalog: SqlCatalog) -> None:
    index = large(local_catalog, 2)
    folder = Path(index.index_table.location().removeprefix("file://"))

    handle = index.build_async(workers=1)
    wait_for_file(index)
    TableIndex.open(local_catalog, "ns.t").drop()

    with pytest.raises(BuildError):
        handle.wait(_DEADLINE_SECONDS)
    assert not list(folder.rglob("*.puffin"))
