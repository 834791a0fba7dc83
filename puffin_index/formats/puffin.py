"""Puffin files: typed blobs one after another, and a JSON footer that describes the blobs and their places.

Source: Iceberg's Puffin specification. Two properties are this project's own (docs/formats.md, Segment): `xxh64` of a
blob, and `footer-xxh64` of the file. Unknown members of the footer are ignored, as in Java.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, NoReturn, TypeAlias

import xxhash
from pydantic import Field, TypeAdapter, ValidationError

from puffin_index.errors import CorruptFileError, UnsupportedError
from puffin_index.storage.binary import Buffer, ByteCursor, write_int32_le
from puffin_index.storage.parts import content_of_frame, stated_size
from puffin_index.storage.ranged import Blob, RangedReader

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

MAGIC = b"PFA1"
CREATED_BY = "created-by"
BLOB_CHECKSUM = "xxh64"
FOOTER_CHECKSUM = "footer-xxh64"
ZSTD = "zstd"
LZ4 = "lz4"

CONTENT_LIMIT = 1 << 30
TAIL_BYTES = 16 * 1024
_FOOTER_END_BYTES = 12
_FOOTER_FRAME_BYTES = len(MAGIC) + _FOOTER_END_BYTES
_ZSTD_BLOCK_CONTENT_BYTES = 128 * 1024
_ZSTD_BLOCK_STORED_BYTES = 4
_WRITE_CHUNK_BYTES = 8 << 20
_INT32_MAX = 2**31 - 1

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
class PuffinFile:
    """The content of a Puffin footer; both sizes in bytes."""

    blobs: tuple[BlobMetadata, ...]
    properties: Mapping[str, str] = field(hash=False)
    file_size: int
    footer_size: int


@dataclass(frozen=True, slots=True)
class _FileMetadata:
    """The blobs of a file, in the order of its footer, and the file's text properties."""

    blobs: tuple[BlobMetadata, ...]
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)


_FILE_METADATA = TypeAdapter(_FileMetadata)


class PuffinWriter:
    """Write a Puffin file from front to back. The same calls give the same bytes.

    The stream is neither flushed nor closed. No property has a name that the writer sets itself.
    """

    def __init__(
        self, stream: SupportsWrite[bytes], *, created_by: str, properties: Mapping[str, str] | None = None
    ) -> None:
        self._stream = stream
        self._properties = {CREATED_BY: created_by, **(properties or {})}
        self._blobs: list[BlobMetadata] = []
        self._position = 0
        self._write(MAGIC)

    def add(
        self,
        blob_type: str,
        data: Buffer,
        fields: Sequence[int] = (),
        *,
        snapshot_id: int = -1,
        sequence_number: int = -1,
        properties: Mapping[str, str] | None = None,
    ) -> BlobMetadata:
        """Write one blob; return its description. Raises OSError if the stream took only a part."""
        stored = memoryview(data).cast("B")
        blob = BlobMetadata(
            type=blob_type,
            fields=tuple(fields),
            snapshot_id=snapshot_id,
            sequence_number=sequence_number,
            offset=self._position,
            length=len(stored),
            properties=dict(sorted({**(properties or {}), BLOB_CHECKSUM: xxhash.xxh64_hexdigest(stored)}.items())),
        )
        # Chunks keep a buffer that must become `bytes` from being copied as a whole.
        for start in range(0, max(len(stored), 1), _WRITE_CHUNK_BYTES):
            self._write(bytes(stored[start : start + _WRITE_CHUNK_BYTES]))
        self._blobs.append(blob)
        return blob

    def finish(self) -> PuffinFile:
        """Write the footer; return what a reader finds in it, but for its checksum.

        Raises ValueError for a lone surrogate; UnsupportedError for more than 2 GiB, the format's limit; OSError if the
        stream took only a part.
        """
        metadata = _FileMetadata(tuple(self._blobs), self._properties)
        # The bytes are those of Iceberg's Java writer, but for control characters, which Java escapes in upper case.
        document = _FILE_METADATA.dump_python(metadata, by_alias=True, exclude_defaults=True)
        properties = {**self._properties, FOOTER_CHECKSUM: _checksum(document)}
        document["properties"] = dict(sorted(properties.items()))
        payload = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
        if len(payload) > _INT32_MAX:
            raise UnsupportedError(f"a Puffin footer of {len(payload)} bytes: the format ends at {_INT32_MAX}")
        footer_offset = self._position
        self._write(MAGIC + payload + write_int32_le(len(payload)) + bytes(4) + MAGIC)
        return PuffinFile(metadata.blobs, self._properties, self._position, self._position - footer_offset)

    def _write(self, data: bytes) -> None:
        taken = self._stream.write(data)
        if isinstance(taken, int) and taken != len(data):
            raise OSError(f"the stream took {taken} of {len(data)} bytes")
        self._position += len(data)


def read_footer(reader: RangedReader, footer_size: int | None = None, *, require_checksum: bool = False) -> PuffinFile:
    """Read the footer of a Puffin file, in one ranged read, or two if the footer is large and its size unknown.

    Damage to the name of `footer-xxh64` makes the footer look like one without a checksum, which `require_checksum`
    refuses; every file of `PuffinWriter` has one. Raises CorruptFileError if the bytes break the format or a checksum,
    UnsupportedError if the version, a flag or a codec is unknown, or the footer is compressed.
    """
    if reader.size < len(MAGIC) + _FOOTER_FRAME_BYTES:
        raise _corrupt(reader, f"{reader.size} bytes are too few for a Puffin file")
    footer = _read_footer_bytes(reader, footer_size)
    footer_offset = reader.size - len(footer)
    _check_magic(footer[: len(MAGIC)], reader.location, footer_offset)
    metadata = _parse_footer(
        footer[len(MAGIC) : -_FOOTER_END_BYTES],
        location=reader.location,
        payload_offset=footer_offset + len(MAGIC),
        blobs_range=range(len(MAGIC), footer_offset),
        require_checksum=require_checksum,
    )
    return PuffinFile(metadata.blobs, metadata.properties, reader.size, len(footer))


def check_head(reader: RangedReader) -> None:
    """Check the magic at the start of the file: raises CorruptFileError, or UnsupportedError for another version."""
    _check_magic(reader.read(0, len(MAGIC)), reader.location, 0)


def read_blob(reader: RangedReader, blob: BlobMetadata) -> memoryview:
    """Read the content of a whole blob, decompressed; `xxh64` is checked if the blob has it.

    Raises CorruptFileError if the checksum, the zstd frame or the range in the file is wrong, UnsupportedError if the
    codec is LZ4 or unknown, or the blob or its content is larger than `CONTENT_LIMIT`.
    """
    if blob.compression_codec not in (None, ZSTD):
        raise UnsupportedError(f"{reader.location}: blob {blob.type!r} has codec {blob.compression_codec!r}")
    if blob.length > CONTENT_LIMIT:
        raise UnsupportedError(f"{reader.location}: blob {blob.type!r} of {blob.length} bytes, limit {CONTENT_LIMIT}")
    stored = reader.read(blob.offset, blob.length)
    wanted, found = blob.properties.get(BLOB_CHECKSUM), xxhash.xxh64_hexdigest(stored)
    if wanted not in (None, found):
        reason = f"blob {blob.type!r} of {blob.length} bytes has xxh64 {found}, not {wanted!r}"
        raise _corrupt(reader, reason, blob.offset)
    if blob.compression_codec is None:
        return stored
    place = Blob(reader, blob.offset, blob.length)
    size = stated_size(place, stored, 0)
    if size > CONTENT_LIMIT:
        raise UnsupportedError(f"{reader.location}: blob {blob.type!r} of {size} bytes, limit {CONTENT_LIMIT}")
    # No zstd block holds more than this, so a small frame cannot make us allocate for a large lie.
    most = len(stored) // _ZSTD_BLOCK_STORED_BYTES * _ZSTD_BLOCK_CONTENT_BYTES
    return content_of_frame(place, stored, 0, 0, most)


def _corrupt(reader: RangedReader, reason: str, offset: int = 0) -> CorruptFileError:
    return CorruptFileError(reason, location=reader.location, offset=offset)


def _check_magic(magic: memoryview, location: str, offset: int) -> None:
    if magic == MAGIC:
        return
    found = bytes(magic)
    if found.startswith(MAGIC[:3]):
        raise UnsupportedError(f"{location}, byte {offset}: Puffin version {found[3:]!r}; known is {MAGIC[3:]!r}")
    raise CorruptFileError(f"not a Puffin file: {found!r} instead of {MAGIC!r}", location=location, offset=offset)


def _read_footer_bytes(reader: RangedReader, footer_size: int | None) -> memoryview:
    if footer_size is not None and not _FOOTER_FRAME_BYTES <= footer_size <= reader.size - len(MAGIC):
        raise _corrupt(reader, f"a footer of {footer_size} bytes in a Puffin file of {reader.size} bytes")
    tail_size = min(TAIL_BYTES, reader.size) if footer_size is None else footer_size
    tail = reader.read(reader.size - tail_size, tail_size)
    declared = _declared_footer_size(tail[-_FOOTER_END_BYTES:], reader)
    if footer_size not in (None, declared):
        reason = f"the footer says that it has {declared} bytes, not {footer_size}"
        raise _corrupt(reader, reason, reader.size - _FOOTER_END_BYTES)
    if declared <= tail_size:
        return tail[tail_size - declared :]
    rest = reader.read(reader.size - declared, declared - tail_size)
    return memoryview(b"".join((rest, tail)))


def _declared_footer_size(end: memoryview, reader: RangedReader) -> int:
    end_offset = reader.size - _FOOTER_END_BYTES
    _check_magic(end[8:], reader.location, end_offset + 8)
    payload_size = ByteCursor(end, reader.location, end_offset).int32_le()
    flags = int.from_bytes(end[4:8], "little")
    if flags & ~1:
        raise UnsupportedError(f"{reader.location}, byte {end_offset + 4}: unknown Puffin flags {flags:#010x}")
    if flags:
        raise UnsupportedError(f"{reader.location}: the Puffin footer is LZ4-compressed")
    if not 0 <= payload_size <= reader.size - len(MAGIC) - _FOOTER_FRAME_BYTES:
        raise _corrupt(reader, f"a footer payload of {payload_size} bytes in a file of {reader.size}", end_offset)
    return payload_size + _FOOTER_FRAME_BYTES


def _parse_footer(
    payload: memoryview, *, location: str, payload_offset: int, blobs_range: range, require_checksum: bool
) -> _FileMetadata:
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


def _checksum(document: Mapping[str, object]) -> str:
    """Hash the values instead of the bytes: keys sorted, no white space, every character beyond ASCII escaped."""
    canonical = json.dumps(document, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return xxhash.xxh64_hexdigest(canonical.encode("ascii"))
