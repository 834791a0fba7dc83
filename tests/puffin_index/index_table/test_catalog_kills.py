"""Killed anywhere, or with another one at work, what looks after an index can be run again and ends well."""

import signal
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from puffin_index import TableIndex
from puffin_index.errors import NotFoundError
from puffin_index.jobs.drop import drop_index
from tests.conftest import amount
from tests.puffin_index.indexed_table import DEFINITION, check_entries, check_queries, indexed, make_table, rows
from tests.puffin_index.jobs.upkeep_child import Child

# Before and after: metadata is written, the catalog is told, files are deleted.
POINTS = {"create": [1, 2, 3, 4], "drop": [1, 4, 6, 8, 10], "follow": [1, 2, 3, 5]}


def run(folder: Path, action: str, kill_at: int) -> None:
    code, errors = Child(folder, action, kill_at).wait(120)
    assert code == -signal.SIGKILL, errors


def segments_below(folder: Path) -> list[Path]:
    return list(folder.rglob("_segments/*.puffin"))


@pytest.mark.one_of(3)
@pytest.mark.parametrize("point", POINTS["create"])
def test_a_create_that_was_killed_can_be_run_again(local_catalog: SqlCatalog, tmp_path: Path, point: int) -> None:
    make_table(local_catalog).append(rows(1))

    run(tmp_path, "create", point)

    index = TableIndex.create(local_catalog, "ns.t", DEFINITION)
    assert index.build(workers=1).files == 1
    check_entries(index)
    check_queries(index)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("point", POINTS["drop"])
def test_a_drop_that_was_killed_can_be_run_again(local_catalog: SqlCatalog, tmp_path: Path, point: int) -> None:
    index = indexed(local_catalog, 2)

    run(tmp_path, "drop", point)

    if local_catalog.table_exists("ns.t__puffin_index"):
        check_queries(TableIndex.open(local_catalog, "ns.t"), strict=False)
        drop_index(local_catalog, "ns.t")
    with pytest.raises(NotFoundError):
        TableIndex.open(local_catalog, "ns.t")
    assert segments_below(tmp_path) == []
    assert TableIndex.create(local_catalog, "ns.t", DEFINITION).build(workers=1).files == 2
    assert index.index_table.location() != TableIndex.open(local_catalog, "ns.t").index_table.location()


@pytest.mark.one_of(3)
@pytest.mark.parametrize("point", POINTS["follow"])
def test_a_follow_that_was_killed_can_be_run_again(local_catalog: SqlCatalog, tmp_path: Path, point: int) -> None:
    indexed(local_catalog, 2)
    local_catalog.rename_table("ns.t", "ns.h")

    run(tmp_path, "follow", point)

    check_queries(TableIndex.open(local_catalog, "ns.h"))
    index = TableIndex.follow(local_catalog, "ns.h")
    assert index.index_table.name() == ("ns", "h__puffin_index")
    assert index.build(workers=1).files == 0
    check_entries(index)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("actions", [("create", "create"), ("create", "drop"), ("drop", "drop"), ("follow", "adopt")])
def test_two_at_once_leave_an_index_or_none(
    local_catalog: SqlCatalog, tmp_path: Path, actions: tuple[str, str]
) -> None:
    if "drop" in actions:
        indexed(local_catalog, 2)
    else:
        make_table(local_catalog).append(rows(1))
    name = "ns.t"
    if "follow" in actions:
        TableIndex.create(local_catalog, "ns.t", DEFINITION)
        name = "ns.h"
        local_catalog.rename_table("ns.t", name)

    children = [Child(tmp_path, action) for action in actions]
    ends = [child.wait(120) for child in children]

    # Who is late finds what it needs gone, and says so.
    assert all(code == 0 or "puffin_index.errors." in error for code, error in ends), ends
    index = TableIndex.create(local_catalog, name, DEFINITION)
    index.build(workers=1)
    check_entries(index)
    check_queries(index)
    assert len(segments_below(tmp_path)) == 1 or "drop" in actions


@pytest.mark.parametrize("other", ["append-and-build", "compact", "expire"])
def test_a_builder_and_another(local_catalog: SqlCatalog, tmp_path: Path, other: str) -> None:
    index = indexed(local_catalog, 2)

    children = [Child(tmp_path, "append-and-build", repeat=amount(2, 5)), Child(tmp_path, other, repeat=amount(2, 5))]

    for child in children:
        code, errors = child.wait(180)
        assert code == 0, errors
    index.refresh()
    check_queries(index)
    # A builder that was late for the last append of the other one leaves it to the next build.
    index.build(workers=1)
    check_entries(index)
    check_queries(index)
