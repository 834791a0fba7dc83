"""Payloads that stay open while one question is answered: what a WHERE has read, an aggregate does not read again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from puffin_index.keys.map_key import ColumnId
from puffin_index.kinds.base import RowGroupIndex

_MOST_BYTES: Final = 256 * 1024 * 1024
"""Stored bytes of all payloads that one question keeps open, at most."""


class SharedPayloads:
    """Opened payloads of single row groups; each keeps what was read of it.

    Args:
        columns: The columns whose payloads are worth keeping.
    """

    def __init__(self, columns: Collection[ColumnId]) -> None:
        self.columns = frozenset(columns)
        self._opened: dict[object, RowGroupIndex] = {}
        self._bytes = 0
        self._keeps = True

    def keep_no_more(self) -> None:
        """From now on, opened payloads are handed out for the last time."""
        self._keeps = False

    def opened(self, key: object, length: int, open_payload: Callable[[], RowGroupIndex]) -> RowGroupIndex:
        """Return a payload that is open, or open it.

        Args:
            key: Names the payload.
            length: Its stored bytes.
            open_payload: Opens it.
        """
        if not self._keeps:
            return self._opened.pop(key, None) or open_payload()
        found = self._opened.get(key)
        if found is None:
            found = open_payload()
            # Several threads may add: the bound is one of memory only, and need not be met to the byte.
            if self._bytes + length <= _MOST_BYTES:
                self._bytes += length
                self._opened[key] = found
        return found


SHARED: ContextVar[SharedPayloads | None] = ContextVar("SHARED", default=None)
"""The payloads of the question that is being answered."""


@contextmanager
def sharing_payloads(columns: Collection[ColumnId]) -> Iterator[None]:
    """Keep payloads of some columns open from the first look at rows to the aggregates of the rows."""
    if SHARED.get() is not None:
        # Somebody who began earlier keeps them longer.
        yield
        return
    token = SHARED.set(SharedPayloads(columns))
    try:
        yield
    finally:
        SHARED.reset(token)
