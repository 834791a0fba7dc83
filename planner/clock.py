"""The time that planning may take."""

import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

DEFAULT_MILLISECONDS: Final = 2_000
"""How long judging the row groups of a scan may take by default."""

_MOST_WAITING: Final = 3
"""Waiting for a processor may make planning so many times as long."""


class Clock:
    """Says when the time for judging row groups is over: so many seconds from now on.

    The time that the thread waits for a processor (Linux) does not count, up to three times the seconds: on a busy
    machine the scan is as slow as planning.
    """

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._most_waiting = _MOST_WAITING * seconds
        self._thread = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        self._waited_before = self._waited()

    @property
    def seconds_left(self) -> float:
        """The time that is left, never negative."""
        left = self._end - time.monotonic()
        if left <= 0:  # Linux need not be asked before
            left += min(self._waited() - self._waited_before, self._most_waiting)
        return max(0.0, left)

    @property
    def is_over(self) -> bool:
        """Whether no time is left, so that no further piece of work is begun."""
        return self.seconds_left <= 0

    def _waited(self) -> float:
        """How long the thread has waited for a processor, in seconds; 0 where nobody says so."""
        with suppress(OSError, IndexError, ValueError):
            return int(self._thread.read_text(encoding="ascii").split()[1]) / 1e9
        return 0.0
