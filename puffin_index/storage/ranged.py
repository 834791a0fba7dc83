"""Byte ranges of files: the only seam between formats and storage; near ranges share a request.

Formats never open files. Callers pass a `RangedReader`, so that the same code reads a local file, an object store or
bytes in memory, and a test can count the reads.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from puffin_index.storage.binary import Buffer, check_inside


class RangedReader(Protocol):
    """A file of known size, readable by ranges of bytes."""

    @property
    def location(self) -> str:
        """The file's location, for error messages."""

    @property
    def size(self) -> int:
        """The file's size in bytes."""

    def read(self, offset: int, length: int) -> memoryview:
        """Return exactly `length` bytes from `offset`, or raise CorruptFileError if the file does not have them."""


@dataclass(frozen=True, slots=True)
class BytesReader:
    """A `RangedReader` over bytes in memory: a file, or a part of one from `start`, addressed by the file's offsets."""

    data: memoryview
    location: str = "<bytes>"
    start: int = 0

    @classmethod
    def of(cls, data: Buffer, location: str = "<bytes>") -> BytesReader:
        """Wrap bytes without a copy."""
        return cls(memoryview(data).cast("B"), location)

    @property
    def size(self) -> int:
        """The end of the bytes in the file."""
        return self.start + len(self.data)

    def read(self, offset: int, length: int) -> memoryview:
        """Return exactly `length` bytes from `offset`, without a copy."""
        begin = offset - self.start
        check_inside("range", len(self.data), begin, length, self.location, self.start)
        return self.data[begin : begin + length]


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
        check_inside("part of a blob", self.length, offset, length, self.location, self.offset)
        return self.reader.read(self.offset + offset, length)

    def read_all(self) -> memoryview:
        """Return the whole blob."""
        return self.read(0, self.length)


GAP_BYTES: Final = 16 * 1024
"""Reading this many useless bytes costs less than another request."""

Span: TypeAlias = tuple[int, int]
"""Offset and length."""

Data = TypeVar("Data")
Result = TypeVar("Result")

Wanted: TypeAlias = Sequence[tuple[Blob, Span]]
"""Ranges of blobs that are to be read together."""

Reading: TypeAlias = Generator[Wanted, Sequence[memoryview], Result]
"""Work that yields the ranges that it needs next, and gets their bytes: `return` gives the result."""


def at_once(result: Result) -> Reading[Result]:
    """Do the work that has nothing to read."""
    yield from ()
    return result


def answered(reading: Reading[Result], wanted: Wanted, contents: Sequence[memoryview] | None = None) -> Wanted:
    """Give some work what it wanted, read now by a request for each range if need be; return what it wants next."""
    try:
        contents = [blob.read(*span) for blob, span in wanted] if contents is None else contents
    except Exception as error:  # noqa: BLE001 - the work itself says what that means
        return reading.throw(error)
    return reading.send(contents)


def run(reading: Reading[Result]) -> Result:
    """Do some work by itself."""
    try:
        wanted = next(reading)
        while True:
            wanted = answered(reading, wanted)
    except StopIteration as end:
        result: Result = end.value
        return result


def near_spans(spans: Iterable[Span], gap_bytes: int = GAP_BYTES, most_bytes: int | None = None) -> list[Span]:
    """Return the requests that read some ranges, by ascending offset, with at most `gap_bytes` useless between them.

    A request for several ranges has at most `most_bytes`, if given.
    """
    joined: list[Span] = []
    for offset, length in sorted(spans):
        if joined:
            start, held = joined[-1]
            end = max(start + held, offset + length)
            if offset <= start + held + gap_bytes and (most_bytes is None or end - start <= most_bytes):
                joined[-1] = start, end - start
                continue
        joined.append((offset, length))
    return joined


@dataclass(slots=True)
class HeldRange(Generic[Data]):
    """A range of a file that was read ahead, or what becomes its bytes."""

    offset: int
    length: int
    data: Data


class HeldRanges(Generic[Data]):
    """Ranges of files that were read ahead; none of a file overlaps another. Safe to share between threads."""

    def __init__(self, ranges: Iterable[tuple[str, HeldRange[Data]]] = ()) -> None:
        self._of_file: dict[str, list[HeldRange[Data]]] = {}
        for file, one in ranges:
            self._of_file.setdefault(file, []).append(one)
        for own in self._of_file.values():
            own.sort(key=lambda one: one.offset)

    def find(self, file: str, offset: int, length: int) -> HeldRange[Data] | None:
        """Return the range that has some bytes of a file; None if none has all of them."""
        own = self._of_file.get(file, [])
        at = bisect_right(own, offset, key=lambda one: one.offset) - 1
        if at < 0 or offset + length > own[at].offset + own[at].length:
            return None
        return own[at]
