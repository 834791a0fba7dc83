"""A service whose build takes long: new data files do not wait for it, and nothing is lost, however it ends."""

import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from puffin_index import BuildHandle, BuildReport, IndexDefinition, TableIndex
from puffin_index.errors import BuildError
from puffin_index.index_table.status import BuildScope
from puffin_index.jobs.build_job import ProgressListener
from puffin_index.watch import LONG_BUILD_SECONDS, Watch
from tests.conftest import create_table
from tests.processes import wait_for

DEADLINE_SECONDS = 60.0


def rows(count: int) -> pa.Table:
    return pa.table({"k": pa.array(range(count), pa.int64())})


class Service:
    """A watch in a thread, whose builds wait for `go_on` if the whole table is in their scope."""

    def __init__(self, catalog: SqlCatalog) -> None:
        self.go_on, self.is_cancelled = threading.Event(), threading.Event()
        self.reports: list[BuildReport] = []
        self.error: Exception | None = None
        self.watch = Watch(lambda: TableIndex.open(catalog, "ns.t"), self._start, 0.1, on_report=self.reports.append)
        self._thread = threading.Thread(target=self.watch.run)
        self._thread.start()

    def _start(self, index: TableIndex, scope: BuildScope) -> BuildHandle:
        def run(_: ProgressListener) -> BuildReport:
            if not scope.without:
                self.go_on.wait(DEADLINE_SECONDS)
                if self.error is not None:
                    raise self.error
                if self.is_cancelled.is_set():
                    raise BuildError("the build was cancelled")
            return TableIndex.open(index.catalog, index.name).build(workers=1, scope=scope)

        return BuildHandle(run, self._cancel)

    def _cancel(self) -> None:
        self.is_cancelled.set()
        self.go_on.set()

    def wait_for_reports(self, count: int) -> None:
        assert wait_for(lambda: len(self.reports) >= count, DEADLINE_SECONDS), self.reports

    def stop(self) -> None:
        self.watch.stop()
        self._thread.join(DEADLINE_SECONDS)
        assert not self._thread.is_alive()


@pytest.fixture
def index(local_catalog: SqlCatalog) -> TableIndex:
    create_table(local_catalog, "t", rows(1000), 250)
    return TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bsi=["k"]))


@pytest.fixture
def service(local_catalog: SqlCatalog, index: TableIndex) -> Iterator[Service]:
    assert index.status().indexed_data_files == 0
    running = Service(local_catalog)
    # The build of the first file is long before the table gets more.
    time.sleep(LONG_BUILD_SECONDS + 1)
    try:
        yield running
    finally:
        running.stop()


def test_new_files_are_indexed_while_a_build_takes_long(service: Service, index: TableIndex) -> None:
    for number in (1, 2):
        index.data_table.append(rows(100 * number))
        service.wait_for_reports(number)
    assert index.status().indexed_data_files == 2, "not the first of three"

    service.go_on.set()
    service.wait_for_reports(3)

    assert [report.rows for report in service.reports] == [100, 200, 1000]
    assert (status := index.status()).indexed_data_files == status.data_files == 3


def test_what_a_long_build_fails_at_is_tried_again(
    service: Service, index: TableIndex, caplog: pytest.LogCaptureFixture
) -> None:
    service.error = OSError("the store is away")
    service.go_on.set()
    assert wait_for(lambda: "pass failed attempt=1" in caplog.text, DEADLINE_SECONDS)
    service.error = None
    service.wait_for_reports(1)

    assert "the store is away" in caplog.text
    assert [report.rows for report in service.reports] == [1000]
    assert index.status().indexed_data_files == 1


def test_a_stop_ends_a_long_build(service: Service, index: TableIndex) -> None:
    service.stop()

    assert service.is_cancelled.is_set()
    assert (service.reports, index.status().indexed_data_files) == ([], 0)


def test_a_table_that_has_only_what_is_being_indexed_costs_no_build(service: Service, index: TableIndex) -> None:
    time.sleep(1)
    assert service.reports == []

    service.go_on.set()
    service.wait_for_reports(1)
    time.sleep(1)

    assert [report.rows for report in service.reports] == [1000]
    assert index.status().indexed_data_files == 1
