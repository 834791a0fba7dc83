"""Tokens: `planner.where.parser` cuts a WHERE text into them, `planner.where.precedence` makes a condition of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from planner.where.conditions import Value


class Kind(Enum):
    """The role of a token."""

    # Before a value.
    NOT = "NOT"
    OPEN = "("
    SIGN = "sign"

    VALUE = "value"

    # Between two values.
    AND = "AND"
    OR = "OR"
    COMMA = ","
    COMPARISON = "comparison"
    ARITHMETIC = "arithmetic"
    LIKE = "LIKE, ILIKE or RLIKE"
    BETWEEN = "BETWEEN"
    DISTINCT = "IS DISTINCT FROM"
    IN = "IN ("

    # Behind a value.
    CLOSE = ")"
    ACCESS = "access or cast"
    IS = "IS"
    ESCAPE = "ESCAPE"
    IN_LIST = "IN (literals)"

    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the text.

    Attributes:
        kind: The role.
        start: Offset of the first character.
        end: Offset behind the last character.
        word: The operator or keyword, in capitals.
        negated: Whether the token contains NOT.
        values: The value, the escape character, or the members of a list.
    """

    kind: Kind
    start: int
    end: int
    word: str = ""
    negated: bool = False
    values: tuple[Value, ...] = ()
