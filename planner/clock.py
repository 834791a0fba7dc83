"""The time that planning may take."""

import time
from typing import Final

DEFAULT_MILLISECONDS: Final = 2_000
"""How long judging the row groups of a scan may take by default."""


class Clock:
    """Says when the time for judging row groups is over: so many seconds from now on."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def seconds_left(self) -> float:
        """The time that is left, never negative."""
        return max(0.0, self._end - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether no time is left, so that no further piece of work is begun."""
        return time.monotonic() >= self._end
