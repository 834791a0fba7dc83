"""What queries know of index tables: bound by UUID, found after a rename, the newest, looked up out of their way."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier

from planner.spark.known_index_tables import DataTable, KnownIndexTables
from puffin_index import IndexDefinition, TableIndex
from tests.puffin_index.indexed_table import indexed, rows

_DEADLINE_SECONDS = 20.0


class Counted(SqlCatalog):
    """A catalog that counts what is asked of it: by all, and by the main thread, whose queries wait for the answers."""

    lists = 0
    lists_of_queries = loads_of_queries = 0

    def load_table(self, identifier: str | Identifier) -> Table:
        self.loads_of_queries += threading.current_thread() is threading.main_thread()
        return super().load_table(identifier)

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        self.lists += 1
        self.lists_of_queries += threading.current_thread() is threading.main_thread()
        return super().list_tables(namespace)


class Troubled(SqlCatalog):
    """A catalog that may not list the tables of one namespace."""

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        if namespace == ("other",):
            raise PermissionError("no access")
        return super().list_tables(namespace)


@pytest.fixture
def counted(local_catalog: SqlCatalog) -> Iterator[Counted]:
    catalog = Counted("local", **local_catalog.properties)
    yield catalog
    catalog.close()


@pytest.fixture
def known() -> KnownIndexTables:
    return KnownIndexTables()


def make(catalog: SqlCatalog, name: str) -> str:
    """Make a table with an index; return its UUID."""
    table = catalog.create_table(f"ns.{name}", pa.schema([("k", pa.int64())]))
    TableIndex.create(catalog, f"ns.{name}", IndexDefinition.of(bsi=["k"]))
    return str(table.metadata.table_uuid)


def find_in_the_end(known: KnownIndexTables, table: DataTable) -> Table:
    end = time.monotonic() + _DEADLINE_SECONDS
    while (found := known.find(table, 0)) is None:
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


def test_a_session_goes_on_with_the_index_of_a_renamed_table_also_after_follow(
    local_catalog: SqlCatalog, known: KnownIndexTables, counted: Counted, caplog: pytest.LogCaptureFixture
) -> None:
    uuid = make(local_catalog, "t")
    assert known.find(DataTable(counted, "ns.t", uuid), 0) is not None
    local_catalog.rename_table("ns.t", "ns.h")

    for _ in range(3):
        found = known.find(DataTable(counted, "ns.h", uuid), 0)
        assert found is not None
        assert found.name() == ("ns", "t__puffin_index")

    assert counted.lists == 0
    assert caplog.text.count("puffin-index follow local.ns.h") == 1
    TableIndex.follow(local_catalog, "ns.h")
    found = known.find(DataTable(counted, "ns.h", uuid), 0)
    assert found is not None
    assert found.name() == ("ns", "h__puffin_index")
    TableIndex.open(local_catalog, "ns.h").drop()
    assert known.find(DataTable(counted, "ns.h", uuid), 0) is None


def test_a_new_session_finds_it_where_no_query_waits(
    local_catalog: SqlCatalog, known: KnownIndexTables, counted: Counted, caplog: pytest.LogCaptureFixture
) -> None:
    uuid = make(local_catalog, "t")
    for name in ("other", "another"):
        make(local_catalog, name)
    local_catalog.rename_table("ns.t", "ns.h")

    assert known.find(DataTable(counted, "ns.h", uuid), 0) is None
    asked = (counted.lists_of_queries, counted.loads_of_queries)
    assert asked == (0, 1), "the query itself asks for its own index table alone"
    assert find_in_the_end(known, DataTable(counted, "ns.h", uuid)).name() == ("ns", "t__puffin_index")
    assert counted.lists == 1
    assert "puffin-index follow local.ns.h" in caplog.text


def test_a_table_without_any_is_asked_once(
    local_catalog: SqlCatalog, known: KnownIndexTables, counted: Counted
) -> None:
    local_catalog.create_table("ns.plain", pa.schema([("k", pa.int64())]))

    for _ in range(4):
        assert known.find(DataTable(counted, "ns.plain", "some uuid"), 0) is None
        time.sleep(0.1)

    assert counted.lists == 1


def test_trouble_in_one_namespace_stops_no_search(local_catalog: SqlCatalog, known: KnownIndexTables) -> None:
    uuid = make(local_catalog, "t")
    local_catalog.rename_table("ns.t", "ns.h")
    troubled = Troubled("local", **local_catalog.properties)

    assert known.find(DataTable(troubled, "other.plain", "some uuid"), 0) is None
    assert known.find(DataTable(troubled, "ns.h", uuid), 0) is None

    assert find_in_the_end(known, DataTable(troubled, "ns.h", uuid)).name() == ("ns", "t__puffin_index")
    troubled.close()


def test_a_new_table_never_gets_the_index(local_catalog: SqlCatalog, known: KnownIndexTables, counted: Counted) -> None:
    uuid = make(local_catalog, "t")
    local_catalog.rename_table("ns.t", "ns.h")
    location = local_catalog.load_table("ns.h").location() + "-new"
    new = local_catalog.create_table("ns.t", pa.schema([("k", pa.int64())]), location=location)

    assert known.find(DataTable(counted, "ns.t", str(new.metadata.table_uuid)), 0) is None
    found = known.find(DataTable(counted, "ns.h", uuid), 0)
    assert found is not None, "the other table's query has seen it"
    assert found.properties["puffin-index.data-table-uuid"] == uuid


class SlowOnce(SqlCatalog):
    """A catalog whose first answer stays under way until it is let go."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self.asked, self.let_go = threading.Event(), threading.Event()

    def load_table(self, identifier: str | Identifier) -> Table:
        table = super().load_table(identifier)
        if not self.asked.is_set():
            self.asked.set()
            assert self.let_go.wait(60)
        return table


def data_table(index: TableIndex, catalog: SqlCatalog) -> DataTable:
    return DataTable(catalog, index.name, str(index.data_table.metadata.table_uuid))


def version(table: Table | None) -> int:
    snapshot = table.current_snapshot() if table is not None else None
    assert snapshot is not None
    return snapshot.snapshot_id


def test_an_earlier_answer_does_not_replace_a_later_one(local_catalog: SqlCatalog, known: KnownIndexTables) -> None:
    index = indexed(local_catalog, 1)
    slow = SlowOnce("local", **local_catalog.properties)
    table = data_table(index, slow)
    first = threading.Thread(target=known.find, args=(table, 60.0))
    first.start()
    assert slow.asked.wait(60)
    index.data_table.append(rows(5))
    index.build(workers=1)
    newest = version(known.find(table, 60.0))

    slow.let_go.set()
    first.join()

    assert newest == version(index.index_table)
    assert version(known.find(table, 60.0)) == newest
    slow.close()


def test_names_and_catalogs_are_told_apart(local_catalog: SqlCatalog, known: KnownIndexTables, tmp_path: Path) -> None:
    index = indexed(local_catalog, 1)
    other = SqlCatalog("local", uri=f"sqlite:///{tmp_path / 'other.db'}", warehouse=tmp_path.as_uri())
    other.create_namespace("ns")
    for catalog, name in ((other, "ns.t"), (local_catalog, "ns.twin")):
        catalog.register_table(name, index.data_table.metadata_location)
    table = data_table(index, local_catalog)

    for _ in range(2):
        assert version(known.find(table, 60.0)) == version(index.index_table)
        assert known.find(DataTable(other, "ns.t", table.uuid), 60.0) is None
        assert known.find(DataTable(local_catalog, "ns.twin", table.uuid), 60.0) is None
    other.close()
