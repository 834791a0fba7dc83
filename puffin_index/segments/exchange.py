"""Exchange with Paimon: the payloads of a row group as one of its containers, and its blobs as opened indexes.

| kind | Paimon's index name | blob types that Paimon reads |
| --- | --- | --- |
| bitmap | `bitmap` | `paimon-bitmap-v1`, `paimon-bitmap-v2` |
| bsi | `bsi` | `paimon-bsi-v1` |
| bloom | `bloom-filter` | `paimon-bloom-v1` |

Which of Paimon's types reads the payload of which Iceberg type is told in `puffin_index.keys.stored_form`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from puffin_index.errors import CorruptFileError, NotFoundError, UnsupportedError
from puffin_index.formats.paimon_container import write_container
from puffin_index.formats.puffin import PuffinFile, read_blob
from puffin_index.keys.map_key import ColumnId, split_kind
from puffin_index.keys.value_types import ValueType
from puffin_index.kinds.base import BlobIndex
from puffin_index.kinds.bitmap.kind import PAIMON_BITMAP_V1, PAIMON_BITMAP_V2
from puffin_index.kinds.bloom.kind import PAIMON_BLOOM
from puffin_index.kinds.bsi.kind import PAIMON_BSI
from puffin_index.kinds.registry import KINDS
from puffin_index.segments.inspection import PayloadPlace, read_payload_places
from puffin_index.storage.binary import read_int32_be, read_uint8
from puffin_index.storage.ranged import Blob, RangedReader

INDEX_NAMES = {"bitmap": "bitmap", "bsi": "bsi", "bloom": "bloom-filter"}
"""Index kind -> Paimon's name of it in a container."""

UNTOLD_ROWS_LIMIT = 1 << 28
"""So many rows a blob may claim to have where the caller does not say how many there are."""

_PAIMON_BLOBS = frozenset({PAIMON_BITMAP_V1, PAIMON_BITMAP_V2, PAIMON_BSI, PAIMON_BLOOM})
_BITMAP_VERSIONS = {1: PAIMON_BITMAP_V1, 2: PAIMON_BITMAP_V2}
_ROWS_OFFSET, _ROWS_END = 1, 5
_NO_LAYOUT = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class ExportedContainer:
    """A container made of a segment.

    Attributes:
        data: Its bytes.
        left_out: The payloads of the row group that Paimon has no format for, and so are not in it.
    """

    data: bytes
    left_out: tuple[PayloadPlace, ...]


def export_container(
    segment: RangedReader, footer: PuffinFile, row_group: int, names: Mapping[ColumnId, str]
) -> ExportedContainer:
    """Put the payloads of one row group that Paimon can read into one of its containers.

    Args:
        segment: The segment.
        footer: Its footer.
        row_group: The row group's ordinal in the segment.
        names: Column -> its name in the container (`map[key]` for one key of a map), for the columns to export,
            in the container's order.

    Raises:
        NotFoundError: If the segment has no such row group, or none of the payloads of a column.
        UnsupportedError: If there is no payload that Paimon has a format for, or the container would be too large.
        CorruptFileError: If a directory or a payload is not what was written.
        ValueError: If two columns have one name.
    """
    if len(set(names.values())) < len(names):
        raise ValueError("two columns of one name cannot be told apart in a container")
    places = [
        place
        for place in read_payload_places(segment, footer)
        if place.first_row_group <= row_group < place.first_row_group + place.row_groups
    ]
    missing = names.keys() - {place.column for place in places}
    if missing or not names:
        fields = ", ".join(sorted(map(str, missing))) or "any field"
        raise NotFoundError(f"{segment.location}: row group {row_group} has no payload of {fields}")
    asked = [place for column in names for place in places if place.column == column]
    indexes: dict[str, dict[str, bytes | None]] = {}
    for place in asked:
        if place.blob_type in _PAIMON_BLOBS:
            bodies = indexes.setdefault(names[place.column], {})
            bodies[INDEX_NAMES[split_kind(place.field_id, place.kind)[1]]] = _read_payload(segment, footer, place)
    left_out = tuple(place for place in asked if place.blob_type not in _PAIMON_BLOBS)
    if not indexes:
        types = ", ".join(sorted({place.blob_type for place in left_out}))
        raise UnsupportedError(
            f"{segment.location}: Paimon knows none of the blob types of row group {row_group}: {types}"
        )
    return ExportedContainer(write_container(indexes), left_out)


def _read_payload(segment: RangedReader, footer: PuffinFile, place: PayloadPlace) -> bytes:
    for blob in footer.blobs:
        if (blob.type, blob.offset, blob.length) == (place.blob_type, place.offset, place.length):
            return bytes(read_blob(segment, blob))
    raise CorruptFileError(
        f"a directory has a payload {place.blob_type} that the footer does not have",
        location=segment.location,
        offset=place.offset,
    )


def import_blob(container_blob: Blob, kind: str, value_type: ValueType, row_count: int | None = None) -> BlobIndex:
    """Open a blob that Paimon wrote.

    Args:
        container_blob: The blob, as a container gives it.
        kind: The index kind: `bitmap`, `bsi` or `bloom`.
        value_type: The type of the column.
        row_count: How many rows it covers; a bloom filter does not tell. Left out for the other kinds, the blob's own
            number is taken, up to `UNTOLD_ROWS_LIMIT`.

    Raises:
        NotFoundError: If there is no such kind.
        UnsupportedError: If the blob's version or the value type is not one that the kind reads, or rows are too many
            to be believed or not known.
        CorruptFileError: If the blob breaks its format or has another number of rows.
    """
    if kind not in KINDS:
        raise NotFoundError(f"there is no index kind {kind!r}; known: {', '.join(KINDS)}")
    rows = _row_count(container_blob, kind) if row_count is None else row_count
    return KINDS[kind].open(container_blob, _blob_type(container_blob, kind), _NO_LAYOUT, value_type, rows)


def _blob_type(blob: Blob, kind: str) -> str:
    if kind != "bitmap":
        return PAIMON_BSI if kind == "bsi" else PAIMON_BLOOM
    version = read_uint8(blob.read(0, 1), location=blob.location, base_offset=blob.offset)
    if version not in _BITMAP_VERSIONS:
        raise UnsupportedError(f"{blob.location}: bitmap version {version} is not one that this release knows")
    return _BITMAP_VERSIONS[version]


def _row_count(blob: Blob, kind: str) -> int:
    """The number of rows that a blob says it covers."""
    if kind == "bloom":
        raise UnsupportedError(f"{blob.location}: a bloom filter does not tell how many rows it covers")
    data = blob.read(0, _ROWS_END)
    rows = read_int32_be(data, _ROWS_OFFSET, location=blob.location, base_offset=blob.offset)
    if rows < 0:
        raise CorruptFileError(f"a blob of {rows} rows", location=blob.location, offset=blob.offset + _ROWS_OFFSET)
    if rows > UNTOLD_ROWS_LIMIT:
        raise UnsupportedError(f"{blob.location}: a blob of {rows} rows is opened only if the caller knows of them")
    return rows
