"""Thrift's compact protocol, as far as Parquet uses it: structs field by field, and raw values to copy.

A kept library would read Parquet's structs whole, by a schema of all of them. Here most fields are skipped or copied as
they are, so that a writer's newer fields survive.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from puffin_index.errors import CorruptFileError

TRUE: Final = 1
FALSE: Final = 2
BYTE: Final = 3
I32: Final = 5
I64: Final = 6
DOUBLE: Final = 7
BINARY: Final = 8
LIST: Final = 9
SET: Final = 10
STRUCT: Final = 12

INTEGERS: Final = frozenset({4, I32, I64})

_LONG_LIST = 15
_VARINT_BITS = 64
_VARINT_BYTES = 10
_DEPTH = 32
"""Parquet nests structs and lists less deep."""

RawFields: TypeAlias = dict[int, tuple[int, bytes]]
"""The fields of a struct by id: the type of each, and the bytes of its value."""


@contextmanager
def broken_means_corrupt(what: str, location: str, offset: int) -> Iterator[None]:
    """Turn what a `CompactReader` raises for a broken struct, at an offset of the file, into a `CorruptFileError`."""
    try:
        yield
    except (LookupError, ValueError, OverflowError) as error:
        raise CorruptFileError(f"{what} is no such struct: {error}", location=location, offset=offset) from error


@dataclass(slots=True)
class CompactReader:
    """Reads values from front to back; all methods raise what `broken_means_corrupt` catches."""

    data: bytes | memoryview
    at: int = 0

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield id and type of each field of a struct; the caller must read or skip each value."""
        number = 0
        while True:
            header = self.data[self.at]
            self.at += 1
            if not header:
                return
            number = number + (header >> 4) if header >> 4 else self.integer()
            yield number, header & 15

    def integer(self) -> int:
        """Read an integer of 16 to 64 bits."""
        value = self.varint()
        return value >> 1 ^ -(value & 1)

    def list_header(self) -> tuple[int, int]:
        """Read the header of a list; return the number of its elements and their type."""
        header = self.data[self.at]
        self.at += 1
        length = header >> 4
        return self.varint() if length == _LONG_LIST else length, header & 15

    def integers(self) -> dict[int, int]:
        """Read a struct; return its integers by field id, and skip its other fields."""
        numbers: dict[int, int] = {}
        for number, kind in self.fields():
            if kind in INTEGERS:
                numbers[number] = self.integer()
            else:
                self.skip(kind)
        return numbers

    def raw(self, kind: int) -> bytes:
        """Read a value; return its bytes."""
        begin = self.at
        self.skip(kind)
        if self.at > len(self.data):
            raise ValueError("it ends early")
        return bytes(self.data[begin : self.at])

    def raw_fields(self) -> RawFields:
        """Read a struct; return its fields as they are."""
        return {number: (kind, self.raw(kind)) for number, kind in self.fields()}

    def skip(self, kind: int, depth: int = 0) -> None:
        """Skip a value of a field."""
        if kind in INTEGERS:
            self.varint()
        elif kind == BINARY:
            # Reading the length moves the position, so `self.at += self.varint()` would add to the old position.
            length = self.varint()
            self.at += length
        elif depth > _DEPTH:
            raise ValueError("structs are nested too deep")
        elif kind == STRUCT:
            for _, inner in self.fields():
                self.skip(inner, depth + 1)
        elif kind in (LIST, SET):
            length, inner = self.list_header()
            for _ in range(length):
                # A boolean takes a byte in a list, but none in a struct, where the type holds its value.
                self.skip(BYTE if inner in (TRUE, FALSE) else inner, depth + 1)
                if self.at > len(self.data):
                    raise ValueError("it ends early")
        elif kind == BYTE:
            self.at += 1
        elif kind == DOUBLE:
            self.at += 8
        elif kind not in (TRUE, FALSE):
            raise ValueError(f"parquet.thrift has no type {kind}")

    def varint(self) -> int:
        """Read an unsigned integer of up to 64 bits, as Protobuf has them as well."""
        value = self.data[self.at]
        self.at += 1
        if value < 128:
            return value
        value &= 127
        for shift in range(7, _VARINT_BITS + 7, 7):
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise ValueError("an integer has more than 64 bits")


def varints_of(data: bytes | memoryview, count: int) -> npt.NDArray[np.uint64] | None:
    """Return the first unsigned integers of bytes that have integers only; None if there are fewer, or longer ones."""
    content = np.frombuffer(data, np.uint8)
    # Most integers have few bytes, so that the end of the last lies in this part.
    content = content[: _VARINT_BYTES * count]
    ends = np.flatnonzero(content < 128)[:count]
    if not count or len(ends) < count:
        return None
    starts = np.concatenate(([0], ends[:-1] + 1))
    longest = int((ends - starts).max()) + 1
    if longest >= _VARINT_BYTES:
        return None
    values = np.zeros(count, np.uint64)
    for byte in range(longest):
        here = np.minimum(starts + byte, ends)
        bits = (content[here] & np.uint8(127)).astype(np.uint64) << np.uint64(7 * byte)
        values |= np.where(starts + byte <= ends, bits, np.uint64(0))
    return values


def integer_bytes(value: int) -> bytes:
    """Return the bytes of an integer of 16 to 64 bits."""
    return _varint_bytes(value << 1 if value >= 0 else (-value << 1) - 1)


def struct_bytes(fields: Mapping[int, tuple[int, bytes]]) -> bytes:
    """Return the bytes of a struct of raw fields."""
    parts: list[bytes] = []
    before = 0
    for number, (kind, value) in sorted(fields.items()):
        distance = number - before
        parts.append(bytes([distance << 4 | kind]) if distance < 16 else bytes([kind]) + integer_bytes(number))
        parts.append(value)
        before = number
    return b"".join((*parts, b"\0"))


def list_bytes(kind: int, values: Sequence[bytes]) -> bytes:
    """Return the bytes of a list of raw values of a type."""
    length = len(values)
    header = bytes([length << 4 | kind]) if length < _LONG_LIST else bytes([0xF0 | kind]) + _varint_bytes(length)
    return b"".join((header, *values))


def _varint_bytes(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
