"""Processes that work for this one, and end when it does, however that is."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping

from loky import ProcessPoolExecutor

_LOOK_SECONDS = 0.5


def worker_pool(workers: int, environment: Mapping[str, str]) -> ProcessPoolExecutor:
    """Make a pool of processes.

    loky's processes do not import the caller's main module, so that a script without a main guard works.

    Args:
        workers: How many processes.
        environment: Variables that they are started with, besides those of this process.
    """
    return ProcessPoolExecutor(
        max_workers=workers, env=dict(environment), initializer=end_with, initargs=(os.getpid(),)
    )


def end_with(parent: int) -> None:
    """End this process soon after its parent has ended: nobody else would tell it that there is no more work.

    A signal of the kernel's at the death of the parent would come when the parent's *thread* ends that started this
    process, and a pipe stays open while any other process has inherited its end.

    Args:
        parent: The process ID of the parent. It is told, not asked for, as the parent may have ended already.
    """
    threading.Thread(target=_end_after, args=(parent,), name="puffin-index-parent", daemon=True).start()


def _end_after(parent: int) -> None:
    # A process whose parent has ended gets another one at once, except on Windows.
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os._exit(1)
