"""One key of a map column, indexed as a column of its own: a row's value is what its map holds for the key.

A user names it `column#k#key`. Stored, it is the map's field id and a kind that the key is added to
(`bitmap#k#color`): a map's field ids alone do not tell its keys apart. The key is text in one spelling:

| type of the keys | text |
| --- | --- |
| string | the key |
| int, long | decimal digits, `-` before a negative number |
| date | `YYYY-MM-DD` |

A row without the key, without a value for it, or without a map is NULL. Of several entries with one key (files may
hold them, though Spark and others refuse to write them) the first counts, as in Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import DateType, IcebergType, IntegerType, LongType, StringType

from puffin_index.errors import DefinitionError, UnsupportedError

SEPARATOR = "#k#"
"""Between a column's or a kind's name and the key (seed 003)."""

_INTEGER_BITS = {IntegerType: 32, LongType: 64}


@dataclass(frozen=True, slots=True)
class MapKey:
    """The values of one key of a map column.

    Attributes:
        field_id: The map.
        key: The key's text.
    """

    field_id: int
    key: str


ColumnId: TypeAlias = int | MapKey
"""What an index is about: a column by its field id, or one key of a map."""


def column_and_key(column: ColumnId) -> tuple[int, str | None]:
    """The field id that an index is about, and the key of the map if it is about one."""
    return (column.field_id, column.key) if isinstance(column, MapKey) else (column, None)


def split_name(name: str) -> tuple[str, str | None]:
    """Split `column#k#key`; the key of any other name is None.

    Raises:
        DefinitionError: If the column or the key is missing.
    """
    column, separator, key = name.partition(SEPARATOR)
    if not separator:
        return name, None
    if not column or not key:
        raise DefinitionError(
            f"column {name!r} should read `column{SEPARATOR}key`: the name of a map and one of its keys"
        )
    return column, key


def stored_kind(kind: str, key: str | None) -> str:
    """Return a kind as it is stored: with the key of the map, if it is of one."""
    return kind if key is None else f"{kind}{SEPARATOR}{key}"


def split_kind(field_id: int, kind: str) -> tuple[ColumnId, str]:
    """Split a stored kind into what the index is about and the kind itself."""
    plain, separator, key = kind.partition(SEPARATOR)
    return (MapKey(field_id, key) if separator else field_id), plain


def plain_kind(kind: str) -> str:
    """Return the kind itself of a stored kind."""
    return kind.partition(SEPARATOR)[0]


def key_of_kind(kind: str) -> str | None:
    """Return the key of the map that a stored kind is of; None if it is of a column."""
    _, separator, key = kind.partition(SEPARATOR)
    return key if separator else None


def kind_beside(plain: str, kind: str) -> str:
    """Return another kind of the same column, or key of a map, that a stored kind is of."""
    return stored_kind(plain, key_of_kind(kind))


def key_text(text: str, key_type: IcebergType) -> str:
    """Return a key in the one spelling that it is stored in.

    Raises:
        DefinitionError: If the text is no key of this type.
        UnsupportedError: If keys of this type have no text.
    """
    try:
        match key_type:
            case StringType():
                text.encode("utf-8")
                return text
            case IntegerType() | LongType():
                number, bits = int(text), _INTEGER_BITS[type(key_type)]
                if number.bit_length() >= bits and number != -(1 << (bits - 1)):
                    raise ValueError(f"more than {bits} bits")
                return str(number)
            case DateType():
                return date.fromisoformat(text).isoformat()
            case _:
                raise UnsupportedError(
                    f"a map with {key_type} keys cannot be indexed by key: string, int, long and date"
                )
    except ValueError as error:
        raise DefinitionError(f"{text!r} is no {key_type} key ({error})") from error


def values_of_key(maps: pa.MapArray, key: str) -> pa.Array:
    """Return each row's value for a key, NULL where there is none.

    Args:
        maps: A row per row, with keys as they were read.
        key: The key's text.

    Raises:
        UnsupportedError: If keys of this Arrow type have no text.
    """
    offsets = maps.offsets.to_numpy()
    first, last = int(offsets[0]), int(offsets[-1])
    matches = pc.equal(*_comparable(maps.keys.slice(first, last - first), key))
    positions = np.flatnonzero(matches.fill_null(False).to_numpy(zero_copy_only=False)) + first
    rows = np.searchsorted(offsets, positions, side="right") - 1
    is_first = np.diff(rows, prepend=-1) > 0
    places = np.zeros(len(maps), np.int64)
    missing = np.ones(len(maps), np.bool_)
    places[rows[is_first]], missing[rows[is_first]] = positions[is_first], False
    if maps.null_count:
        missing |= maps.is_null().to_numpy(zero_copy_only=False)
    return maps.items.take(pa.array(places, mask=missing))


def _comparable(keys: pa.Array, key: str) -> tuple[pa.Array, pa.Scalar]:
    """The keys of a file and the one to look for, in one type."""
    found = keys.type
    if pa.types.is_integer(found):
        return keys.cast(pa.int64()), pa.scalar(int(key), pa.int64())
    if pa.types.is_date(found):
        return keys.cast(pa.date32()), pa.scalar(date.fromisoformat(key), pa.date32())
    if pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_binary(found):
        return keys.cast(pa.large_binary()), pa.scalar(key.encode(), pa.large_binary())
    raise UnsupportedError(f"a map with Arrow {found} keys cannot be indexed by key")
