"""Tokens: what `planner.where.parser` makes of a WHERE text and `planner.where.precedence` puts together."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from planner.where.conditions import Value


class Kind(Enum):
    """What a token does."""

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
        kind: What it does.
        start: Offset of its first character.
        end: Offset behind its last character.
        word: Which one of its kind, in capitals.
        negated: Whether it contains NOT.
        values: The value, the escape character, or the members of a list.
    """

    kind: Kind
    start: int
    end: int
    word: str = ""
    negated: bool = False
    values: tuple[Value, ...] = ()
