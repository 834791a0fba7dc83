"""The requests that a store answered, and how many of them had to wait for each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

Span: TypeAlias = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Request:
    """One request, from its head to the last byte of its answer, in seconds, of a kind such as `RANGE`."""

    began: float
    ended: float
    kind: str
    key: str
    bytes_in: int
    bytes_out: int
    status: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a piece of work asked of the store."""

    rounds: int
    requests: int
    by_kind: dict[str, int]
    most_at_once: int
    bytes_in: int
    bytes_out: int

    @classmethod
    def of(cls, requests: Sequence[Request]) -> Traffic:
        """Sum requests up."""
        spans = [(one.began, one.ended) for one in requests]
        return cls(
            rounds_of(spans),
            len(requests),
            dict(sorted(Counter(one.kind for one in requests).items())),
            most_at_once(spans),
            sum(one.bytes_in for one in requests),
            sum(one.bytes_out for one in requests),
        )


def rounds_of(spans: Sequence[Span]) -> int:
    """Return the sequential rounds: the length of the longest chain in which each request begins after the last's end.

    Requests that wait for each other are in different rounds, however many others are under way meanwhile.
    """
    rounds, end = 0, float("-inf")
    # The chain that always takes the request that ends first is a longest one.
    for began, ended in sorted(spans, key=lambda span: span[1]):
        if began >= end:
            rounds, end = rounds + 1, ended
    return rounds


def most_at_once(spans: Sequence[Span]) -> int:
    """Return the greatest number of requests that are under way at one time."""
    most = now = 0
    # At the same time, an end comes before a beginning.
    for _, step in sorted([(began, 1) for began, _ in spans] + [(ended, -1) for _, ended in spans]):
        now += step
        most = max(most, now)
    return most
