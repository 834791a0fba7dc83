"""The places and rows of stripes, and the stored types, from an ORC footer that PyArrow has parsed before."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyarrow.orc import ORCFile
from pyiceberg.io import FileIO

from puffin_index.data.thrift_compact import CompactReader
from puffin_index.errors import CorruptFileError, NotFoundError

# Field numbers of orc_proto.proto.
_FOOTER = 2
_STRIPES, _TYPES = 3, 4
_STRIPE_OFFSET, _STRIPE_ROWS = 1, 5
_TYPE_KIND, _TYPE_PRECISION, _TYPE_SCALE = 1, 5, 6
_KINDS = (
    *("BOOLEAN", "BYTE", "SHORT", "INT", "LONG", "FLOAT", "DOUBLE", "STRING", "BINARY", "TIMESTAMP"),
    *("LIST", "MAP", "STRUCT", "UNION", "DECIMAL", "DATE", "VARCHAR", "CHAR", "TIMESTAMP_INSTANT"),
)
_NESTED = ("LIST", "MAP", "STRUCT", "UNION")


def read_footer(orc: ORCFile) -> tuple[tuple[int, ...], tuple[int, ...], tuple[str, ...]]:
    """Read the footer of an ORC file opened by Arrow, which keeps the tail of the file without its compression.

    Return first byte and rows of each stripe, and the stored type of each leaf of the schema, such as `ORC CHAR`.
    """
    footer = dict(_fields(orc.reader.serialized_file_tail()))[_FOOTER]
    fields = [(number, dict(_fields(value))) for number, value in _fields(footer) if number in (_STRIPES, _TYPES)]
    # Protobuf leaves out numbers that are 0.
    stripes = [own for number, own in fields if number == _STRIPES and own]
    types = (_type_name(own) for number, own in fields if number == _TYPES)
    return (
        tuple(stripe.get(_STRIPE_OFFSET, 0) for stripe in stripes),
        tuple(stripe.get(_STRIPE_ROWS, 0) for stripe in stripes),
        tuple(f"ORC {name}" for name in types if name not in _NESTED),
    )


def _type_name(own: dict[int, Any]) -> str:
    kind = own.get(_TYPE_KIND, 0)
    name = _KINDS[kind] if kind < len(_KINDS) else f"type {kind}"
    return f"{name}({own.get(_TYPE_PRECISION, 0)},{own.get(_TYPE_SCALE, 0)})" if name == "DECIMAL" else name


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield number and value (int or bytes) of each field of a protobuf message, but for fields of fixed width."""
    reader = CompactReader(message)
    while reader.at < len(message):
        key = reader.varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, reader.varint()
        elif kind == 2:
            length = reader.varint()
            yield key >> 3, message[reader.at : reader.at + length]
            reader.at += length
        else:
            reader.at += 8 if kind == 1 else 4


@contextmanager
def open_orc(io: FileIO, location: str) -> Iterator[ORCFile]:
    """Open an ORC file, or raise NotFoundError, or CorruptFileError if it cannot be read in the block."""
    try:
        stream = io.new_input(location).open(seekable=True)
    except FileNotFoundError as error:
        raise NotFoundError(f"file not found: {location}") from error
    with stream:
        try:
            yield ORCFile(stream)
        except (pa.ArrowException, OSError) as error:
            raise CorruptFileError(f"it cannot be read as ORC: {error}", location=location) from error
