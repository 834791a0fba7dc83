"""Medians, ratios and geometric means of timings, refusing input that would make them lie."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Summary:
    """What several timings of one thing say."""

    median_seconds: float
    least_seconds: float
    greatest_seconds: float


def summarize(seconds: Sequence[float]) -> Summary:
    """Give median, least and greatest of timings; ValueError if there is none, or one is not finite and above zero."""
    _check_positive(seconds, "timings")
    return Summary(statistics.median(seconds), min(seconds), max(seconds))


def ratio(without_seconds: Sequence[float], with_seconds: Sequence[float]) -> float:
    """Give how many times as long a thing takes without as with: the ratio of the medians; errors as `summarize`."""
    return summarize(without_seconds).median_seconds / summarize(with_seconds).median_seconds


def geometric_mean(ratios: Sequence[float]) -> float:
    """Give the geometric mean of ratios; errors as `summarize`."""
    _check_positive(ratios, "ratios")
    return math.exp(math.fsum(math.log(value) for value in ratios) / len(ratios))


def _check_positive(values: Sequence[float], what: str) -> None:
    if not values:
        raise ValueError(f"no {what}")
    if any(not math.isfinite(value) or value <= 0 for value in values):
        raise ValueError(f"{what} must be finite and greater than zero")
