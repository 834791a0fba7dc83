"""A catalog that another process has locked for a while: commits wait, and say so in the end."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from puffin_index import TableIndex
from puffin_index.index_table.commit import while_locked
from tests.conftest import catalog_in
from tests.puffin_index.indexed_table import check_a_build_waits, check_entries, check_queries, indexed, rows

_PATIENCE = "?timeout=0.05"
"""SQLite itself waits for 5 seconds otherwise."""


@contextmanager
def locked(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    try:
        yield connection
    finally:
        connection.close()


def _index(tmp_path: Path) -> TableIndex:
    catalog = catalog_in(tmp_path, _PATIENCE)
    catalog.create_namespace("ns")
    index = indexed(catalog, 2)
    index.data_table.append(rows(9))
    return index


def test_a_build_waits_for_a_locked_catalog(tmp_path: Path) -> None:
    index = _index(tmp_path)
    with locked(tmp_path / "catalog.db") as connection:
        connection.rollback()
        check_a_build_waits(index, lambda: connection.execute("BEGIN EXCLUSIVE"), connection.rollback)
    check_entries(index)
    check_queries(index)


def test_a_catalog_that_stays_locked_is_named_after_a_while(tmp_path: Path) -> None:
    index = _index(tmp_path)
    calls = []

    def refresh() -> None:
        calls.append(1)
        index.data_table.refresh()

    with locked(tmp_path / "catalog.db"), pytest.raises(OperationalError, match="locked"):
        while_locked(refresh, seconds=0.5)
    assert len(calls) > 2

    while_locked(refresh)
    failures = [ValueError("no database"), OperationalError("SELECT", {}, sqlite3.OperationalError("no such table"))]
    for failure in failures:
        with pytest.raises(type(failure)):
            while_locked(lambda failure=failure: (_ for _ in ()).throw(failure))  # type: ignore[misc]
