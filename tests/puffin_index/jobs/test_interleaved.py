"""One job in the midst of another, at each request to the store: nothing is lost, doubled or left over."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy.exc import OperationalError

from puffin_index import IndexDefinition, TableIndex
from puffin_index.jobs import expire
from tests.conftest import amount, catalog_in
from tests.puffin_index import faulty_io
from tests.puffin_index.indexed_table import check_entries, check_queries, check_recovery, rows
from tests.puffin_index.jobs.test_faults import locked, make_work, prepared

STEP = amount(50, 1)
"""Every how many requests another job runs."""

SHORT_GRACE = timedelta(seconds=30)
"""Longer than a test's job takes: files that are older belong to no job that runs."""


def add_and_remove(index: TableIndex) -> None:
    index.add_kinds(IndexDefinition.of(bloom=["k"]))
    index.remove_kinds(IndexDefinition.of(bloom=["k"]))


def write(index: TableIndex) -> None:
    """The data table changes, and loses old files."""
    make_work(index, 11)


JOBS: dict[str, Callable[[TableIndex], object]] = {
    "build": lambda index: index.build(workers=1),
    "compact": lambda index: index.compact(),
    "expire": lambda index: index.expire(SHORT_GRACE),
    "repair": lambda index: index.verify(None, repair=True),
    "define": add_and_remove,
    "write": write,
}
PAIRS = [
    (outer, inner)
    for outer in ("build", "compact", "expire", "repair", "define")
    for inner in JOBS
    if (outer, inner) != ("define", "define")
]


class Place:
    """A folder with a catalog and an index, which can be put back as it was; how many requests each job makes."""

    def __init__(self, folder: Path) -> None:
        self.requests: dict[str, int] = {}
        self._folder, self._copy = folder / "lake", folder / "copy"
        self._folder.mkdir()
        catalog = self._open()
        catalog.create_namespace("ns")
        index = prepared(catalog)
        index.data_table.append(rows(9))
        # A build ends without its commit, so that its segments wait for the next build.
        with locked(self._folder), pytest.raises(OperationalError, match="locked"):
            index.build(workers=1, commit_timeout_seconds=0.1)
        index.data_table.append(rows(10))
        catalog.close()
        long_ago = time.time() - 2 * SHORT_GRACE.total_seconds()
        for path in self._folder.rglob("*"):
            os.utime(path, (long_ago, long_ago))
        shutil.copytree(self._folder, self._copy)

    def _open(self) -> SqlCatalog:
        return catalog_in(self._folder, "?timeout=0.05", **{"py-io-impl": faulty_io.IMPLEMENTATION})

    def put_back(self) -> SqlCatalog:
        shutil.rmtree(self._folder)
        shutil.copytree(self._copy, self._folder)
        return self._open()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("interleaved"))


@pytest.fixture(autouse=True)
def _no_fault_stays() -> Iterator[None]:
    yield
    faulty_io.set_fault(0)


def run(place: Place, outer: str, inner: str, at: int) -> int:
    """Run one job in the midst of another; return the number of requests of the other."""
    catalog = place.put_back()
    first, second = TableIndex.open(catalog, "ns.t"), TableIndex.open(catalog, "ns.t")

    def interrupt() -> None:
        faulty_io.set_fault(0)
        JOBS[inner](second)

    faulty_io.set_fault(at, first=interrupt)
    JOBS[outer](first)
    requests = faulty_io.FAULT.seen
    faulty_io.set_fault(0)

    index = TableIndex.open(catalog, "ns.t")
    check_queries(index)
    check_entries(index, complete=False)
    # Segments go one expiration after the record that keeps them.
    index.expire(timedelta(0))
    check_recovery(index)
    catalog.close()
    return requests


@pytest.mark.one_of(8)
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_a_job_in_the_midst_of_another(place: Place, pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expire, "SNAPSHOT_GRACE", timedelta(0))
    requests = place.requests.get(pair[0]) or run(place, *pair, 10**9)
    place.requests[pair[0]] = requests
    assert requests > 3
    # Each pair has another first request, so that the pairs together meet many.
    for at in range(1 + PAIRS.index(pair) * 7 % min(STEP, requests), requests + 1, STEP):
        run(place, *pair, at)
