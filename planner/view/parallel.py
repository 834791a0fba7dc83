"""Doing the same for many items at once: reads of remote stores wait for each other otherwise."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import cache
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_THREADS = 16
_worker = threading.local()


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="puffin-index")


def in_parallel(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return the results of a function for some items, in their order; context variables are those of the caller.

    Raises:
        Exception: Whatever the function raises for the first item that fails.
    """
    # A worker that waited for other workers of the pool could wait for ever.
    if len(items) < 2 or getattr(_worker, "busy", False):
        return [function(item) for item in items]

    def work(item: Item) -> Result:
        _worker.busy = True
        try:
            return function(item)
        finally:
            _worker.busy = False

    # A context cannot be entered twice at once, so that each item has its own copy.
    return list(_pool().map(lambda task: task[0].run(work, task[1]), [(copy_context(), item) for item in items]))
