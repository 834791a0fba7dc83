"""How many of all row groups have a property, given how many of a random sample have it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from puffin_index.storage.arrays import Floats

CONFIDENCE = 0.99


@dataclass(frozen=True, slots=True)
class Range:
    """A number with its bounds.

    Attributes:
        estimate: The most likely number.
        low: The lower bound.
        high: The upper bound; equal to `low` if the number was counted, not estimated.
    """

    estimate: int
    low: int
    high: int

    @classmethod
    def exactly(cls, number: int) -> Range:
        """Return a number that was counted."""
        return cls(number, number, number)

    @property
    def is_exact(self) -> bool:
        """Whether the number was counted."""
        return self.low == self.high

    def __str__(self) -> str:
        return f"{self.estimate:,}" if self.is_exact else f"{self.estimate:,} ({self.low:,} to {self.high:,})"


def range_of(found: int, sampled: int, total: int, confidence: float = CONFIDENCE) -> Range:
    """Estimate a number among all row groups from a sample drawn without replacement.

    The bounds are those of Clopper and Pearson for a finite population: the numbers under which the sample is not too
    unlikely, by the hypergeometric distribution. All row groups sampled give the number itself.

    Args:
        found: How many of the sample have the property.
        sampled: The size of the sample.
        total: The number of all row groups.
        confidence: How often the bounds hold at least.
    """
    if not sampled:
        return Range(total, 0, total)
    tail = (1 - confidence) / 2
    least, most = found, total - (sampled - found)
    # More row groups with the property make many in the sample likelier, and few less likely.
    low = _first(least, most, lambda number: _at_least(found, number, sampled, total) > tail)
    high = _last(least, most, lambda number: _at_least(found + 1, number, sampled, total) < 1 - tail)
    estimate = round(found * total / sampled)
    return Range(min(max(estimate, low), high), low, high)


def _at_least(found: int, number: int, sampled: int, total: int) -> float:
    """Return the probability that a sample has at least `found` of the `number` of row groups with the property."""
    counts = np.arange(max(found, 0, sampled - (total - number)), min(sampled, number) + 1, dtype=np.float64)
    if not len(counts):
        return 0.0
    ways = _choose(number, counts) + _choose(total - number, sampled - counts) - _choose(total, np.array([sampled]))
    return float(np.exp(ways).sum())


def _choose(number: int, counts: Floats) -> Floats:
    """Return the logarithm of the binomial coefficients."""
    return np.array(
        [math.lgamma(number + 1) - math.lgamma(k + 1) - math.lgamma(number - k + 1) for k in counts.tolist()]
    )


def _first(least: int, most: int, holds: Callable[[int], bool]) -> int:
    """Return the first number for which something holds that holds for all greater ones, too."""
    while least < most:
        middle = (least + most) // 2
        least, most = (least, middle) if holds(middle) else (middle + 1, most)
    return least


def _last(least: int, most: int, holds: Callable[[int], bool]) -> int:
    """Return the last number for which something holds that holds for all smaller ones, too."""
    while least < most:
        middle = (least + most + 1) // 2
        least, most = (middle, most) if holds(middle) else (least, middle - 1)
    return least
