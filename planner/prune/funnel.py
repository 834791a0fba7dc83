"""The funnel of a plan: what each stage saw, dropped, read and took; and what trouble it met."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from cachetools import TTLCache

from planner.prune.pruned import Reason, Stage
from planner.prune.pruning import Pruning
from planner.view.directories import IndexReads, IndexTrouble
from puffin_index.errors import PuffinIndexError
from puffin_index.storage.caches import cleared_by

_log = logging.getLogger(__name__)

_SILENT_SECONDS = 3600.0
_told: TTLCache[str, bool] = TTLCache(10_000, _SILENT_SECONDS)
_told_lock = threading.Lock()
cleared_by(_told.clear, _told_lock)


@dataclass(slots=True)
class Funnel:
    """Takes down what stages do.

    Attributes:
        reads: What the stages read.
        strict: Raise on index trouble instead of warning.
        stages: The stages that have run.
    """

    reads: IndexReads
    strict: bool
    stages: list[Stage] = field(default_factory=list)

    @contextmanager
    def stage(self, name: str, pruning: Pruning, reason: Reason) -> Iterator[None]:
        """Run one stage as the body of a `with` statement.

        Args:
            name: The stage.
            pruning: What the stage judges.
            reason: The stage gives this reason to the row groups that it drops.

        Raises:
            PuffinIndexError: On index trouble, if the funnel is strict.
        """
        count, entered = self.reads.count, pruning.alive
        started, requests, read_bytes = time.perf_counter(), count.requests, count.bytes
        troubles = len(self.reads.troubles)
        yield
        dropped = int(np.count_nonzero(pruning.reasons[pruning.selection(entered)] == int(reason)))
        seconds = time.perf_counter() - started
        self.stages.append(
            Stage(name, len(entered), dropped, count.requests - requests, count.bytes - read_bytes, seconds)
        )
        self._tell(self.reads.troubles[troubles:])

    def _tell(self, troubles: list[IndexTrouble]) -> None:
        for trouble in troubles:
            if self.strict:
                raise PuffinIndexError(f"{trouble.segment}: {trouble.reason}")
            level = logging.DEBUG if _was_told(trouble.segment) else logging.WARNING
            _log.log(level, "index not used, its row groups are kept: %s: %s", trouble.segment, trouble.reason)


def _was_told(segment: str) -> bool:
    """Return whether a line of the last hour was about a segment: each of its directories may be in trouble."""
    with _told_lock:
        was_told = segment in _told
        _told.setdefault(segment, True)
    return was_told
