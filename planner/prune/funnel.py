"""The funnel of a plan: what each stage saw, dropped, read and took; and what trouble it met."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from planner.prune.pruned import Reason, Stage
from planner.prune.pruning import Pruning
from planner.view.directories import IndexReads, IndexTrouble
from puffin_index.errors import PuffinIndexError
from puffin_index.jobs.log_lines import level_of_trouble

_log = logging.getLogger(__name__)


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
            _log.log(
                level_of_trouble(trouble.segment),
                "index not used, its row groups are kept: %s: %s",
                trouble.segment,
                trouble.reason,
            )
