"""An index table that has lost the guard against Iceberg's own maintenance gets it back."""

from collections.abc import Callable

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from puffin_index import IndexDefinition, TableIndex
from puffin_index.index_table.table import GUARD
from tests.puffin_index.indexed_table import DEFINITION, check_index, indexed

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
def test_what_has_lost_its_guard_is_guarded_by_the_next_job(local_catalog: SqlCatalog, job: str) -> None:
    index = indexed(local_catalog, 1)
    assert is_guarded(index)
    index.index_table.transaction().remove_properties(*GUARD).commit_transaction()
    index.status()
    assert not is_guarded(index), "looking changes nothing"

    JOBS[job](index)

    assert is_guarded(index)
    check_index(index) if job != "add" else index.drop()
