"""SQL's three-valued logic, for readers: what makes a condition true, what false, what NULL.

A condition is three predicates (`Truth`): the rows where it is true, false, NULL. NOT swaps two of them, `IS TRUE`
combines them, and no rewriting rule has to know about NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.condition.tree import nodes
from planner.condition.tree.nodes import Predicate


@dataclass(frozen=True, slots=True)
class Truth:
    """A condition: the rows where it is true, false, NULL. Where AND and OR are NULL is left unknown."""

    yes: Predicate
    no: Predicate
    null: Predicate

    def __invert__(self) -> Truth:
        """Return NOT of this condition."""
        return Truth(self.no, self.yes, self.null)

    def or_false(self) -> Truth:
        """Return this condition, false where it is NULL."""
        return Truth(self.yes, nodes.joined([self.no, self.null], is_and=False), nodes.NO_ROW)


ALWAYS_NULL = Truth(nodes.NO_ROW, nodes.NO_ROW, nodes.EVERY_ROW)
ALWAYS_TRUE = Truth(nodes.EVERY_ROW, nodes.NO_ROW, nodes.NO_ROW)
ALWAYS_FALSE = Truth(nodes.NO_ROW, nodes.EVERY_ROW, nodes.NO_ROW)


def unknown(text: str, reason: str = "") -> Truth:
    """Make a condition that nothing is known of, and why; without a reason, only Spark knows what the text means."""
    leaf = nodes.Everything(exact=False, text=text, reason=reason)
    return Truth(leaf, leaf, leaf)


def join(parts: Sequence[Truth], *, conjunctive: bool) -> Truth:
    """Make AND or OR of one or more conditions; of the predicates, `flattened` makes one tree without recursion."""
    if len(parts) == 1:
        return parts[0]
    both, either = (nodes.Conjunction, nodes.Disjunction) if conjunctive else (nodes.Disjunction, nodes.Conjunction)
    return Truth(both(tuple(part.yes for part in parts)), either(tuple(part.no for part in parts)), nodes.UNKNOWN)
