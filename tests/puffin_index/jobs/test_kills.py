"""Killed wherever it may be, a build, compaction or expiration leaves an index that answers rightly and goes on."""

import signal
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.conftest import amount
from tests.puffin_index.indexed_table import check_queries, check_recovery, forget_history, indexed, rows
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
    [(action, points_of(action, number)[:: amount(4, 1)]) for number in range(ROUNDS) for action in POINTS],
)
def test_after_a_kill_queries_are_right_and_the_next_run_finishes(
    local_catalog: SqlCatalog, tmp_path: Path, action: str, points: list[int]
) -> None:
    index = indexed(local_catalog, 1)
    killed = 0
    for seed, point in enumerate(points, 50):
        index.data_table.refresh()
        index.data_table.append(rows(seed))
        if action != "build":
            index.build(workers=1)
        if action == "expire-now":
            index.data_table.overwrite(rows(seed + 100))
            forget_history(index)
        code, errors = Child(tmp_path, action, point).wait(120)
        assert code in (-signal.SIGKILL, 0), errors
        killed += code != 0

        check_recovery(index)
    check_queries(index)
    assert killed == len(points)
