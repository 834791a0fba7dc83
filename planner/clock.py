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

_FRESH_SECONDS: Final = 0.01
"""A plan makes several clocks, and asking Linux for each took 7 % of planning one key. So an answer may be this old."""


class _Waiting:
    """How long a thread has waited for a processor, as Linux said last; 0 where nobody says so."""

    def __init__(self, thread: int) -> None:
        self.thread = thread
        self._path = Path(f"/proc/self/task/{thread}/schedstat")
        self._asked_at = float("-inf")
        self._seconds = 0.0

    def seconds(self, oldest: float) -> float:
        """The seconds, as they were said at `oldest` by the monotonic clock or later."""
        if self._asked_at < oldest:
            self._asked_at = time.monotonic()
            with suppress(OSError, IndexError, ValueError):
                self._seconds = int(self._path.read_text(encoding="ascii").split()[1]) / 1e9
        return self._seconds


_here = threading.local()


def _waiting_here() -> _Waiting:
    """What is known of this thread; a forked process has other threads than its parent."""
    thread = threading.get_native_id()
    known: _Waiting | None = getattr(_here, "waiting", None)
    if known is None or known.thread != thread:
        known = _here.waiting = _Waiting(thread)
    return known


class Clock:
    """Says when the time for judging row groups is over: so many seconds from now on.

    The time that the thread waits for a processor (Linux) does not count, up to three times the seconds: on a busy
    machine the scan is as slow as planning.
    """

    def __init__(self, seconds: float) -> None:
        now = time.monotonic()
        self._end = now + seconds
        self._most_waiting = _MOST_WAITING * seconds
        self._waiting = _waiting_here()
        self._waited_before = self._waiting.seconds(now - _FRESH_SECONDS)

    @property
    def seconds_left(self) -> float:
        """The time that is left, never negative."""
        now = time.monotonic()
        left = self._end - now
        if left <= 0:  # Linux need not be asked before
            left += min(self._waiting.seconds(now) - self._waited_before, self._most_waiting)
        return max(0.0, left)

    @property
    def is_over(self) -> bool:
        """Whether no time is left, so that no further piece of work is begun."""
        return self.seconds_left <= 0
