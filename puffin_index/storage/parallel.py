"""Doing the same for many items at once: reads of remote stores wait for each other otherwise."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import Final, TypeVar

import pyarrow as pa
from pyiceberg.io import FileIO

from puffin_index.errors import DefinitionError
from puffin_index.storage.caches import lasting_pool
from puffin_index.storage.files import is_local, most_open_files
from puffin_index.storage.objects import find_object

Item = TypeVar("Item")
Result = TypeVar("Result")

MOST_AT_ONCE: Final = 1024
"""Requests side by side, if no property says otherwise: one for each of this many segments costs one round."""

PROPERTY_AT_ONCE: Final = "puffin-index.requests-at-once"
"""A property of the catalog, or of the index table: requests that a plan has under way at one time."""

_MOST_ELSEWHERE: Final = 32
"""PyArrow's files share 25 connections, and other clients have a thread for each request."""

_LEAST_AT_ONCE: Final = 16
"""Threads of a caller beside others that have taken all threads."""

_NAME: Final = "puffin-index"

_worker = threading.local()

_lock = threading.Lock()
_left = [MOST_AT_ONCE]
"""How many threads all callers together may still take."""


@contextmanager
def _pool(at_once: int, items: int) -> Iterator[ThreadPoolExecutor]:
    """Give threads: lasting ones where a client has a connection for each, otherwise threads that end with the work.

    Arrow's allocator keeps what other threads have freed for a thread that allocated it, until that thread works again
    or ends: results of 128 idle threads, which had 30 MB in all, kept 150 MB. To start threads takes no longer than to
    wake them.
    """
    if at_once <= _MOST_ELSEWHERE:
        yield lasting_pool(at_once, _NAME)
        return
    with _lock:
        count = min(at_once, items, max(_left[0], _LEAST_AT_ONCE))
        _left[0] -= count
    pool = ThreadPoolExecutor(count, thread_name_prefix=_NAME)
    try:
        yield pool
        pool.shutdown()
    except BaseException:
        # Others may wait for a store for long.
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    finally:
        with _lock:
            _left[0] += count
    release_memory()


def requests_at_once(io: FileIO, location: str) -> int:
    """Return how many requests for files like one at a location may be under way: one if the files are of this machine.

    A local disk has answered before threads could take turns. The FileIO has the properties of catalog and table.
    Raises DefinitionError if the property is no whole number above 0.
    """
    if is_local(location):
        return 1
    # Each request may have a connection of its own, which is an open file.
    most = most_open_files()
    text = io.properties.get(PROPERTY_AT_ONCE)
    if text is None:
        return min(MOST_AT_ONCE if find_object(io, location) is not None else _MOST_ELSEWHERE, most)
    if not text.isdecimal() or not int(text):
        raise DefinitionError(f"property {PROPERTY_AT_ONCE} is {text!r}, not a whole number above 0")
    return min(int(text), most)


def release_memory() -> None:
    """Give back what Arrow's allocator keeps for this thread, whenever one of many threads has done its work.

    The allocator keeps pages of each size for each thread: 128 threads, which never used more than 24 MB, held 700 MB.
    """
    pa.default_memory_pool().release_unused()


def in_parallel(function: Callable[[Item], Result], items: Sequence[Item], at_once: int = MOST_AT_ONCE) -> list[Result]:
    """Return a function's results in the order of the items, with the caller's context, or raise the first error."""
    # A worker that waited for other workers of the pool could wait for ever.
    if len(items) < 2 or at_once < 2 or getattr(_worker, "busy", False):
        return [function(item) for item in items]

    def work(item: Item) -> Result:
        _worker.busy = True
        try:
            return function(item)
        finally:
            _worker.busy = False
            release_memory()

    with _pool(at_once, len(items)) as pool:
        futures: list[Future[Result]] = []
        for item in items:
            try:
                # A context cannot be entered twice at once, so that each item has its own copy.
                futures.append(pool.submit(copy_context().run, work, item))
            except RuntimeError:
                # The system has no more threads for this process. What was submitted is done by those that there are.
                break
        results = [future.result() for future in futures]
    return results + [function(item) for item in items[len(futures) :]]
