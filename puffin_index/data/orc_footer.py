"""The places and rows of stripes, and the stored types, from an ORC footer that PyArrow has parsed before."""

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyarrow.orc import ORCFile
from pyiceberg.io import FileIO, InputStream

from puffin_index.errors import CorruptFileError, NotFoundError, UnsupportedError
from puffin_index.storage.object_stream import ObjectStream

_CHUNK_HEADER_BYTES = 3
# Field numbers of orc_proto.proto.
_STRIPES, _TYPES = 3, 4
_STRIPE_OFFSET, _STRIPE_ROWS = 1, 5
_TYPE_KIND, _TYPE_PRECISION, _TYPE_SCALE = 1, 5, 6
_KINDS = (
    *("BOOLEAN", "BYTE", "SHORT", "INT", "LONG", "FLOAT", "DOUBLE", "STRING", "BINARY", "TIMESTAMP"),
    *("LIST", "MAP", "STRUCT", "UNION", "DECIMAL", "DATE", "VARCHAR", "CHAR", "TIMESTAMP_INSTANT"),
)
_NESTED = ("LIST", "MAP", "STRUCT", "UNION")


@dataclass(frozen=True, slots=True)
class OrcFooter:
    """First byte and rows of each stripe, and the stored type of each leaf column of the schema, such as `ORC CHAR`."""

    offsets: tuple[int, ...]
    row_counts: tuple[int, ...]
    leaf_types: tuple[str, ...]


def read_footer(stream: ObjectStream | InputStream, orc: ORCFile) -> OrcFooter:
    """Read the footer of an ORC file opened by Arrow, or raise UnsupportedError if its compression is unknown."""
    # The last byte of the file is the length of the postscript.
    stream.seek(orc.file_length - 1 - orc.file_postscript_length - orc.file_footer_length)
    stored = bytes(stream.read(orc.file_footer_length))
    if orc.compression == "UNCOMPRESSED":
        footer = stored
    elif orc.compression in _DECOMPRESS:
        footer = b"".join(_chunks(stored, _DECOMPRESS[orc.compression]))
    else:
        raise UnsupportedError(f"an ORC footer compressed by {orc.compression} cannot be read")
    fields = [(number, dict(_fields(value))) for number, value in _fields(footer) if number in (_STRIPES, _TYPES)]
    stripes = [own for number, own in fields if number == _STRIPES and own]
    types = (_type_name(own) for number, own in fields if number == _TYPES)
    return OrcFooter(
        tuple(_number(stripe.get(_STRIPE_OFFSET)) for stripe in stripes),
        tuple(_number(stripe.get(_STRIPE_ROWS)) for stripe in stripes),
        tuple(f"ORC {name}" for name in types if name not in _NESTED),
    )


def _type_name(own: dict[int, bytes | int]) -> str:
    kind = _number(own.get(_TYPE_KIND))
    name = _KINDS[kind] if kind < len(_KINDS) else f"type {kind}"
    is_decimal = name == "DECIMAL"
    return f"{name}({_number(own.get(_TYPE_PRECISION))},{_number(own.get(_TYPE_SCALE))})" if is_decimal else name


def _chunks(stored: bytes, decompress: Callable[[bytes], bytes]) -> Iterator[bytes]:
    at = 0
    while at < len(stored):
        header = int.from_bytes(stored[at : at + _CHUNK_HEADER_BYTES], "little")
        at += _CHUNK_HEADER_BYTES
        chunk = stored[at : at + (header >> 1)]
        at += len(chunk)
        is_original = header & 1
        yield chunk if is_original else decompress(chunk)


def _inflate(chunk: bytes) -> bytes:
    return zlib.decompress(chunk, -zlib.MAX_WBITS)


def _decompress_zstd(chunk: bytes) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(chunk), "zstd") as stream:
        return bytes(stream.read())


def _decompress_snappy(chunk: bytes) -> bytes:
    size, _ = _varint(chunk, 0)
    return bytes(pa.decompress(chunk, size, "snappy", asbytes=True))


def _decompress_lz4(chunk: bytes) -> bytes:
    return bytes(pa.decompress(chunk, lz4_size(chunk), "lz4_raw", asbytes=True))


_DECOMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "ZLIB": _inflate,
    "SNAPPY": _decompress_snappy,
    "LZ4": _decompress_lz4,
    "ZSTD": _decompress_zstd,
}


def lz4_size(block: bytes) -> int:
    """Return the content size of an LZ4 block, computed from its tokens, as blocks do not state the size."""
    at = size = 0
    while at < len(block):
        token = block[at]
        literals, at = _lz4_length(block, at + 1, token >> 4)
        size, at = size + literals, at + literals
        if at < len(block):
            # The distance of a match takes two bytes; a match has at least four bytes.
            match, at = _lz4_length(block, at + 2, token & 15)
            size += match + 4
    return size


def _lz4_length(block: bytes, at: int, length: int) -> tuple[int, int]:
    if length == 15:
        while block[at] == 255:
            length, at = length + 255, at + 1
        length, at = length + block[at], at + 1
    return length, at


def _fields(message: bytes | int) -> Iterator[tuple[int, bytes | int]]:
    """Yield number and value of each field of a protobuf message, leaving out fields of fixed width."""
    assert isinstance(message, bytes)
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
        elif kind == 2:
            length, at = _varint(message, at)
            yield key >> 3, message[at : at + length]
            at += length
        else:
            at += 8 if kind == 1 else 4


def _number(value: bytes | int | None) -> int:
    # Protobuf leaves out numbers that are 0.
    return value if isinstance(value, int) else 0


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


@contextmanager
def open_orc(io: FileIO, location: str) -> Iterator[ORCFile]:
    """Open an ORC file, or raise NotFoundError.

    Raises CorruptFileError if the file is not an ORC file, or cannot be read in the block.
    """
    try:
        stream = io.new_input(location).open(seekable=True)
    except FileNotFoundError as error:
        raise NotFoundError(f"file not found: {location}") from error
    with stream:
        try:
            yield ORCFile(stream)
        except (pa.ArrowException, OSError) as error:
            raise CorruptFileError(f"it cannot be read as ORC: {error}", location=location) from error
