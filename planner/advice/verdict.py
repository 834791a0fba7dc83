"""Verdicts: whether an index is worth building or keeping for a WHERE, and why, from a random sample of row groups."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from planner.prune.verdicts import Reason
from puffin_index.storage.arrays import Bytes

CONFIDENCE = 0.99


@dataclass(frozen=True, slots=True)
class Range:
    """A number with its bounds, which are equal if it was counted and not estimated."""

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


def range_of(found: int, sampled: int, total: int) -> Range:
    """Estimate a number among all row groups from a sample drawn without replacement, and how many of it are found.

    The bounds, which hold at least as often as `CONFIDENCE` says, are those of Clopper and Pearson for a finite
    population: the numbers under which the sample is not too unlikely, by the hypergeometric distribution. All row
    groups sampled give the number itself.
    """
    if not sampled:
        return Range(total, 0, total)
    # The row groups without the property are a number of their own.
    low, high = _least(found, sampled, total), total - _least(sampled - found, sampled, total)
    estimate = round(found * total / sampled)
    return Range(min(max(estimate, low), high), low, high)


def _least(found: int, sampled: int, total: int) -> int:
    """Return the least number of row groups with a property for which `found` ones in the sample are likely enough."""
    tail = (1 - CONFIDENCE) / 2
    # More row groups with the property make many in the sample likelier.
    numbers = range(found, total - (sampled - found))
    return found + bisect_left(numbers, True, key=lambda number: _at_least(found, number, sampled, total) > tail)


def _at_least(found: int, number: int, sampled: int, total: int) -> float:
    """Return the probability that a sample has at least `found` of the `number` of row groups with the property."""
    counts = range(max(found, 0, sampled - (total - number)), min(sampled, number) + 1)
    samples = _choose(total, sampled)
    return sum(math.exp(_choose(number, k) + _choose(total - number, sampled - k) - samples) for k in counts)


def _choose(number: int, count: int) -> float:
    """Return the logarithm of a binomial coefficient."""
    return math.lgamma(number + 1) - math.lgamma(count + 1) - math.lgamma(number - count + 1)


WORTH_WHILE = 0.05
"""An index that saves less than this share of the row groups is not worth its upkeep."""

_WHY_KEPT = {
    Reason.NOT_WORTH_READING: "by their value counts nearly every row group has a match, so the index is not even read",
    Reason.ROWS_MATCH: "the row groups that are left do have matching rows",
    Reason.ALL_ROWS_MATCH: "all rows of the row groups that are left match",
    Reason.MAY_MATCH: "the indexes cannot answer what the WHERE asks",
    Reason.UNINDEXED: "the data files cannot be indexed",
    Reason.OVER_BUDGET: "an answer would take more index bytes than a query may read",
    Reason.TIME_BUDGET: "an answer takes longer than planning may",
    Reason.NO_PREDICATE: "the WHERE leaves nothing to test",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether to `build`, `do not build` or `uncertain`; of existing indexes `keep` or `can be dropped`."""

    text: str
    reason: str


def verdict_on_new(
    total: int, before: int, saved: Range, reasons_kept: Bytes, tested: bool, untested: Collection[str]
) -> Verdict:
    """Judge indexes that do not exist yet by what is saved, and why sampled row groups would still be read."""
    if not total:
        return Verdict("do not build", "Iceberg's own pruning leaves no row group to read")
    note = f"the WHERE does not test {', '.join(sorted(untested))}" if untested else ""
    if not before:
        return Verdict("do not build", "today's query reads no row group")
    if not tested:
        return Verdict("do not build", note)
    if not saved.estimate:
        return Verdict("do not build", f"no row group would be saved: {_why(reasons_kept)}")
    gain = f"it would save {saved} of {before:,} row groups"
    least = before * WORTH_WHILE
    if saved.high < least or (saved.is_exact and saved.estimate < least):
        return Verdict("do not build", f"{gain} only: {_why(reasons_kept)}")
    if saved.estimate < least:
        return Verdict("uncertain", f"{gain}: a larger sample would tell")
    return Verdict("build", f"{gain}{'; ' if note else ''}{note}")


def verdict_on_hidden(before: int, more: Range) -> Verdict:
    """Judge indexes that exist."""
    if more.high <= before * WORTH_WHILE:
        return Verdict("can be dropped", f"this WHERE would read {more} row groups more than the {before:,} of today")
    return Verdict("keep", f"without it, this WHERE would read {more} row groups more than the {before:,} of today")


def _why(reasons_kept: Bytes) -> str:
    if not len(reasons_kept):
        return "minima and maxima do as well"
    values, counts = np.unique(reasons_kept, return_counts=True)
    return _WHY_KEPT.get(Reason(int(values[counts.argmax()])), "the row groups that are left may match")
