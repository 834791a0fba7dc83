"""Somebody else who locks a catalog for a while."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import TypeAlias

import psycopg2

Lock: TypeAlias = Callable[[bool], AbstractContextManager[None]]
"""Locks a catalog for the time of a context: against everybody (True), or against those who write."""

NOT_HAD = (sqlite3.OperationalError, psycopg2.OperationalError)
"""Raised if others do not let go for half a minute."""

_PATIENCE_SECONDS = 30


def sqlite_lock(database: Path) -> Lock:
    """Lock an SQLite file."""

    @contextmanager
    def lock(against_all: bool) -> Iterator[None]:
        with closing(sqlite3.connect(database, timeout=_PATIENCE_SECONDS, isolation_level=None)) as connection:
            connection.execute(f"BEGIN {'EXCLUSIVE' if against_all else 'IMMEDIATE'}")
            yield

    return lock


def postgres_lock(port: int, user: str, password: str) -> Lock:
    """Lock the tables of an SQL catalog in PostgreSQL."""

    @contextmanager
    def lock(against_all: bool) -> Iterator[None]:
        login = {"host": "127.0.0.1", "port": port, "user": user, "password": password, "dbname": "postgres"}
        options = f"-c lock_timeout={_PATIENCE_SECONDS}s"
        with closing(psycopg2.connect(**login, options=options)) as connection, connection.cursor() as cursor:
            cursor.execute(f"LOCK TABLE iceberg_tables IN {'ACCESS EXCLUSIVE' if against_all else 'EXCLUSIVE'} MODE")
            yield

    return lock
