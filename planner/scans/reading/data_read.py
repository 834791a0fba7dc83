"""How much of the data a scan read."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from puffin_index.display import format_bytes


@dataclass(slots=True)
class DataRead:
    """Pages and bytes of column chunks that were read, summed up over row groups and threads.

    Attributes:
        pages: Data pages of the column chunks that were read by pages.
        pages_read: Those of them that were read.
        chunks: Column chunks that were read whole.
        bytes: The bytes of all column chunks in question.
        bytes_read: The bytes of pages and whole chunks that were read.
    """

    pages: int = 0
    pages_read: int = 0
    chunks: int = 0
    bytes: int = 0
    bytes_read: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add_pages(self, read: int, pages: int, bytes_read: int, chunk_bytes: int) -> None:
        """Count a column chunk of which some pages were read."""
        with self._lock:
            self.pages_read += read
            self.pages += pages
            self.bytes_read += bytes_read
            self.bytes += chunk_bytes

    def add_chunk(self, chunk_bytes: int) -> None:
        """Count a column chunk that was read whole."""
        with self._lock:
            self.chunks += 1
            self.bytes_read += chunk_bytes
            self.bytes += chunk_bytes

    def __str__(self) -> str:
        of_bytes = f"{format_bytes(self.bytes_read)} of {format_bytes(self.bytes)}"
        return f"{self.pages_read:,} of {self.pages:,} pages and {self.chunks:,} whole column chunks, {of_bytes}"
