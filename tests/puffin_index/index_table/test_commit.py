"""An index table of an earlier release gets what all have: a guard against Iceberg's own maintenance, and columns."""

from collections.abc import Callable

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from puffin_index import IndexDefinition, TableIndex
from puffin_index.index_table.table import GUARD, read_entries
from tests.puffin_index.indexed_table import DEFINITION, check_index, indexed, rows

JOBS: dict[str, Callable[[TableIndex], object]] = {
    "a build with nothing to do": lambda index: index.build(workers=1),
    "compact": lambda index: index.compact(),
    "expire": lambda index: index.expire(),
    "create": lambda index: TableIndex.create(index.catalog, index.name, DEFINITION),
    "add": lambda index: index.add_kinds(IndexDefinition.of(bloom=["b"])),
    "follow": lambda index: TableIndex.follow(index.catalog, index.name),
}


def is_guarded(index: TableIndex) -> bool:
    return index.index_table.refresh().properties.items() >= GUARD.items()


@pytest.mark.parametrize("job", JOBS)
def test_what_an_earlier_release_has_made_is_guarded_by_the_next_job(local_catalog: SqlCatalog, job: str) -> None:
    index = indexed(local_catalog, 1)
    assert is_guarded(index)
    index.index_table.transaction().remove_properties(*GUARD).commit_transaction()
    index.status()
    assert not is_guarded(index), "looking changes nothing"

    JOBS[job](index)

    assert is_guarded(index)
    check_index(index) if job != "add" else index.drop()


def test_files_with_an_index_of_an_earlier_release_may_have_pages(local_catalog: SqlCatalog) -> None:
    index = indexed(local_catalog, 1)
    with index.index_table.update_schema() as update:
        update.delete_column("has_pages")

    def said() -> list[bool | None]:
        index.refresh()
        check_index(index)
        return read_entries(index.index_table)["has_pages"].to_pylist()

    assert said() == [None]
    for seed in (1, 2):
        index.data_table.append(rows(seed))
        index.build(workers=1)
    assert said() == [None, False, False]
    assert index.compact().segments == 1
    assert sorted(said(), key=str) == [False, False, None]
