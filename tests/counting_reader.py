"""A ranged reader that remembers what it is asked for."""

from dataclasses import dataclass, field

from puffin_index.storage.ranged import BytesReader


@dataclass
class CountingReader:
    """Bytes in memory, and start and length of every range that was read."""

    data: bytes | bytearray | memoryview
    location: str = "counted"
    reads: list[tuple[int, int]] = field(default_factory=list)

    @property
    def size(self) -> int:
        return len(self.data)

    @property
    def requests(self) -> int:
        return len(self.reads)

    @property
    def bytes_read(self) -> int:
        return sum(length for _, length in self.reads)

    def read(self, offset: int, length: int) -> memoryview:
        self.reads.append((offset, length))
        return BytesReader.of(self.data, self.location).read(offset, length)

    def taken(self) -> tuple[int, int]:
        """How many requests and bytes were read since this was asked last."""
        taken = self.requests, self.bytes_read
        self.reads.clear()
        return taken
