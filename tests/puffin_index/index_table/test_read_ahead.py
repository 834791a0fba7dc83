"""The names of an index table's files in its metadata save rounds of requests, and are never more than a hint."""

from collections.abc import Iterator

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import planner
from puffin_index import TableIndex
from puffin_index.index_table import table as index_table
from puffin_index.index_table.table import PROPERTY, named_files, read_entries
from puffin_index.storage.caches import clear_caches
from ssb_bench.stores.server import StoreServer, Traffic
from tests.puffin_index.indexed_table import indexed, rows
from tests.stores import far_away, store_catalog

APPENDS = 3


@pytest.fixture
def catalog(server: StoreServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlCatalog]:
    with store_catalog(server, tmp_path_factory.mktemp("ahead")) as made:
        yield made


def files_of(table: Table) -> set[str]:
    manifests = table.inspect.manifests()["path"].to_pylist()
    return {*manifests, *table.inspect.files()["file_path"].to_pylist()} if manifests else set()


def named(table: Table) -> list[str]:
    snapshot = table.current_snapshot()
    return [] if snapshot is None else named_files(table, snapshot)


def check_count(catalog: SqlCatalog) -> None:
    where = "k >= 3 AND k <= 99"
    counted = planner.count(TableIndex.open(catalog, "ns.t"), where)
    assert counted.rows == len(catalog.load_table("ns.t").scan(where).to_arrow())
    assert counted.plan.index_reads


def reading(server: StoreServer, index: TableIndex) -> Traffic:
    """What reading the rows of the index table asks of the store."""
    clear_caches()
    found: list[Traffic] = []
    with far_away(server, found):
        read_entries(index.index_table)
    return found[0]


def test_commits_name_their_files_and_readers_get_them_in_one_round(server: StoreServer, catalog: SqlCatalog) -> None:
    index = indexed(catalog, APPENDS)
    data = catalog.load_table("ns.t")
    for change in (lambda: None, index.compact, lambda: (data.append(rows(77)), index.build(workers=1))):
        change()
        index.refresh()
        files = named(index.index_table)
        assert set(files) == files_of(index.index_table)
        assert len(files) == len(set(files)) >= 2
        traffic = reading(server, index)
        assert (traffic.rounds, traffic.requests) == (1, len(files) + 1)


def test_a_table_without_names_is_read_level_by_level(server: StoreServer, catalog: SqlCatalog) -> None:
    index = indexed(catalog, APPENDS)
    expected = read_entries(index.index_table)
    index.index_table.transaction().remove_properties(PROPERTY).commit_transaction()
    assert reading(server, index).rounds == 3
    assert read_entries(index.index_table).equals(expected)


def test_names_of_another_snapshot_are_not_used(server: StoreServer, catalog: SqlCatalog) -> None:
    index = indexed(catalog, APPENDS)
    table = index.index_table
    entries = read_entries(table)
    # Another program writes the rows anew, as compactions of Iceberg tables do.
    table.overwrite(entries)
    assert table.properties[PROPERTY]
    assert named(table) == []
    assert reading(server, index).rounds == 3
    assert read_entries(table).equals(entries)


@pytest.mark.one_of(4)
@pytest.mark.parametrize(
    "hint",
    ["", "no JSON", "[]", "null", "7", '{"files": []}', '{"snapshot-id": ID}', '{"snapshot-id": ID, "files": 7}',
     '{"snapshot-id": ID, "files": [7]}', '{"snapshot-id": ID, "files": []}',
     '{"snapshot-id": ID, "files": ["data/missing.parquet"]}', '{"snapshot-id": ID, "files": ["../../other.parquet"]}'],
)  # fmt: skip
def test_wrong_hints_change_nothing(catalog: SqlCatalog, hint: str) -> None:
    index = indexed(catalog, 1)
    expected = read_entries(index.index_table)
    properties = {PROPERTY: hint.replace("ID", str(index.index_table.snapshots()[-1].snapshot_id))}
    index.index_table.transaction().set_properties(properties).commit_transaction()
    clear_caches()
    assert read_entries(TableIndex.open(catalog, "ns.t").index_table).equals(expected)
    check_count(catalog)


def test_many_files_have_no_names(catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    index = indexed(catalog, 1)
    assert PROPERTY in index.index_table.properties
    monkeypatch.setattr(index_table, "_MOST_FILES", 3)
    catalog.load_table("ns.t").append(rows(9))
    index.build(workers=1)
    index.refresh()
    assert PROPERTY not in index.index_table.properties
    check_count(catalog)


def test_a_store_that_fails_meanwhile_costs_names_alone(catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    index = indexed(catalog, 1)

    def fails(*_: object) -> list[str]:
        raise OSError("the connection was cut")

    monkeypatch.setattr(index_table, "_files_of", fails)
    catalog.load_table("ns.t").append(rows(9))
    assert index.build(workers=1).files == 1
    index.refresh()
    assert named(index.index_table) == []
    check_count(catalog)


def test_tables_of_a_local_disk_have_no_names(local_catalog: SqlCatalog) -> None:
    assert PROPERTY not in indexed(local_catalog, 1).index_table.properties
