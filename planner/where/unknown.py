"""Leaves that PyIceberg's expression tree lacks: SQL predicates that no node of the tree can say."""

from __future__ import annotations

from pyiceberg.expressions import BooleanExpression


class Unknown(BooleanExpression):
    """A predicate that may be true for any row, and so may its negation: all rows, an upper bound.

    Attributes:
        text: The predicate as it was written.
    """

    text: str

    def __invert__(self) -> BooleanExpression:
        """Return this leaf: nothing is known of the opposite either."""
        return self

    def __str__(self) -> str:
        return repr(self)


class UnknownLike(Unknown):
    """`column [NOT] LIKE pattern` with wildcards that no prefix test can say.

    The planner takes the leaf as an upper bound, like any `Unknown`. A reader may evaluate the pattern on the values.

    Attributes:
        column: The column's name as written, dotted.
        pattern: The pattern, with its escapes.
        escape: The character that makes the next wildcard an ordinary character.
        negated: NOT LIKE: rows that are not NULL and do not match.
    """

    column: str
    pattern: str
    escape: str
    negated: bool = False

    def __invert__(self) -> BooleanExpression:
        """Return the opposite test; a NULL satisfies neither."""
        return self.model_copy(update={"negated": not self.negated})


class UnknownFunction(Unknown):
    """A condition on one column that an engine evaluates; its opposite is unknown.

    Attributes:
        number: The condition's number among those of its query.
    """

    number: int

    def __invert__(self) -> BooleanExpression:
        """Return an unknown leaf: NULL satisfies neither the condition nor its opposite."""
        return Unknown(text=f"NOT {self.text}")
