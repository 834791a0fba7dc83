"""Choosing indexes under a budget: all sets are tried if they are few, else a greedy choice is improved by swaps.

The gain of an index depends on the others: two kinds of a column do each other's work, and two columns of one WHERE may
help only together. So gains are asked of sets, and indexes are added one by one or as a group that one query could use.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import combinations
from typing import TypeAlias, TypeVar

Item = TypeVar("Item")
Gain: TypeAlias = Callable[[frozenset[Item]], float]

MOST_TRIED = 12
"""With so many candidates at most, all sets are tried."""

_LEAST_GAIN = 0.01
"""An index that adds less than this share of the gain is left out."""
_MOST_LOST = 0.03
"""What leaving out indexes may lose of the gain, in all."""
_ROUNDS = 20


def choose(
    sizes: Mapping[Item, int],
    budget: float,
    gain: Gain[Item],
    groups: Iterable[Collection[Item]] = (),
    *,
    most_tried: int = MOST_TRIED,
) -> frozenset[Item]:
    """Choose the items that gain most and fit a budget together.

    Args:
        sizes: The items and their sizes.
        budget: The most that their sizes may sum up to.
        gain: The gain of a set of items; more items never gain less.
        groups: Items that may gain together what none of them gains alone.
        most_tried: With more items than this, only some sets are tried.
    """
    fitting = [item for item, size in sizes.items() if size <= budget]
    if len(fitting) <= most_tried:
        best = _best_of_all(fitting, sizes, budget, gain)
    else:
        moves = _moves(fitting, groups)
        starts = (_greedy(moves, sizes, budget, gain, by_size=by_size) for by_size in (True, False))
        best = max((_improved(start, fitting, sizes, budget, gain) for start in starts), key=gain)
    return without_idle(best, sizes, gain)


def without_idle(chosen: frozenset[Item], sizes: Mapping[Item, int], gain: Gain[Item]) -> frozenset[Item]:
    """Leave out items without which next to nothing is lost, the largest first."""
    whole = gain(chosen)
    for item in sorted((item for item in sizes if item in chosen), key=lambda item: -sizes[item]):
        left = gain(chosen - {item})
        if left >= gain(chosen) - _LEAST_GAIN * whole and left >= whole * (1 - _MOST_LOST):
            chosen -= {item}
    return chosen


def _size(items: Iterable[Item], sizes: Mapping[Item, int]) -> int:
    return sum(sizes[item] for item in items)


def _best_of_all(items: Sequence[Item], sizes: Mapping[Item, int], budget: float, gain: Gain[Item]) -> frozenset[Item]:
    every = (frozenset(some) for count in range(len(items) + 1) for some in combinations(items, count))
    return max(
        (some for some in every if _size(some, sizes) <= budget), key=lambda some: (gain(some), -_size(some, sizes))
    )


def _moves(items: Sequence[Item], groups: Iterable[Collection[Item]]) -> list[frozenset[Item]]:
    fitting = frozenset(items)
    several = (frozenset(group) & fitting for group in groups)
    return list(dict.fromkeys([frozenset({item}) for item in items] + [group for group in several if len(group) > 1]))


def _greedy(
    moves: Sequence[frozenset[Item]], sizes: Mapping[Item, int], budget: float, gain: Gain[Item], *, by_size: bool
) -> frozenset[Item]:
    """Add what gains most, or most for its size, until nothing fits or gains."""
    chosen: frozenset[Item] = frozenset()
    while True:
        best, best_worth = chosen, 0.0
        left, before = budget - _size(chosen, sizes), gain(chosen)
        for move in moves:
            size = _size(move - chosen, sizes)
            if not size or size > left:
                continue
            worth = (gain(chosen | move) - before) / (size if by_size else 1)
            if worth > best_worth:
                best, best_worth = chosen | move, worth
        if best == chosen:
            return chosen
        chosen = best


def _improved(
    chosen: frozenset[Item], items: Sequence[Item], sizes: Mapping[Item, int], budget: float, gain: Gain[Item]
) -> frozenset[Item]:
    """Add items, or swap one for another or for two others, as long as that gains."""
    for _ in range(_ROUNDS):
        others = [item for item in items if item not in chosen]
        additions = [frozenset(some) for count in (1, 2) for some in combinations(others, count)]
        removals = [frozenset[Item](), *(frozenset({item}) for item in items if item in chosen)]
        candidates = [(chosen - removed) | added for removed in removals for added in additions]
        fitting = [some for some in candidates if _size(some, sizes) <= budget]
        best = max(fitting, key=gain, default=chosen)
        if gain(best) <= gain(chosen) * (1 + 1e-9):
            return chosen
        chosen = best
    return chosen
