"""Segments that a build finished but could not commit: the next build takes over what still fits, and nothing else."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import LongType
from sqlalchemy.exc import OperationalError

from planner.commands.main import main
from puffin_index import IndexDefinition, TableIndex
from puffin_index.catalogue import index_table as catalogue
from puffin_index.catalogue.kept_segments import list_records, read_record
from puffin_index.jobs import build_job, expire
from puffin_index.jobs.build_job import BuildProgress
from tests.puffin_index.indexed_table import (
    DEFINITION,
    check_entries,
    check_queries,
    indexed,
    named_segments,
    rows,
    segment_files,
)

_PATIENCE = "?timeout=0.05"
"""SQLite itself waits for 5 seconds otherwise."""


@pytest.fixture
def index(tmp_path: Path) -> Iterator[TableIndex]:
    """An index of two data files, and two more that have none."""
    uri = f"sqlite:///{tmp_path / 'catalog.db'}{_PATIENCE}"
    catalog = SqlCatalog("local", uri=uri, warehouse=tmp_path.as_uri())
    catalog.create_namespace("ns")
    made = indexed(catalog, 2)
    made.data_table.append(rows(8))
    made.data_table.append(rows(9))
    yield made
    catalog.close()


@contextmanager
def locked(tmp_path: Path, how: str) -> Iterator[None]:
    connection = sqlite3.connect(tmp_path / "catalog.db", check_same_thread=False, isolation_level=None)
    connection.execute(f"BEGIN {how}")
    try:
        yield
    finally:
        connection.close()


def fail_to_commit(index: TableIndex, tmp_path: Path) -> set[str]:
    """Let a build fail at its commit; return the segments that it has finished."""
    before = segment_files(index)
    with locked(tmp_path, "IMMEDIATE"), pytest.raises(OperationalError, match="locked"):
        index.build(workers=1, commit_timeout_seconds=0.2)
    (record,) = list_records(index.index_table)
    kept = read_record(index.index_table.io, record).segments
    assert segment_files(index) == before | kept | {record}
    check_queries(index)
    return kept


def check_clean(index: TableIndex) -> None:
    """Everything is indexed and right; two expirations delete the records and then what they named."""
    check_queries(index)
    check_entries(index)
    index.expire(timedelta(0))
    index.expire(timedelta(0))
    assert segment_files(index) == named_segments(index)
    check_queries(index)


def test_the_next_build_takes_finished_segments_over(index: TableIndex, tmp_path: Path) -> None:
    kept = fail_to_commit(index, tmp_path)
    index.expire()
    assert kept <= segment_files(index)

    report = index.build(workers=1)

    assert (report.taken_over, report.files, report.segments) == (len(kept), 0, 0)
    assert kept <= named_segments(index)
    assert list_records(index.index_table) == []
    assert index.build(workers=1).taken_over == 0
    check_clean(index)


def test_a_build_that_meets_another_lock_keeps_the_record(index: TableIndex, tmp_path: Path) -> None:
    kept = fail_to_commit(index, tmp_path)
    assert fail_to_commit(index, tmp_path) == kept
    with locked(tmp_path, "EXCLUSIVE"), pytest.raises(OperationalError, match="locked"):
        index.build(workers=1, commit_timeout_seconds=0.2)
    assert index.build(workers=1).taken_over == len(kept)
    check_clean(index)


def test_a_build_goes_on_while_the_catalog_is_locked(
    index: TableIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_job, "COMMIT_INTERVAL_SECONDS", 0.0)
    # Files with different needs are in segments of their own, so this build has several commits.
    index.remove_kinds(IndexDefinition.of(bsi=["k"]))
    index.build(workers=1)
    index.add_kinds(IndexDefinition.of(bsi=["k"]))
    index.data_table.append(rows(10))
    before = named_segments(index)
    lock = locked(tmp_path, "IMMEDIATE")

    def lock_at_the_start(progress: BuildProgress) -> None:
        if not progress.files_done:
            lock.__enter__()

    with pytest.raises(OperationalError, match="locked"):
        index.build(workers=1, progress=lock_at_the_start, commit_timeout_seconds=0.1)
    lock.__exit__(None, None, None)

    assert named_segments(index) == before
    assert index.build(workers=1).taken_over == 2
    check_clean(index)


def replace_data(index: TableIndex, _: set[str]) -> None:
    index.data_table.refresh()
    index.data_table.overwrite(rows(20))
    index.data_table.refresh()
    old = [snapshot.snapshot_id for snapshot in index.data_table.snapshots()[:-1]]
    index.data_table.maintenance.expire_snapshots().by_ids(old).commit()


def change_options(index: TableIndex, _: set[str]) -> None:
    definition = IndexDefinition.of(
        bitmap=["k", "b"],
        bsi=["k"],
        bloom=["s"],
        options={"k.layout": "bitmaps", "b.layout": "bitmaps", "s.fpp": "0.05"},
    )
    TableIndex.create(index.catalog, "ns.t", definition)


def damage(_: TableIndex, kept: set[str]) -> None:
    for path in (Path(location.removeprefix("file://")) for location in kept):
        data = bytearray(path.read_bytes())
        data[len(data) // 3] ^= 1
        path.write_bytes(data)


def cut(_: TableIndex, kept: set[str]) -> None:
    for path in (Path(location.removeprefix("file://")) for location in kept):
        path.write_bytes(path.read_bytes()[:-1])


def delete(_: TableIndex, kept: set[str]) -> None:
    for location in kept:
        Path(location.removeprefix("file://")).unlink()


def build_elsewhere(index: TableIndex, _: set[str]) -> None:
    """Another build has indexed the same files, without knowing of the kept segments."""
    (record,) = (Path(one.removeprefix("file://")) for one in list_records(index.index_table))
    hidden = record.rename(record.with_suffix(".away"))
    index.build(workers=1)
    hidden.rename(record)
    index.data_table.append(rows(30))


@pytest.mark.parametrize("change", [replace_data, damage, cut, delete, build_elsewhere])
def test_what_no_longer_fits_is_built_anew(
    index: TableIndex, tmp_path: Path, change: Callable[[TableIndex, set[str]], None]
) -> None:
    kept = fail_to_commit(index, tmp_path)
    change(index, kept)

    report = index.build(workers=1)

    assert report.taken_over == 0
    assert report.files > 0
    assert not kept & named_segments(index)
    check_clean(index)


def test_only_indexes_of_the_same_type_and_options_are_taken_over(index: TableIndex, tmp_path: Path) -> None:
    fail_to_commit(index, tmp_path)
    change_options(index, set())

    report = index.build(workers=1)

    assert report.taken_over == 1
    # The bitmap of `k` and the filter of `s` have other options, the rest is as it was.
    entries = catalogue.read_entries(index.index_table).to_pylist()
    by_segment = {
        one["segment"]: {(d["field_id"], d["kind"]) for d in one["directories"] if d["kind"] != "statistics"}
        for one in entries[-4:]
    }
    assert sorted(map(sorted, by_segment.values())) == [[(1, "bitmap"), (2, "bloom")], [(1, "bsi"), (3, "bitmap")]]
    check_clean(index)


def test_one_file_of_a_segment_may_be_gone(index: TableIndex, tmp_path: Path) -> None:
    kept = fail_to_commit(index, tmp_path)
    table = index.data_table.refresh()
    (record,) = list_records(index.index_table)
    gone, stays = read_record(index.index_table.io, record).entries["data_file"].to_pylist()
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as overwrite:
        for task in table.scan().plan_files():
            if task.file.file_path == gone:
                overwrite.delete_data_file(task.file)
    old = [snapshot.snapshot_id for snapshot in table.refresh().snapshots()[:-1]]
    table.maintenance.expire_snapshots().by_ids(old).commit()

    report = index.build(workers=1)

    assert (report.taken_over, report.files) == (1, 0)
    entries = catalogue.read_entries(index.index_table)
    assert entries.filter(pc.is_in(entries["segment"], pa.array(kept)))["data_file"].to_pylist() == [stays]
    check_clean(index)


def test_a_record_of_another_index_or_a_damaged_one_is_left_alone(index: TableIndex, tmp_path: Path) -> None:
    kept = fail_to_commit(index, tmp_path)
    (record,) = (Path(one.removeprefix("file://")) for one in list_records(index.index_table))
    whole = record.read_bytes()
    for place in range(0, len(whole), max(1, len(whole) // 40)):
        damaged = bytearray(whole)
        damaged[place] ^= 0x10
        record.write_bytes(damaged)
        with pytest.raises(Exception, match=str(record)):
            read_record(index.index_table.io, record.as_uri())
    record.write_bytes(whole[: len(whole) // 2])
    report = index.build(workers=1)
    assert (report.taken_over, report.files) == (0, 2)

    record.write_bytes(whole.replace(str(index.index_table.metadata.table_uuid).encode(), b"0" * 36))
    index.data_table.append(rows(31))
    assert index.build(workers=1).taken_over == 0
    assert not kept & named_segments(index)
    index.expire(timedelta(0))
    check_clean(index)


def test_another_column_of_the_table_changes_nothing(index: TableIndex, tmp_path: Path) -> None:
    fail_to_commit(index, tmp_path)
    with index.data_table.update_schema() as update:
        update.add_column("later", LongType())
    TableIndex.create(index.catalog, "ns.t", DEFINITION)
    assert index.build(workers=1).taken_over == 1
    check_clean(index)


@pytest.mark.parametrize(
    ("step", "call"),
    [
        ("list_stored_files", 1),
        ("refresh_index_table", 1),
        ("read_entries", 1),
        ("replace_entries", 1),
        ("compact", 1),
        ("committed_segments", 1),
        ("named_by_records", 1),
        ("refresh_index_table", 2),
        ("read_entries", 2),
        ("reachable_files", 1),
        ("delete_files", 1),
    ],
)
def test_a_build_may_take_old_segments_over_in_the_midst_of_an_expiration(
    index: TableIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, call: int
) -> None:
    fail_to_commit(index, tmp_path)
    long_ago = time.time() - 2 * expire.DEFAULT_GRACE.total_seconds()
    for location in segment_files(index):
        os.utime(location.removeprefix("file://"), (long_ago, long_ago))
    other, original, calls = TableIndex.open(index.catalog, "ns.t"), getattr(expire, step), []

    def build_first(*arguments: object, **named: object) -> object:
        calls.append(step)
        if len(calls) == call:
            assert other.build(workers=1).taken_over == 1
        return original(*arguments, **named)

    monkeypatch.setattr(expire, step, build_first)
    index.expire()

    assert len(calls) >= call
    monkeypatch.undo()
    assert named_segments(index) <= segment_files(index)
    assert index.build(workers=1).files == 0
    check_clean(index)


def test_the_command_waits_as_long_as_told(index: TableIndex, tmp_path: Path) -> None:
    uri = f"uri=sqlite:///{tmp_path / 'catalog.db'}{_PATIENCE}"
    command = ["build", "local.ns.t", "--engine", "local", "--workers", "1", "--commit-timeout", "0.2"]
    command += ["--catalog-property", uri, "--catalog-property", f"warehouse={tmp_path.as_uri()}"]
    with locked(tmp_path, "IMMEDIATE"):
        result = CliRunner().invoke(main, command)
    assert result.exit_code == 1
    assert "locked" in result.output
    assert len(list_records(index.index_table)) == 1

    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    assert "1 segments of an earlier build were taken over" in result.output
    check_clean(index)
