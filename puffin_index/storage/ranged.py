"""Byte ranges of files: the only seam between formats and storage.

Formats never open files. Callers pass a `RangedReader`, so that the same code reads a local file, an object store or
bytes in memory, and a test can count the reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from puffin_index.errors import CorruptFileError


class RangedReader(Protocol):
    """A file of known size, readable by ranges of bytes."""

    @property
    def location(self) -> str:
        """The file's location, for error messages."""

    @property
    def size(self) -> int:
        """The file's size in bytes."""

    def read(self, offset: int, length: int) -> memoryview:
        """Return exactly `length` bytes from `offset`.

        Raises:
            CorruptFileError: If the range does not lie inside the file.
        """


@dataclass(frozen=True, slots=True)
class BytesReader:
    """A `RangedReader` over bytes in memory."""

    data: memoryview
    location: str = "<bytes>"

    @classmethod
    def of(cls, data: bytes | bytearray | memoryview, location: str = "<bytes>") -> BytesReader:
        """Wrap bytes without a copy."""
        return cls(memoryview(data).cast("B"), location)

    @property
    def size(self) -> int:
        """The number of bytes."""
        return len(self.data)

    def read(self, offset: int, length: int) -> memoryview:
        """Return exactly `length` bytes from `offset`, without a copy."""
        check_range(self, offset, length)
        return self.data[offset : offset + length]


@dataclass(frozen=True, slots=True)
class Blob:
    """A range of a file that holds one blob; offsets in it are relative to the blob's start."""

    reader: RangedReader
    offset: int
    length: int

    @property
    def location(self) -> str:
        """The file's location, for error messages."""
        return self.reader.location

    @property
    def size(self) -> int:
        """The blob's size in bytes."""
        return self.length

    def read(self, offset: int, length: int) -> memoryview:
        """Return exactly `length` bytes from `offset` of the blob."""
        if offset < 0 or length < 0 or offset + length > self.length:
            raise CorruptFileError(
                f"bytes {offset}..{offset + length} do not lie in a blob of {self.length} bytes",
                location=self.location,
                offset=self.offset,
            )
        return self.reader.read(self.offset + offset, length)

    def read_all(self) -> memoryview:
        """Return the whole blob."""
        return self.read(0, self.length)


def check_range(reader: RangedReader, offset: int, length: int) -> None:
    """Raise `CorruptFileError` if the range does not lie inside the file."""
    if offset < 0 or length < 0 or offset + length > reader.size:
        raise CorruptFileError(
            f"bytes {offset}..{offset + length} do not lie in a file of {reader.size} bytes",
            location=reader.location,
            offset=max(0, min(offset, reader.size)),
        )
