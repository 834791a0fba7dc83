"""What stands beside an operator: columns, functions of columns, literals, and what the planner does not evaluate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import tzinfo

from pyiceberg.typedef import LiteralValue

from planner.condition.columns import FoundColumn
from planner.condition.places import Pair, Scale
from planner.condition.tree.nodes import Leaf, NumberFunction, TextFunction
from planner.condition.truth import Truth, unknown
from puffin_index.keys.leaf import LeafTest, NullTest


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or what a map column holds for a key.

    Attributes:
        found: The column.
        zone: The time zone of the session; None if literals of dates and times have the column's type as they are.
    """

    found: FoundColumn
    zone: tzinfo | None = None

    def leaf(self, test: LeafTest) -> Leaf:
        """Return a test of the column, whose values an index can hold."""
        assert self.found.value_type is not None
        return Leaf(self.found.column, test, self.found.value_type.name)

    @property
    def is_null(self) -> Leaf:
        """The test for NULL."""
        return self.leaf(NullTest(is_null=True))

    def truth(self, tests: Callable[[Scale], Pair | None], text: str) -> Truth:
        """Make a condition of the tests that the column's scale gives."""
        if self.found.value_type is None:
            return unknown(text, f"no index can be of a {self.found.type}")
        pair = tests(Scale(self.found.type, self.found.value_type, self.zone))
        if pair is None:
            kind = f"the literal is of another kind than the column, a {self.found.type}"
            return unknown(text, f"{kind}: Spark converts one of them first")
        return Truth(self.leaf(pair[0]), self.leaf(pair[1]), self.is_null)


@dataclass(frozen=True, slots=True)
class Applied:
    """A function of a column, NULL exactly where the column is NULL."""

    function: TextFunction | NumberFunction
    column: Column


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal; None is NULL."""

    literal: LiteralValue | None


@dataclass(frozen=True, slots=True)
class Computed:
    """Anything the planner does not evaluate: arithmetic, other functions, elements of arrays and maps."""
