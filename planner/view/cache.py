"""What planning keeps in memory between queries: immutable parts of indexes, the least used go when space runs out."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Final, Generic, TypeVar

from cachetools import LRUCache

Value = TypeVar("Value")
Key = TypeVar("Key", bound=Hashable)

DEFAULT_BYTES: Final = 512 * 1024 * 1024


class BoundedCache(Generic[Key, Value]):
    """Values by key, as many as fit; safe to share between threads.

    Args:
        limit: How many bytes the values may have in all.
        size_of: The bytes of a value, about.
    """

    def __init__(self, limit: int, size_of: Callable[[Value], int]) -> None:
        self._size_of = size_of
        self._lock = threading.Lock()
        self._values: LRUCache[Key, Value] = LRUCache(limit, getsizeof=size_of)
        self._leaving: deque[Key] = deque()

    @property
    def limit(self) -> int:
        """How many bytes the values may have in all."""
        return int(self._values.maxsize)

    @property
    def used_bytes(self) -> int:
        """The bytes of what is kept."""
        with self._lock:
            self._drop_leaving()
            return int(self._values.currsize)

    def get(self, key: Key) -> Value | None:
        """The value of a key, None if it is not kept."""
        with self._lock:
            return self._values.get(key)

    def put(self, key: Key, value: Value) -> None:
        """Keep a value, or take down its new size, unless it alone is larger than all that may be kept."""
        with self._lock:
            self._drop_leaving()
            if self._size_of(value) <= self._values.maxsize:
                self._values[key] = value
            else:
                self._values.pop(key, None)

    def forget(self, keys: Iterable[Key]) -> None:
        """Let go of some values before anything else is kept.

        Waits for nobody: the garbage collector may call it in a thread that is in the midst of another method.
        """
        self._leaving.extend(keys)

    def _drop_leaving(self) -> None:
        while self._leaving:
            self._values.pop(self._leaving.popleft(), None)

    def clear(self) -> None:
        """Forget all values."""
        with self._lock:
            self._values.clear()

    def resize(self, limit: int) -> None:
        """Set another limit; what was kept is forgotten."""
        with self._lock:
            self._values = LRUCache(limit, getsizeof=self._size_of)
