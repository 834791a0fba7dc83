"""Medians, ratios and geometric means of timings, refusing input that would make them lie."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

NOISE_BAND = 0.02
"""A ratio within this share of 1 says nothing."""

Verdict = Literal["faster", "unchanged", "slower"]


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


def verdict(speed_up: float, noise_band: float = NOISE_BAND) -> Verdict:
    """Say whether a ratio (time without by time with) is a change; the bounds of the band belong to it.

    Raises ValueError if the ratio is not finite and greater than zero, or the band is not in 0 … 1.
    """
    _check_positive([speed_up], "ratios")
    if not 0 <= noise_band < 1:
        raise ValueError(f"a noise band of {noise_band} is not a share of 1")
    if speed_up > 1 + noise_band:
        return "faster"
    return "slower" if speed_up < 1 - noise_band else "unchanged"


def _check_positive(values: Sequence[float], what: str) -> None:
    if not values:
        raise ValueError(f"no {what}")
    if any(not math.isfinite(value) or value <= 0 for value in values):
        raise ValueError(f"{what} must be finite and greater than zero")
