"""What a query implies about the rows of a scan besides its plain tests, and what finding that cost."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeAlias

from puffin_index.storage.files import READ_COUNT, ReadCount

Source: TypeAlias = Literal[
    "function", "join", "subquery", "join or subquery", "merge", "update", "delete", "keys", "top-k", "limit"
]
"""What of a query says something. `keys` are those that a caller without Spark hands over."""


@dataclass(frozen=True, slots=True)
class Implied:
    """One thing that a query implies about the rows, or why it is not used, and what finding it cost.

    `dropped` is known for first rows only. Keys have no seconds: jobs of Spark find them, mostly jobs that run anyway.
    """

    source: Source
    text: str
    dropped: int | None = None
    seconds: float | None = None
    bytes_read: int = 0

    def __str__(self) -> str:
        parts = [f"{self.source}: {self.text}"]
        if self.dropped is not None:
            parts.append(f"drops {self.dropped} row groups that nothing else drops")
        if self.seconds is not None:
            parts.append(f"found in {self.seconds * 1000:.1f} ms with {self.bytes_read} bytes read")
        return "; ".join(parts)


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
