"""Builds and scans of tables in a store read the chunks of their columns and footers, each by one request."""

import gc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from planner.arrow.arrow_scan import scan
from puffin_index import IndexDefinition, TableIndex
from puffin_index.errors import NotFoundError
from puffin_index.storage.caches import clear_caches
from puffin_index.storage.object_stream import ObjectStream
from ssb_bench.stores.server import Request, StoreServer
from tests.conftest import built, create_table
from tests.planner.ten_rows import build_index
from tests.stores import SomebodysFileIO, store_catalog

ROW_GROUPS, ROW_GROUP_ROWS, FILES = 3, 10_000, 2
TAIL_BYTES = 64 * 1024


@pytest.fixture(scope="module")
def catalog(server: StoreServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlCatalog]:
    with store_catalog(server, tmp_path_factory.mktemp("reads")) as made:
        table = create_table(made, "t", rows(0), ROW_GROUP_ROWS)
        for seed in range(1, FILES):
            table.append(rows(seed))
        yield made


def rows(seed: int) -> pa.Table:
    chooser, count = np.random.default_rng(seed), ROW_GROUPS * ROW_GROUP_ROWS
    return pa.table(
        {
            "a": chooser.integers(0, 1 << 40, count),
            "k": chooser.integers(0, 5_000, count),
            "s": pa.array([f"value {n}" for n in chooser.integers(0, 1 << 30, count)]),
            "z": chooser.random(count),
        }
    )


def data_requests(server: StoreServer) -> list[Request]:
    server.traffic()
    return [one for one in server.last_requests if "/ns/t/data/" in one.key]


def footers(table: Table) -> list[tuple[pq.FileMetaData, int]]:
    found = []
    for file in table.scan().plan_files():
        with table.io.new_input(file.file.file_path).open() as stream:
            found.append((pq.read_metadata(stream), file.file.file_size_in_bytes))
    return found


def chunk_bytes(footer: pq.FileMetaData, columns: set[str]) -> int:
    groups = [footer.row_group(at) for at in range(footer.num_row_groups)]
    chunks = [group.column(at) for group in groups for at in range(group.num_columns)]
    return sum(chunk.total_compressed_size for chunk in chunks if chunk.path_in_schema in columns)


def test_a_build_reads_the_chunks_of_its_columns_and_footers(server: StoreServer, catalog: SqlCatalog) -> None:
    known = footers(catalog.load_table("ns.t"))
    assert all(size > 2 * TAIL_BYTES and footer.num_row_groups == ROW_GROUPS for footer, size in known)
    index = TableIndex.create(catalog, "ns.t", IndexDefinition.of(bitmap=["k"], bloom=["s"]))
    clear_caches()
    server.traffic()

    assert index.build(workers=1).files == FILES

    asked = data_requests(server)
    assert sum(one.bytes_in for one in asked) == sum(chunk_bytes(footer, {"k", "s"}) for footer, _ in known) + (
        FILES * TAIL_BYTES
    )
    assert [one.kind for one in asked] == ["RANGE"] * (FILES + 2 * FILES * ROW_GROUPS), "no request for a size"
    assert all(one.status == 206 for one in asked)


def test_a_scan_reads_the_chunks_of_its_columns(server: StoreServer, catalog: SqlCatalog) -> None:
    table = catalog.load_table("ns.t")
    index = built(catalog, "ns.t", bitmap=["k"], bloom=["s"])
    every = table.scan().to_arrow()
    key = every["a"][7].as_py()
    clear_caches()
    server.traffic()

    found = scan(index, f"a = {key}", ["z"]).read_all()

    assert found["z"].to_pylist() == every.filter(pc.equal(every["a"], key))["z"].to_pylist()
    asked = data_requests(server)
    assert all(one.kind == "RANGE" for one in asked)
    most = sum(chunk_bytes(footer, {"a", "z"}) for footer, _ in footers(table)) + FILES * ROW_GROUPS * TAIL_BYTES
    assert sum(one.bytes_in for one in asked) <= most


def test_neighbouring_chunks_share_a_request(server: StoreServer, catalog: SqlCatalog) -> None:
    table = catalog.load_table("ns.t")
    index = built(catalog, "ns.t", bitmap=["k"], bloom=["s"])
    every = table.scan().to_arrow()
    assert scan(index).read_all().num_rows == len(every)  # footers are in memory now
    server.traffic()

    found = scan(index).read_all()

    assert found.sort_by("a").equals(every.cast(found.schema).sort_by("a"))
    asked = data_requests(server)
    assert len(asked) == FILES * ROW_GROUPS, "all columns of a row group by one request"
    names = set(every.column_names)
    assert sum(one.bytes_in for one in asked) == sum(chunk_bytes(footer, names) for footer, _ in footers(table))


def test_pyarrows_store_is_asked_for_neighbouring_chunks_by_one_request(server: StoreServer, tmp_path: Path) -> None:
    implementation = f"{SomebodysFileIO.__module__}.{SomebodysFileIO.__name__}"
    with store_catalog(server, tmp_path, **{"py-io-impl": implementation}) as other:
        index = build_index(other, rows(0), ROW_GROUP_ROWS, IndexDefinition.of(bitmap=["k"], bloom=["s"]))
        assert type(index.data_table.io).__name__ == SomebodysFileIO.__name__
        scan(index).read_all()  # footers are in memory now
        server.traffic()

        found = scan(index).read_all()

        asked = data_requests(server)
        assert found.sort_by("a").equals(rows(0).cast(found.schema).sort_by("a"))
    assert Counter(one.kind for one in asked) == {"HEAD": ROW_GROUPS, "RANGE": ROW_GROUPS}


def test_scans_that_fail_leave_nothing_in_memory(server: StoreServer, tmp_path: Path) -> None:
    with store_catalog(server, tmp_path) as other:
        index = build_index(other, rows(0), ROW_GROUP_ROWS, IndexDefinition.of(bitmap=["k"]))
        table = index.data_table
        scan(index, "z < 0.1", ["a", "k"]).read_all()
        (file,) = (task.file.file_path for task in table.scan().plan_files())
        table.io.delete(file)

        def fails() -> None:
            with pytest.raises(NotFoundError, match="not found"):
                scan(index, "z < 0.1", ["a", "k"]).read_all()

        for _ in range(3):
            fails()
        gc.collect()
        assert not [one for one in gc.get_objects() if isinstance(one, ObjectStream)]
