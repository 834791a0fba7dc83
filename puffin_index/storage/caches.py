"""The caches that a whole process shares, and the only way to empty them (`docs/caches.md`); its lasting threads."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

from cachetools import LRUCache

_caches: list[tuple[Callable[[], object], AbstractContextManager[object]]] = []


def cleared_by(clear: Callable[[], object], lock: AbstractContextManager[object] | None = None) -> None:
    """Register a cache where it is made, and the lock to hold while `clear` runs, if there is one."""
    _caches.append((clear, nullcontext() if lock is None else lock))


def shared_cache(
    most: int, size_of: Callable[[Any], int] | None = None
) -> tuple[LRUCache[Any, Any], AbstractContextManager[object]]:
    """Register and return a new cache of so many things, or of things that have so many bytes in all, and its lock."""
    made, lock = LRUCache[Any, Any](most, size_of), threading.Lock()
    cleared_by(made.clear, lock)
    return made, lock


def clear_caches() -> None:
    """Empty the caches of this process. Answers stay the same; the next query reads again."""
    for clear, lock in _caches:
        with lock:
            clear()


def lasting_pool(threads: int, name: str) -> ThreadPoolExecutor:
    """Return the pool of a size and name; it starts a thread only when all others are busy.

    A process that was forked has none of the threads of its parent, and gets a pool of its own.
    """
    return _pool(threads, name, os.getpid())


@cache
def _pool(threads: int, name: str, process: int) -> ThreadPoolExecutor:  # noqa: ARG001 # a key of the cache
    return ThreadPoolExecutor(threads, thread_name_prefix=name)
