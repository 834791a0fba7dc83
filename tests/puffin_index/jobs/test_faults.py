"""A full disk, a store that fails, a catalog that refuses: answers stay right, and the next run finishes."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import AddSnapshotUpdate
from sqlalchemy.exc import OperationalError

from puffin_index import IndexDefinition, TableIndex
from puffin_index.data.data_table import list_data_files
from puffin_index.index_table.commit import while_locked
from puffin_index.index_table.stored_files import committed_segments
from puffin_index.jobs import build_job
from puffin_index.jobs.build_job import BuildProgress
from tests.conftest import amount, catalog_in, create_table
from tests.puffin_index import faulty_io, indexed_table
from tests.puffin_index.jobs.upkeep_child import Child
from tests.shell import Shell

ACTIONS: dict[str, Callable[[TableIndex], object]] = {
    "build": lambda index: index.build(workers=1, commit_timeout_seconds=1.0),
    "compact": lambda index: index.compact(),
    "expire": lambda index: index.expire(timedelta(0)),
}


def prepared(catalog: SqlCatalog) -> TableIndex:
    """An index for which every action has something to do: files to build, to merge and to forget."""
    index = indexed_table.indexed(catalog, 2)
    make_work(index, 7)
    return index


def make_work(index: TableIndex, seed: int) -> None:
    index.data_table.refresh()
    index.data_table.append(indexed_table.rows(seed))
    index.build(workers=1)
    index.data_table.delete(f"b = {seed % 5}")
    indexed_table.forget_history(index)


@pytest.fixture
def faulty_catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    """The catalog of `local_catalog`, with a store that can give trouble."""
    with closing(catalog_in(tmp_path, **{"py-io-impl": faulty_io.IMPLEMENTATION})) as catalog:
        yield catalog
        faulty_io.set_fault(0)


@pytest.mark.one_of(2)
@pytest.mark.parametrize(("action", "most_bytes"), [("build", 9_000), ("compact", 3_000)])
def test_a_full_disk_leaves_no_halves(local_catalog: SqlCatalog, tmp_path: Path, action: str, most_bytes: int) -> None:
    index = prepared(local_catalog)

    code, errors = Child(tmp_path, action, most_bytes=most_bytes).wait(120)

    assert code == 1, errors
    assert "File too large" in errors or "disk" in errors
    index.refresh()
    assert indexed_table.segment_files(index) <= committed_segments(index.index_table)
    indexed_table.check_recovery(index)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("action", ACTIONS)
def test_a_failing_store_leaves_no_halves(local_catalog: SqlCatalog, faulty_catalog: SqlCatalog, action: str) -> None:
    index = prepared(local_catalog)
    faulty = TableIndex.open(faulty_catalog, "ns.t")
    faulty_io.set_fault(10**9)
    ACTIONS[action](faulty)
    requests = faulty_io.FAULT.seen
    indexed_table.check_recovery(index)

    for seed, share in enumerate((0.6, 0.3, 0.9)[: amount(1, 3)], 11):
        make_work(index, seed)
        faulty_io.set_fault(max(1, int(requests * share)))
        with pytest.raises(OSError, match="does not answer"):
            ACTIONS[action](faulty)
        index.refresh()
        assert indexed_table.segment_files(index) <= committed_segments(index.index_table)
        faulty_io.set_fault(0)
        indexed_table.check_recovery(index)


def test_segments_that_fail_cost_time_but_no_rows(local_catalog: SqlCatalog, faulty_catalog: SqlCatalog) -> None:
    index = indexed_table.indexed(local_catalog, 3)
    faulty = TableIndex.open(faulty_catalog, "ns.t")
    for request in range(1, 4):
        # A version that no planner has seen, so that segments are opened again.
        index.data_table.append(indexed_table.rows(20 + request))
        index.build(workers=1)
        faulty_io.set_fault(request, within="/_segments/")
        indexed_table.check_queries(faulty, strict=False)
        assert faulty_io.FAULT.seen >= request


@pytest.mark.one_of(5)
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("refusal", ["locked", "read-only"])
def test_a_refusing_catalog_loses_nothing(local_catalog: SqlCatalog, tmp_path: Path, action: str, refusal: str) -> None:
    index = prepared(local_catalog)
    database = tmp_path / "catalog.db"
    uri = {
        "locked": f"sqlite:///{database}?timeout=0.1",
        "read-only": f"sqlite:///file:{database}?mode=ro&uri=true",
    }[refusal]
    refusing = SqlCatalog("local", uri=uri, warehouse=tmp_path.as_uri(), init_catalog_tables="false")
    other = sqlite3.connect(database)
    if refusal == "locked":
        other.execute("BEGIN IMMEDIATE")

    with pytest.raises(OperationalError, match=r"locked|readonly"):
        ACTIONS[action](TableIndex.open(refusing, "ns.t"))
    assert indexed_table.segment_files(index) <= committed_segments(index.index_table)

    other.close()
    refusing.close()
    indexed_table.check_recovery(index)


@contextmanager
def locked(folder: Path, lock: Literal["IMMEDIATE", "EXCLUSIVE"] = "IMMEDIATE") -> Iterator[None]:
    """Lock the catalog of a folder: for those who write to it, or for all. Any thread may end that."""
    connection = sqlite3.connect(folder / "catalog.db", check_same_thread=False, isolation_level=None)
    connection.execute(f"BEGIN {lock}")
    try:
        yield
    finally:
        connection.close()


@pytest.fixture
def impatient_index(local_catalog: SqlCatalog, tmp_path: Path) -> Iterator[TableIndex]:
    """An index and a data file that it lacks. SQLite itself waits for 5 seconds otherwise."""
    indexed_table.indexed(local_catalog, 2).data_table.append(indexed_table.rows(9))
    with closing(catalog_in(tmp_path, "?timeout=0.05")) as catalog:
        yield TableIndex.open(catalog, "ns.t")


def test_a_build_waits_for_a_locked_catalog(impatient_index: TableIndex, tmp_path: Path) -> None:
    with ExitStack() as lock:
        indexed_table.check_a_build_waits(
            impatient_index, lambda: lock.enter_context(locked(tmp_path, "EXCLUSIVE")), lock.close
        )
    indexed_table.check_index(impatient_index)


def test_a_catalog_that_stays_locked_is_named_after_a_while(impatient_index: TableIndex, tmp_path: Path) -> None:
    calls = []

    def refresh() -> None:
        calls.append(1)
        impatient_index.data_table.refresh()

    with locked(tmp_path, "EXCLUSIVE"), pytest.raises(OperationalError, match="locked"):
        while_locked(refresh, seconds=0.5)
    assert len(calls) > 2

    while_locked(refresh)
    failures = [ValueError("no database"), OperationalError("SELECT", {}, sqlite3.OperationalError("no such table"))]
    for failure in failures:
        with pytest.raises(type(failure)):
            while_locked(lambda failure=failure: (_ for _ in ()).throw(failure))


def test_a_locked_catalog_is_waited_for(
    local_catalog: SqlCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_job, "COMMIT_INTERVAL_SECONDS", 0.0)
    indexed_table.indexed(local_catalog, 1)
    impatient = catalog_in(tmp_path, "?timeout=0.05")
    index = TableIndex.open(impatient, "ns.t")
    # Files with different needs are in segments of their own, so this build has several commits.
    index.remove_kinds(IndexDefinition.of(bsi=["k"]))
    index.build(workers=1)
    index.add_kinds(IndexDefinition.of(bsi=["k"]))
    index.data_table.append(indexed_table.rows(10))
    before = indexed_table.named_segments(index)
    with ExitStack() as lock:

        def lock_at_the_start(progress: BuildProgress) -> None:
            if not progress.files_done:
                lock.enter_context(locked(tmp_path))

        with pytest.raises(OperationalError, match="locked"):
            index.build(workers=1, progress=lock_at_the_start, commit_timeout_seconds=0.1)

    assert indexed_table.named_segments(index) == before
    assert index.build(workers=1).segments == 2
    impatient.close()
    indexed_table.check_recovery(index)


def test_the_command_waits_as_long_as_told(local_catalog: SqlCatalog, tmp_path: Path) -> None:
    index = prepared(local_catalog)
    index.data_table.append(indexed_table.rows(10))
    shell = Shell(tmp_path, uri_ending="?timeout=0.05")
    with locked(tmp_path):
        result = shell("build", "--engine", "local", "--workers", "1", "--commit-timeout", "0.2")
    assert result.exit_code == 1
    assert "locked" in result.output
    indexed_table.check_recovery(index)


def test_a_commit_of_which_nobody_knows_the_outcome_is_not_undone(
    local_catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = indexed_table.indexed(local_catalog, 1)
    index.data_table.append(indexed_table.rows(1))
    index.refresh()
    commit, lost = local_catalog.commit_table, []

    def answer_once_no_more(table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        response = commit(table, requirements, updates)
        if not lost and any(isinstance(update, AddSnapshotUpdate) for update in updates):
            lost.append(table.name())
            raise CommitStateUnknownException("no answer came")
        return response

    monkeypatch.setattr(local_catalog, "commit_table", answer_once_no_more)
    monkeypatch.setattr(build_job, "COMMIT_INTERVAL_SECONDS", 0.0)
    with pytest.raises(CommitStateUnknownException):
        index.build(workers=1)

    assert lost == [index.index_table.name()]
    assert indexed_table.segment_files(index) == indexed_table.named_segments(index)
    assert index.status().indexed_data_files == 2
    indexed_table.check_index(index)


def test_a_segment_is_of_no_more_files_than_a_process_may_open(
    local_catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = indexed_table.indexed(local_catalog, 0)
    for seed in range(7):
        index.data_table.append(indexed_table.rows(seed))
    monkeypatch.setattr("puffin_index.index_table.entries.most_open_files", lambda: 3)

    assert index.build(workers=1).segments == 3
    indexed_table.check_index(index)


def test_a_file_whose_column_names_are_no_text_is_left_out(local_catalog: SqlCatalog) -> None:
    create_table(local_catalog, "t", pa.table({"k": [1, 2], "other": [3, 4]}), 10)
    index = TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bitmap=["k"]))
    (file,) = list_data_files(index.data_table)
    path = Path(file.path.removeprefix("file://"))
    path.write_bytes(path.read_bytes().replace(b"other", b"oth\xff\xfe"))

    report = index.build(workers=1)

    assert [skipped.path for skipped in report.skipped] == [file.path]
