"""Lists of data files: what never changes is read once, and no file of a retained snapshot is left out."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from puffin_index import TableIndex
from puffin_index.data.data_table import FileIdentity, data_file_of, list_data_files, retained_files
from puffin_index.index_table.status import read_lag
from puffin_index.storage.caches import clear_caches
from tests.conftest import amount, temporary_catalog
from tests.puffin_index import faulty_io
from tests.puffin_index.indexed_table import DEFINITION, make_table, rows

ACTIONS = ("append", "append", "overwrite", "delete", "branch", "expire")


@pytest.fixture
def counting_catalog(local_catalog: SqlCatalog) -> Iterator[SqlCatalog]:
    """A catalog whose requests are counted."""
    properties = {**local_catalog.properties, "py-io-impl": faulty_io.IMPLEMENTATION}
    with closing(SqlCatalog("local", **properties)) as catalog:
        yield catalog
        faulty_io.set_fault(0)


def test_a_commit_costs_the_same_however_many_there_were(counting_catalog: SqlCatalog) -> None:
    table = make_table(counting_catalog)
    index = TableIndex.create(counting_catalog, "ns.t", DEFINITION)
    seen = []
    for count in range(1, 9):
        table.append(rows(count, 10))
        index.refresh()
        faulty_io.set_fault(0, within=".avro")
        lag = read_lag(index.data_table, index.index_table, index.columns)
        seen.append(faulty_io.FAULT.seen)
        assert (len(lag.files), lag.snapshots) == (count, count)
        assert len(retained_files(index.data_table)) == count

    assert seen[1:] == [2] * 7, "the new manifest list and the new manifest"
    assert faulty_io.FAULT.seen == 2, "every other snapshot has its files from its parent"


def of_each_snapshot(table: Table) -> set[FileIdentity]:
    """The files of all snapshots, each read by itself."""
    found: set[FileIdentity] = set()
    for snapshot in table.snapshots():
        for manifest in snapshot.manifests(table.io):
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            found |= {data_file_of(table, entry.data_file).identity for entry in entries}
    return found


# Six deletes leave no row for an overwrite to take away.
@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
@settings(max_examples=amount(8, 200), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(st.sampled_from(ACTIONS), min_size=1, max_size=7))
@example(["delete"] * 6 + ["overwrite"])
def test_no_file_of_a_retained_snapshot_is_left_out(actions: list[str]) -> None:
    with temporary_catalog() as catalog:
        table = make_table(catalog)
        table.append(rows(99, 40))
        for number, action in enumerate(actions):
            act(table, action, number)
            assert set(retained_files(table)) == of_each_snapshot(table)
            listed = list_data_files(table)
            clear_caches()
            assert list_data_files(table) == listed
            assert set(retained_files(table)) == of_each_snapshot(table)


def act(table: Table, action: str, number: int) -> None:
    match action:
        case "append":
            table.append(rows(number, 40))
        case "overwrite":
            table.overwrite(rows(number, 40), f"b = {number % 6}")
        case "delete":
            table.delete(f"b = {number % 6}")
        case "branch":
            snapshot = table.snapshots()[-1]
            table.manage_snapshots().create_branch(snapshot.snapshot_id, f"b{number}").commit()
            table.append(rows(number, 40), branch=f"b{number}")
        case "expire":
            kept = {ref.snapshot_id for ref in table.metadata.refs.values()}
            old = [one.snapshot_id for one in table.snapshots() if one.snapshot_id not in kept]
            table.maintenance.expire_snapshots().by_ids(old[:2]).commit()
