"""Damage and failed writes in an object store, whose errors name bucket and key alone."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow.fs
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO

from puffin_index import TableIndex
from puffin_index.errors import DamagedIndexError
from puffin_index.jobs.drop import drop_index
from puffin_index.storage.files import NewFile
from ssb_bench.stores.server import StoreServer
from tests.puffin_index.indexed_table import DEFINITION, indexed
from tests.stores import store_catalog


@pytest.fixture
def catalog(tmp_path: Path, server: StoreServer) -> Iterator[SqlCatalog]:
    with store_catalog(server, tmp_path) as made:
        yield made


def files_of(index: TableIndex) -> list[str]:
    files, location = index.index_table.io, index.index_table.location().removeprefix("s3://")
    assert isinstance(files, PyArrowFileIO)
    selector = pyarrow.fs.FileSelector(location, recursive=True, allow_not_found=True)
    return [info.path for info in files.fs_by_scheme("s3", None).get_file_info(selector) if info.is_file]


def test_a_damaged_index_is_dropped_with_all_its_files(catalog: SqlCatalog) -> None:
    index = indexed(catalog, 2)
    assert len(files_of(index)) > 4
    index.index_table.io.delete(index.index_table.metadata_location)

    with pytest.raises(DamagedIndexError, match=r"metadata\.json is missing"):
        TableIndex.open(catalog, "ns.t")
    assert drop_index(catalog, "ns.t").segments == 2

    assert files_of(index) == []
    assert TableIndex.create(catalog, "ns.t", DEFINITION).build(workers=1).files == 2


def test_upkeep_and_drop_leave_no_file(catalog: SqlCatalog) -> None:
    index = indexed(catalog, 3)
    index.compact()
    assert index.expire().segments == 3

    assert index.drop().kept == ()

    assert files_of(index) == []


def test_an_unfinished_object_is_deleted(catalog: SqlCatalog) -> None:
    index = indexed(catalog, 1)
    location = f"{index.index_table.location()}/half"

    with pytest.raises(ZeroDivisionError), NewFile(index.index_table.io, location) as stream:
        _ = stream.write(b"half") // 0

    assert not [path for path in files_of(index) if path.endswith("half")]
