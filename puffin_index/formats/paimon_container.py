"""Paimon's file index container: the indexes of many columns in one run of bytes, found through a head.

The format is in docs/payloads.md, Paimon's container. To Paimon's reader, an index without bytes means that no row
satisfies a test. Sources: seed 001, seed 004, and Paimon's `FileIndexFormat`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from puffin_index.errors import CorruptFileError, UnsupportedError
from puffin_index.storage.binary import ByteCursor, write_int32_be, write_int64_be, write_uint16_be
from puffin_index.storage.ranged import Blob, RangedReader

MAGIC = 1493475289347502
VERSION = 1
EMPTY_INDEX = -1
HEAD_READ_BYTES = 4 * 1024
_PREAMBLE_BYTES = 16
_MIN_HEAD_BYTES = _PREAMBLE_BYTES + 4 + 4
_MIN_COLUMN_BYTES = 2 + 4
_MIN_INDEX_BYTES = 2 + 4 + 4
_INT32_MAX = 2**31 - 1
_NAME_MAX_BYTES = 2**16 - 1


@dataclass(frozen=True, slots=True)
class Container:
    """The head of a container: column name -> index name -> the index, unread; None for an index without bytes."""

    indexes: Mapping[str, Mapping[str, Blob | None]] = field(hash=False)
    size: int
    head_size: int


def write_container(indexes: Mapping[str, Mapping[str, bytes | None]]) -> bytes:
    """Return the bytes that Paimon's writer gives for the same indexes in the same order, as `Container` has them.

    Raises UnsupportedError for a name of more than 65,535 bytes or a whole of 2 GiB, UnicodeEncodeError for a lone
    surrogate.
    """
    names = [[_name_bytes(name) for name in (column, *bodies)] for column, bodies in indexes.items()]
    head_size = _MIN_HEAD_BYTES + sum(
        4 + sum(map(len, column_names)) + 8 * (len(column_names) - 1) for column_names in names
    )
    head = [write_int64_be(MAGIC), *map(write_int32_be, (VERSION, head_size, len(indexes)))]
    bodies: list[bytes] = []
    end = head_size
    for (column_name, *index_names), column_bodies in zip(names, indexes.values(), strict=True):
        head += [column_name, write_int32_be(len(index_names))]
        for index_name, body in zip(index_names, column_bodies.values(), strict=True):
            start, length = (EMPTY_INDEX, 0) if body is None else (end, len(body))
            end += length
            if end > _INT32_MAX:
                raise UnsupportedError(
                    f"a file index container of {end} bytes or more: the format ends at {_INT32_MAX}"
                )
            head += [index_name, write_int32_be(start), write_int32_be(length)]
            bodies += [] if body is None else [body]
    return b"".join((*head, write_int32_be(0), *bodies))


def read_container(reader: RangedReader) -> Container:
    """Read and check the head of exactly a container, in one ranged read, or two if it is large. No index is read.

    Without a checksum, damage to names and indexes stays unnoticed. Damage to a number is noticed, as the bodies follow
    each other from the head to the end. Raises CorruptFileError, or UnsupportedError for another version.
    """
    head = _read_head(reader)
    cursor = ByteCursor(head[_PREAMBLE_BYTES:], reader.location, _PREAMBLE_BYTES)
    end = len(head)
    indexes: dict[str, dict[str, Blob | None]] = {}
    for _ in range(cursor.count(cursor.int32_be(), _MIN_COLUMN_BYTES, "columns")):
        column = _read_name(cursor, indexes)
        bodies: dict[str, Blob | None] = {}
        indexes[column] = bodies
        for _ in range(cursor.count(cursor.int32_be(), _MIN_INDEX_BYTES, "indexes")):
            name = _read_name(cursor, bodies)
            bodies[name] = _read_place(cursor, reader, end)
            end += 0 if (body := bodies[name]) is None else body.length
    cursor.bytes(cursor.int32_be(), "redundant bytes")
    cursor.expect_end()
    if end != reader.size:
        raise CorruptFileError(
            f"the last index ends at byte {end}, the container at {reader.size}", location=reader.location, offset=end
        )
    return Container(indexes, reader.size, len(head))


def map_key_column(column: str, key: str) -> str:
    """Return the name under which a container holds the index of one key of a map column (`column[key]`)."""
    return f"{column}[{key}]"


def encode_modified_utf8(text: str) -> bytes:
    """Return the bytes of a text in Java's modified UTF-8; raises UnicodeEncodeError for a lone surrogate."""
    # Each unit of UTF-16 is encoded as a character, so that a pair of surrogates becomes two.
    units = np.frombuffer(text.encode("utf-16-be"), ">u2").astype("<u4").tobytes().decode("utf-32-le", "surrogatepass")
    return units.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")


def decode_modified_utf8(data: bytes) -> str:
    """Return the text of bytes in Java's modified UTF-8, or raise UnicodeError unless they are its only spelling."""
    halves = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    text = halves.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
    if encode_modified_utf8(text) != data:
        raise UnicodeError("not the shortest spelling in modified UTF-8")
    return text


def _name_bytes(name: str) -> bytes:
    data = encode_modified_utf8(name)
    if len(data) > _NAME_MAX_BYTES:
        raise UnsupportedError(f"name {name[:40]!r}... takes {len(data)} bytes: the format ends at {_NAME_MAX_BYTES}")
    return write_uint16_be(len(data)) + data


def _read_head(reader: RangedReader) -> memoryview:
    head = reader.read(0, min(HEAD_READ_BYTES, reader.size))
    cursor = ByteCursor(head, reader.location)
    if cursor.int64_be() != MAGIC:
        raise CorruptFileError("not a file index container: wrong magic", location=reader.location)
    if (version := cursor.int32_be()) != VERSION:
        raise UnsupportedError(f"{reader.location}: file index container version {version}; known is {VERSION}")
    if not _MIN_HEAD_BYTES <= (head_size := cursor.int32_be()) <= reader.size:
        raise CorruptFileError(
            f"a head of {head_size} bytes in a container of {reader.size}", location=reader.location, offset=12
        )
    if head_size <= len(head):
        return head[:head_size]
    return memoryview(b"".join((head, reader.read(len(head), head_size - len(head)))))


def _read_name(cursor: ByteCursor, taken: Mapping[str, object]) -> str:
    data = bytes(cursor.bytes(cursor.uint16_be(), "name"))
    try:
        name = decode_modified_utf8(data)
    except UnicodeError as error:
        raise cursor.corrupt(f"name {data!r} is not in modified UTF-8: {error}") from error
    if name in taken:
        raise cursor.corrupt(f"name {name!r} occurs twice")
    return name


def _read_place(cursor: ByteCursor, reader: RangedReader, expected_start: int) -> Blob | None:
    start, length = cursor.int32_be(), cursor.int32_be()
    if (start, length) == (EMPTY_INDEX, 0):
        return None
    if start != expected_start or length < 0:
        raise cursor.corrupt(f"an index of {length} bytes at {start}, not at {expected_start}")
    return Blob(reader, start, length)
