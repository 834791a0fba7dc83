"""Leaves that PyIceberg's expression tree lacks: SQL predicates whose rows the tree's own nodes can't name."""

from __future__ import annotations

from pyiceberg.expressions import BooleanExpression


class Unknown(BooleanExpression):
    """A predicate that may hold for any row, as it stands and negated alike: all rows, an upper bound.

    Attributes:
        text: The predicate as it was written.
    """

    text: str

    def __invert__(self) -> BooleanExpression:
        """Return itself: nothing is known of the opposite either."""
        return self

    def __str__(self) -> str:
        return repr(self)


class UnknownLike(Unknown):
    """`column [NOT] LIKE pattern` with wildcards that no prefix test can say.

    An upper bound like any `Unknown`, unless the reader evaluates the pattern on the values of a dictionary.

    Attributes:
        column: The column's name as written, dotted.
        pattern: The pattern, its escapes still in it.
        escape: The one character that makes the wildcard behind it an ordinary character.
        negated: Rows that are not NULL and do not match.
    """

    column: str
    pattern: str
    escape: str
    negated: bool = False

    def __invert__(self) -> BooleanExpression:
        """Return the opposite test; a NULL satisfies neither."""
        return self.model_copy(update={"negated": not self.negated})
