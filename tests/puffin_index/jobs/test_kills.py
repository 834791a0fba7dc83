"""Killed anywhere, or with another one at work, what looks after an index can be run again and ends well."""

import signal
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from puffin_index import TableIndex
from puffin_index.errors import NotFoundError
from puffin_index.jobs.drop import drop_index
from tests.conftest import amount, built
from tests.puffin_index import indexed_table
from tests.puffin_index.jobs.upkeep_child import Child

# Before and after: the segment's file is opened, the entries' file, manifest, manifest list and metadata are written,
# the catalog is told; for the expiration also files are deleted.
POINTS = {"build": [1, 2, 4, 11], "compact": [2, 5, 11, 16], "expire-now": [2, 7, 8, 9]}
WANTED = amount(12, 200)
"""How many kills, a dozen a table of each kind of work."""
ROUNDS = -(-WANTED // sum(map(len, POINTS.values())))


def points_of(action: str, number: int) -> list[int]:
    """The points of a round: each moved on by one from round to round, up to the last of them."""
    own = POINTS[action]
    return [1 + (point - 1 + number) % max(own) for point in own]


@pytest.mark.parametrize(
    ("action", "points"),
    [(action, points_of(action, number)[: amount(1, 4)]) for number in range(ROUNDS) for action in POINTS],
)
def test_the_run_after_a_kill_finishes(
    local_catalog: SqlCatalog, tmp_path: Path, action: str, points: list[int]
) -> None:
    index = indexed_table.indexed(local_catalog, 1)
    killed = 0
    for seed, point in enumerate(points, 50):
        index.data_table.refresh()
        index.data_table.append(indexed_table.rows(seed))
        if action != "build":
            index.build(workers=1)
        if action == "expire-now":
            index.data_table.overwrite(indexed_table.rows(seed + 100))
            indexed_table.forget_history(index)
        code, errors = Child(tmp_path, action, point).wait(120)
        assert code in (-signal.SIGKILL, 0), errors
        killed += code != 0

        indexed_table.check_recovery(index)
    indexed_table.check_queries(index)
    assert killed == len(points)


# Before and after: metadata is written, the catalog is told, files are deleted.
CATALOG_POINTS = {"create": [1, 2, 3, 4], "drop": [1, 4, 6, 8, 10], "follow": [1, 2, 3, 5]}


def run(folder: Path, action: str, kill_at: int) -> None:
    code, errors = Child(folder, action, kill_at).wait(120)
    assert code == -signal.SIGKILL, errors


def segments_below(folder: Path) -> list[Path]:
    return list(folder.rglob("_segments/*.puffin"))


@pytest.mark.one_of(3)
@pytest.mark.parametrize("point", CATALOG_POINTS["create"])
def test_a_create_that_was_killed_can_be_run_again(local_catalog: SqlCatalog, tmp_path: Path, point: int) -> None:
    indexed_table.make_table(local_catalog).append(indexed_table.rows(1))

    run(tmp_path, "create", point)

    index = TableIndex.create(local_catalog, "ns.t", indexed_table.DEFINITION)
    assert index.build(workers=1).files == 1
    indexed_table.check_index(index)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("point", CATALOG_POINTS["drop"])
def test_a_drop_that_was_killed_can_be_run_again(local_catalog: SqlCatalog, tmp_path: Path, point: int) -> None:
    index = indexed_table.indexed(local_catalog, 2)

    run(tmp_path, "drop", point)

    if local_catalog.table_exists("ns.t__puffin_index"):
        indexed_table.check_queries(TableIndex.open(local_catalog, "ns.t"), strict=False)
        drop_index(local_catalog, "ns.t")
    with pytest.raises(NotFoundError):
        TableIndex.open(local_catalog, "ns.t")
    assert segments_below(tmp_path) == []
    assert TableIndex.create(local_catalog, "ns.t", indexed_table.DEFINITION).build(workers=1).files == 2
    assert index.index_table.location() != TableIndex.open(local_catalog, "ns.t").index_table.location()


@pytest.mark.one_of(3)
@pytest.mark.parametrize("point", CATALOG_POINTS["follow"])
def test_a_follow_that_was_killed_can_be_run_again(local_catalog: SqlCatalog, tmp_path: Path, point: int) -> None:
    indexed_table.indexed(local_catalog, 2)
    local_catalog.rename_table("ns.t", "ns.h")

    run(tmp_path, "follow", point)

    indexed_table.check_queries(TableIndex.open(local_catalog, "ns.h"))
    index = TableIndex.follow(local_catalog, "ns.h")
    assert index.index_table.name() == ("ns", "h__puffin_index")
    assert index.build(workers=1).files == 0
    indexed_table.check_entries(index)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("actions", [("create", "create"), ("create", "drop"), ("drop", "drop"), ("follow", "adopt")])
def test_two_at_once_leave_one_or_none(local_catalog: SqlCatalog, tmp_path: Path, actions: tuple[str, str]) -> None:
    if "drop" in actions:
        indexed_table.indexed(local_catalog, 2)
    else:
        indexed_table.make_table(local_catalog).append(indexed_table.rows(1))
    name = "ns.t"
    if "follow" in actions:
        TableIndex.create(local_catalog, "ns.t", indexed_table.DEFINITION)
        name = "ns.h"
        local_catalog.rename_table("ns.t", name)

    children = [Child(tmp_path, action) for action in actions]
    ends = [child.wait(120) for child in children]

    # Who is late finds what it needs gone, and says so.
    assert all(code == 0 or "puffin_index.errors." in error for code, error in ends), ends
    indexed_table.check_index(built(local_catalog, name, indexed_table.DEFINITION))
    assert len(segments_below(tmp_path)) == 1 or "drop" in actions


@pytest.mark.parametrize("other", ["append-and-build", "compact", "expire"])
def test_a_builder_and_another(local_catalog: SqlCatalog, tmp_path: Path, other: str) -> None:
    index = indexed_table.indexed(local_catalog, 2)

    children = [Child(tmp_path, "append-and-build", repeat=amount(2, 5)), Child(tmp_path, other, repeat=amount(2, 5))]

    for child in children:
        code, errors = child.wait(180)
        assert code == 0, errors
    index.refresh()
    indexed_table.check_queries(index)
    # A builder that was late for the last append of the other one leaves it to the next build.
    index.build(workers=1)
    indexed_table.check_index(index)
