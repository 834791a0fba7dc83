"""The nodes that `Conditions.java` makes of the filter above a scan: few kinds, over typed columns and literals."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal, TypeAlias

import numpy as np
from pydantic import Base64Bytes, BaseModel, ConfigDict, Field, TypeAdapter


class Node(BaseModel):
    """A node; its text is for people only."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class LiteralNode(Node):
    """A literal; `type` is the type that Spark sees, by Iceberg's name."""


class Null(LiteralNode):
    """NULL."""

    node: Literal["null"]
    type: str
    content: None

    def __str__(self) -> str:
        return "NULL"


class Boolean(LiteralNode):
    """TRUE or FALSE."""

    node: Literal["boolean"]
    type: Literal["boolean"]
    content: bool

    def __str__(self) -> str:
        return str(self.content).upper()


class Integer(LiteralNode):
    """A whole number; of a date its days, of a timestamp its microseconds, counted from 1970."""

    node: Literal["integer"]
    type: Literal["int", "long", "date", "timestamp", "timestamptz"]
    content: int

    def __str__(self) -> str:
        return str(self.content) if self.type in ("int", "long") else f"{self.type}({self.content})"


class Floating(LiteralNode):
    """A floating-point number, as the bits of the double that it is."""

    node: Literal["floating"]
    type: Literal["float", "double"]
    content: int

    @property
    def number(self) -> float:
        """The number."""
        return float(np.int64(self.content).view(np.float64))

    def __str__(self) -> str:
        return str(self.number)


class DecimalNumber(LiteralNode):
    """A decimal."""

    node: Literal["decimal"]
    type: str
    content: Decimal

    def __str__(self) -> str:
        return str(self.content)


class Bytes(LiteralNode):
    """Bytes; those of a string need not be UTF-8."""

    node: Literal["bytes"]
    type: Literal["string", "binary"]
    content: Base64Bytes

    def __str__(self) -> str:
        return repr(self.content.decode(errors="replace")) if self.type == "string" else f"X'{self.content.hex()}'"


_Literal: TypeAlias = Annotated[
    Null | Boolean | Integer | Floating | DecimalNumber | Bytes, Field(discriminator="node")
]


class ColumnNode(Node):
    """A column, or a leaf of a struct; `Element` is what a map holds for a key.

    Attributes:
        type: The type that Spark sees in its values, by Iceberg's name.
        field: Its id in the schema.
        path: Its names, from the outermost struct on; for people only.
    """

    node: Literal["column", "element"]
    type: str
    field: int
    path: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(self.path)


class Element(ColumnNode):
    """What a map holds for a key."""

    node: Literal["element"]
    key: _Literal

    def __str__(self) -> str:
        return f"{'.'.join(self.path)}[{self.key}]"


class Column(ColumnNode):
    """A column, or a leaf of a struct."""

    node: Literal["column"]


_Column: TypeAlias = Annotated[Column | Element, Field(discriminator="node")]
_Value: TypeAlias = Annotated[
    Null | Boolean | Integer | Floating | DecimalNumber | Bytes | Column | Element, Field(discriminator="node")
]


class Comparison(Node):
    """A comparison of two values."""

    node: Literal["comparison"]
    left: _Value
    operator: Literal["=", "<=>", "<", "<=", ">", ">=", "starts with"]
    right: _Value

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right}"


class Membership(Node):
    """Whether a value is one of some literals."""

    node: Literal["in"]
    value: _Value
    members: tuple[_Literal, ...]

    def __str__(self) -> str:
        return f"{self.value} in ({', '.join(map(str, self.members))})"


class Test(Node):
    """A test of one value."""

    node: Literal["is-null", "is-not-null", "is-nan"]
    value: _Value

    def __str__(self) -> str:
        return f"{self.value} {self.node.replace('-', ' ')}"


class Unknown(Node):
    """Whatever is not evaluated here.

    Attributes:
        name: What Spark calls it; for people only.
    """

    node: Literal["unknown"]
    name: str

    def __str__(self) -> str:
        return f"{self.name}(...)"


class Negation(Node):
    """NOT."""

    node: Literal["not"]
    part: ConditionNode

    def __str__(self) -> str:
        return f"not ({self.part})"


class Junction(Node):
    """AND or OR."""

    node: Literal["and", "or"]
    parts: tuple[ConditionNode, ...] = Field(min_length=2)

    def __str__(self) -> str:
        return "(" + f" {self.node} ".join(map(str, self.parts)) + ")"


ConditionNode: TypeAlias = Annotated[
    Junction
    | Negation
    | Comparison
    | Membership
    | Test
    | Unknown
    | Null
    | Boolean
    | Integer
    | Floating
    | DecimalNumber
    | Bytes
    | Column
    | Element,
    Field(discriminator="node"),
]
Negation.model_rebuild()
Junction.model_rebuild()
_CONDITIONS: TypeAdapter[ConditionNode] = TypeAdapter(ConditionNode)


def read_condition(node: object) -> ConditionNode:
    """Read a condition from what JSON makes of it.

    Raises:
        ValidationError: If it is none.
    """
    return _CONDITIONS.validate_python(node)
