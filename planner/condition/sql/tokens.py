"""Tokens: `parser` beside cuts a WHERE text into them, `precedence` makes a condition of them."""

from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeAlias

from pyiceberg.typedef import LiteralValue

from planner.condition.comparisons import Computed, Constant
from planner.condition.tree.nodes import NumberFunction, TextFunction


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
class Named:
    """A column as the text names it, dotted, and the key of a map in brackets behind it, if any."""

    name: str
    key: LiteralValue | None = None


_NO_PREFIX = Constant(None)


@dataclass(frozen=True, slots=True)
class Called:
    """A function of a column; `startswith` has a second operand, a prefix."""

    function: TextFunction | NumberFunction | Literal["isnan", "isnull", "isnotnull", "startswith"]
    column: Named | Computed
    text: str
    prefix: Constant = _NO_PREFIX


Operand: TypeAlias = Named | Called | Constant | Computed


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the text: operator or keyword in capitals, and value, escape character or members of a list."""

    kind: Kind
    start: int
    end: int
    word: str = ""
    negated: bool = False
    values: tuple[Operand, ...] = ()
