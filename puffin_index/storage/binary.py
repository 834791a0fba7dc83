"""Fixed-width numbers in bytes: named readers and writers, and a cursor, all checked against the end of the bytes.

`int` is signed (two's complement), `uint` unsigned, `float` IEEE 754; numbers are widths in bits; `_be` is big-endian,
`_le` little-endian. Error messages name `location` and count offsets from `base_offset`, the start of `data` in that
file.
"""

import struct
from dataclasses import dataclass
from typing import TypeAlias

from puffin_index.errors import CorruptFileError

Buffer: TypeAlias = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class IntFormat:
    """An integer of fixed width and byte order, named in error messages."""

    name: str
    layout: struct.Struct

    def read(self, data: Buffer, offset: int = 0, *, location: str = "<bytes>", base_offset: int = 0) -> int:
        """Return the integer at `offset`, or raise CorruptFileError if the integer does not lie inside `data`."""
        check_inside(self.name, len(data), offset, self.layout.size, location, base_offset)
        value: int = self.layout.unpack_from(data, offset)[0]
        return value

    def write(self, value: int) -> bytes:
        """Return the bytes of `value`, or raise OverflowError if the value does not fit."""
        try:
            return self.layout.pack(value)
        except struct.error as error:
            raise OverflowError(f"{value} does not fit {self.name}") from error


def check_inside(what: str, size: int, offset: int, length: int, location: str, base_offset: int) -> None:
    """Raise `CorruptFileError` unless `length` bytes from `offset` lie inside `size` bytes."""
    if offset < 0 or length < 0 or offset + length > size:
        raise CorruptFileError(
            f"{what} at {offset}..{offset + length} does not lie in {size} bytes",
            location=location,
            offset=base_offset + max(0, min(offset, size)),
        )


INT8 = IntFormat("int8", struct.Struct(">b"))
UINT8 = IntFormat("uint8", struct.Struct(">B"))
UINT16_BE = IntFormat("big-endian uint16", struct.Struct(">H"))
INT32_BE = IntFormat("big-endian int32", struct.Struct(">i"))
INT32_LE = IntFormat("little-endian int32", struct.Struct("<i"))
UINT32_BE = IntFormat("big-endian uint32", struct.Struct(">I"))
UINT32_LE = IntFormat("little-endian uint32", struct.Struct("<I"))
INT64_BE = IntFormat("big-endian int64", struct.Struct(">q"))
UINT64_LE = IntFormat("little-endian uint64", struct.Struct("<Q"))

read_uint8, write_uint8 = UINT8.read, UINT8.write
read_uint16_be, write_uint16_be = UINT16_BE.read, UINT16_BE.write
read_int32_be, write_int32_be = INT32_BE.read, INT32_BE.write
read_int32_le, write_int32_le = INT32_LE.read, INT32_LE.write
read_uint32_be, write_uint32_be = UINT32_BE.read, UINT32_BE.write
read_uint32_le, write_uint32_le = UINT32_LE.read, UINT32_LE.write
read_int64_be, write_int64_be = INT64_BE.read, INT64_BE.write
read_uint64_le, write_uint64_le = UINT64_LE.read, UINT64_LE.write
write_float64_be = struct.Struct(">d").pack


class ByteCursor:
    """Read bytes from front to back, never past their end.

    Each reading method raises `CorruptFileError`, without moving, if the bytes end too early.
    """

    __slots__ = ("_base_offset", "_data", "_location", "_position")

    def __init__(self, data: Buffer, location: str = "<bytes>", base_offset: int = 0) -> None:
        self._data = memoryview(data).cast("B")
        self._location = location
        self._base_offset = base_offset
        self._position = 0

    @property
    def position(self) -> int:
        """The number of bytes read."""
        return self._position

    @property
    def remaining(self) -> int:
        """The number of bytes left."""
        return len(self._data) - self._position

    def corrupt(self, reason: str) -> CorruptFileError:
        """Return an error that points at the next byte, to be raised by the caller."""
        return CorruptFileError(reason, location=self._location, offset=self._base_offset + self._position)

    def bytes(self, length: int, what: str = "byte string") -> memoryview:
        """Return the next `length` bytes, without a copy."""
        check_inside(what, len(self._data), self._position, length, self._location, self._base_offset)
        start = self._position
        self._position = start + length
        return self._data[start : self._position]

    def count(self, value: int, item_bytes: int, what: str = "items") -> int:
        """Return `value` if the bytes left have room for that many items of at least `item_bytes` each.

        Callers check a count this way before they allocate memory for the items.
        """
        if value < 0 or value * item_bytes > self.remaining:
            raise self.corrupt(f"{value} {what} of {item_bytes} bytes or more do not fit in {self.remaining} bytes")
        return value

    def expect_end(self) -> None:
        """Raise `CorruptFileError` if bytes are left."""
        if self.remaining:
            raise self.corrupt(f"{self.remaining} bytes too many")

    def _integer(self, format_: IntFormat) -> int:
        value = format_.read(self._data, self._position, location=self._location, base_offset=self._base_offset)
        self._position += format_.layout.size
        return value

    def int8(self) -> int:
        """Return the next int8."""
        return self._integer(INT8)

    def uint8(self) -> int:
        """Return the next uint8."""
        return self._integer(UINT8)

    def uint16_be(self) -> int:
        """Return the next big-endian uint16."""
        return self._integer(UINT16_BE)

    def int32_be(self) -> int:
        """Return the next big-endian int32."""
        return self._integer(INT32_BE)

    def uint32_be(self) -> int:
        """Return the next big-endian uint32."""
        return self._integer(UINT32_BE)

    def uint32_le(self) -> int:
        """Return the next little-endian uint32."""
        return self._integer(UINT32_LE)

    def int64_be(self) -> int:
        """Return the next big-endian int64."""
        return self._integer(INT64_BE)

    def uint64_le(self) -> int:
        """Return the next little-endian uint64."""
        return self._integer(UINT64_LE)
