"""Dropping removes the index table and its segments, and nothing else."""

import os
import shutil
import time
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from puffin_index import TableIndex
from puffin_index.errors import NotFoundError, PuffinIndexError
from puffin_index.jobs.drop import drop_index
from tests.puffin_index.indexed_table import DEFINITION, indexed, make_table, rows


def test_drop_leaves_the_data_table_and_no_file_of_the_index(local_catalog: SqlCatalog) -> None:
    index = indexed(local_catalog, 2)
    location = Path(index.index_table.location().removeprefix("file://"))
    count = index.data_table.scan().to_arrow().num_rows

    report = index.drop()

    assert report.segments == 2
    assert report.kept == ()
    assert not location.exists()
    assert local_catalog.load_table("ns.t").scan().to_arrow().num_rows == count
    assert not local_catalog.table_exists("ns.t__puffin_index")


def test_files_of_others_are_kept_and_named(local_catalog: SqlCatalog) -> None:
    index = indexed(local_catalog, 1)
    other = Path(index.index_table.location().removeprefix("file://")) / "_segments" / "notes.txt"
    other.write_text("mine")

    assert index.drop().kept == (other.as_uri(),)
    assert other.exists()


@pytest.mark.parametrize("name", ["ns.t", "ns.t__puffin_index"])
def test_the_index_of_a_table_that_is_gone_can_be_dropped(local_catalog: SqlCatalog, name: str) -> None:
    indexed(local_catalog, 1)
    local_catalog.drop_table("ns.t")

    assert drop_index(local_catalog, name).segments == 1
    assert not local_catalog.table_exists("ns.t__puffin_index")


def test_the_index_of_an_earlier_table_is_dropped_by_its_own_name_only(local_catalog: SqlCatalog) -> None:
    indexed(local_catalog, 1)
    local_catalog.drop_table("ns.t")
    make_table(local_catalog)

    with pytest.raises(PuffinIndexError, match="earlier table"):
        drop_index(local_catalog, "ns.t")
    assert drop_index(local_catalog, "ns.t__puffin_index").segments == 1


def test_a_table_that_is_no_index_table_is_left_alone(local_catalog: SqlCatalog) -> None:
    make_table(local_catalog)
    local_catalog.create_table("ns.t__puffin_index", rows(0).schema)

    for name in ("ns.t", "ns.t__puffin_index"):
        with pytest.raises((PuffinIndexError, NotFoundError)):
            drop_index(local_catalog, name)
    assert local_catalog.table_exists("ns.t__puffin_index")


def test_a_table_without_an_index_has_nothing_to_drop(local_catalog: SqlCatalog) -> None:
    make_table(local_catalog)

    with pytest.raises(NotFoundError, match="nothing to drop"):
        drop_index(local_catalog, "ns.t")


@pytest.fixture
def abandoned(local_catalog: SqlCatalog) -> Path:
    """The folder of an index table that was dropped by hand an hour ago."""
    folder = _folder(indexed(local_catalog, 3))
    local_catalog.drop_table("ns.t__puffin_index")
    return _aged(folder)


def _folder(index: TableIndex) -> Path:
    return Path(index.index_table.location().removeprefix("file://"))


def _aged(folder: Path) -> Path:
    hour_ago = time.time() - 3_600
    for path in folder.rglob("*"):
        os.utime(path, (hour_ago, hour_ago))
    return folder


@pytest.mark.parametrize("is_purged", [False, True])
def test_what_a_drop_by_hand_leaves_is_named_and_deleted_if_told_to(
    local_catalog: SqlCatalog, abandoned: Path, is_purged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    if is_purged:
        for name in ("metadata", "data"):
            shutil.rmtree(abandoned / name)

    with pytest.raises(NotFoundError, match=f"nothing to drop; .*{abandoned.name}.* `puffin-index drop --abandoned`"):
        drop_index(local_catalog, "ns.t")
    index = TableIndex.create(local_catalog, "ns.t", DEFINITION)
    index.build(workers=1)
    assert abandoned.name in caplog.text
    assert len([*abandoned.glob("_segments/*.puffin")]) == 3

    report = drop_index(local_catalog, "ns.t", abandoned=True)

    assert (report.segments > 3, report.abandoned) == (True, (abandoned.as_uri(),))
    assert not abandoned.exists()
    assert not _folder(index).exists()
    assert local_catalog.load_table("ns.t").scan().to_arrow().num_rows == 750
    with pytest.raises(NotFoundError, match=r"nothing to drop$"):
        drop_index(local_catalog, "ns.t", abandoned=True)


def test_a_folder_that_another_index_table_uses_is_not_abandoned(local_catalog: SqlCatalog, abandoned: Path) -> None:
    metadata = max(abandoned.glob("metadata/*.metadata.json"))
    local_catalog.create_namespace("elsewhere")
    local_catalog.register_table("elsewhere.anything", metadata.as_uri())

    with pytest.raises(NotFoundError, match=r"nothing to drop$"):
        drop_index(local_catalog, "ns.t", abandoned=True)
    assert len([*abandoned.glob("_segments/*.puffin")]) == 3


def test_the_index_of_a_renamed_table_is_not_abandoned(local_catalog: SqlCatalog) -> None:
    folder = _aged(_folder(indexed(local_catalog, 1)))
    local_catalog.rename_table("ns.t", "ns.u")
    TableIndex.follow(local_catalog, "ns.u")
    TableIndex.create(local_catalog, "ns.u", DEFINITION)

    make_table(local_catalog)
    with pytest.raises(NotFoundError, match=r"nothing to drop$"):
        drop_index(local_catalog, "ns.t", abandoned=True)
    local_catalog.drop_table("ns.t")
    local_catalog.rename_table("ns.u", "ns.t")

    assert TableIndex.open(local_catalog, "ns.t").status().indexed_data_files == 1
    assert folder.exists()
    report = drop_index(local_catalog, "ns.t", abandoned=True)
    assert (report.segments, report.abandoned) == (1, ())


def test_a_folder_of_another_catalog_or_branch_is_deleted_by_nobody_who_was_not_asked(
    local_catalog: SqlCatalog, tmp_path: Path
) -> None:
    index = indexed(local_catalog, 1)
    folder = _aged(_folder(index))
    other = SqlCatalog(
        "other", uri=str(local_catalog.engine.url), warehouse=tmp_path.as_uri(), **{"nessie.prefix": "b"}
    )
    other.create_namespace("ns")
    other.register_table("ns.t", index.data_table.metadata_location)

    with pytest.raises(NotFoundError, match="if no other catalog and no branch uses"):
        drop_index(other, "ns.t")
    with pytest.raises(PuffinIndexError, match="has branches"):
        drop_index(other, "ns.t", abandoned=True)
    TableIndex.create(other, "ns.t", DEFINITION).build(workers=1)
    other.close()

    assert folder.exists()
    assert index.verify().findings == ()


def test_a_folder_is_kept_while_a_table_may_be_made_or_cannot_be_read(
    local_catalog: SqlCatalog, abandoned: Path
) -> None:
    (abandoned / "metadata" / "now").write_text("")
    with pytest.raises(PuffinIndexError, match="perhaps of a table that is being made"):
        drop_index(local_catalog, "ns.t", abandoned=True)
    unreadable = local_catalog.create_table("ns.other", rows(0).schema)
    Path(unreadable.metadata_location.removeprefix("file://")).unlink()
    with pytest.raises(PuffinIndexError, match=r"table ns\.other cannot be read"):
        drop_index(local_catalog, "ns.t", abandoned=True)
    TableIndex.create(local_catalog, "ns.t", DEFINITION)
    assert drop_index(local_catalog, "ns.t").abandoned == ()
    assert len([*abandoned.glob("_segments/*.puffin")]) == 3


def test_an_index_that_was_dropped_can_be_made_anew(local_catalog: SqlCatalog) -> None:
    indexed(local_catalog, 1).drop()

    assert TableIndex.create(local_catalog, "ns.t", DEFINITION).build(workers=1).files == 1
