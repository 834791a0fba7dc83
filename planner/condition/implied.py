"""What a query implies about the rows of a scan besides its plain tests, and what finding that cost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeAlias

from puffin_index.storage.files import READ_COUNT, ReadCount

Source: TypeAlias = Literal["function", "join", "subquery", "join or subquery", "keys", "top-k", "limit"]
"""What of a query says something. `keys` are those that a caller without Spark hands over."""


@dataclass(frozen=True, slots=True)
class Implied:
    """One thing that a query implies about the rows, and what it was good for.

    Row groups are counted among those of the scan. What another part of the query drops as well counts for both alone,
    and as dropped only by either of them it does not count.

    Attributes:
        source: Where it comes from.
        text: What is implied, or why nothing is, for reports.
        dropped_alone: Row groups that it would drop by itself, without any other part of the query. None if nobody
            asked: this takes another pass.
        dropped_only_by_it: Row groups that are dropped, and would be read without it. None if that is not known.
        seconds: What finding it took the planner, and Spark's evaluator for a function. None for keys: jobs of
            Spark find them, mostly jobs that run anyway.
        bytes_read: Index bytes that were read to find it.
    """

    source: Source
    text: str
    dropped_alone: int | None = None
    dropped_only_by_it: int | None = None
    seconds: float | None = None
    bytes_read: int = 0

    def __str__(self) -> str:
        drops = {"drops {} row groups alone": self.dropped_alone, "{} that nothing else drops": self.dropped_only_by_it}
        known = ", ".join(text.format(count) for text, count in drops.items() if count is not None)
        parts = [f"{self.source}: {self.text}", known]
        if self.seconds is not None:
            parts.append(f"found in {self.seconds * 1000:.1f} ms with {self.bytes_read} bytes read")
        return "; ".join(filter(None, parts))


@dataclass(slots=True)
class Cost:
    """What a piece of work took: seconds, and index bytes that were read."""

    seconds: float = 0.0
    bytes_read: int = 0


@contextmanager
def costs() -> Iterator[Cost]:
    """Take down what the body of a `with` statement costs; known once the body has ended."""
    cost, count, started = Cost(), ReadCount(), time.perf_counter()
    token = READ_COUNT.set(count)
    try:
        yield cost
    finally:
        READ_COUNT.reset(token)
        cost.seconds, cost.bytes_read = time.perf_counter() - started, count.bytes
