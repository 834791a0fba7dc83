"""A predicate as numbered nodes, each knowing its parent; and values of leaves joined up to the root.

An AND or OR of many parts becomes a balanced tree of ANDs or ORs of two. A new value of one leaf therefore changes
only the nodes on its way to the root: the logarithm of the leaves, for each level of the predicate. New values of all
leaves change each node once, so planning stays linear in the terms of a predicate.
"""

import heapq
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeAlias, TypeVar

from planner.condition.tree import nodes
from puffin_index.storage.arrays import Selection

Constant: TypeAlias = nodes.Everything | nodes.Nothing


class PerPosition(Protocol):
    """A value with one element for each position."""

    def at(self, positions: Selection) -> Self:
        """Return the value at some positions only."""


Value = TypeVar("Value", bound=PerPosition)

_NO_PARENT = -1


@dataclass(slots=True)
class Node:
    """A leaf's number or a constant, or an AND or OR of two nodes, for a whole one with the nodes of all `parts`."""

    content: int | Constant | None
    is_and: bool = False
    operands: tuple[int, ...] = ()
    parts: tuple[int, ...] = ()
    parent: int = _NO_PARENT


class PredicateTree:
    """The distinct leaves of a predicate, left to right, the nodes of each leaf (`places`), and all nodes.

    Operands have smaller numbers than the node that joins them; the root has the greatest.
    """

    def __init__(self, predicate: nodes.Predicate) -> None:
        self.predicate = predicate
        self.leaves: list[nodes.Leaf] = []
        self.places: list[list[int]] = []
        self.nodes: list[Node] = []
        self._numbers: dict[nodes.Leaf, int] = {}
        self.root = self._add_predicate(predicate)

    def _add_predicate(self, predicate: nodes.Predicate) -> int:
        match predicate:
            case nodes.Leaf():
                number = self._numbers.setdefault(predicate, len(self.leaves))
                if number == len(self.leaves):
                    self.leaves.append(predicate)
                    self.places.append([])
                self.places[number].append(self._add(Node(number)))
                return self.places[number][-1]
            case nodes.Conjunction(children) | nodes.Disjunction(children):
                parts = tuple(map(self._add_predicate, children))
                return self._add_junction(parts, is_and=isinstance(predicate, nodes.Conjunction))
            case nodes.Everything() | nodes.Nothing():
                return self._add(Node(predicate))
            case nodes.ByValue():
                return self._add(Node(nodes.UNKNOWN))

    def _add(self, node: Node) -> int:
        number = len(self.nodes)
        self.nodes.append(node)
        for operand in node.operands:
            self.nodes[operand].parent = number
        return number

    def _add_junction(self, parts: tuple[int, ...], *, is_and: bool) -> int:
        if not parts:
            return self._add(Node(nodes.EVERY_ROW if is_and else nodes.NO_ROW))
        level = list(parts)
        while len(level) > 1:
            joined = [self._add(Node(None, is_and, (a, b))) for a, b in zip(level[::2], level[1::2], strict=False)]
            level = joined + level[2 * len(joined) :]
        if len(parts) > 1:
            self.nodes[level[0]].parts = parts
        return level[0]


class JoinedValues(ABC, Generic[Value]):
    """Values of a tree's leaves, and the values of all other nodes that follow from them.

    A new value of a leaf marks the nodes above the leaf as stale. The next question for the root joins all stale nodes.
    Several threads may read, one may change.
    """

    def __init__(self, tree: PredicateTree) -> None:
        self._tree = tree
        self._stale = {number for number, node in enumerate(tree.nodes) if node.operands}
        unknown = self._constant(nodes.UNKNOWN)
        self._values: dict[int, Value] = {
            number: self._constant(node.content)
            if isinstance(node.content, nodes.Everything | nodes.Nothing)
            else unknown
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

    @property
    def root(self) -> Value:
        """The value of the predicate."""
        # Operands have smaller numbers, so they are joined first.
        for number in sorted(self._stale):
            node = self._tree.nodes[number]
            first, second = (self._values[operand] for operand in node.operands)
            self._values[number] = self._join(first, second, slice(None), is_and=node.is_and)
        self._stale.clear()
        return self._values[self._tree.root]

    def root_if(self, leaf: int, value: Value, at: Selection) -> Value:
        """Return what the value of the predicate would be at some positions if a leaf had another value there."""
        changed = dict.fromkeys(self._tree.places[leaf], value)
        if self._tree.root in changed:
            return value
        _ = self.root  # joins what is stale
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
