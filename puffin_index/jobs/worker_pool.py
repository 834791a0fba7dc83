"""Worker processes that end when this process ends, however it ends."""

import os
import threading
import time
from collections.abc import Mapping

from loky import ProcessPoolExecutor

_LOOK_SECONDS = 0.5


def worker_pool(workers: int, environment: Mapping[str, str]) -> ProcessPoolExecutor:
    """Make a pool of processes, which get some environment variables more than this process has.

    loky's processes do not import the caller's main module, so a script works without a main guard.
    """
    return ProcessPoolExecutor(
        max_workers=workers, env=dict(environment), initializer=end_with, initargs=(os.getpid(),)
    )


def end_with(parent: int) -> None:
    """End this process soon after its parent has ended, as no other sign tells that there is no more work.

    The caller passes the parent's ID, as the parent may have ended already. The kernel's signal for the death of a
    parent comes when the *thread* that started this process ends. A pipe stays open as long as any other process has
    inherited its other end.
    """
    threading.Thread(target=_end_after, args=(parent,), name="puffin-index-parent", daemon=True).start()


def _end_after(parent: int) -> None:
    # Except on Windows, a process whose parent has ended gets another parent at once.
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os._exit(1)
