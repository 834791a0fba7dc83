"""Payloads opened from a reader that counts what it is asked for."""

import numpy as np

from puffin_index.keys.value_types import ValueType
from puffin_index.kinds.base import OpenIndex, Payload, StoredPayload
from puffin_index.kinds.registry import KINDS
from puffin_index.storage.ranged import Blob
from tests.counting_reader import CountingReader

# What lies before and after a blob in its file.
BEFORE, AFTER = b"before it", b"after it"


def blob_of(data: bytes | bytearray | memoryview) -> tuple[Blob, CountingReader]:
    """A blob somewhere in a file, and the file's reader."""
    reader = CountingReader(BEFORE + bytes(data) + AFTER, "s3://bucket/segment.puffin")
    return Blob(reader, len(BEFORE), len(data)), reader


def open_payload(
    kind: str, payload: Payload, value_type: ValueType, row_count: int
) -> tuple[OpenIndex, CountingReader]:
    blob, reader = blob_of(payload.data)
    spans = np.array([[0, row_count]], np.int64)
    return KINDS[kind].open(StoredPayload(blob, payload.blob_type, payload.layout, value_type, spans)), reader
