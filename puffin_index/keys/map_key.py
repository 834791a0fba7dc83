"""One key of a map column, indexed like a column: the value of a row is the value of the key in the row's map.

Users write `column#k#key`. Files store the field id of the map and a kind with the key behind it (`bitmap#k#color`), as
the field ids of a map do not tell its keys apart. The key is text in one spelling:

| type of the keys | text |
| --- | --- |
| string | the key |
| int, long | decimal digits, `-` before a negative number |
| date | `YYYY-MM-DD` |

A row is NULL if it has no map, if its map lacks the key, or if the key has no value. Files may hold several entries
with one key, though Spark and others refuse to write them; the first entry counts, as in Spark.
"""

from dataclasses import dataclass
from datetime import date
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import DateType, IcebergType, IntegerType, LongType, StringType

from puffin_index.errors import DefinitionError, UnsupportedError

SEPARATOR = "#k#"
"""The text between the name of a column or kind and the key (seed 003)."""

_INTEGER_BITS = {IntegerType: 32, LongType: 64}


@dataclass(frozen=True, slots=True)
class MapKey:
    """The values of one key of a map column."""

    field_id: int
    key: str


ColumnId: TypeAlias = int | MapKey
"""The subject of an index: a column by its field id, or one key of a map."""

FieldKind: TypeAlias = tuple[int, str]
"""Field id and stored kind of an index."""


def column_and_key(column: ColumnId) -> tuple[int, str | None]:
    """Return the field id of an index, and the key if the index is about one key of a map."""
    return (column.field_id, column.key) if isinstance(column, MapKey) else (column, None)


def split_name(name: str) -> tuple[str, str | None]:
    """Split `column#k#key`, or raise DefinitionError if a part is missing; the key of any other name is None."""
    column, separator, key = name.partition(SEPARATOR)
    if not separator:
        return name, None
    if not column or not key:
        raise DefinitionError(
            f"column {name!r} should read `column{SEPARATOR}key`: the name of a map and one of its keys"
        )
    return column, key


def stored_kind(kind: str, key: str | None) -> str:
    """Return the stored form of a kind: the kind, with the key behind it if the index is about one key of a map."""
    return kind if key is None else f"{kind}{SEPARATOR}{key}"


def index_of(column: ColumnId, kind: str) -> FieldKind:
    """Return the index of a kind of a column; so `statistics` are kept as well."""
    field_id, key = column_and_key(column)
    return field_id, stored_kind(kind, key)


def split_kind(field_id: int, kind: str) -> tuple[ColumnId, str]:
    """Split a stored kind into the subject of the index and the plain kind."""
    plain, separator, key = kind.partition(SEPARATOR)
    return (MapKey(field_id, key) if separator else field_id), plain


def plain_kind(kind: str) -> str:
    """Return a stored kind without the key."""
    return kind.partition(SEPARATOR)[0]


def key_text(text: str, key_type: IcebergType) -> str:
    """Return a key in the spelling of stored keys.

    Raises DefinitionError if the text is not a key of this type, UnsupportedError if keys of this type have no text.
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
    """Return each row's value for a key, or NULL; raises UnsupportedError if keys of this Arrow type have no text."""
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
    """Return the keys of a file and the key to look for, in one type."""
    found = keys.type
    if pa.types.is_integer(found):
        return keys.cast(pa.int64()), pa.scalar(int(key), pa.int64())
    if pa.types.is_date(found):
        return keys.cast(pa.date32()), pa.scalar(date.fromisoformat(key), pa.date32())
    if pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_binary(found):
        return keys.cast(pa.large_binary()), pa.scalar(key.encode(), pa.large_binary())
    raise UnsupportedError(f"a map with Arrow {found} keys cannot be indexed by key")
