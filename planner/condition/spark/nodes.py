"""The nodes that the hook's Java makes of a scan's filters: tests of typed columns against literals."""

from __future__ import annotations

from base64 import b64decode
from decimal import Decimal, InvalidOperation
from typing import Annotated, Final, Literal, TypeAlias

import numpy as np
import pydantic

from puffin_index.storage.arrays import Ints


class Message(pydantic.BaseModel):
    """A part of what the JVM says; a field that is not known is refused."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")


Content: TypeAlias = bool | int | float | Decimal | bytes | None
"""The value of a literal: of a date the days since 1970, of a timestamp the microseconds since 1970; None is NULL."""


def content_of(type_name: str, sent: object) -> Content:
    """Return the value of a literal (bits of a double, digits of a decimal, base64), or raise ValueError if none."""
    match type_name, sent:
        case _, None:
            return None
        case "boolean", bool():
            return sent
        case "int" | "long" | "date" | "timestamp" | "timestamptz", int():
            return sent
        case "float" | "double", int():
            return float(np.int64(sent).view(np.float64))
        case "string" | "binary", str():
            return b64decode(sent, validate=True)
        case _, str() if type_name.startswith("decimal"):
            try:
                return Decimal(sent)
            except InvalidOperation as error:
                raise ValueError(f"{sent!r} is no number") from error
        case _:
            raise ValueError(f"{sent!r} is no {type_name}")


Contents: TypeAlias = tuple[int, ...] | tuple[bytes, ...]
"""Values as Spark has them: of a date the days, of a timestamp the microseconds since 1970; of a text its bytes."""

_HEADER_BYTES: Final = 5
_LENGTH_BYTES: Final = 4


def unpacked(text: str) -> Contents:
    """Return the values of a base64 list of the form `N` or `B` (docs/hook-protocol.md), or raise ValueError."""
    data = b64decode(text, validate=True)
    form, count = data[:1], int.from_bytes(data[1:_HEADER_BYTES])
    if form == b"N" and len(data) == _HEADER_BYTES + 8 * count:
        return tuple(np.frombuffer(data, ">i8", count, _HEADER_BYTES).tolist())
    first = _HEADER_BYTES + _LENGTH_BYTES * count
    if form == b"B" and len(data) >= first:
        lengths: Ints = np.frombuffer(data, ">u4", count, _HEADER_BYTES).astype(np.int64)
        ends = first + np.cumsum(lengths)
        if (int(ends[-1]) if count else first) == len(data):
            return tuple(data[start:end] for start, end in zip((ends - lengths).tolist(), ends.tolist(), strict=True))
    raise ValueError("no list of values")


PACKED: Final = pydantic.WrapValidator(lambda sent, read: unpacked(sent) if isinstance(sent, str) else read(sent))
"""Lets a list be packed, as `PackedList.java` writes long ones."""


class LiteralNode(Message):
    """A literal; `type` is its type in Spark, by Iceberg's name."""

    node: Literal["literal"]
    type: str
    content: Content

    @pydantic.field_validator("content", mode="before")
    @classmethod
    def _content(cls, sent: object, others: pydantic.ValidationInfo) -> Content:
        return content_of(others.data.get("type", ""), sent)


class Column(Message):
    """A column, a field of a struct, or what a map has for a key, by id; `path` is for messages; `type` is Spark's."""

    node: Literal["column"]
    type: str
    field: int
    path: tuple[str, ...]
    key: LiteralNode | None = None


_Value: TypeAlias = Annotated[LiteralNode | Column, pydantic.Field(discriminator="node")]


class Comparison(Message):
    """A comparison of two values."""

    node: Literal["comparison"]
    left: _Value
    operator: Literal["=", "<=>", "<", "<=", ">", ">=", "starts with"]
    right: _Value


class Membership(Message):
    """Whether a value is one of some literals; of many, only the contents are listed, all of the value's type."""

    node: Literal["in"]
    value: _Value
    members: Annotated[tuple[LiteralNode, ...] | Contents, PACKED]


class Test(Message):
    """A test of one value."""

    node: Literal["is-null", "is-not-null", "is-nan"]
    value: _Value


class Contains(Message):
    """What the rows of a column contain: one of some literals, or nothing; `value` has the type of what they contain.

    `overlaps` is NULL where `exists` may be false, by a setting: where a row contains NULL and none of the literals.
    """

    node: Literal["contains"]
    test: Literal["overlaps", "exists", "is-empty", "is-null", "is-not-null"]
    part: Literal["elements", "keys", "values"]
    value: Column
    members: tuple[LiteralNode, ...]


class Matches(Message):
    """The values for which a function is true, and whether it is true for NULL.

    `positions` are their places in the list that the planner gave, as a roaring bitmap; without a list, `between` has
    the least and greatest of their keys, with no other value between. If not `exact`, it may be false for some of them.
    """

    positions: pydantic.Base64Bytes | None = None
    between: tuple[()] | tuple[int, int] | None = None
    null: bool
    exact: bool
    microseconds: int


class Pattern(Message):
    """A search of the column's text, or of its lower or upper case: what a function does, where that is all."""

    function: Literal["lower", "upper"] | None
    operator: Literal["contains", "ends with", "LIKE", "RLIKE"]
    text: pydantic.Base64Bytes
    escape: str


class Function(Message):
    """A condition on one column that Spark evaluates, value by value; `values` is the fingerprint of its list."""

    node: Literal["function"]
    number: int
    name: str
    column: Column
    values: str | None
    matches: Matches | None
    pattern: Pattern | None = None


class Unknown(Message):
    """An expression that may be true for any row."""

    node: Literal["unknown"]
    name: str


class Negation(Message):
    """NOT."""

    node: Literal["not"]
    part: ConditionNode


class Junction(Message):
    """AND or OR."""

    node: Literal["and", "or"]
    parts: tuple[ConditionNode, ...] = pydantic.Field(min_length=2)


ConditionNode: TypeAlias = Annotated[
    Junction | Negation | Comparison | Membership | Contains | Test | Function | Unknown | LiteralNode | Column,
    pydantic.Field(discriminator="node"),
]
Negation.model_rebuild()
Junction.model_rebuild()
