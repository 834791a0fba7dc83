"""Pools of threads that last as long as the process."""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache


def lasting_pool(threads: int, name: str) -> ThreadPoolExecutor:
    """Return the pool of a size and name; it starts a thread only when all others are busy.

    A process that was forked has none of the threads of its parent, and gets a pool of its own.
    """
    return _pool(threads, name, os.getpid())


@cache
def _pool(threads: int, name: str, process: int) -> ThreadPoolExecutor:  # noqa: ARG001 # a key of the cache
    return ThreadPoolExecutor(threads, thread_name_prefix=name)
