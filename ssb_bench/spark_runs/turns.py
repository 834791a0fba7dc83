"""Arms of a comparison in turns, so that a drift of the machine hits all of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

A = TypeVar("A")


def in_turns(arms: Sequence[A], rounds: int) -> Iterator[A]:
    """Give the arms forwards, backwards, forwards, ..., in so many rounds."""
    for number in range(rounds):
        yield from arms if number % 2 == 0 else reversed(arms)


def time_in_turns(arms: Mapping[A, Callable[[], float]], rounds: int, *, warm_up: int = 1) -> dict[A, list[float]]:
    """Run arms in turns.

    Args:
        arms: By name, a function that runs the arm once and gives its time.
        rounds: Measured rounds.
        warm_up: Rounds before, whose times are thrown away.

    Returns:
        The times of each arm, one a round: those of one round are a pair.
    """
    times: dict[A, list[float]] = {arm: [] for arm in arms}
    for arm in in_turns([*arms], warm_up + rounds):
        times[arm].append(arms[arm]())
    return {arm: of_arm[warm_up:] for arm, of_arm in times.items()}


def seconds_of(action: Callable[[], object]) -> float:
    """Give the wall time of an action."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started
