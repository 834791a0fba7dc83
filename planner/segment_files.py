"""The files of segments: opened when they are read, and not too many of them at a time."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from cachetools import LRUCache
from pyiceberg.io import FileIO

from puffin_index.ranged import RangedReader
from puffin_index.storage import FileReader

_MOST_OPEN = 4096
_MOST_OPEN_UNKNOWN = 256


def most_open_files() -> int:
    """Return how many files to hold open: a quarter of what the system lets this process, which has others to open."""
    if sys.platform == "win32":
        return _MOST_OPEN_UNKNOWN
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST_OPEN if limit == resource.RLIM_INFINITY else max(1, min(limit // 4, _MOST_OPEN))


class SegmentFiles:
    """Read segments, of which those that were read last stay open. Safe to share between threads.

    Args:
        io: The FileIO of the index table.
        segments: Location and size of each.
    """

    def __init__(self, io: FileIO, segments: Sequence[tuple[str, int]]) -> None:
        self._io = io
        self._segments = segments
        self._lock = threading.Lock()
        self._opened: LRUCache[int, FileReader] = LRUCache(most_open_files())

    def reader(self, segment: int) -> RangedReader:
        """Return what reads a segment. It holds no file open, so it may be kept."""
        return _SegmentReader(self, segment, *self._segments[segment])

    def read(self, segment: int, offset: int, length: int) -> memoryview:
        """Return exactly `length` bytes of a segment from `offset`."""
        with self._lock:
            opened = self._opened.get(segment)
        if opened is None:
            opened = FileReader(self._io, *self._segments[segment])
            with self._lock:
                # What falls out is closed when the last thread that reads it lets go of it.
                self._opened[segment] = opened
        return opened.read(offset, length)


@dataclass(frozen=True, slots=True)
class _SegmentReader:
    files: SegmentFiles
    segment: int
    location: str
    size: int

    def read(self, offset: int, length: int) -> memoryview:
        return self.files.read(self.segment, offset, length)
