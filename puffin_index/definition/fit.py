"""Whether the kinds of a definition suit their columns, as far as types and options tell."""

from __future__ import annotations

from collections.abc import Sequence

from puffin_index.definition.index_definition import Options, ResolvedColumn
from puffin_index.keys.values import ValueType
from puffin_index.kinds.bitmap.kind import layout_of

_WIDE_TYPES = frozenset(
    {"float", "double", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns", "time", "uuid"}
)
"""Types whose columns seldom repeat a value."""
_LARGE_FPP = 0.3


def fit_warnings(columns: Sequence[ResolvedColumn]) -> list[str]:
    """Say where a kind is a bad fit for its column, one sentence each, in the order of the columns.

    Nothing is read: the number of distinct values is guessed from the type alone.
    """
    return [
        f"column {column.name!r}: {sentence}"
        for column in columns
        for kind, options in column.kinds.items()
        for sentence in _of_kind(kind, options, column)
    ]


def _of_kind(kind: str, options: Options, column: ResolvedColumn) -> list[str]:
    match kind:
        case "bitmap":
            return _of_bitmap(options, column.value_type)
        case "bsi":
            return _of_bit_slices(column.value_type)
        case "bloom":
            return _of_bloom(options, column)
        case _:
            return []


def _of_bitmap(options: Options, value_type: ValueType) -> list[str]:
    layout = layout_of(options)
    if layout == "bitmaps" and _is_wide(value_type):
        return [
            f"a {value_type.name} column mostly has many distinct values, for which one bitmap a value takes 7 to 16 "
            "bytes a row; leave out layout=bitmaps and version, or use bsi"
        ]
    if layout == "postings" and value_type.name == "boolean":
        return ["two values need no sorted postings; leave out layout=postings"]
    return []


def _of_bit_slices(value_type: ValueType) -> list[str]:
    if value_type.name == "boolean":
        return ["bsi is for comparisons, and a boolean has only two values; use bitmap"]
    if value_type.name.startswith(("uuid", "binary", "fixed")):
        return [
            f"bsi is for comparisons, which few ask of a {value_type.name} column; for = and IN use bitmap or bloom"
        ]
    return []


def _of_bloom(options: Options, column: ResolvedColumn) -> list[str]:
    found: list[str] = []
    if column.value_type.name == "boolean":
        found.append("a bloom filter of two values says no more than minimum and maximum; use bitmap")
    elif column.value_type.is_floating:
        found.append(f"bloom answers only = and IN, which few ask of a {column.value_type.name} column; use bsi")
    if "fpp" in options and float(options["fpp"]) >= _LARGE_FPP:
        found.append(f"bloom with fpp={options['fpp']} lets that share of the row groups through; 0.1 or less is usual")
    return found


def _is_wide(value_type: ValueType) -> bool:
    return value_type.name in _WIDE_TYPES or (value_type.is_decimal and value_type.domain == "bytes")
