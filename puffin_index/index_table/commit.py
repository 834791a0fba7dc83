"""Commits to the index table, where other processes commit as well."""

import sqlite3
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import tenacity
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.table import Table
from sqlalchemy.exc import DBAPIError

from puffin_index.index_table.table import GUARD, note_commit, refresh_index_table

_MOST_ATTEMPTS = 50
_LONGEST_WAIT_SECONDS = 5.0

LOCK_SECONDS: Final = 60.0
"""How long a commit waits for a catalog that another process has locked, unless told otherwise."""

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_RETRIED_STATES = {"40001", "40P01", "55P03"}
"""PostgreSQL: serialization failure, deadlock, lock not available."""

_Outcome = TypeVar("_Outcome")


def commit(index_table: Table, attempt: Callable[[], _Outcome], lock_seconds: float = LOCK_SECONDS) -> _Outcome:
    """Commit to an index table, loaded anew for each attempt, after other commits and while the catalog is locked.

    The index table gets the properties that all index tables have, if it has lost one.

    Raises CommitFailedException if all attempts fail, DBAPIError if the lock lasts longer than `lock_seconds`.
    """

    def once() -> _Outcome:
        refresh_index_table(index_table)
        _set_lacking(index_table, GUARD)
        outcome = attempt()
        note_commit(index_table)
        return outcome

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type((CommitFailedException, ValidationException)),
        stop=tenacity.stop_after_attempt(_MOST_ATTEMPTS),
        wait=tenacity.wait_random_exponential(multiplier=0.05, max=_LONGEST_WAIT_SECONDS),
        reraise=True,
    )
    return while_locked(partial(retrying, once), lock_seconds)


def while_locked(action: Callable[[], _Outcome], seconds: float = LOCK_SECONDS) -> _Outcome:
    """Do something with a catalog, again and again for some seconds while the catalog's database is locked.

    The action has done nothing if it raises because of a lock. The last attempt takes as long as the database's driver
    waits (SQLite's: 5 seconds). Raises DBAPIError if the lock lasts.
    """
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(is_locked),
        stop=tenacity.stop_after_delay(seconds),
        wait=tenacity.wait_random_exponential(multiplier=0.05, max=_LONGEST_WAIT_SECONDS),
        reraise=True,
    )
    return retrying(action)


def is_locked(error: BaseException) -> bool:
    """Return whether a database says that others hold what it needs, so that nothing was done."""
    if not isinstance(error, DBAPIError):
        return False
    code = getattr(error.orig, "sqlite_errorcode", None)
    # psycopg2 and psycopg name the state differently.
    state = getattr(error.orig, "pgcode", None) or getattr(error.orig, "sqlstate", None)
    # The low byte is the plain code of an extended one.
    return state in _RETRIED_STATES or (code is not None and code & 0xFF in _BUSY)


def set_properties(index_table: Table, properties: dict[str, str], lock_seconds: float = LOCK_SECONDS) -> None:
    """Give an index table properties, and those that all index tables have, unless it has them."""
    if _lacking(index_table, GUARD | properties):
        commit(index_table, partial(_set_lacking, index_table, properties), lock_seconds)


def _set_lacking(index_table: Table, properties: dict[str, str]) -> None:
    if lacking := _lacking(index_table, properties):
        with index_table.transaction() as transaction:
            transaction.set_properties(lacking)


def _lacking(index_table: Table, properties: dict[str, str]) -> dict[str, str]:
    return dict(properties.items() - index_table.properties.items())
