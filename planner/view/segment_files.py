"""The files of segments: opened when they are read, and not too many of them at a time."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from cachetools import LRUCache
from pyiceberg.io import FileIO

from puffin_index.storage.files import FileReader, most_open_files


class SegmentFiles:
    """Read segments, of which those that were read last stay open. Safe to share between threads.

    Args:
        io: The FileIO of the index table.
    """

    def __init__(self, io: FileIO) -> None:
        self._io = io
        self._lock = threading.Lock()
        self._opened: LRUCache[str, FileReader] = LRUCache(most_open_files())

    def read(self, location: str, size: int, offset: int, length: int) -> memoryview:
        """Return exactly `length` bytes from `offset` of the segment at a location, which has `size` bytes."""
        with self._lock:
            opened = self._opened.get(location)
        if opened is None:
            opened = FileReader(self._io, location, size)
            with self._lock:
                # What falls out is closed when the last thread that reads it lets go of it.
                self._opened[location] = opened
        return opened.read(offset, length)

    def close(self) -> None:
        """Let go of all files; what is read after this is opened again.

        Waits for nobody: the garbage collector may call it in a thread that is in the midst of reading.
        """
        self._opened = LRUCache(most_open_files())


@dataclass(slots=True, eq=False)
class SegmentReader:
    """A `RangedReader` of one segment that holds no file open itself, so that it may be kept for long.

    Attributes:
        files: What it reads through; a later view puts its own here, which may have newer credentials.
        location: Where the segment is.
        size: Its size in bytes.
    """

    files: SegmentFiles
    location: str
    size: int

    def read(self, offset: int, length: int) -> memoryview:
        """Return exactly `length` bytes from `offset`."""
        return self.files.read(self.location, self.size, offset, length)
