"""Fixed-width numbers in bytes: named writers, and a cursor whose reads are all checked against the end of the bytes.

`int` is signed (two's complement), `uint` unsigned, `float` IEEE 754; numbers are widths in bits; `_be` is big-endian,
`_le` little-endian.
"""

from functools import partialmethod
from struct import Struct
from typing import TypeAlias

from puffin_index.errors import CorruptFileError

Buffer: TypeAlias = bytes | bytearray | memoryview

write_uint8 = Struct(">B").pack
write_uint16_be = Struct(">H").pack
write_int32_be = Struct(">i").pack
write_int32_le = Struct("<i").pack
write_uint32_be = Struct(">I").pack
write_uint32_le = Struct("<I").pack
write_int64_be = Struct(">q").pack
write_uint64_le = Struct("<Q").pack
write_float64_be = Struct(">d").pack


def check_inside(what: str, size: int, offset: int, length: int, location: str, base_offset: int = 0) -> None:
    """Raise `CorruptFileError`, at an offset of a file, unless a range lies inside `size` bytes from `base_offset`."""
    if offset < 0 or length < 0 or offset + length > size:
        raise CorruptFileError(
            f"{what} at {offset}..{offset + length} does not lie in {size} bytes",
            location=location,
            offset=base_offset + max(0, min(offset, size)),
        )


class ByteCursor:
    """Read bytes from front to back; all methods raise CorruptFileError, without moving, at their end.

    `position` is the number of bytes read.
    """

    __slots__ = ("_base_offset", "_data", "_location", "position")

    def __init__(self, data: Buffer, location: str = "<bytes>", base_offset: int = 0) -> None:
        self._data = memoryview(data).cast("B")
        self._location = location
        self._base_offset = base_offset
        self.position = 0

    @property
    def remaining(self) -> int:
        """The number of bytes left."""
        return len(self._data) - self.position

    def corrupt(self, reason: str) -> CorruptFileError:
        """Return an error that points at the next byte, to be raised by the caller."""
        return CorruptFileError(reason, location=self._location, offset=self._base_offset + self.position)

    def bytes(self, length: int, what: str = "byte string") -> memoryview:
        """Return the next `length` bytes, without a copy."""
        check_inside(what, len(self._data), self.position, length, self._location, self._base_offset)
        start = self.position
        self.position = start + length
        return self._data[start : self.position]

    def count(self, value: int, item_bytes: int, what: str = "items") -> int:
        """Return a count of items if the bytes left have room: to be checked before memory is allocated for them."""
        if value < 0 or value * item_bytes > self.remaining:
            raise self.corrupt(f"{value} {what} of {item_bytes} bytes or more do not fit in {self.remaining} bytes")
        return value

    def expect_end(self) -> None:
        """Raise `CorruptFileError` if bytes are left."""
        if self.remaining:
            raise self.corrupt(f"{self.remaining} bytes too many")

    def _next(self, layout: Struct, what: str) -> int:
        value: int = layout.unpack(self.bytes(layout.size, what))[0]
        return value

    int8 = partialmethod(_next, Struct(">b"), "int8")
    uint8 = partialmethod(_next, Struct(">B"), "uint8")
    uint16_be = partialmethod(_next, Struct(">H"), "big-endian uint16")
    int32_be = partialmethod(_next, Struct(">i"), "big-endian int32")
    int32_le = partialmethod(_next, Struct("<i"), "little-endian int32")
    uint32_be = partialmethod(_next, Struct(">I"), "big-endian uint32")
    uint32_le = partialmethod(_next, Struct("<I"), "little-endian uint32")
    int64_be = partialmethod(_next, Struct(">q"), "big-endian int64")
    uint64_le = partialmethod(_next, Struct("<Q"), "little-endian uint64")
