"""Commits to the index table, where other processes commit as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.table import Table
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from puffin_index.catalogue.index_table import note_commit, refresh_index_table

_MOST_ATTEMPTS = 50
_LONGEST_WAIT_SECONDS = 5.0

_Outcome = TypeVar("_Outcome")


def commit(index_table: Table, attempt: Callable[[], _Outcome]) -> _Outcome:
    """Commit to an index table, again and again if another commit comes in between.

    Args:
        index_table: The index table, which is loaded anew before each attempt.
        attempt: Commits; called again after another commit.

    Returns:
        What the attempt that succeeded returned.

    Raises:
        CommitFailedException: If all attempts fail.
    """
    for one in Retrying(
        retry=retry_if_exception_type((CommitFailedException, ValidationException)),
        stop=stop_after_attempt(_MOST_ATTEMPTS),
        wait=wait_random_exponential(multiplier=0.05, max=_LONGEST_WAIT_SECONDS),
        reraise=True,
    ):
        with one:
            refresh_index_table(index_table)
            outcome = attempt()
            note_commit(index_table)
            return outcome
    raise AssertionError("the last attempt returns or raises")


def set_properties(index_table: Table, properties: dict[str, str]) -> None:
    """Give an index table properties, unless it has them."""

    def differ() -> bool:
        return any(index_table.properties.get(key) != value for key, value in properties.items())

    def attempt() -> None:
        if differ():
            with index_table.transaction() as transaction:
                transaction.set_properties(properties)

    if differ():
        commit(index_table, attempt)
