"""`puffin-index build --watch` as a process of its own, as a supervisor runs it."""

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from puffin_index import IndexDefinition, TableIndex
from puffin_index.index_table.table import read_entries, segments_folder
from puffin_index.jobs.compact import FEWEST_SMALL
from tests.conftest import create_table
from tests.processes import run_python
from tests.shell import PROGRAM, catalog_options

DEADLINE_SECONDS = 60.0


def rows(count: int) -> pa.Table:
    return pa.table({"k": pa.array(range(count), pa.int64()), "name": [f"n{i % 9}" for i in range(count)]})


class Service:
    """A running watch, which writes its reports (JSON lines) and its log into files."""

    def __init__(self, folder: Path) -> None:
        command = [*PROGRAM, "build", "local.ns.t", "--json", *catalog_options(folder)]
        command += ["--engine", "local", "--workers", "1", "--watch", "--interval", "0.2"]
        self._output, self._log = folder / "watch.output", folder / "watch.log"
        with self._output.open("w") as output, self._log.open("w") as log:
            self.process = subprocess.Popen(command, stdout=output, stderr=log)

    @property
    def log(self) -> list[str]:
        return self._log.read_text().splitlines()

    def wait_for_log(self, text: str) -> None:
        self._wait_until(lambda: any(text in line for line in self.log))

    def reports(self, count: int) -> list[dict[str, object]]:
        self._wait_until(lambda: self._output.read_text().count("\n") >= count)
        whole_lines, _, _ = self._output.read_text().rpartition("\n")
        return [json.loads(line) for line in whole_lines.splitlines()]

    def _wait_until(self, is_met: Callable[[], bool]) -> None:
        end = time.monotonic() + DEADLINE_SECONDS
        is_over = False
        while not is_met():
            assert not is_over, self._log.read_text()
            # What the process wrote last is looked at once more.
            is_over = self.process.poll() is not None or time.monotonic() > end
            time.sleep(0.05)

    def stop(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_SECONDS)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def table(local_catalog: SqlCatalog) -> Table:
    return create_table(local_catalog, "t", rows(1000), 250)


@pytest.fixture
def service(local_catalog: SqlCatalog, table: Table, tmp_path: Path) -> Iterator[Service]:
    assert table.name() == ("ns", "t")
    TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bsi=["k"], bitmap=["name"]))
    with closing(Service(tmp_path)) as running:
        yield running


def test_new_snapshots_are_indexed_until_sigterm(service: Service, local_catalog: SqlCatalog, table: Table) -> None:
    assert [report["files"] for report in service.reports(1)] == [1]
    table.append(rows(500))
    assert [(report["files"], report["rows"]) for report in service.reports(2)] == [(1, 1000), (1, 500)]

    assert service.stop(signal.SIGTERM) == 0

    status = TableIndex.open(local_catalog, "ns.t").status()
    assert (status.data_files, status.indexed_data_files, status.snapshots_behind) == (2, 2, 0)
    lags = [line for line in service.log if " lag table=ns.t " in line]
    assert ["snapshots=1 files=1" in line for line in lags] == [True, True]
    assert "watch stopped" in service.log[-1]


@pytest.mark.nightly
def test_a_table_that_vanishes_is_followed_when_back(service: Service, local_catalog: SqlCatalog, table: Table) -> None:
    service.reports(1)
    local_catalog.drop_table("ns.t")
    service.wait_for_log("pass failed attempt=1")
    again = create_table(local_catalog, "t", rows(300), 100)
    again.transaction().set_properties({"file-index.bsi.columns": "k"}).commit_transaction()

    assert [report["rows"] for report in service.reports(2)] == [1000, 300]
    assert service.stop(signal.SIGINT) == 0
    delays = [float(line.split("retry_in_seconds=")[1].split()[0]) for line in service.log if "pass failed" in line]
    assert delays == sorted(delays)
    assert table.metadata.table_uuid != again.metadata.table_uuid


@pytest.mark.nightly
def test_a_failed_build_is_one_line_and_passes_go_on(service: Service, local_catalog: SqlCatalog, table: Table) -> None:
    service.reports(1)
    index_table = TableIndex.open(local_catalog, "ns.t").index_table
    folder = Path(segments_folder(index_table).removeprefix("file://"))
    away = folder.rename(folder.with_name("away"))
    folder.write_text("a file in the place of the folder")
    table.append(rows(500))
    service.wait_for_log("pass failed attempt=1")
    folder.unlink()
    away.rename(folder)

    assert [report["rows"] for report in service.reports(2)] == [1000, 500]
    assert service.stop(signal.SIGTERM) == 0
    failures = [line for line in service.log if "WARNING" in line]
    assert all("pass failed" in line and ".puffin cannot be written: " in line for line in failures), failures


def test_it_makes_the_index_of_a_table_that_has_only_properties(table: Table, tmp_path: Path) -> None:
    table.transaction().set_properties({"file-index.bitmap.columns": "name,nope"}).commit_transaction()
    with closing(Service(tmp_path)) as running:
        report = running.reports(1)[0]
        assert report["files"] == 1
        warnings = report["warnings"]
        assert isinstance(warnings, list)
        assert "there is no column 'nope'" in warnings[0]
        running.wait_for_log("build finished table=ns.t files=1")
        assert running.stop(signal.SIGTERM) == 0


@pytest.mark.usefixtures("table")
def test_a_table_without_any_definition_is_an_error_at_once(tmp_path: Path) -> None:
    with closing(Service(tmp_path)) as running:
        assert running.process.wait(DEADLINE_SECONDS) == 1
    assert "run `puffin-index create` first" in "\n".join(running.log)


@pytest.mark.nightly
def test_a_stop_in_the_middle_of_a_build_leaves_only_whole_segments(local_catalog: SqlCatalog, tmp_path: Path) -> None:
    table = create_table(local_catalog, "t", rows(200_000), 50_000)
    for _ in range(5):
        table.append(rows(200_000))
    TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bsi=["k"], bitmap=["k", "name"]))
    with closing(Service(tmp_path)) as running:
        running.wait_for_log("build started")
        time.sleep(0.05)  # anywhere in the build; the facts below hold wherever it is
        assert running.stop(signal.SIGTERM) == 0

    index = TableIndex.open(local_catalog, "ns.t")
    segments = set(read_entries(index.index_table)["segment"].to_pylist())
    assert all(Path(segment.removeprefix("file://")).exists() for segment in segments)
    index.build(workers=1)
    assert index.status().indexed_data_files == 6


@pytest.mark.nightly
def test_a_file_that_fails_for_a_while_is_tried_again(local_catalog: SqlCatalog, table: Table, tmp_path: Path) -> None:
    TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bsi=["k"]))
    table.append(rows(300))
    path = Path(table.inspect.files()["file_path"][0].as_py().removeprefix("file://"))
    away = path.rename(path.with_suffix(".away"))
    with closing(Service(tmp_path)) as running:
        first, second = running.reports(2)
        assert [len(one["skipped"]) for one in (first, second)] == [1, 1]
        assert (first["files"], second["files"]) == (1, 0)
        away.rename(path)
        running.wait_for_log("files=0 rows=0 segments=0")
        assert any(report["files"] == 1 for report in running.reports(3)[2:])
        assert running.stop(signal.SIGTERM) == 0
    status = TableIndex.open(local_catalog, "ns.t").status()
    assert status.indexed_data_files == status.data_files == 2


@pytest.mark.nightly
def test_many_small_segments_are_compacted_on_the_side(local_catalog: SqlCatalog, table: Table, tmp_path: Path) -> None:
    index = TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bsi=["k"], bitmap=["name"]))
    for count in range(FEWEST_SMALL - 1):
        index.build(workers=1)
        table.append(rows(10 + count))
    with closing(Service(tmp_path)) as running:
        running.wait_for_log("compacted table=ns.t")
        assert running.stop(signal.SIGTERM) == 0

    told = next(line for line in running.log if "compacted table" in line)
    assert f"segments_before={FEWEST_SMALL} segments_after=1" in told


_SIGNAL_WHILE_LOCKED = """
import os, signal
from planner.commands.build import _follow
from puffin_index.watch import Watch

class Interrupted(Watch):
    def run(self):
        with self._stopped._cond:
            os.kill(os.getpid(), signal.SIGTERM)
            for _ in range(1000):
                pass
        print("stopped", self._stopped.wait(20))

_follow(Interrupted(None, None, 1.0))
"""


def test_a_signal_that_comes_while_the_service_begins_to_rest_ends_it() -> None:
    """The handler runs in the thread that waits: it must not wait for a lock which that thread holds."""
    assert run_python(_SIGNAL_WHILE_LOCKED, seconds=DEADLINE_SECONDS).stdout == "stopped True\n"
