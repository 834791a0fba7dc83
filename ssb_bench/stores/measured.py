"""Measuring one piece of work on a store: its time and its traffic."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ssb_bench.results.stores import Side, StoreStep
from ssb_bench.stores.server import Distance, StoreServer


@dataclass(slots=True)
class Meter:
    """Measures work on a store at one distance.

    Attributes:
        server: The store.
        distance: How far away it is.
        steps: What was measured so far.
    """

    server: StoreServer
    distance: Distance
    steps: list[StoreStep] = field(default_factory=list)

    def measure(
        self,
        name: str,
        work: Callable[[], int | None],
        *,
        side: Side = "index",
        repeats: int = 1,
        before: Callable[[], object] = lambda: None,
    ) -> int | None:
        """Do some work so many times and note the median execution; return its answer.

        Args:
            name: What it is.
            work: Gives its answer.
            side: With the index, or without any.
            repeats: How often.
            before: Done before each execution, with the store near.
        """
        steps: list[StoreStep] = []
        for _ in range(repeats):
            self.server.move(Distance())
            before()
            self.server.move(self.distance)
            self.server.traffic()
            started = time.perf_counter()
            answer = work()
            seconds = time.perf_counter() - started
            traffic = self.server.traffic()
            steps.append(
                StoreStep(
                    self.distance.milliseconds,
                    self.distance.megabytes_a_second,
                    name,
                    side,
                    seconds,
                    traffic.rounds,
                    traffic.requests,
                    traffic.by_kind,
                    traffic.most_at_once,
                    traffic.bytes_in,
                    traffic.bytes_out,
                    answer,
                )
            )
        self.server.move(Distance())
        steps.sort(key=lambda step: step.seconds)
        self.steps.append(steps[len(steps) // 2])
        return self.steps[-1].answer
