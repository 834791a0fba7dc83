"""The funnel of a plan: what each stage saw, dropped, read and took; and what trouble it met."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from planner.prune.pruned import Stage
from planner.view.directories import IndexReads, IndexTrouble
from puffin_index.errors import PuffinIndexError

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Funnel:
    """Runs stages and takes down what they do.

    Attributes:
        reads: What the stages read.
        strict: Raise on index trouble instead of warning.
        stages: Those that have run.
    """

    reads: IndexReads
    strict: bool
    stages: list[Stage] = field(default_factory=list)

    def run(self, name: str, entered: int, judge: Callable[[], int]) -> None:
        """Run one stage.

        Args:
            name: Its name.
            entered: How many row groups it sees; without any it is not run.
            judge: The stage; returns how many row groups it dropped.

        Raises:
            PuffinIndexError: On index trouble, if the funnel is strict.
        """
        started, reads, bytes_read = time.perf_counter(), self.reads.count.requests, self.reads.count.bytes
        troubles = len(self.reads.troubles)
        dropped = judge() if entered else 0
        count = self.reads.count
        seconds = time.perf_counter() - started
        self.stages.append(Stage(name, entered, dropped, count.requests - reads, count.bytes - bytes_read, seconds))
        self._tell(self.reads.troubles[troubles:])

    def _tell(self, troubles: list[IndexTrouble]) -> None:
        for trouble in troubles:
            if self.strict:
                raise PuffinIndexError(f"{trouble.segment}: {trouble.reason}")
            _log.warning("index not used, its row groups are kept: %s: %s", trouble.segment, trouble.reason)
