"""A catalog in PostgreSQL that others lock, and whose connections break: builds wait, and no outcome is guessed."""

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import psycopg2
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, OperationalError

from planner.spark.catalogs import open_spark_catalog
from puffin_index import TableIndex
from puffin_index.jobs.build_job import BuildProgress
from puffin_index.jobs.log_lines import reason_of
from tests.puffin_index import indexed_table
from tests.soak.proxy import FaultyProxy, Mode
from tests.spark.services import postgres

USER = "lake"
_PATIENCE = "?options=-c%20lock_timeout%3D50"
"""PostgreSQL itself waits without end otherwise."""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with postgres(USER, USER) as found:
        yield found


@pytest.fixture
def proxy(port: int) -> Iterator[FaultyProxy]:
    between = FaultyProxy(port)
    yield between
    between.close()


@pytest.fixture
def catalog(proxy: FaultyProxy, port: int, tmp_path: Path) -> Iterator[SqlCatalog]:
    uri = f"postgresql+psycopg2://{USER}:{USER}@127.0.0.1:{proxy.port}/postgres{_PATIENCE}"
    opened = SqlCatalog("local", uri=uri, warehouse=tmp_path.as_uri())
    opened.create_namespace("ns")
    yield opened
    opened.close()
    with closing(connected(port)) as connection, connection.cursor() as cursor:
        cursor.execute("DROP TABLE iceberg_tables, iceberg_namespace_properties")
        connection.commit()


@pytest.fixture
def index(catalog: SqlCatalog) -> TableIndex:
    """An index of two data files, and another file that has none."""
    made = indexed_table.indexed(catalog, 2)
    made.data_table.append(indexed_table.rows(9))
    return made


def connected(port: int) -> psycopg2.extensions.connection:
    return psycopg2.connect(host="127.0.0.1", port=port, user=USER, password=USER, dbname="postgres")


def lock(connection: psycopg2.extensions.connection) -> None:
    with connection.cursor() as cursor:
        cursor.execute("LOCK TABLE iceberg_tables IN ACCESS EXCLUSIVE MODE")


def check_clean(index: TableIndex) -> None:
    """Everything is indexed and right, and nothing is left that no commit names."""
    assert index.build(workers=1).files_left == 0
    indexed_table.check_entries(index)
    # Segments go one expiration after the record that keeps them.
    index.expire(timedelta(0))
    indexed_table.check_recovery(index)


def test_a_build_waits_for_a_locked_catalog(index: TableIndex, port: int) -> None:
    with closing(connected(port)) as connection:
        indexed_table.check_a_build_waits(index, lambda: lock(connection), connection.rollback)
    check_clean(index)


def test_a_build_ends_when_the_catalog_stays_locked(index: TableIndex, port: int) -> None:
    with closing(connected(port)) as connection:

        def lock_after_the_start(progress: BuildProgress) -> None:
            if not progress.files_done:
                lock(connection)

        with pytest.raises(OperationalError) as raised:
            index.build(workers=1, progress=lock_after_the_start, commit_timeout_seconds=0.3)
    assert reason_of(raised.value).endswith(") canceling statement due to lock timeout")

    assert index.build(workers=1).segments == 1
    check_clean(index)


@pytest.mark.parametrize("mode", ["cut", "mute"])
def test_a_broken_commit_loses_nothing(index: TableIndex, catalog: SqlCatalog, proxy: FaultyProxy, mode: Mode) -> None:
    """The request is lost, or the answer: of the second, the catalog has done what it was told."""
    before, armed = indexed_table.named_segments(index), [True]

    @event.listens_for(catalog.engine, "commit")
    def break_once(_: object) -> None:
        if armed.pop():
            armed.append(False)
            proxy.set_mode(mode)

    with pytest.raises(DBAPIError):
        index.build(workers=1)
    proxy.set_mode("pass")
    event.remove(catalog.engine, "commit", break_once)

    assert proxy.spoilt[mode]
    index.refresh()
    indexed_table.check_queries(index)
    added = indexed_table.named_segments(index) - before
    assert len(added) == (mode == "mute")
    assert indexed_table.named_segments(index) <= indexed_table.segment_files(index)
    check_clean(index)


def test_connections_that_broke_while_nobody_asked_cost_one_attempt(index: TableIndex, proxy: FaultyProxy) -> None:
    proxy.set_mode("cut")
    proxy.set_mode("pass")
    with pytest.raises(DBAPIError) as raised:
        index.build(workers=1)
    assert reason_of(raised.value) == "(psycopg2.OperationalError) server closed the connection unexpectedly"
    check_clean(index)


@pytest.mark.usefixtures("catalog")
def test_a_session_finds_its_catalog_after_its_connections_broke(proxy: FaultyProxy, tmp_path: Path) -> None:
    conf = {
        "type": "jdbc",
        "uri": f"jdbc:postgresql://127.0.0.1:{proxy.port}/postgres",
        "jdbc.user": USER,
        "jdbc.password": USER,
        "warehouse": tmp_path.as_uri(),
    }
    opened = open_spark_catalog({f"spark.sql.catalog.local.{key}": value for key, value in conf.items()}, "local")
    for _ in range(2):
        assert opened.namespace_exists("ns")
        proxy.set_mode("cut")
        proxy.set_mode("pass")
    assert proxy.spoilt["cut"] >= 2
    opened.close()
