"""What planning has found out about one leaf of a predicate."""

from __future__ import annotations

from dataclasses import dataclass

from planner.predicate.nodes import Leaf
from planner.prune.found_rows import FoundRows
from puffin_index.storage.arrays import Flags


@dataclass(slots=True, eq=False)
class LeafState:
    """One leaf, and what look-ups in merged payloads found.

    Attributes:
        leaf: The leaf.
        number: Its number in the tree: verdicts and estimates of it are kept by this.
        found: The rows that match; None if nothing was looked up.
        answered: For each position whether it was looked up; None if nothing was. What statistics had settled was not.
    """

    leaf: Leaf
    number: int
    found: FoundRows | None = None
    answered: Flags | None = None
