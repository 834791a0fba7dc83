"""A predicate as numbered nodes, each knowing its parent; and values of leaves joined up to the root.

An AND or OR of many parts becomes a balanced tree of ANDs or ORs of two. A new value of one leaf therefore changes
only the nodes on its way to the root: the logarithm of the leaves, for each level of the predicate. New values of all
leaves change each node once, so planning stays linear in the terms of a predicate.
"""

import heapq
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeAlias, TypeVar

from planner.condition.tree.nodes import (
    UNKNOWN,
    ByValue,
    Conjunction,
    Disjunction,
    Everything,
    Leaf,
    Nothing,
    Predicate,
)
from puffin_index.storage.arrays import Selection

Constant: TypeAlias = Everything | Nothing


class PerPosition(Protocol):
    """A value with one element for each position."""

    def at(self, positions: Selection) -> Self:
        """Return the value at some positions only."""


Value = TypeVar("Value", bound=PerPosition)

_NO_PARENT = -1


@dataclass(slots=True)
class Node:
    """A node of the tree: a leaf's number or a constant, or an AND or OR of two nodes; -1 is the root's parent.

    A node that stands for a whole AND or OR of the predicate has the nodes of all parts.
    """

    content: int | Constant | None
    is_and: bool = False
    operands: tuple[int, ...] = ()
    parts: tuple[int, ...] = ()
    parent: int = _NO_PARENT


class PredicateTree:
    """The distinct leaves of a predicate, left to right, and its nodes.

    Operands have smaller numbers than the node that joins them; the root has the greatest. `places` has the nodes of
    each leaf.
    """

    def __init__(self, predicate: Predicate) -> None:
        self.predicate = predicate
        self.leaves: list[Leaf] = []
        self.places: list[list[int]] = []
        self.nodes: list[Node] = []
        self._numbers: dict[Leaf, int] = {}
        self.root = self._add_predicate(predicate)

    def _add_predicate(self, predicate: Predicate) -> int:
        match predicate:
            case Leaf():
                return self._add_leaf(predicate)
            case Conjunction(children) | Disjunction(children):
                parts = tuple(map(self._add_predicate, children))
                return self._add_junction(parts, is_and=isinstance(predicate, Conjunction))
            case Everything() | Nothing():
                return self._add(Node(predicate))
            case ByValue():
                return self._add(Node(UNKNOWN))

    def _add(self, node: Node) -> int:
        number = len(self.nodes)
        self.nodes.append(node)
        for operand in node.operands:
            self.nodes[operand].parent = number
        return number

    def _add_leaf(self, leaf: Leaf) -> int:
        number = self._numbers.setdefault(leaf, len(self.leaves))
        if number == len(self.leaves):
            self.leaves.append(leaf)
            self.places.append([])
        place = self._add(Node(number))
        self.places[number].append(place)
        return place

    def _add_junction(self, parts: tuple[int, ...], *, is_and: bool) -> int:
        if not parts:
            return self._add(Node(Everything(exact=True) if is_and else Nothing()))
        level = list(parts)
        while len(level) > 1:
            joined = [self._add(Node(None, is_and, (a, b))) for a, b in zip(level[::2], level[1::2], strict=False)]
            level = joined + level[2 * len(joined) :]
        if len(parts) > 1:
            self.nodes[level[0]].parts = parts
        return level[0]


class JoinedValues(ABC, Generic[Value]):
    """Values of a tree's leaves, and the values of all other nodes that follow from them.

    Several threads may read, one may change.

    A new value of a leaf marks the nodes above the leaf as stale. The next question for the root joins all stale nodes.
    """

    def __init__(self, tree: PredicateTree) -> None:
        self._tree = tree
        self._stale = {number for number, node in enumerate(tree.nodes) if node.operands}
        unknown = self._constant(UNKNOWN)
        self._values: dict[int, Value] = {
            number: self._constant(node.content) if isinstance(node.content, Everything | Nothing) else unknown
            for number, node in enumerate(tree.nodes)
        }

    @abstractmethod
    def _constant(self, constant: Constant) -> Value:
        """Return the value of a constant at all positions."""

    @abstractmethod
    def _join(self, first: Value, second: Value, at: Selection, *, is_and: bool) -> Value:
        """Return the value of an AND or OR. Both operands are given at the same positions."""

    def put(self, leaf: int, value: Value) -> None:
        """Give a leaf a value, one element for each position."""
        for place in self._tree.places[leaf]:
            self._values[place] = value
            above = self._tree.nodes[place].parent
            while above != _NO_PARENT and above not in self._stale:
                self._stale.add(above)
                above = self._tree.nodes[above].parent

    def of_leaf(self, leaf: int) -> Value:
        """Return the value of a leaf."""
        return self._values[self._tree.places[leaf][0]]

    def of_node(self, node: int) -> Value:
        """Return the value of a node; nodes are up to date once `root` was asked for."""
        return self._values[node]

    @property
    def root(self) -> Value:
        """The value of the predicate."""
        self._join_stale()
        return self._values[self._tree.root]

    def _join_stale(self) -> None:
        # Operands have smaller numbers, so they are joined first.
        for number in sorted(self._stale):
            node = self._tree.nodes[number]
            first, second = (self._values[operand] for operand in node.operands)
            self._values[number] = self._join(first, second, slice(None), is_and=node.is_and)
        self._stale.clear()

    def root_if(self, leaf: int, value: Value, at: Selection) -> Value:
        """Return what the value of the predicate would be at some positions if a leaf had another value there."""
        changed = dict.fromkeys(self._tree.places[leaf], value)
        if self._tree.root in changed:
            return value
        self._join_stale()
        pending = sorted({self._tree.nodes[place].parent for place in changed})
        while pending:
            number = heapq.heappop(pending)
            if number in changed:
                continue
            node = self._tree.nodes[number]
            first, second = (
                changed[operand] if operand in changed else self._values[operand].at(at) for operand in node.operands
            )
            changed[number] = self._join(first, second, at, is_and=node.is_and)
            if node.parent != _NO_PARENT:
                heapq.heappush(pending, node.parent)
        return changed[self._tree.root]
