"""Questions to a catalog that no query waits for: the next query finds the answer."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable

from puffin_index.jobs.log_lines import reason_of

_log = logging.getLogger(__name__)

_DELAY_SECONDS = 0.05


class Background:
    """Runs each action soon, in a thread of its own; at most one action a key at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: set[Hashable] = set()

    def run(self, key: Hashable, action: Callable[[], object]) -> None:
        """Run an action, unless another action with this key waits or runs."""
        with self._lock:
            if key in self._waiting:
                return
            self._waiting.add(key)

        def run() -> None:
            try:
                action()
            except Exception as error:  # noqa: BLE001 - nobody waits for the action, and a later query tries again
                _log.warning("index tables were not looked up anew: %s", reason_of(error))
            finally:
                with self._lock:
                    self._waiting.discard(key)

        timer = threading.Timer(_DELAY_SECONDS, run)
        timer.daemon = True
        timer.start()
