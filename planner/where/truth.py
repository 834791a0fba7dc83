"""SQL's three-valued logic over PyIceberg expressions: what makes a condition true, what false, what NULL.

A simple condition is three expressions (`Truth`): the rows where the condition is true, false, NULL. NOT swaps two of
the expressions, `IS TRUE` combines them, and no rewriting rule has to know about NULL. AND, OR and NOT of conditions
stay a tree. `matching_rows` walks the tree once, without recursion, and pushes NOT to the leaves.

Leaves have SQL's meaning: a NULL satisfies `IsNull` and no other leaf, `NotEqualTo`, `NotIn` and `NotNaN` included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, assert_never

from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, And, BooleanExpression, Or

from planner.where.unknown import Unknown

# Readers of the tree may recurse, so AND within OR within AND ... beyond this depth becomes an upper bound.
MAX_ALTERNATIONS = 100


@dataclass(frozen=True, slots=True)
class Truth:
    """A simple condition: the rows where it is true, the rows where it is false, the rows where it is NULL."""

    yes: BooleanExpression
    no: BooleanExpression
    null: BooleanExpression


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


NO_ROW, EVERY_ROW = AlwaysFalse(), AlwaysTrue()
ALWAYS_NULL = Truth(NO_ROW, NO_ROW, EVERY_ROW)
ALWAYS_TRUE = Truth(EVERY_ROW, NO_ROW, NO_ROW)
ALWAYS_FALSE = Truth(NO_ROW, EVERY_ROW, NO_ROW)


def unknown(text: str) -> Truth:
    """Make a condition that nothing is known of."""
    leaf = Unknown(text=text)
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
    """A junction whose parts are being walked.

    Attributes:
        conjunctive: Whether the junction is AND, once NOT is pushed down.
        pending: Parts to walk, last first; and whether NOT stands above them.
        done: The expressions of the parts that were walked.
    """

    conjunctive: bool
    pending: list[tuple[Condition, bool]]
    done: list[BooleanExpression] = field(default_factory=list)


def matching_rows(condition: Condition) -> BooleanExpression:
    """Return the expression of the rows for which a condition is true: without NOT, ANDs and ORs balanced."""
    open_junctions = [_Open(conjunctive=True, pending=[(condition, False)])]
    while True:
        top = open_junctions[-1]
        if not top.pending:
            open_junctions.pop()
            if not open_junctions:
                return _combine(top)
            open_junctions[-1].done.append(_combine(top))
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
                    top.done.append(Unknown(text=f"conditions nested more than {MAX_ALTERNATIONS} levels deep"))
            case _:
                assert_never(part)


def _combine(junction: _Open) -> BooleanExpression:
    first, *others = junction.done
    if not others:
        return first
    return And(first, *others) if junction.conjunctive else Or(first, *others)
