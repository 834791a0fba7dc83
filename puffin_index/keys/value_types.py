"""The Iceberg types that an index supports, and the domain of their keys."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from puffin_index.errors import UnsupportedError

Domain: TypeAlias = Literal["int64", "bytes"]

INT64_DECIMAL_PRECISION = 18
MAXIMUM_DECIMAL_PRECISION = 38

_INT64_NAMES = frozenset(
    {
        "boolean",
        "int",
        "long",
        "float",
        "double",
        "date",
        "time",
        "timestamp",
        "timestamptz",
        "timestamp_ns",
        "timestamptz_ns",
    }
)
_BYTES_NAMES = frozenset({"string", "uuid", "binary"})
_DECIMAL = re.compile(r"decimal\((\d{1,2}), ?(\d{1,2})\)")
_FIXED = re.compile(r"fixed\[(\d{1,9})\]")
_INDEXABLE = (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)


@dataclass(frozen=True, slots=True)
class ValueType:
    """An Iceberg primitive type, by its name.

    Attributes:
        name: Iceberg's own type string, without blanks: `int`, `decimal(38,2)`, `timestamptz_ns`, `fixed[16]`.
    """

    name: str

    @property
    def domain(self) -> Domain:
        """Whether keys are 64-bit integers or bytes."""
        if self.name in _INT64_NAMES:
            return "int64"
        if self.is_decimal and self.decimal_precision <= INT64_DECIMAL_PRECISION:
            return "int64"
        return "bytes"

    @property
    def is_floating(self) -> bool:
        """Whether this is float or double, whose keys are mapped bits."""
        return self.name in ("float", "double")

    @property
    def is_decimal(self) -> bool:
        """Whether this is a decimal of any precision and scale."""
        return self.name.startswith("decimal(")

    @property
    def decimal_precision(self) -> int:
        """The precision of a decimal; 0 for other types."""
        return _decimal_of(self.name)[0]

    @property
    def decimal_scale(self) -> int:
        """The scale of a decimal; 0 for other types."""
        return _decimal_of(self.name)[1]

    @property
    def fixed_length(self) -> int | None:
        """The length of every value in bytes, for uuid and fixed; None for other types."""
        if self.name == "uuid":
            return 16
        found = _FIXED.fullmatch(self.name)
        return int(found[1]) if found else None


def _decimal_of(name: str) -> tuple[int, int]:
    found = _DECIMAL.fullmatch(name)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def value_type_of(iceberg_type: object) -> ValueType:
    """Return the value type of an Iceberg type.

    Raises:
        UnsupportedError: If values of the type have no keys: structs, lists, maps, variants, geometries, unknown.
    """
    if not isinstance(iceberg_type, PrimitiveType) or not isinstance(iceberg_type, _INDEXABLE):
        raise UnsupportedError(f"a column of type {iceberg_type} cannot be indexed")
    return value_type_named(str(iceberg_type))


def value_type_named(name: str) -> ValueType:
    """Return the value type of an Iceberg type string.

    Raises:
        UnsupportedError: If no value type has the string.
    """
    canonical = name.replace(", ", ",")
    if canonical in _INT64_NAMES or canonical in _BYTES_NAMES or _FIXED.fullmatch(canonical):
        return ValueType(canonical)
    precision, scale = _decimal_of(canonical)
    if 0 < precision <= MAXIMUM_DECIMAL_PRECISION and scale <= precision:
        return ValueType(canonical)
    raise UnsupportedError(f"a column of type {name} cannot be indexed")
