"""The rows of a whole predicate, from those that look-ups gave for its leaves: a segment at a time, not a row group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from planner.predicate.nodes import Conjunction, Disjunction, Leaf, Predicate, leaves
from planner.prune.found_rows import FoundRows
from puffin_index.storage.arrays import Flags, Ints, Rows

_DENSE = 16
"""Where there is a row in so many, marking rows takes less than searching for them."""


def joint_rows(predicate: Predicate, found: Mapping[Leaf, FoundRows], row_groups: Ints) -> FoundRows | None:
    """Give the rows that satisfy a predicate, exactly.

    Args:
        predicate: What they satisfy.
        found: The rows of leaves.
        row_groups: Row groups of the view for which each leaf of the predicate that is there was looked up.

    Returns:
        The rows of those of the row groups whose leaves were all found in one segment; None if there are none, or the
        predicate has a leaf that was not looked up, or a part that is none.
    """
    parts = [found.get(leaf) for leaf in leaves(predicate)]
    known = [part for part in parts if part is not None]
    if not len(row_groups) or len(known) < len(parts) or not known or not _has_leaves_only(predicate):
        return None
    first = known[0].directory
    numbers = first.segment[row_groups]
    same = np.logical_and.reduce([part.directory.segment[row_groups] == numbers for part in known])
    segment = np.full(len(first.segment), -1, np.int32)
    segment[row_groups[same]] = numbers[same]
    # One payload for each segment.
    directory = replace(first, segment=segment, entry=np.zeros_like(first.entry))
    rows = {number << 32: _rows_in(number, predicate, found) for number in np.unique(numbers[same]).tolist()}
    return FoundRows(directory, known[0].row_counts, rows)


def _has_leaves_only(predicate: Predicate) -> bool:
    match predicate:
        case Conjunction(children) | Disjunction(children):
            return all(map(_has_leaves_only, children))
        case _:
            return isinstance(predicate, Leaf)


def _rows_in(segment: int, predicate: Predicate, found: Mapping[Leaf, FoundRows]) -> Rows:
    match predicate:
        case Conjunction(children):
            fewest, *others = sorted((_rows_in(segment, child, found) for child in children), key=len)
            for other in others:
                fewest = fewest[_are_among(other, fewest)]
            return fewest
        case Disjunction(children):
            return np.unique(np.concatenate([_rows_in(segment, child, found) for child in children]))
        case Leaf():
            return found[predicate].of_segment(segment)
        case _:
            raise TypeError(f"no rows are looked up for {predicate}")


def _are_among(many: Rows, few: Rows) -> Flags:
    """Which of few ascending rows are among many."""
    if not len(many):
        return np.zeros(len(few), np.bool_)
    span = int(max(few[-1], many[-1])) + 1 if len(few) else 0
    if span < _DENSE * len(few):
        flags = np.zeros(span, np.bool_)
        flags[many] = True
        return np.asarray(flags[few], np.bool_)
    places = np.minimum(np.searchsorted(many, few), len(many) - 1)
    return np.asarray(many[places] == few, np.bool_)
