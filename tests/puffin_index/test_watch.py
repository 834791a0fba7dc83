"""A service whose build or upkeep takes long: new data files do not wait, and nothing is lost, however it ends."""

import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from puffin_index import BuildHandle, BuildReport, IndexDefinition, TableIndex
from puffin_index.data.data_table import list_data_files
from puffin_index.errors import BuildError, NotFoundError
from puffin_index.index_table.entries import TARGET_SEGMENT_BYTES
from puffin_index.index_table.status import BuildScope
from puffin_index.jobs.build_job import ProgressListener
from puffin_index.jobs.compact import CompactReport
from puffin_index.watch import LONG_BUILD_SECONDS, Watch
from tests.conftest import create_table
from tests.processes import wait_for

DEADLINE_SECONDS = 60.0


def rows(count: int) -> pa.Table:
    return pa.table({"k": pa.array(range(count), pa.int64())})


def path_of_first(index: TableIndex) -> str:
    return list_data_files(index.data_table)[0].path


def delete(*paths: str) -> None:
    for path in paths:
        Path(path.removeprefix("file://")).unlink()


@contextmanager
def in_a_thread(watch: Watch) -> Iterator[None]:
    """Run a watch until the block ends, and raise the error that ended it before, if any."""
    with ThreadPoolExecutor(1) as threads:
        ended = threads.submit(watch.run)
        try:
            yield
        finally:
            watch.stop()
        ended.result()


class Service:
    """A watch in a thread.

    Builds of the table's first data file wait for `go_on`; compaction waits for `may_compact`.
    """

    def __init__(self, catalog: SqlCatalog, first: str) -> None:
        self.go_on, self.is_cancelled = threading.Event(), threading.Event()
        self.compacts, self.may_compact = threading.Event(), threading.Event()
        self.reports: list[BuildReport] = []
        self.error: Exception | None = None
        self.error_of_compaction: Exception | None = None
        self._catalog = catalog
        self._first = first
        self.watch = Watch(self._open, self._start, 0.1, on_report=self.reports.append)
        self._run: Future[None] | None = ThreadPoolExecutor(1).submit(self.watch.run)

    def _open(self) -> TableIndex:
        service = self

        class SlowIndex(TableIndex):
            def compact_if_due(
                self, target_bytes: int = TARGET_SEGMENT_BYTES, *, fewest: int = 3
            ) -> CompactReport | None:
                service.compacts.set()
                service.may_compact.wait(DEADLINE_SECONDS)
                if service.error_of_compaction is not None:
                    raise service.error_of_compaction
                return super().compact_if_due(target_bytes, fewest=fewest)

        return SlowIndex.open(self._catalog, "ns.t")

    def _start(self, index: TableIndex, scope: BuildScope) -> BuildHandle:
        def run(_: ProgressListener) -> BuildReport:
            if self._first not in scope.without:
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

    def wait_for_compaction(self) -> None:
        assert self.compacts.wait(DEADLINE_SECONDS)

    def stop(self) -> None:
        """Stop the watch, and raise once what ended it before."""
        self.watch.stop()
        self.may_compact.set()
        run, self._run = self._run, None
        if run is not None:
            run.result(DEADLINE_SECONDS)

    def has_ended(self) -> bool:
        return self._run is None or self._run.done()


@pytest.fixture
def index(local_catalog: SqlCatalog) -> TableIndex:
    create_table(local_catalog, "t", rows(1000), 250)
    return TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bsi=["k"]))


@pytest.fixture
def service(local_catalog: SqlCatalog, index: TableIndex) -> Iterator[Service]:
    assert index.status().indexed_data_files == 0
    running = Service(local_catalog, path_of_first(index))
    # The build of the first file is long before the table gets more.
    time.sleep(LONG_BUILD_SECONDS + 1)
    running.may_compact.set()
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture
def compacting(local_catalog: SqlCatalog, index: TableIndex) -> Iterator[Service]:
    """A service that begins to compact, three segments or more, and waits for `may_compact`."""
    index.build(workers=1)
    running = Service(local_catalog, path_of_first(index))
    running.wait_for_compaction()
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


def test_new_files_do_not_wait_for_a_large_one_that_came_with_them(
    local_catalog: SqlCatalog, index: TableIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first,) = list_data_files(index.data_table)
    monkeypatch.setattr("puffin_index.watch.LARGE_FILE_BYTES", first.file_size)
    index.data_table.append(rows(10))
    service = Service(local_catalog, first.path)
    try:
        service.wait_for_reports(1)
        index.data_table.refresh().append(rows(20))
        service.wait_for_reports(2)
        assert index.status().indexed_data_files == 2, "not the large one"
        service.go_on.set()
        service.wait_for_reports(3)
    finally:
        service.stop()

    assert [report.rows for report in service.reports] == [10, 20, 1000]
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


def test_new_files_are_indexed_while_compaction_takes_long(compacting: Service, index: TableIndex) -> None:
    for number in (1, 2):
        index.data_table.append(rows(100 * number))
        compacting.go_on.set()
        compacting.wait_for_reports(number)
    assert (status := index.status()).indexed_data_files == status.data_files == 3
    assert status.segments == 3

    compacting.may_compact.set()

    assert wait_for(lambda: index.status().segments == 1, DEADLINE_SECONDS)
    assert not index.verify(None).findings
    assert index.status().indexed_data_files == 3


def test_compaction_that_fails_is_tried_again(
    compacting: Service, index: TableIndex, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    compacting.go_on.set()
    compacting.error_of_compaction = OSError("the store is away")
    compacting.may_compact.set()
    assert wait_for(lambda: "pass failed attempt=1" in caplog.text, DEADLINE_SECONDS)
    compacting.error_of_compaction = None
    for number in (1, 2):
        index.data_table.append(rows(100 * number))
        compacting.wait_for_reports(number)

    assert wait_for(lambda: "compacted table=ns.t segments_before=3 segments_after=1" in caplog.text, DEADLINE_SECONDS)
    assert "the store is away" in caplog.text


def test_an_error_of_compaction_that_does_not_pass_ends_the_service(compacting: Service) -> None:
    compacting.error_of_compaction = TypeError("a mistake of ours")
    compacting.may_compact.set()

    assert wait_for(compacting.has_ended, DEADLINE_SECONDS)
    with pytest.raises(TypeError, match="a mistake of ours"):
        compacting.stop()


def test_a_stop_waits_for_compaction_and_tells_its_error(compacting: Service, caplog: pytest.LogCaptureFixture) -> None:
    compacting.error_of_compaction = OSError("the store is away")
    compacting.stop()

    assert "stopped after an error of upkeep" in caplog.text
    assert "the store is away" in caplog.text


def test_expiry_goes_on_beside_passes(
    compacting: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("puffin_index.watch.EXPIRE_EVERY_SECONDS", 0.2)
    compacting.may_compact.set()

    assert wait_for(lambda: caplog.text.count("expired table=ns.t") > 1, DEADLINE_SECONDS)


def test_an_index_that_is_dropped_and_defined_again_is_built_again(
    local_catalog: SqlCatalog, index: TableIndex
) -> None:
    definition = IndexDefinition.of(bsi=["k"])
    index.build(workers=1)
    watch = Watch(
        lambda: TableIndex.create(local_catalog, "ns.t", definition),
        lambda found, scope: found.build_async(workers=1, scope=scope),
        0.05,
        upkeep=False,
    )
    with in_a_thread(watch):
        time.sleep(1)
        index.drop()
        assert wait_for(lambda: is_indexed(local_catalog), DEADLINE_SECONDS)


def is_indexed(catalog: SqlCatalog) -> bool:
    try:
        return TableIndex.open(catalog, "ns.t").status().indexed_data_files == 1
    except NotFoundError:
        return False


def test_files_behind_unreadable_ones_are_indexed(local_catalog: SqlCatalog, index: TableIndex) -> None:
    for _ in range(3):
        index.data_table.append(rows(20))
    first, second = sorted(file.path for file in list_data_files(index.data_table.refresh()))[:2]
    delete(first, second)
    watch = Watch(
        lambda: TableIndex.open(local_catalog, "ns.t"),
        lambda found, scope: found.build_async(workers=1, scope=scope),
        0.01,
        scope=BuildScope(max_files=1),
        upkeep=False,
    )
    with in_a_thread(watch):
        assert wait_for(lambda: index.status().indexed_data_files == 2, DEADLINE_SECONDS)


def test_builds_of_large_files_leave_given_up_ones_out(
    local_catalog: SqlCatalog, index: TableIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.data_table.append(rows(1000))
    large = list_data_files(index.data_table)
    monkeypatch.setattr("puffin_index.watch.LARGE_FILE_BYTES", min(file.file_size for file in large))
    for _ in range(3):
        index.data_table.append(rows(20))
    files = {file.path for file in list_data_files(index.data_table)}
    first, second, third = sorted(files.difference(file.path for file in large))
    delete(first, second)
    is_given_up, builds_of_large = threading.Event(), list[tuple[BuildScope, BuildHandle]]()

    def start(found: TableIndex, scope: BuildScope) -> BuildHandle:
        def run(_: ProgressListener) -> BuildReport:
            is_given_up.wait(DEADLINE_SECONDS)
            return TableIndex.open(local_catalog, "ns.t").build(workers=1, scope=scope)

        if third in scope.without:
            handle = BuildHandle(run, is_given_up.set)
            builds_of_large.append((scope, handle))
            return handle
        if first in scope.without:
            # The next pass sees that the first build of a large file has ended.
            is_given_up.set()
            builds_of_large[0][1].wait()
        return found.build_async(workers=1, scope=scope)

    watch = Watch(
        lambda: TableIndex.open(local_catalog, "ns.t"), start, 0.01, scope=BuildScope(max_files=1), upkeep=False
    )
    with in_a_thread(watch):
        assert wait_for(lambda: index.status().indexed_data_files == 3, DEADLINE_SECONDS)

    assert [scope.without >= {first, second, third} for scope, _ in builds_of_large] == [True, True]
