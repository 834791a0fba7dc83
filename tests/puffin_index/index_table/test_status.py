"""`status` tells what the current snapshot has of the index from what all of it takes."""

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from puffin_index import IndexDefinition, TableIndex
from tests.puffin_index.indexed_table import DEFINITION, indexed, rows
from tests.shell import Shell


def test_all_is_live_but_what_was_overwritten_or_the_definition_lost(local_catalog: SqlCatalog) -> None:
    whole = status = indexed(local_catalog, 3).status()

    assert status.total_index_bytes == status.index_bytes
    assert status.live_index_bytes == sum(column.index_bytes for column in status.columns)
    assert [column.live_kinds for column in status.columns] == [column.kinds for column in status.columns]
    assert 0 < status.live_index_bytes < status.index_bytes

    status = TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bsi=["k"])).status()

    assert status.live_index_bytes == next(c for c in whole.columns if c.name == "k").live_kinds["bsi"]
    assert status.total_index_bytes == whole.total_index_bytes


@pytest.mark.parametrize("compacted", [False, True])
def test_indexes_of_other_snapshots_count_to_the_total_alone(local_catalog: SqlCatalog, compacted: bool) -> None:
    index = indexed(local_catalog, 6)
    if compacted:
        index.compact()
    whole = index.status()
    # One of six files stays.
    files = [task.file.file_path for task in index.data_table.refresh().scan().plan_files()]
    with index.data_table.transaction() as transaction, transaction.update_snapshot().overwrite() as update:
        for task in list(index.data_table.scan().plan_files()):
            if task.file.file_path != files[0]:
                update.delete_data_file(task.file)

    status = index.status()

    assert (status.data_files, status.indexed_data_files) == (1, 1)
    assert status.live_index_bytes == pytest.approx(whole.live_index_bytes / 6, rel=0.2)
    assert status.total_index_bytes > 3 * status.live_index_bytes
    assert status.index_bytes == (
        status.total_index_bytes if compacted else pytest.approx(whole.index_bytes / 6, rel=0.2)
    )


def test_text_and_json_say_both(local_catalog: SqlCatalog, shell: Shell) -> None:
    index = indexed(local_catalog, 2, DEFINITION)
    index.data_table.overwrite(rows(9))
    index.build(workers=1)

    fields = shell.json("status")

    status = index.status()
    assert fields["live_index_bytes"] == status.live_index_bytes
    assert fields["total_index_bytes"] == status.total_index_bytes
    assert fields["index_table"] == "ns.t__puffin_index"
    assert [column["live_kind_bytes"] for column in fields["columns"]] == [c.live_kinds for c in status.columns]
    text = shell("status").stdout
    assert f"({status.live_index_bytes / status.data_bytes:.0%})" in text
    assert "in all" in text
