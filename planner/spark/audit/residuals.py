"""Bound predicates as tests of rows."""

from __future__ import annotations

from typing import Literal, TypeAlias

from planner.predicate.nodes import Conjunction, Disjunction, Everything, Leaf, Nothing, Predicate
from planner.scans.residual import Residual

Junction: TypeAlias = Literal["and", "or"]


def residual_of(predicate: Predicate) -> Residual:
    """A predicate as a test of rows; what is unknown is true."""
    steps: list[Leaf | bool | Junction] = []
    # An explicit stack: generated predicates nest deeper than Python recurses.
    pending: list[Predicate | Junction] = [predicate]
    while pending:
        match pending.pop():
            case Conjunction(children) | Disjunction(children) as node:
                is_and = isinstance(node, Conjunction)
                if not children:
                    steps.append(is_and)
                pending.extend(["and" if is_and else "or"] * (len(children) - 1))
                pending.extend(children)
            case Everything():
                steps.append(True)
            case Nothing():
                steps.append(False)
            case step:
                steps.append(step)
    return Residual(tuple(steps))
