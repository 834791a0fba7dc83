"""Expiration drops what nothing needs, and nothing else."""

import os
import time
from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO

from planner.condition.sql.parser import read_where
from planner.condition.tree.simplify import simplified
from planner.view.views import view_of
from puffin_index import IndexDefinition, TableIndex
from puffin_index.data.column_source import reading_of
from puffin_index.data.data_table import list_data_files
from puffin_index.errors import NotFoundError
from puffin_index.index_table import stored_files
from puffin_index.index_table.entries import field_kinds
from puffin_index.index_table.stored_files import StoredFile
from puffin_index.index_table.table import read_entries
from puffin_index.units import parse_duration
from tests.planner.plan_files import plan_files
from tests.puffin_index import indexed_table

NOW = timedelta(0)


def overwrite_all(index: TableIndex) -> None:
    index.data_table.refresh()
    index.data_table.overwrite(indexed_table.rows(99))


def age(index: TableIndex, days: int) -> None:
    """Let all files of the index table look so old."""
    then = time.time() - days * 86_400
    for path in Path(index.index_table.location().removeprefix("file://")).rglob("*"):
        os.utime(path, (then, then))


def test_a_tag_keeps_entries(local_catalog: SqlCatalog) -> None:
    index = indexed_table.indexed(local_catalog, 3)
    first = index.data_table.snapshots()[0].snapshot_id
    index.data_table.manage_snapshots().create_tag(first, "first").commit()
    overwrite_all(index)
    old = [s.snapshot_id for s in index.data_table.snapshots()[1:-1]]
    index.data_table.maintenance.expire_snapshots().by_ids(old).commit()

    assert index.expire().entries == 2
    assert len(read_entries(index.index_table)) == 1


def test_entries_and_segments_of_files_that_no_snapshot_holds_go(local_catalog: SqlCatalog) -> None:
    index = indexed_table.indexed(local_catalog, 3)
    overwrite_all(index)
    index.build(workers=1)
    indexed_table.forget_history(index)

    report = index.expire()

    assert (report.entries, report.segments, report.leftovers) == (3, 3, 0)
    assert indexed_table.segment_files(index) == indexed_table.named_segments(index)
    assert len(indexed_table.segment_files(index)) == 1
    indexed_table.check_index(index)


def test_a_dry_run_lists_the_same_and_changes_nothing(local_catalog: SqlCatalog) -> None:
    index = indexed_table.indexed(local_catalog, 2)
    overwrite_all(index)
    indexed_table.forget_history(index)
    before = indexed_table.segment_files(index), read_entries(index.index_table)

    dry = index.expire(dry_run=True)

    assert dry.dry_run
    assert (indexed_table.segment_files(index), read_entries(index.index_table)) == before
    assert set(dry.files) == indexed_table.segment_files(index)
    real = index.expire()
    assert (real.entries, real.files) == (dry.entries, dry.files)


def test_kinds_that_the_definition_lost_are_dropped_and_their_bytes_with_them(local_catalog: SqlCatalog) -> None:
    index = indexed_table.indexed(local_catalog, 2)
    size = sum(read_entries(index.index_table)["segment_size_in_bytes"].to_pylist())
    index = TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bloom=["s"]))

    index.expire()

    entries = read_entries(index.index_table)
    assert [kinds for kinds in field_kinds(entries) if kinds != {(2, "bloom")}] == []
    # Little of the segments was live, so they were rewritten.
    assert sum(set(entries["segment_size_in_bytes"].to_pylist())) < size / 2
    assert indexed_table.segment_files(index) == indexed_table.named_segments(index)
    indexed_table.check_index(index)


def test_leftovers_go_after_the_grace_period_and_not_before(local_catalog: SqlCatalog) -> None:
    index = indexed_table.indexed(local_catalog, 1)
    folder = Path(index.index_table.location().removeprefix("file://")) / "_segments"
    leftover, foreign = folder / f"{'0' * 32}.puffin", folder / "notes.txt"
    leftover.write_bytes(b"PFA1")
    foreign.write_bytes(b"mine")

    assert index.expire().leftovers == 0
    age(index, 2)
    assert index.expire().leftovers == 0
    age(index, 4)
    assert index.expire().files == (leftover.as_uri(),)
    assert not leftover.exists()
    assert foreign.exists()
    indexed_table.check_queries(index)


def test_the_index_table_does_not_grow_for_ever(local_catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    index = indexed_table.indexed(local_catalog, 6)
    index.compact()
    location = Path(index.index_table.location().removeprefix("file://"))
    before = len(list(location.rglob("*")))
    assert index.expire(NOW).snapshots == 0, "commits may be under way on top of snapshots of the last minutes"
    monkeypatch.setattr("puffin_index.jobs.expire.SNAPSHOT_GRACE", NOW)

    dry = index.expire(dry_run=True)
    real = index.expire()

    assert dry.snapshots == real.snapshots == 7
    # The commit of the expiry itself drops the oldest metadata file.
    assert set(dry.files) == set(real.files)
    assert len(index.index_table.snapshots()) == 1
    # Each of seven snapshots had a manifest list; six had a segment, a manifest and a data file.
    assert len(list(location.rglob("*"))) <= before - 7 - 3 * 6 + 2
    indexed_table.check_index(index)


def test_metadata_files_are_left_to_the_commits_that_drop_them(
    local_catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise a commit that is faster than an expiration warns of a file that somebody else has deleted.
    index = indexed_table.indexed(local_catalog, 3)
    index.index_table.transaction().set_properties({"write.metadata.previous-versions-max": "2"}).commit_transaction()
    monkeypatch.setattr("puffin_index.jobs.expire.SNAPSHOT_GRACE", NOW)

    report = index.expire()

    assert report.snapshots == 2
    assert {path.rpartition(".")[2] for path in report.files} == {"avro"}
    indexed_table.check_index(index)


def test_a_planner_with_an_older_view_keeps_row_groups_when_segments_are_gone(local_catalog: SqlCatalog) -> None:
    index = indexed_table.indexed(local_catalog, 3)
    view, files = view_of(index.index_table, reading_of(index.data_table)), list_data_files(index.data_table)
    index.compact()
    assert index.expire().segments == 3

    scan_plan = plan_files(view, simplified(read_where("k = 77", index.data_table.schema())), files)

    assert scan_plan.kept == scan_plan.row_groups
    assert scan_plan.warnings


def test_a_service_spares_queries_that_know_the_version_of_a_moment_ago(
    local_catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = indexed_table.indexed(local_catalog, 3)
    view, files = view_of(index.index_table, reading_of(index.data_table)), list_data_files(index.data_table)
    index.compact()
    assert index.expire(for_readers=True).segments == 0

    scan_plan = plan_files(view, simplified(read_where("k = 77", index.data_table.schema())), files)

    assert scan_plan.kept < scan_plan.row_groups
    assert not scan_plan.warnings
    monkeypatch.setattr("puffin_index.jobs.expire.SNAPSHOT_GRACE", NOW)
    assert index.expire(for_readers=True).segments == 3
    indexed_table.check_index(index)


def test_a_table_that_is_gone_or_another_is_refused(local_catalog: SqlCatalog) -> None:
    index = indexed_table.indexed(local_catalog, 1)
    local_catalog.drop_table("ns.t")
    with pytest.raises(NotFoundError):
        index.expire()
    indexed_table.make_table(local_catalog)
    with pytest.raises(NotFoundError):
        index.expire()
    assert len(indexed_table.segment_files(index)) == 1


def test_an_index_that_is_defined_and_built_meanwhile_stays(
    local_catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = indexed_table.indexed(local_catalog, 2, IndexDefinition.of(bitmap=["k", "b"], bsi=["k"]))
    other, listed = TableIndex.open(local_catalog, "ns.t"), stored_files.list_stored_files

    def define_first(io: FileIO, location: str) -> list[StoredFile]:
        monkeypatch.undo()
        other.add_kinds(IndexDefinition.of(bloom=["s"]))
        assert other.build(workers=1).files == 2
        return listed(io, location)

    monkeypatch.setattr(stored_files, "list_stored_files", define_first)
    index.expire()

    assert index.status().indexed_data_files == 2
    indexed_table.check_index(index)


def test_a_long_time_is_no_error(local_catalog: SqlCatalog) -> None:
    index = indexed_table.indexed(local_catalog, 1)

    for text in ("999999d", "9999999999d", "9" * 30 + "s"):
        assert index.expire(parse_duration(text)).segments == 0
