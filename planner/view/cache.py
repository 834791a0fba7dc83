"""What planning keeps in memory: immutable parts of indexes between queries, and open payloads during one query."""

import threading
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from cachetools import LRUCache

from planner.view.segment_files import SegmentReader
from puffin_index.keys.leaf import LeafTest
from puffin_index.keys.map_key import ColumnId
from puffin_index.kinds.base import OpenIndex
from puffin_index.kinds.held_keys import KeysWithin
from puffin_index.storage.caches import cleared_by
from puffin_index.storage.ranged import BytesReader

Value = TypeVar("Value")
Key = TypeVar("Key", bound=Hashable)

_DEFAULT_BYTES: Final = 512 * 1024 * 1024

_OBJECT_BYTES: Final = 4096
"""The memory of objects besides the content of their arrays: nearly all that a small table takes."""

_MOST_SHARED_BYTES: Final = 256 * 1024 * 1024
"""Stored bytes of all payloads that one query keeps open, at most."""


class BoundedCache(Generic[Key, Value]):
    """Values by key of so many bytes in all; the least used go first. Safe to share between threads."""

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
        """Keep a value, or note its new size. A value larger than the limit is not kept."""
        with self._lock:
            self._drop_leaving()
            if self._size_of(value) <= self._values.maxsize:
                self._values[key] = value
            else:
                self._values.pop(key, None)

    def forget(self, keys: Iterable[Key]) -> None:
        """Drop some values before the next one is kept; without a lock, as the garbage collector calls it anywhere."""
        self._leaving.extend(keys)

    def _drop_leaving(self) -> None:
        while self._leaving:
            self._values.pop(self._leaving.popleft(), None)

    def clear(self) -> None:
        """Forget all values."""
        with self._lock:
            self._values.clear()

    def resize(self, limit: int) -> None:
        """Set another limit and forget all values."""
        with self._lock:
            self._values = LRUCache(limit, getsizeof=self._size_of)


class Cached(Protocol):
    """A part of an index that knows its size."""

    @property
    def nbytes(self) -> int:
        """The memory in bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class OpenPayload:
    """An opened payload of several row groups, and what was read of its directory."""

    reader: SegmentReader
    payload: OpenIndex

    @property
    def nbytes(self) -> int:
        """The memory in bytes."""
        return self.payload.nbytes


@dataclass(frozen=True, slots=True, eq=False)
class StoredDirectory:
    """The bytes of a directory that was read ahead."""

    reader: BytesReader

    @property
    def nbytes(self) -> int:
        """The memory in bytes."""
        return len(self.reader.data)


IndexCache: TypeAlias = BoundedCache[object, Cached]


def new_cache(limit: int = _DEFAULT_BYTES) -> IndexCache:
    """Make a cache for directories and opened payloads of views."""
    return BoundedCache(limit, lambda value: _OBJECT_BYTES + int(value.nbytes))


CACHE: Final = new_cache()
"""Shared by all views of this process that have no cache of their own."""
cleared_by(CACHE.clear)


class SharedPayloads:
    """What a WHERE read of some columns, for an aggregate: opened payloads, and keys `within` a test, by `blob`."""

    def __init__(self, columns: Collection[ColumnId]) -> None:
        self.columns = frozenset(columns)
        self.within: dict[tuple[ColumnId, str, int], tuple[LeafTest, KeysWithin]] = {}
        self._opened: dict[object, OpenIndex] = {}
        self._bytes = 0
        self._keeps = True

    def keep_no_more(self) -> None:
        """Each payload is now returned once, then released."""
        self._keeps = False

    def find(self, key: object) -> OpenIndex | None:
        """Return the open payload of a key, if there is one."""
        return self._opened.get(key) if self._keeps else self._opened.pop(key, None)

    def keep(self, key: object, opened: OpenIndex, length: int) -> None:
        """Keep a payload of `length` stored bytes, as long as there is room."""
        # Threads that add at the same time may exceed the bound a little, which only costs memory.
        if self._keeps and self._bytes + length <= _MOST_SHARED_BYTES:
            self._bytes += length
            self._opened[key] = opened
