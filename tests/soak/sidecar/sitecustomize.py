"""Empties the caches of the sidecar now and then: Python imports this first, where the folder is on its path.

Caches grow up to their bounds, and leaks are looked for beyond them.
"""

import sys
import threading
import time


def _empty() -> None:
    from tests.soak.world import EMPTY_CACHES_SECONDS, trim_memory

    while True:
        time.sleep(EMPTY_CACHES_SECONDS)
        trim_memory()


if "planner.spark.sidecar" in sys.orig_argv:
    threading.Thread(target=_empty, daemon=True).start()
