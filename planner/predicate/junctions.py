"""Folding the ANDs and ORs of an expression, however deep, without recursion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pyiceberg.expressions import And, BooleanExpression, Not, Or

from planner.where.truth import MAX_ALTERNATIONS

Value = TypeVar("Value")


@dataclass(slots=True)
class _Open(Generic[Value]):
    """An AND or OR whose parts are being folded.

    Attributes:
        is_and: Whether the junction is AND, once NOT is pushed down.
        pending: Parts to fold, last first; and whether NOT stands above them.
        done: The values of the parts that were folded.
    """

    is_and: bool
    pending: list[tuple[BooleanExpression, bool]]
    done: list[Value] = field(default_factory=list)


def fold_junctions(
    expression: BooleanExpression,
    *,
    leaf: Callable[[BooleanExpression, bool], Value],
    join: Callable[[list[Value], bool], Value],
    too_deep: Value,
) -> Value:
    """Fold an expression from its leaves to its root. AND within AND (OR within OR) is one; NOT goes to the leaves.

    Args:
        expression: The expression.
        leaf: Gives the value of a leaf, which is neither AND nor OR nor NOT; told whether NOT stands above.
        join: Gives the value of an AND (True) or OR of two or more parts.
        too_deep: The value of levels beyond `MAX_ALTERNATIONS`: readers of the result may recurse.
    """
    opened: list[_Open[Value]] = [_Open(is_and=True, pending=[(expression, False)])]
    while True:
        top = opened[-1]
        if not top.pending:
            value = top.done[0] if len(top.done) == 1 else join(top.done, top.is_and)
            opened.pop()
            if not opened:
                return value
            opened[-1].done.append(value)
            continue
        node, negated = top.pending.pop()
        match node:
            case Not():
                top.pending.append((node.child, not negated))
            case And() | Or():
                parts = [(node.right, negated), (node.left, negated)]
                # De Morgan: under NOT, AND is OR.
                is_and = isinstance(node, And) is not negated
                if is_and is top.is_and:
                    top.pending.extend(parts)
                elif len(opened) <= MAX_ALTERNATIONS:
                    opened.append(_Open(is_and, parts))
                else:
                    top.done.append(too_deep)
            case _:
                top.done.append(leaf(node, negated))
