"""Leaves that PyIceberg's expression tree lacks: SQL predicates that no node of the tree can say."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from pydantic import ConfigDict
from pyiceberg.expressions import BooleanExpression, Reference

from planner.where.terms import FieldTerm, MapElement


class Unknown(BooleanExpression):
    """A predicate that may be true for any row, and so may its negation: all rows, an upper bound.

    Attributes:
        text: The predicate as it was written.
    """

    text: str

    def __invert__(self) -> Unknown:
        """Return this leaf: nothing is known of the opposite either."""
        return self

    def __str__(self) -> str:
        return repr(self)


TextFunction: TypeAlias = Literal["upper", "lower", "trim", "ltrim", "rtrim"]
NumberFunction: TypeAlias = Literal["length", "year", "month", "day", "quarter"]
ValueOperator: TypeAlias = Literal["=", "<", "<=", ">", ">=", "IN", "IS NULL", "LIKE", "ILIKE", "RLIKE"]

PATTERN_OPERATORS: Final = ("LIKE", "ILIKE", "RLIKE")


class ValueTest(Unknown):
    """A test of one column that is decided value by value: `[NOT] function(column) operator literals`.

    The leaf is an upper bound for whoever does not evaluate it, like any `Unknown`. NULL satisfies neither the test
    nor its opposite, except for `IS NULL`.

    Attributes:
        term: The column, a leaf of a struct, or a key of a map.
        function: What is applied to the column; None for the column itself.
        operator: How the result is tested.
        literals: Texts, or integers beside a function that gives integers; one, several for `IN`, none for `IS NULL`. A
            pattern is as written, with its escapes.
        escape: In a pattern of LIKE, the character that makes the next wildcard an ordinary character.
        negated: The opposite.
    """

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    term: Reference | MapElement | FieldTerm
    function: TextFunction | NumberFunction | None
    operator: ValueOperator
    literals: tuple[str | int, ...]
    escape: str = "\\"
    negated: bool = False

    def __invert__(self) -> Unknown:
        """Return the opposite test."""
        return self.model_copy(update={"negated": not self.negated})

    @property
    def column(self) -> str:
        """The column, for people."""
        match self.term:
            case MapElement(name, key):
                return f"{name}[{key.value!r}]"
            case FieldTerm(field_id):
                return f"field {field_id}"
            case _:
                return self.term.name

    def __str__(self) -> str:
        subject = f"{self.function}({self.column})" if self.function else self.column
        literals = ", ".join(map(repr, self.literals))
        right = f" ({literals})" if self.operator == "IN" else f" {literals}" if literals else ""
        return f"{'NOT ' if self.negated else ''}{subject} {self.operator}{right}"


class UnknownFunction(Unknown):
    """A condition on one column that an engine evaluates; its opposite is unknown.

    Attributes:
        number: The condition's number among those of its query.
    """

    number: int

    def __invert__(self) -> Unknown:
        """Return an unknown leaf: NULL satisfies neither the condition nor its opposite."""
        return Unknown(text=f"NOT {self.text}")
