"""The JSON payload of a Puffin footer: the blobs of a file, their places, and a checksum of this description.

| object | members |
| --- | --- |
| file | `blobs` (list of blob objects); `properties` (texts by name), optional |
| blob | `type`; `fields` (int32s); `snapshot-id`, `sequence-number`, `offset`, `length` (int64s) |
| blob, optional | `compression-codec` (`zstd`, `lz4` or null); `properties` |

Source: Iceberg's Puffin specification, "Footer Payload". Unknown members are ignored, as in Java.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn

import xxhash

from puffin_index.errors import CorruptFileError, UnsupportedError

FOOTER_CHECKSUM = "footer-xxh64"
ZSTD = "zstd"
LZ4 = "lz4"


@dataclass(frozen=True, slots=True)
class BlobMetadata:
    """The description of one blob in the footer.

    Attributes:
        type: The blob type.
        fields: The ids of the fields that the blob was computed from.
        snapshot_id: The snapshot that the blob was computed from, -1 for none.
        sequence_number: The sequence number of that snapshot, -1 for none.
        offset: The start of the stored bytes in the file.
        length: The number of stored bytes.
        compression_codec: None, `zstd` or `lz4`.
        properties: Text properties.
    """

    type: str
    fields: tuple[int, ...]
    snapshot_id: int
    sequence_number: int
    offset: int
    length: int
    compression_codec: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class FileMetadata:
    """The blobs of a file, in the order of its footer, and the file's text properties."""

    blobs: tuple[BlobMetadata, ...]
    properties: Mapping[str, str] = field(hash=False)


def serialize_footer(metadata: FileMetadata) -> bytes:
    """Serialise the payload, with a `footer-xxh64` added, in the spelling of Iceberg's Java writer.

    Properties are in the order of their names. The bytes equal those of Java, except for escapes of control characters,
    which Java writes in upper case.

    Raises:
        UnicodeEncodeError: If a text has a lone surrogate.
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
    """Read and check a payload.

    Args:
        payload: The JSON, in UTF-8.
        location: The file, for error messages.
        payload_offset: The start of the payload in the file, for error messages.
        blobs_range: The offsets that blobs may occupy.
        require_checksum: Whether to refuse a payload without `footer-xxh64`.

    Raises:
        CorruptFileError: If the payload is not JSON of this form, a blob lies outside `blobs_range`, or the checksum
            is wrong.
        UnsupportedError: If a codec is unknown.
    """
    parser = _Parser(location, payload_offset)
    document = parser.document(payload)
    properties = parser.properties(document, "")
    parser.check_checksum(document, properties, require_checksum)
    blobs = document.get("blobs")
    if not isinstance(blobs, list):
        parser.fail("'blobs' is not a list")
    return FileMetadata(
        blobs=tuple(parser.blob(blob, f"blobs[{index}]", blobs_range) for index, blob in enumerate(blobs)),
        properties=properties,
    )


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


@dataclass(frozen=True, slots=True)
class _Parser:
    """Checks the type of each value; `path` is the place of the value in the JSON."""

    location: str
    payload_offset: int

    def fail(self, reason: str) -> NoReturn:
        raise CorruptFileError(f"Puffin footer: {reason}", location=self.location, offset=self.payload_offset)

    def document(self, payload: memoryview) -> dict[str, object]:
        try:
            document = json.loads(str(payload, "utf-8"), object_pairs_hook=self.unique_pairs)
        except CorruptFileError:
            raise
        except (ValueError, RecursionError) as error:
            raise CorruptFileError(
                f"Puffin footer: not JSON: {error}", location=self.location, offset=self.payload_offset
            ) from error
        if not isinstance(document, dict):
            self.fail("not a JSON object")
        return document

    def unique_pairs(self, pairs: list[tuple[str, object]]) -> dict[str, object]:
        document = dict(pairs)
        if len(document) != len(pairs):
            self.fail("a name occurs twice in one object")
        return document

    def check_checksum(self, document: dict[str, object], properties: dict[str, str], required: bool) -> None:
        wanted = properties.get(FOOTER_CHECKSUM)
        if wanted is None:
            if required:
                self.fail(f"no property {FOOTER_CHECKSUM!r}")
            return
        others = {name: text for name, text in properties.items() if name != FOOTER_CHECKSUM}
        found = _checksum({**document, "properties": others})
        if found != wanted:
            self.fail(f"its xxh64 is {found}, not {wanted!r}")

    def blob(self, document: object, path: str, blobs_range: range) -> BlobMetadata:
        if not isinstance(document, dict):
            self.fail(f"{path} is not an object")
        blob = BlobMetadata(
            type=self.text(document.get("type"), f"{path}.type"),
            fields=self.field_ids(document.get("fields"), f"{path}.fields"),
            snapshot_id=self.integer(document.get("snapshot-id"), f"{path}.snapshot-id"),
            sequence_number=self.integer(document.get("sequence-number"), f"{path}.sequence-number"),
            offset=self.integer(document.get("offset"), f"{path}.offset"),
            length=self.integer(document.get("length"), f"{path}.length"),
            compression_codec=self.codec(document.get("compression-codec"), f"{path}.compression-codec"),
            properties=self.properties(document, f"{path}."),
        )
        if blob.offset < blobs_range.start or blob.length < 0 or blob.offset + blob.length > blobs_range.stop:
            self.fail(
                f"{path}: {blob.length} bytes at {blob.offset} do not lie in {blobs_range.start}..{blobs_range.stop}"
            )
        return blob

    def field_ids(self, value: object, path: str) -> tuple[int, ...]:
        if not isinstance(value, list):
            self.fail(f"{path} is not a list")
        return tuple(self.integer(field_id, path, bits=32) for field_id in value)

    def codec(self, value: object, path: str) -> str | None:
        if value is None:
            return None
        name = self.text(value, path)
        if name not in (ZSTD, LZ4):
            raise UnsupportedError(f"{self.location}: unknown Puffin codec {name!r}")
        return name

    def properties(self, document: dict[str, object], path: str) -> dict[str, str]:
        texts = document.get("properties", {})
        if not isinstance(texts, dict):
            self.fail(f"{path}properties is not an object")
        where = f"{path}properties"
        return {self.text(name, where): self.text(text, where) for name, text in texts.items()}

    def text(self, value: object, path: str) -> str:
        if not isinstance(value, str):
            self.fail(f"{path} is not a string")
        # JSON can escape half of a surrogate pair, which no later step could print or encode.
        if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
            self.fail(f"{path} has a lone surrogate")
        return value

    def integer(self, value: object, path: str, bits: int = 64) -> int:
        # `bool` is an `int` in Python, but `true` is not a number in JSON.
        if not isinstance(value, int) or isinstance(value, bool) or not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
            self.fail(f"{path} is not an int{bits}")
        return value
