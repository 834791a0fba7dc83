"""Which version of an index table queries are planned with when threads ask the catalog side by side."""

import threading
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier

from planner.spark.known_index_tables import DataTable, KnownIndexTables
from puffin_index import TableIndex
from tests.puffin_index.indexed_table import indexed, rows


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


def test_an_answer_that_was_asked_for_earlier_does_not_replace_a_later_one(local_catalog: SqlCatalog) -> None:
    index = indexed(local_catalog, 1)
    slow = SlowOnce("local", **local_catalog.properties)
    known, table = KnownIndexTables(), data_table(index, slow)
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


def test_names_and_catalogs_of_one_table_are_told_apart(local_catalog: SqlCatalog, tmp_path: Path) -> None:
    index = indexed(local_catalog, 1)
    other = SqlCatalog("local", uri=f"sqlite:///{tmp_path / 'other.db'}", warehouse=tmp_path.as_uri())
    other.create_namespace("ns")
    for catalog, name in ((other, "ns.t"), (local_catalog, "ns.twin")):
        catalog.register_table(name, index.data_table.metadata_location)
    known, table = KnownIndexTables(), data_table(index, local_catalog)

    for _ in range(2):
        assert version(known.find(table, 60.0)) == version(index.index_table)
        assert known.find(DataTable(other, "ns.t", table.uuid), 60.0) is None
        assert known.find(DataTable(local_catalog, "ns.twin", table.uuid), 60.0) is None
    other.close()
