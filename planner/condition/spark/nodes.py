"""The nodes that `Conditions.java` makes of the filter above a scan: tests of typed columns against literals."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal, TypeAlias

import numpy as np
from pydantic import Base64Bytes, BaseModel, ConfigDict, Field


class Node(BaseModel):
    """A node."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class LiteralNode(Node):
    """A literal; `type` is its type in Spark, by Iceberg's name."""


class Null(LiteralNode):
    """NULL."""

    node: Literal["null"]
    type: str
    content: None


class Boolean(LiteralNode):
    """TRUE or FALSE."""

    node: Literal["boolean"]
    type: Literal["boolean"]
    content: bool


class Integer(LiteralNode):
    """A whole number; for a date the days since 1970, for a timestamp the microseconds since 1970."""

    node: Literal["integer"]
    type: Literal["int", "long", "date", "timestamp", "timestamptz"]
    content: int


class Floating(LiteralNode):
    """A floating-point number; `content` is the bits of the double."""

    node: Literal["floating"]
    type: Literal["float", "double"]
    content: int

    @property
    def number(self) -> float:
        """The number."""
        return float(np.int64(self.content).view(np.float64))


class DecimalNumber(LiteralNode):
    """A decimal."""

    node: Literal["decimal"]
    type: str
    content: Decimal


class Bytes(LiteralNode):
    """Bytes; a string's bytes need not be UTF-8."""

    node: Literal["bytes"]
    type: Literal["string", "binary"]
    content: Base64Bytes


_Literal: TypeAlias = Null | Boolean | Integer | Floating | DecimalNumber | Bytes


class Column(Node):
    """A column, a field of a struct, or the value that a map column has for a key.

    Attributes:
        type: The value's type in Spark, by Iceberg's name.
        field: The ID of the column or field in the schema.
        path: The names of column and fields, the outermost first; for messages only.
        key: The key of the map; None for the column itself.
    """

    node: Literal["column"]
    type: str
    field: int
    path: tuple[str, ...]
    key: Annotated[_Literal, Field(discriminator="node")] | None = None


_Value: TypeAlias = Annotated[_Literal | Column, Field(discriminator="node")]


class Comparison(Node):
    """A comparison of two values."""

    node: Literal["comparison"]
    left: _Value
    operator: Literal["=", "<=>", "<", "<=", ">", ">=", "starts with"]
    right: _Value


class Membership(Node):
    """Whether a value is one of some literals."""

    node: Literal["in"]
    value: _Value
    members: tuple[Annotated[_Literal, Field(discriminator="node")], ...]


class Test(Node):
    """A test of one value."""

    node: Literal["is-null", "is-not-null", "is-nan"]
    value: _Value


class Matches(BaseModel):
    """The values for which a function is true.

    Attributes:
        positions: Their places in the list of values that the planner gave: a roaring bitmap. None if the planner gave
            the least and the greatest key only.
        between: The least and the greatest of their keys, between which there is no other value; empty if there are no
            such values. None if the planner gave a list.
        null: Whether the function is true for NULL.
        exact: Whether the function is true for all these values; otherwise it failed for some, or depends on the sign
            of zero.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    positions: Base64Bytes | None
    between: tuple[()] | tuple[int, int] | None
    null: bool
    exact: bool
    microseconds: int


class Function(Node):
    """A condition on one column that Spark evaluates, value by value; `values` is the fingerprint of its list."""

    node: Literal["function"]
    number: int
    name: str
    column: Column
    values: str | None
    matches: Matches | None


class Unknown(Node):
    """An expression that may be true for any row."""

    node: Literal["unknown"]
    name: str


class Negation(Node):
    """NOT."""

    node: Literal["not"]
    part: ConditionNode


class Junction(Node):
    """AND or OR."""

    node: Literal["and", "or"]
    parts: tuple[ConditionNode, ...] = Field(min_length=2)


ConditionNode: TypeAlias = Annotated[
    Junction | Negation | Comparison | Membership | Test | Function | Unknown | _Literal | Column,
    Field(discriminator="node"),
]
Negation.model_rebuild()
Junction.model_rebuild()
