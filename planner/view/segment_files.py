"""The files of segments: opened when they are read; those that were used last stay open."""

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cachetools import LRUCache
from pyiceberg.io import FileIO

from puffin_index.errors import READ_ERRORS
from puffin_index.storage.files import FileReader, ReadCount, most_open_files
from puffin_index.storage.objects import find_object, read_many
from puffin_index.storage.parallel import in_parallel
from puffin_index.storage.ranged import HeldRange, HeldRanges, Span, Wanted, near_spans

_MANY: Final = 16
"""Fewer ranges are read as fast by one thread each."""


class SegmentFiles:
    """Reads segments. Safe to share between threads."""

    def __init__(self, io: FileIO) -> None:
        self._io = io
        self._lock = threading.Lock()
        self._opened: LRUCache[tuple[int, str], FileReader] = LRUCache(most_open_files())

    def fetch(self, every: Sequence[Wanted], at_once: int, count: ReadCount) -> list[list[memoryview] | None]:
        """Get what several readings want side by side, near ranges as one request; None for those without luck."""
        of_file: dict[tuple[str, int], set[Span]] = {}
        for blob, (offset, length) in (one for wanted in every for one in wanted):
            if isinstance(blob.reader, SegmentReader) and 0 <= offset <= offset + length <= blob.length:
                place = blob.reader.location, blob.reader.size
                of_file.setdefault(place, set()).add((blob.offset + offset, length))
        requests = [(*file, *span) for file, spans in of_file.items() for span in near_spans(spans)]
        contents = zip(requests, self._read_all(requests, at_once), strict=True)
        read = [(request[0], HeldRange(*request[2:], data)) for request, data in contents if data is not None]
        for _, one in read:
            count.add(one.length)
        held = HeldRanges(read)
        return [_found(wanted, held) for wanted in every]

    def _read_all(self, requests: Sequence[tuple[str, int, int, int]], at_once: int) -> list[memoryview | None]:
        objects = [find_object(self._io, location) for location, *_ in requests]
        stored = [(one, *request[2:]) for one, request in zip(objects, requests, strict=True) if one is not None]
        if len(stored) < max(_MANY, len(requests)):
            return in_parallel(self._try_to_read, requests, at_once)
        return read_many(stored, at_once)

    def _try_to_read(self, request: tuple[str, int, int, int]) -> memoryview | None:
        try:
            return self.read(*request)
        except READ_ERRORS:
            return None

    def read(self, location: str, size: int, offset: int, length: int) -> memoryview:
        """Return exactly `length` bytes from `offset` of the segment at a location, which has `size` bytes."""
        # A process that was forked cannot use the connections of its parent.
        key = os.getpid(), location
        with self._lock:
            opened = self._opened.get(key)
        if opened is None:
            opened = FileReader(self._io, location, size)
            with self._lock:
                # A file that drops out of the cache is closed once its last reader has released it.
                self._opened[key] = opened
        return opened.read(offset, length)

    def close(self) -> None:
        """Release all files, without a lock: the garbage collector may call it in a thread that is reading."""
        self._opened = LRUCache(most_open_files())


def _found(wanted: Wanted, held: HeldRanges[memoryview]) -> list[memoryview] | None:
    """The bytes of some ranges; None if not all of them were read."""
    found: list[memoryview] = []
    for blob, (offset, length) in wanted:
        if not isinstance(blob.reader, SegmentReader):
            found.append(blob.read(offset, length))
            continue
        start = blob.offset + offset
        own = held.find(blob.location, start, length) if offset + length <= blob.length else None
        if own is None:
            return None
        found.append(own.data[start - own.offset : start - own.offset + length])
    return found


@dataclass(slots=True, eq=False)
class SegmentReader:
    """A reader of a segment that holds no file open itself; a later view puts its `files` here, for new credentials."""

    files: SegmentFiles
    location: str
    size: int

    def read(self, offset: int, length: int) -> memoryview:
        """Return exactly `length` bytes from `offset`."""
        return self.files.read(self.location, self.size, offset, length)
