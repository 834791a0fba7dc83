"""The source rows of the kit: small tables of every type, computed from row numbers, the same each time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from math import inf, nan
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)


@dataclass(frozen=True)
class KitColumn:
    """A column of a kit's table.

    Attributes:
        name: The name.
        iceberg: The type.
        source: The values to choose from, or the value of a row by the number of its data file and its number there.
    """

    name: str
    iceberg: IcebergType
    source: Sequence[Any] | Callable[[int, int], Any]

    def values(self, file: int, rows: int) -> list[Any]:
        """Give the values of a data file; every eleventh row of a pool is NULL."""
        if callable(self.source):
            return [self.source(file, row) for row in range(rows)]
        pool = self.source
        return [None if row % 11 == 4 else pool[(row * row + row // 3 + 5 * file) % len(pool)] for row in range(rows)]


@dataclass(frozen=True)
class KitTable:
    """A table: its name, its columns, and the rows of each row group of each data file."""

    name: str
    columns: tuple[KitColumn, ...]
    files: tuple[tuple[int, ...], ...]

    @property
    def schema(self) -> Schema:
        """The Iceberg schema; field ids of columns are 1, 2, ... in order."""
        return Schema(*(NestedField(n, c.name, c.iceberg, required=False) for n, c in enumerate(self.columns, 1)))


_MOMENTS = [
    datetime.fromisoformat(text)
    for text in (
        "1970-01-01T00:00:00",
        "1969-12-31T23:59:59.999999",
        "2020-02-29T12:30:00.000001",
        "1582-10-04T01:02:03",
        "9999-12-31T23:59:59.999999",
    )
]
_WIDE = (
    "0.00",
    "-0.01",
    "1.00",
    "-1.00",
    "999999999999999999999999999999999999.99",
    "-999999999999999999999999999999999999.99",
    "12345678901234567.89",
)
_TEXTS = (
    "",
    "a",
    "ab",
    "b",
    "AA",
    "Ünï",
    "日本",
    "😀",
    '"quoted"',
    "back\\slash",
    "new\nline",
    "tab\t",
    "it's",
    "\u007f",
    "a\u0000b",
    "%_",
    "zz" * 40,
)

_LABELS = ("", "a", "ab", "日本", None, "a\u0000b", "zz" * 40, "it's")
_NUMBERS = (0, 5, -5, 1 << 40, None, 2**63 - 1, -(2**63), 5)


def _tags(file: int, row: int) -> list[tuple[str, str]] | None:
    if row % 9 == 7:
        return None
    tags = [("color", ("red", "green", "blue", "é")[(row + file) % 4])] if row % 5 else []
    return [*tags, ("size", str(row % 3))]


def _counts(file: int, row: int) -> list[tuple[int, int]] | None:
    return None if row % 7 == 3 else [(-7, row % 6 - 2 + file), (8, row)]


def _labels(file: int, row: int) -> list[str | None] | None:
    if row % 8 == 6:
        return None
    labels = [_LABELS[(row * row + n + file) % len(_LABELS)] for n in range(row % 4)]
    return [*labels, *labels[:1]] if row % 5 == 3 else labels


def _numbers(file: int, row: int) -> list[int | None] | None:
    if row % 10 == 1:
        return None
    return [_NUMBERS[(row + n * n + file) % len(_NUMBERS)] for n in range(row * 7 % 5)]


def _shelves(file: int, row: int) -> list[int | None] | None:
    if row % 20_000 < 40:
        return None
    shelves: list[int | None] = [row // 6_000 % 7, row // 11_000 + 3 + file] if row // 5_000 % 4 != 1 else []
    return [*shelves, None] if row // 9_000 % 3 == 2 else shelves


def _place(file: int, row: int) -> dict[str, int | None] | None:
    return None if row % 10 == 9 else {"floor": None if row % 6 == 5 else (row * 3 + file) % 8 - 3}


TYPES = (
    KitColumn("flag", BooleanType(), (True, False, False)),
    KitColumn("small", IntegerType(), (0, 1, -1, 7, 2**31 - 1, -(2**31), 42)),
    KitColumn("big", LongType(), (0, 5, -5, 1 << 40, -(1 << 40), 2**63 - 1, 1 - 2**63, 6)),
    KitColumn("lowest", LongType(), (-(2**63), 0, 2**63 - 1, 3, 4)),
    KitColumn("day", DateType(), [date(1970, 1, 1) + timedelta(n) for n in (0, -1, 1, 18_321, 18_322, -200_000)]),
    KitColumn("hour", TimeType(), (time(0), time(23, 59, 59, 999_999), time(12, 30), time(12, 30, 0, 1))),
    KitColumn("moment", TimestampType(), _MOMENTS),
    KitColumn("instant", TimestamptzType(), [moment.replace(tzinfo=UTC) for moment in _MOMENTS]),
    KitColumn("price", DecimalType(9, 2), [*map(Decimal, ("0.00", "-0.01", "1234567.89", "-9999999.99", "4.50"))]),
    KitColumn("wide", DecimalType(38, 2), [*map(Decimal, _WIDE)]),
    KitColumn("ratio", FloatType(), (0.0, -0.0, 1.5, -2.5, nan, inf, -inf, 1e-45)),
    KitColumn("amount", DoubleType(), (-0.0, 0.0, 0.1, -1.5, nan, inf, -inf, 5e-324, 1.7976931348623157e308)),
    KitColumn("name", StringType(), _TEXTS),
    KitColumn("code", BinaryType(), (b"", b"\x00", b"\x00\xff", b"\xff", b"abc")),
    KitColumn("key", FixedType(3), (b"\x00\x00\x00", b"abc", b"\xff\xfe\xfd")),
    KitColumn("id", UUIDType(), [bytes([n * 37 % 256] * 16) for n in range(5)]),
    KitColumn("nothing", IntegerType(), (None,)),
    KitColumn("place", StructType(NestedField(101, "floor", IntegerType(), required=False)), _place),
    KitColumn("tags", MapType(102, StringType(), 103, StringType(), value_required=False), _tags),
    KitColumn("counts", MapType(104, IntegerType(), 105, LongType(), value_required=False), _counts),
    KitColumn("labels", ListType(106, StringType(), element_required=False), _labels),
    KitColumn("numbers", ListType(107, LongType(), element_required=False), _numbers),
)
"""One column of each type, with the values at the ends of the type; arrays with NULL, and with a value twice."""

SMALL = KitTable("small", TYPES, ((30, 12), (1,), (0, 17)))
"""Row groups of 30, 12, 1, 0 and 17 rows."""

_SIDES = ("left", "right", "middle")
LARGE = KitTable(
    "large",
    (
        KitColumn("steps", LongType(), lambda file, row: None if row % 5_000 < 40 else row % 1_000 * 4 - 800 + file),
        KitColumn("parity", IntegerType(), lambda _, row: row % 2),
        KitColumn("cycle", IntegerType(), lambda file, row: (row + file) % 23),
        KitColumn(
            "side", StringType(), lambda file, row: None if row % 1_000 == 7 else _SIDES[(row * row // 5 + file) % 3]
        ),
        KitColumn("block", IntegerType(), lambda file, row: row // 9_000 + file),
        KitColumn("word", StringType(), lambda _, row: None if row // 700 % 9 == 5 else f"word {row // 700 * 31 % 50}"),
        KitColumn("shelves", ListType(101, IntegerType(), element_required=False), _shelves),
    ),
    ((66_000, 300), (52_000,)),
)
"""Large row groups: compressed slices, blocks that are row sets, keys of several sections; and a small one."""

NUMBER = KitColumn(
    "number", LongType(), lambda file, row: None if row % 97 == 50 else (row + 100 * file) * 2 % 1_201 - 600
)
PATH = KitColumn("path", StringType(), lambda _, row: None if row % 97 == 51 else f"{'/long' * 220}/{row % 950:04d}")
"""Texts that only differ behind a thousand letters."""

KEYS = KitTable("keys", (NUMBER, PATH), ((700, 650), (650,)))
"""Many keys, and long ones: postings of two levels."""

ALONE = KitTable("alone", (NUMBER,), ((1_500,),))
"""A single row group."""
