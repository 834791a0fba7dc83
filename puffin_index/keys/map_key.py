"""What an index is about: a column, one key of a map, or what the rows of a column contain.

A key of a map is indexed like a column: the value of a row is the value of the key in the row's map. Users write
`column#k#key`. Files store the field id of the map and a kind with the key behind it (`bitmap#k#color`), as the field
ids of a map do not tell its keys apart. The key is text in one spelling:

| type of the keys | text |
| --- | --- |
| string | the key |
| int, long | decimal digits, `-` before a negative number |
| date | `YYYY-MM-DD` |

A row is NULL if it has no map, if its map lacks the key, or if the key has no value. Files may hold several entries
with one key, though Spark and others refuse to write them; the first entry counts, as in Spark.

What a row contains are several values: the elements of an array, the keys or values of a map, the words of a text.
Users write
`column#c#elements`, or give an index of the column the option `content`. Stored kinds have it likewise
(`bitmap#c#elements`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import DateType, IcebergType, IntegerType, LongType, StringType

from puffin_index.errors import DefinitionError, UnsupportedError
from puffin_index.keys.leaf import SetTest

SEPARATOR = "#k#"
"""The text between the name of a column or kind and the key (seed 003)."""

CONTENT_SEPARATOR = "#c#"
"""The same before what the rows of a column contain."""

CONTENT: Final = "content"
"""The option of an index that says the same."""

Part: TypeAlias = Literal["elements", "keys", "values", "words"]
"""What of a row's value is indexed: the elements of an array, the keys or the values of a map, the words of a text."""

PARTS: Final[tuple[Part, ...]] = get_args(Part)

_INTEGER_BITS = {IntegerType: 32, LongType: 64}


@dataclass(frozen=True, slots=True)
class MapKey:
    """The values of one key of a map column."""

    field_id: int
    key: str


@dataclass(frozen=True, slots=True)
class Contents:
    """What the rows of a column contain: several values a row."""

    field_id: int
    part: Part


ColumnId: TypeAlias = int | MapKey | Contents
"""The subject of an index: a column by its field id, one key of a map, or what the rows contain."""

FieldKind: TypeAlias = tuple[int, str]
"""Field id and stored kind of an index."""


def field_of(column: ColumnId) -> int:
    """Return the field id of the column that an index is about."""
    return column if isinstance(column, int) else column.field_id


def suffix_of(column: ColumnId) -> str:
    """Return what stands behind the name of a column or kind: `#k#key`, `#c#elements`, or nothing."""
    match column:
        case MapKey(_, key):
            return f"{SEPARATOR}{key}"
        case Contents(_, part):
            return f"{CONTENT_SEPARATOR}{part}"
        case _:
            return ""


def split_kind(field_id: int, kind: str) -> tuple[ColumnId, str]:
    """Split a stored kind into the subject of the index and the plain kind; what is not known stays with the kind."""
    plain, separator, key = kind.partition(SEPARATOR)
    if separator:
        return MapKey(field_id, key), plain
    plain, _, text = kind.partition(CONTENT_SEPARATOR)
    part = next((part for part in PARTS if part == text), None)
    return (field_id, kind) if part is None else (Contents(field_id, part), plain)


def details_of(column: ColumnId) -> dict[str, str]:
    """Return what documents say of the subject of an index beside its field id."""
    match column:
        case MapKey(_, key):
            return {"map-key": key}
        case Contents(_, part):
            return {"content": part}
        case _:
            return {}


def column_of_details(item: Mapping[str, Any]) -> ColumnId:
    """Read the subject of an index from an object of a document."""
    field_id = int(item["field-id"])
    if "map-key" in item:
        return MapKey(field_id, item["map-key"])
    return Contents(field_id, item["content"]) if "content" in item else field_id


def split_name(name: str) -> tuple[str, str | None, Part | None]:
    """Split `column#k#key` and `column#c#part`, or raise DefinitionError if a side is missing or unknown."""
    column, separator, key = name.partition(SEPARATOR)
    if separator:
        if not column or not key:
            raise DefinitionError(
                f"column {name!r} should read `column{SEPARATOR}key`: the name of a map and one of its keys"
            )
        return column, key, None
    column, separator, part = name.partition(CONTENT_SEPARATOR)
    return (column, None, part_named(name, part)) if separator else (name, None, None)


def part_named(column: str, text: str) -> Part:
    """Return what of a column's rows is to be indexed, or raise DefinitionError if nothing is named so."""
    for part in PARTS:
        if part == text:
            return part
    raise DefinitionError(f"column {column!r}: content {text!r} is not one of {', '.join(PARTS)}")


def index_of(column: ColumnId, kind: str) -> FieldKind:
    """Return the index of a kind of a column; so `statistics` are kept as well."""
    return field_of(column), f"{kind}{suffix_of(column)}"


def plain_kind(kind: str) -> str:
    """Return a stored kind without what may stand behind it."""
    return split_kind(0, kind)[1]


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


def is_key(text: str, key_type: IcebergType) -> SetTest:
    """Return the test for the key that a text in the spelling of stored keys stands for."""
    match key_type:
        case StringType():
            return SetTest((text.encode(),))
        case DateType():
            return SetTest((int(np.datetime64(text, "D").astype(np.int64)),))
        case _:
            return SetTest((int(text),))


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
