"""A ranged reader that counts what it is asked for."""

from dataclasses import dataclass, field

from puffin_index.keys.value_types import ValueType
from puffin_index.kinds.base import Payload, RowGroupIndex, StoredPayload
from puffin_index.kinds.registry import KINDS
from puffin_index.storage.ranged import Blob, BytesReader

# What lies before and after a blob in its file.
BEFORE, AFTER = b"before it", b"after it"


@dataclass
class CountingReader:
    """Bytes in memory, and the length of every range that was read."""

    inner: BytesReader
    lengths: list[int] = field(default_factory=list)

    @property
    def location(self) -> str:
        return self.inner.location

    @property
    def size(self) -> int:
        return self.inner.size

    @property
    def requests(self) -> int:
        return len(self.lengths)

    @property
    def bytes_read(self) -> int:
        return sum(self.lengths)

    def read(self, offset: int, length: int) -> memoryview:
        self.lengths.append(length)
        return self.inner.read(offset, length)


def blob_of(data: bytes | bytearray | memoryview) -> tuple[Blob, CountingReader]:
    """A blob somewhere in a file, and the file's reader."""
    reader = CountingReader(BytesReader.of(BEFORE + bytes(data) + AFTER, "s3://bucket/segment.puffin"))
    return Blob(reader, len(BEFORE), len(data)), reader


def open_payload(
    kind: str, payload: Payload, value_type: ValueType, row_count: int
) -> tuple[RowGroupIndex, CountingReader]:
    """A payload opened by its layout, and the file's reader."""
    blob, reader = blob_of(payload.data)
    return KINDS[kind].open(
        StoredPayload.of_row_group(blob, payload.blob_type, payload.layout, value_type, row_count)
    ), reader
