"""SQL's three-valued logic, for readers: what makes a condition true, what false, what NULL.

A simple condition is three predicates (`Truth`): the rows where the condition is true, false, NULL. NOT swaps two of
the predicates, `IS TRUE` combines them, and no rewriting rule has to know about NULL. AND, OR and NOT of conditions
stay a tree while it is read. `matching_rows` walks that tree once, without recursion, and pushes NOT to the leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, assert_never

from planner.condition.tree.nodes import EVERY_ROW, NO_ROW, Everything, Predicate, joined

# Readers of the tree may recurse, so AND within OR within AND ... beyond this depth becomes an upper bound.
MAX_ALTERNATIONS: Final = 100


@dataclass(frozen=True, slots=True)
class Truth:
    """A simple condition: the rows where it is true, the rows where it is false, the rows where it is NULL."""

    yes: Predicate
    no: Predicate
    null: Predicate


@dataclass(frozen=True, slots=True)
class Junction:
    """AND (`conjunctive`) or OR of two or more conditions."""

    conjunctive: bool
    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Negation:
    """NOT of a junction. A simple condition needs no such node: `negate` swaps its expressions."""

    part: Junction


Condition: TypeAlias = Truth | Junction | Negation


ALWAYS_NULL = Truth(NO_ROW, NO_ROW, EVERY_ROW)
ALWAYS_TRUE = Truth(EVERY_ROW, NO_ROW, NO_ROW)
ALWAYS_FALSE = Truth(NO_ROW, EVERY_ROW, NO_ROW)


def unknown(text: str, reason: str = "") -> Truth:
    """Make a condition that nothing is known of; an empty reason says that the text tells it."""
    leaf = Everything(exact=False, text=text, reason=reason)
    return Truth(leaf, leaf, leaf)


def negate(condition: Condition) -> Condition:
    """Make NOT of a condition."""
    match condition:
        case Truth(yes, no, null):
            return Truth(no, yes, null)
        case Negation(part):
            return part
        case Junction():
            return Negation(condition)
        case _:
            assert_never(condition)


def join(parts: Sequence[Condition], *, conjunctive: bool) -> Condition:
    """Make AND or OR of one or more conditions."""
    return parts[0] if len(parts) == 1 else Junction(conjunctive, tuple(parts))


@dataclass(slots=True)
class _Open:
    """A junction being walked, its sense once NOT is pushed down, and the parts to walk, last first, negated or not."""

    conjunctive: bool
    pending: list[tuple[Condition, bool]]
    done: list[Predicate] = field(default_factory=list)


def matching_rows(condition: Condition) -> Predicate:
    """Return the predicate of the rows for which a condition is true."""
    open_junctions = [_Open(conjunctive=True, pending=[(condition, False)])]
    while True:
        top = open_junctions[-1]
        if not top.pending:
            open_junctions.pop()
            if not open_junctions:
                return joined(top.done, is_and=top.conjunctive)
            open_junctions[-1].done.append(joined(top.done, is_and=top.conjunctive))
            continue
        part, negated = top.pending.pop()
        match part:
            case Truth(yes, no):
                top.done.append(no if negated else yes)
            case Negation(junction):
                top.pending.append((junction, not negated))
            case Junction(conjunctive, parts):
                inner = [(child, negated) for child in reversed(parts)]
                # De Morgan: under NOT, AND is OR.
                if (conjunctive is not negated) is top.conjunctive:
                    top.pending.extend(inner)
                elif len(open_junctions) <= MAX_ALTERNATIONS:
                    open_junctions.append(_Open(not top.conjunctive, inner))
                else:
                    top.done.append(Everything(False, f"conditions nested more than {MAX_ALTERNATIONS} levels deep"))
            case _:
                assert_never(part)
