"""Damage and failed writes in an object store, whose errors name bucket and key alone."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow.fs
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from puffin_index import TableIndex
from puffin_index.errors import DamagedIndexError
from puffin_index.jobs.drop import drop_index
from puffin_index.storage.files import NewFile
from tests.puffin_index.indexed_table import DEFINITION, indexed
from tests.spark.services import make_bucket, s3_server

KEY, SECRET = "some-key", "some-secret"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture
def store(endpoint: str) -> pyarrow.fs.S3FileSystem:
    return make_bucket(endpoint, "house", KEY, SECRET)


@pytest.fixture
def s3_catalog(tmp_path: Path, endpoint: str, store: pyarrow.fs.S3FileSystem) -> Iterator[SqlCatalog]:
    settings = {
        "s3.endpoint": endpoint,
        "s3.access-key-id": KEY,
        "s3.secret-access-key": SECRET,
        "s3.region": "us-east-1",
    }
    store.create_dir(f"house/{tmp_path.name}")
    uri = f"sqlite:///{tmp_path / 'catalog.db'}"
    catalog = SqlCatalog("local", uri=uri, warehouse=f"s3://house/{tmp_path.name}", **settings)
    catalog.create_namespace("ns")
    yield catalog
    catalog.close()


def files_below(store: pyarrow.fs.S3FileSystem, location: str) -> list[str]:
    selector = pyarrow.fs.FileSelector(location.removeprefix("s3://"), recursive=True, allow_not_found=True)
    return [info.path for info in store.get_file_info(selector) if info.is_file]


def test_a_damaged_index_is_dropped_with_all_its_files(s3_catalog: SqlCatalog, store: pyarrow.fs.S3FileSystem) -> None:
    index = indexed(s3_catalog, 2)
    location = index.index_table.location()
    store.delete_file(index.index_table.metadata_location.removeprefix("s3://"))

    with pytest.raises(DamagedIndexError, match=r"metadata\.json is missing"):
        TableIndex.open(s3_catalog, "ns.t")
    assert drop_index(s3_catalog, "ns.t").segments == 2

    assert files_below(store, location) == []
    assert TableIndex.create(s3_catalog, "ns.t", DEFINITION).build(workers=1).files == 2


def test_upkeep_and_drop_leave_no_file(s3_catalog: SqlCatalog, store: pyarrow.fs.S3FileSystem) -> None:
    index = indexed(s3_catalog, 3)
    location = index.index_table.location()
    index.compact()
    assert index.expire().segments == 3

    assert index.drop().kept == ()

    assert files_below(store, location) == []


def test_an_unfinished_object_is_deleted(s3_catalog: SqlCatalog, store: pyarrow.fs.S3FileSystem) -> None:
    index = indexed(s3_catalog, 1)
    location = f"{index.index_table.location()}/half"

    with pytest.raises(ZeroDivisionError), NewFile(index.index_table.io, location) as stream:
        _ = stream.write(b"half") // 0

    assert not [path for path in files_below(store, index.index_table.location()) if path.endswith("half")]
