"""Exchange with Paimon: export the payloads of a row group as a Paimon container, and open blobs from Paimon.

| kind | Paimon's index name | blob types that Paimon reads |
| --- | --- | --- |
| bitmap | `bitmap` | `paimon-bitmap-v1`, `paimon-bitmap-v2` |
| bsi | `bsi` | `paimon-bsi-v1` |
| bloom | `bloom-filter` | `paimon-bloom-v1` |

`puffin_index.keys.value_types` tells which Paimon type reads the payload of which Iceberg type.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from puffin_index.errors import CorruptFileError, NotFoundError, UnsupportedError
from puffin_index.formats.paimon_container import write_container
from puffin_index.formats.puffin import PuffinFile, read_blob
from puffin_index.keys.map_key import ColumnId, plain_kind
from puffin_index.keys.value_types import ValueType, value_type_named
from puffin_index.kinds.base import MergedFilter, MergedIndex, RowGroupIndex, StoredPayload
from puffin_index.kinds.registry import KINDS
from puffin_index.segments.inspection import PayloadPlace, read_payload_places
from puffin_index.storage.ranged import Blob, RangedReader

_NO_LAYOUT = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class ExportedContainer:
    """A container made from a segment, and the payloads that Paimon has no format for."""

    data: bytes
    left_out: tuple[PayloadPlace, ...]


@dataclass(frozen=True, slots=True)
class TakenPayloads:
    """Payloads of one row group by column name and Paimon's index name, and those that Paimon cannot read."""

    location: str
    indexes: Mapping[str, Mapping[str, bytes | None]]
    left_out: tuple[PayloadPlace, ...]


def take_payloads(
    segment: RangedReader, footer: PuffinFile, row_group: int, names: Mapping[ColumnId, str]
) -> TakenPayloads:
    """Read those payloads of one row group, by its ordinal in the segment, that Paimon can read.

    `names` are those of the columns in the container, in its order (`map[key]` for one key of a map). Raises
    NotFoundError if the segment lacks the row group or a column, CorruptFileError if a directory or a payload is
    damaged, ValueError if two columns have one name.
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
    left_out: list[PayloadPlace] = []
    for place in asked:
        name = _paimon_name(place)
        if name is None:
            left_out.append(place)
        else:
            indexes.setdefault(names[place.column], {})[name] = _read_payload(segment, footer, place)
    return TakenPayloads(segment.location, indexes, tuple(left_out))


def write_exported(taken: Sequence[TakenPayloads]) -> ExportedContainer:
    """Write one container of the payloads that segments have of the same row group.

    Raises UnsupportedError if Paimon has a format for none of the payloads, or the container would be too large.
    """
    indexes: dict[str, dict[str, bytes | None]] = {}
    for one in taken:
        for name, bodies in one.indexes.items():
            indexes.setdefault(name, {}).update(bodies)
    left_out = tuple(place for one in taken for place in one.left_out)
    if not indexes:
        types = ", ".join(sorted({f"{place.blob_type} of {place.value_type}" for place in left_out}))
        where = ", ".join(one.location for one in taken)
        raise UnsupportedError(f"{where}: Paimon reads none of the blobs of the row group: {types}")
    return ExportedContainer(write_container(indexes), left_out)


def _paimon_name(place: PayloadPlace) -> str | None:
    """Return Paimon's name of the index; None if Paimon does not read the payload."""
    kind = KINDS.get(plain_kind(place.kind))
    value_type = value_type_named(place.value_type)
    return kind.paimon_name if kind is not None and kind.paimon_reads(place.blob_type, value_type) else None


def _read_payload(segment: RangedReader, footer: PuffinFile, place: PayloadPlace) -> bytes:
    for blob in footer.blobs:
        if (blob.type, blob.offset, blob.length) == (place.blob_type, place.offset, place.length):
            return bytes(read_blob(segment, blob))
    raise CorruptFileError(
        f"a directory has a payload {place.blob_type} that the footer does not have",
        location=segment.location,
        offset=place.offset,
    )


def import_blob(blob: Blob, kind: str, value_type: ValueType, row_count: int) -> RowGroupIndex:
    """Open a blob that Paimon wrote of a row group of so many rows.

    Raises UnsupportedError if the kind does not read the blob's version or the value type, CorruptFileError if the blob
    breaks its format or has another number of rows.
    """
    own = KINDS[kind]
    opened = own.open(StoredPayload.of_row_group(blob, own.paimon_type(blob), _NO_LAYOUT, value_type, row_count))
    assert not isinstance(opened, MergedIndex | MergedFilter)
    return opened
