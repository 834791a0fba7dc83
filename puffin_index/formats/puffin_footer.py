"""The JSON payload of a Puffin footer: the blobs of a file, their places, and a checksum of this description.

| object | members |
| --- | --- |
| file | `blobs` (list of blob objects); `properties` (texts by name), optional |
| blob | `type`; `fields` (int32s); `snapshot-id`, `sequence-number`, `offset`, `length` (int64s) |
| blob, optional | `compression-codec` (`zstd`, `lz4` or null); `properties` |

Source: Iceberg's Puffin specification, "Footer Payload". Unknown members are ignored, as in Java.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, NoReturn, TypeAlias

import xxhash
from pydantic import Field, TypeAdapter, ValidationError

from puffin_index.errors import CorruptFileError, UnsupportedError

FOOTER_CHECKSUM = "footer-xxh64"
ZSTD = "zstd"
LZ4 = "lz4"


Int32: TypeAlias = Annotated[int, Field(ge=-(1 << 31), lt=1 << 31)]
Int64: TypeAlias = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]


@dataclass(frozen=True, slots=True)
class BlobMetadata:
    """The description of one blob in the footer: ids of fields, snapshot and sequence number (-1 for none), and place.

    The codec is None, `zstd` or `lz4`; the length is that of the stored bytes.
    """

    type: str
    fields: tuple[Int32, ...]
    snapshot_id: Annotated[Int64, Field(alias="snapshot-id")]
    sequence_number: Annotated[Int64, Field(alias="sequence-number")]
    offset: Int64
    length: Int64
    compression_codec: Annotated[str | None, Field(alias="compression-codec")] = None
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class FileMetadata:
    """The blobs of a file, in the order of its footer, and the file's text properties."""

    blobs: tuple[BlobMetadata, ...]
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)


_FILE_METADATA = TypeAdapter(FileMetadata)


def serialize_footer(metadata: FileMetadata) -> bytes:
    """Serialise the payload, with a `footer-xxh64` added, in the spelling of Iceberg's Java writer.

    Properties are in the order of their names. The bytes equal those of Java, except for escapes of control characters,
    which Java writes in upper case. Raises UnicodeEncodeError if a text has a lone surrogate.
    """
    document: dict[str, object] = {
        "blobs": [_blob_document(blob) for blob in metadata.blobs],
        "properties": dict(metadata.properties),
    }
    document["properties"] = _sorted({**metadata.properties, FOOTER_CHECKSUM: _checksum(document)})
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def parse_footer(
    payload: memoryview, *, location: str, payload_offset: int, blobs_range: range, require_checksum: bool
) -> FileMetadata:
    """Read and check a payload, whose blobs may occupy a range of offsets; with a checksum if that is required.

    Raises CorruptFileError if it is not JSON of this form, a blob lies elsewhere, or the checksum is wrong;
    UnsupportedError for an unknown codec.
    """

    def fail(reason: str) -> NoReturn:
        raise CorruptFileError(f"Puffin footer: {reason}", location=location, offset=payload_offset)

    try:
        # Pydantic takes the last of several members of one name, and the checksum is over the document.
        document = json.loads(str(payload, "utf-8"), object_pairs_hook=_unique)
        metadata = _FILE_METADATA.validate_json(bytes(payload), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        fail(f"{_place(first['loc'])}{first['msg']}")
    except (ValueError, RecursionError) as error:
        fail(f"not JSON: {error}")
    wanted = metadata.properties.get(FOOTER_CHECKSUM)
    if wanted is None and require_checksum:
        fail(f"no property {FOOTER_CHECKSUM!r}")
    others = {name: text for name, text in metadata.properties.items() if name != FOOTER_CHECKSUM}
    if wanted is not None and (found := _checksum({**document, "properties": others})) != wanted:
        fail(f"its xxh64 is {found}, not {wanted!r}")
    for index, blob in enumerate(metadata.blobs):
        if blob.offset < blobs_range.start or blob.length < 0 or blob.offset + blob.length > blobs_range.stop:
            place = f"{blobs_range.start}..{blobs_range.stop}"
            fail(f"blobs[{index}]: {blob.length} bytes at {blob.offset} do not lie in {place}")
        if blob.compression_codec not in (None, ZSTD, LZ4):
            raise UnsupportedError(f"{location}: unknown Puffin codec {blob.compression_codec!r}")
    return metadata


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a name occurs twice in one object")
    return document


def _place(path: tuple[int | str, ...]) -> str:
    """A place in the JSON as a prefix of a message, such as `blobs[0].type: `."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return f"{text.removeprefix('.')}: " if path else ""


def _sorted(texts: Mapping[str, str]) -> dict[str, str]:
    return dict(sorted(texts.items()))


def _blob_document(blob: BlobMetadata) -> dict[str, object]:
    document: dict[str, object] = {
        "type": blob.type,
        "fields": list(blob.fields),
        "snapshot-id": blob.snapshot_id,
        "sequence-number": blob.sequence_number,
        "offset": blob.offset,
        "length": blob.length,
    }
    if blob.compression_codec is not None:
        document["compression-codec"] = blob.compression_codec
    if blob.properties:
        document["properties"] = _sorted(blob.properties)
    return document


def _checksum(document: Mapping[str, object]) -> str:
    """Hash the values instead of the bytes: keys sorted, no white space, every character beyond ASCII escaped."""
    canonical = json.dumps(document, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return xxhash.xxh64_hexdigest(canonical.encode("ascii"))
