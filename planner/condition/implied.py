"""What a query implies about the rows of a scan besides its plain tests, and what finding that cost."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Source: TypeAlias = Literal[
    "function", "words", "join", "subquery", "join or subquery", "merge", "update", "delete", "keys", "top-k", "limit"
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
