"""The time that planning may take."""

from __future__ import annotations

import time
from typing import Final

DEFAULT_MILLISECONDS: Final = 2_000
"""How long judging the row groups of a scan may take, unless it is told otherwise."""


class Clock:
    """Says when the time that judging row groups may take is over; once it is, it stays so.

    Args:
        seconds: The time from now on; 0: it is over at once.
    """

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def seconds_left(self) -> float:
        """What is left, never negative."""
        return max(0.0, self._end - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether nothing is left: the next piece of work is not begun."""
        return time.monotonic() >= self._end
