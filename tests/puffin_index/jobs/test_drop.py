"""Dropping removes the index table and its segments, and nothing else."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from threading import Barrier

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from puffin_index.errors import NotFoundError, PuffinIndexError
from puffin_index.jobs.drop import drop_index
from tests.conftest import amount, catalog_in
from tests.puffin_index.indexed_table import indexed, make_table, rows


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


@pytest.mark.parametrize("is_damaged", [False, True])
def test_two_drops_at_once_leave_no_segment(local_catalog: SqlCatalog, tmp_path: Path, is_damaged: bool) -> None:
    start = Barrier(2)

    def drop() -> None:
        with closing(catalog_in(tmp_path)) as catalog:
            start.wait(60)
            # Who is late may find nothing left to drop.
            with suppress(NotFoundError):
                drop_index(catalog, "ns.t")

    for _ in range(amount(8, 40)):
        index_table = indexed(local_catalog, 1).index_table
        location = Path(index_table.location().removeprefix("file://"))
        if is_damaged:
            Path(index_table.metadata_location.removeprefix("file://")).unlink()

        with ThreadPoolExecutor(2) as pool:
            for end in [pool.submit(drop) for _ in range(2)]:
                end.result()

        # The late one may have written metadata that it could not commit.
        assert not list(location.rglob("*.puffin"))
        assert not local_catalog.table_exists("ns.t__puffin_index")
        local_catalog.drop_table("ns.t")
