"""Puffin files: typed blobs one after another, and a JSON footer that describes the blobs and their places.

Source: Iceberg's Puffin specification. Two properties are this project's own (docs/formats.md, Segment): `xxh64` of a
blob, and `footer-xxh64` of the file (`puffin_index.formats.puffin_footer`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import xxhash
import zstandard

from puffin_index.errors import CorruptFileError, UnsupportedError
from puffin_index.formats.puffin_footer import (
    FOOTER_CHECKSUM,
    ZSTD,
    BlobMetadata,
    FileMetadata,
    parse_footer,
    serialize_footer,
)
from puffin_index.storage.binary import Buffer, read_int32_le, write_int32_le
from puffin_index.storage.ranged import Blob, RangedReader

__all__ = [
    "BLOB_CHECKSUM",
    "CONTENT_LIMIT",
    "CREATED_BY",
    "FOOTER_CHECKSUM",
    "MAGIC",
    "TAIL_BYTES",
    "BinarySink",
    "BlobMetadata",
    "PuffinFile",
    "PuffinSummary",
    "PuffinWriter",
    "check_head",
    "open_blob",
    "read_blob",
    "read_footer",
    "verify",
]

MAGIC = b"PFA1"
CREATED_BY = "created-by"
BLOB_CHECKSUM = "xxh64"

CONTENT_LIMIT = 1 << 30
TAIL_BYTES = 16 * 1024
_FOOTER_END_BYTES = 12
_FOOTER_FRAME_BYTES = len(MAGIC) + _FOOTER_END_BYTES
_ZSTD_LEVEL = 3
_ZSTD_BLOCK_CONTENT_BYTES = 128 * 1024
_ZSTD_BLOCK_STORED_BYTES = 4
_VERIFY_CHUNK_BYTES = 8 << 20
_WRITE_CHUNK_BYTES = 8 << 20
_INT32_MAX = 2**31 - 1


class BinarySink(Protocol):
    """Any object that accepts bytes."""

    def write(self, data: bytes, /) -> object:
        """Take `data`; a returned count is the number of bytes taken."""


@dataclass(frozen=True, slots=True)
class PuffinFile:
    """The content of a Puffin footer; both sizes in bytes."""

    blobs: tuple[BlobMetadata, ...]
    properties: Mapping[str, str] = field(hash=False)
    file_size: int
    footer_size: int


@dataclass(frozen=True, slots=True)
class PuffinSummary:
    """The numbers of a new Puffin file that a catalogue keeps; both sizes in bytes."""

    file_size: int
    footer_size: int
    blobs: tuple[BlobMetadata, ...]


class PuffinWriter:
    """Write a Puffin file from front to back. The same calls give the same bytes.

    The stream, written from its position on, is neither flushed nor closed. `created_by` names the program. Raises
    ValueError if a property has a name that the writer sets itself.
    """

    def __init__(self, stream: BinarySink, *, created_by: str, properties: Mapping[str, str] | None = None) -> None:
        _check_free(properties or {}, CREATED_BY, FOOTER_CHECKSUM)
        self._stream = stream
        self._properties = {CREATED_BY: created_by, **(properties or {})}
        self._blobs: list[BlobMetadata] = []
        self._position = 0
        self._writable = True
        self._write(MAGIC)

    @property
    def position(self) -> int:
        """The start of the next blob in the file."""
        return self._position

    def add(
        self,
        blob_type: str,
        data: Buffer,
        fields: Sequence[int] = (),
        *,
        snapshot_id: int = -1,
        sequence_number: int = -1,
        properties: Mapping[str, str] | None = None,
        compress: bool = False,
    ) -> BlobMetadata:
        """Write one blob, plain or as one zstd frame, which readers must read whole; return its description.

        Raises ValueError once finished or failed, or for a property `xxh64`; OverflowError for numbers out of range;
        OSError if the stream took only a part.
        """
        _check_free(properties or {}, BLOB_CHECKSUM)
        # A new compressor for each blob: bytes must not depend on earlier blobs.
        stored = memoryview(zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(data) if compress else data).cast("B")
        blob = BlobMetadata(
            type=blob_type,
            fields=tuple(_fitting(field_id, 32) for field_id in fields),
            snapshot_id=_fitting(snapshot_id, 64),
            sequence_number=_fitting(sequence_number, 64),
            offset=self._position,
            length=len(stored),
            compression_codec=ZSTD if compress else None,
            properties=dict(sorted({**(properties or {}), BLOB_CHECKSUM: xxhash.xxh64_hexdigest(stored)}.items())),
        )
        # Chunks keep a buffer that must become `bytes` from being copied as a whole.
        for start in range(0, max(len(stored), 1), _WRITE_CHUNK_BYTES):
            self._write(bytes(stored[start : start + _WRITE_CHUNK_BYTES]))
        self._blobs.append(blob)
        return blob

    def finish(self) -> PuffinSummary:
        """Write the footer.

        Raises ValueError once finished or failed, or for a lone surrogate; UnsupportedError for more than 2 GiB, the
        format's limit; OSError if the stream took only a part.
        """
        payload = serialize_footer(FileMetadata(tuple(self._blobs), self._properties))
        if len(payload) > _INT32_MAX:
            raise UnsupportedError(f"a Puffin footer of {len(payload)} bytes: the format ends at {_INT32_MAX}")
        footer_offset = self._position
        self._write(MAGIC + payload + write_int32_le(len(payload)) + bytes(4) + MAGIC)
        self._writable = False
        return PuffinSummary(self._position, self._position - footer_offset, tuple(self._blobs))

    def _write(self, data: bytes) -> None:
        if not self._writable:
            raise ValueError("this Puffin writer is finished, or a write failed before")
        # After a failed write the content of the stream is unknown: no later blob may claim an offset.
        self._writable = False
        taken = self._stream.write(data)
        if isinstance(taken, int) and taken != len(data):
            raise OSError(f"the stream took {taken} of {len(data)} bytes")
        self._position += len(data)
        self._writable = True


def read_footer(reader: RangedReader, footer_size: int | None = None, *, require_checksum: bool = False) -> PuffinFile:
    """Read the footer of a Puffin file, in one ranged read, or two if the footer is large and its size unknown.

    A flipped bit that would change a blob's entry is always noticed if the footer has `footer-xxh64`, as every file of
    `PuffinWriter` has. Damage to the name of the checksum itself makes the footer look like one without a checksum,
    which `require_checksum` refuses. Raises CorruptFileError if the bytes break the format or a checksum,
    UnsupportedError if the version, a flag or a codec is unknown, or the footer is compressed.
    """
    if reader.size < len(MAGIC) + _FOOTER_FRAME_BYTES:
        raise CorruptFileError(f"{reader.size} bytes are too few for a Puffin file", location=reader.location)
    footer = _read_footer_bytes(reader, footer_size)
    footer_offset = reader.size - len(footer)
    _check_magic(footer[: len(MAGIC)], reader.location, footer_offset)
    metadata = parse_footer(
        footer[len(MAGIC) : -_FOOTER_END_BYTES],
        location=reader.location,
        payload_offset=footer_offset + len(MAGIC),
        blobs_range=range(len(MAGIC), footer_offset),
        require_checksum=require_checksum,
    )
    return PuffinFile(metadata.blobs, metadata.properties, reader.size, len(footer))


def check_head(reader: RangedReader) -> None:
    """Check the magic at the start of the file, which `read_footer` does not read.

    Raises CorruptFileError if it is missing, UnsupportedError if it is that of another version.
    """
    _check_magic(reader.read(0, len(MAGIC)), reader.location, 0)


def verify(reader: RangedReader, file: PuffinFile) -> None:
    """Read the whole file and check the first magic and every blob that has a checksum, without decompressing any.

    Raises CorruptFileError if one is wrong, UnsupportedError if the magic is that of another version.
    """
    check_head(reader)
    for blob in file.blobs:
        digest = xxhash.xxh64()
        for start in range(0, blob.length, _VERIFY_CHUNK_BYTES):
            digest.update(reader.read(blob.offset + start, min(_VERIFY_CHUNK_BYTES, blob.length - start)))
        _check_digest(digest.hexdigest(), blob, reader.location)


def open_blob(reader: RangedReader, blob: BlobMetadata) -> Blob:
    """Return a blob to be read in ranges, without reading anything or checking a checksum.

    Raises CorruptFileError if the blob does not lie inside the file, UnsupportedError if it is compressed.
    """
    if blob.compression_codec is not None:
        raise UnsupportedError(f"{reader.location}: blob {blob.type!r} is compressed and can't be read in ranges")
    if blob.offset < 0 or blob.length < 0 or blob.offset + blob.length > reader.size:
        raise CorruptFileError(
            f"blob {blob.type!r} of {blob.length} bytes ends outside of {reader.size} bytes",
            location=reader.location,
            offset=blob.offset,
        )
    return Blob(reader, blob.offset, blob.length)


def read_blob(
    reader: RangedReader, blob: BlobMetadata, *, verify: bool = True, limit: int = CONTENT_LIMIT
) -> memoryview:
    """Read the content of a whole blob, decompressed.

    With `verify`, the result is the content that was written, unless the blob has no `xxh64`. Raises CorruptFileError
    if the checksum, the zstd frame or the range in the file is wrong, UnsupportedError if the codec is LZ4 or unknown,
    or the content, before it is allocated, has more than `limit` bytes.
    """
    if blob.compression_codec not in (None, ZSTD):
        raise UnsupportedError(f"{reader.location}: blob {blob.type!r} has codec {blob.compression_codec!r}")
    if blob.length > limit:
        raise UnsupportedError(f"{reader.location}: blob {blob.type!r} of {blob.length} bytes, limit {limit}")
    stored = reader.read(blob.offset, blob.length)
    if verify:
        _check_digest(xxhash.xxh64_hexdigest(stored), blob, reader.location)
    return stored if blob.compression_codec is None else _decompress(stored, blob, reader.location, limit)


def _check_free(properties: Mapping[str, str], *reserved: str) -> None:
    for name in reserved:
        if name in properties:
            raise ValueError(f"the Puffin writer sets property {name!r} itself")


def _fitting(value: int, bits: int) -> int:
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise OverflowError(f"{value} is not an int{bits}")
    # NumPy's integers pass as well, but JSON accepts only Python's.
    return int(value)


def _check_magic(magic: memoryview, location: str, offset: int) -> None:
    if magic == MAGIC:
        return
    found = bytes(magic)
    if found.startswith(MAGIC[:3]):
        raise UnsupportedError(f"{location}, byte {offset}: Puffin version {found[3:]!r}; known is {MAGIC[3:]!r}")
    raise CorruptFileError(f"not a Puffin file: {found!r} instead of {MAGIC!r}", location=location, offset=offset)


def _check_digest(found: str, blob: BlobMetadata, location: str) -> None:
    wanted = blob.properties.get(BLOB_CHECKSUM)
    if wanted is not None and wanted != found:
        reason = f"blob {blob.type!r} of {blob.length} bytes has xxh64 {found}, not {wanted!r}"
        raise CorruptFileError(reason, location=location, offset=blob.offset)


def _decompress(stored: memoryview, blob: BlobMetadata, location: str, limit: int) -> memoryview:
    def corrupt(reason: str) -> CorruptFileError:
        return CorruptFileError(f"zstd blob {blob.type!r}: {reason}", location=location, offset=blob.offset)

    try:
        size = zstandard.get_frame_parameters(stored).content_size
        if size == zstandard.CONTENTSIZE_UNKNOWN:
            raise corrupt("no content size")
        if size > limit:
            raise UnsupportedError(f"{location}: zstd blob {blob.type!r} of {size} bytes of content, limit {limit}")
        # No zstd block holds more than this, so a small frame cannot make us allocate for a large lie.
        if size > len(stored) // _ZSTD_BLOCK_STORED_BYTES * _ZSTD_BLOCK_CONTENT_BYTES:
            raise corrupt(f"{len(stored)} bytes can't hold {size} bytes of content")
        # decompress() also compares the content with the declared size.
        content = zstandard.ZstdDecompressor().decompress(stored, read_across_frames=False, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise corrupt(str(error)) from error
    return memoryview(content)


def _read_footer_bytes(reader: RangedReader, footer_size: int | None) -> memoryview:
    if footer_size is not None and not _FOOTER_FRAME_BYTES <= footer_size <= reader.size - len(MAGIC):
        raise CorruptFileError(
            f"a footer of {footer_size} bytes in a Puffin file of {reader.size} bytes", location=reader.location
        )
    tail_size = min(TAIL_BYTES, reader.size) if footer_size is None else footer_size
    tail = reader.read(reader.size - tail_size, tail_size)
    declared = _declared_footer_size(tail[-_FOOTER_END_BYTES:], reader)
    if footer_size not in (None, declared):
        raise CorruptFileError(
            f"the footer says that it has {declared} bytes, not {footer_size}",
            location=reader.location,
            offset=reader.size - _FOOTER_END_BYTES,
        )
    if declared <= tail_size:
        return tail[tail_size - declared :]
    rest = reader.read(reader.size - declared, declared - tail_size)
    return memoryview(b"".join((rest, tail)))


def _declared_footer_size(end: memoryview, reader: RangedReader) -> int:
    end_offset = reader.size - _FOOTER_END_BYTES
    _check_magic(end[8:], reader.location, end_offset + 8)
    payload_size = read_int32_le(end, location=reader.location, base_offset=end_offset)
    flags = int.from_bytes(end[4:8], "little")
    if flags & ~1:
        raise UnsupportedError(f"{reader.location}, byte {end_offset + 4}: unknown Puffin flags {flags:#010x}")
    if flags:
        raise UnsupportedError(f"{reader.location}: the Puffin footer is LZ4-compressed")
    if not 0 <= payload_size <= reader.size - len(MAGIC) - _FOOTER_FRAME_BYTES:
        raise CorruptFileError(
            f"a footer payload of {payload_size} bytes in a Puffin file of {reader.size} bytes",
            location=reader.location,
            offset=end_offset,
        )
    return payload_size + _FOOTER_FRAME_BYTES
