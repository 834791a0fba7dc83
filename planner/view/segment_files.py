"""The files of segments: opened when they are read; those that were used last stay open."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from cachetools import LRUCache
from pyiceberg.io import FileIO

from puffin_index.storage.files import FileReader, count_read, most_open_files
from puffin_index.storage.objects import find_object, read_many
from puffin_index.storage.parallel import in_parallel
from puffin_index.storage.ranged import HeldRange, HeldRanges, Span, UnreadError, near_spans

_MOST_HELD_BYTES: Final = 64 * 1024 * 1024
_MANY: Final = 16
"""Fewer ranges are read as fast by one thread each."""

SegmentSpan: TypeAlias = tuple[str, int, int]
"""The location of a segment, an offset in it, and a length in bytes."""

_HELD: ContextVar[HeldRanges[memoryview] | None] = ContextVar("_HELD", default=None)
"""What a plan has read ahead, shared by the threads that work for the plan."""

_TRIES: ContextVar[bool] = ContextVar("_TRIES", default=False)
"""Whether readers only say what they would read."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class SegmentFiles:
    """Reads segments, and counts requests for the plan that asks. Safe to share between threads."""

    def __init__(self, io: FileIO) -> None:
        self.read_ahead = self.read_in_vain = 0
        self._io = io
        self._lock = threading.Lock()
        self._opened: LRUCache[tuple[int, str], FileReader] = LRUCache(most_open_files())

    def each_ahead(self, read: Callable[[Item], Result], items: Sequence[Item], at_once: int) -> list[Result]:
        """Return the results of reading something for each item, in their order; what each reads first is read ahead.

        `read` is called twice for an item that reads anything: first to learn what it reads.
        """
        results: dict[int, Result] = {}
        unread: list[SegmentSpan] = []
        token = _TRIES.set(True)
        try:
            for place, item in enumerate(items):
                try:
                    results[place] = read(item)
                except UnreadError as error:
                    unread += error.spans
        finally:
            _TRIES.reset(token)
        left = [place for place in range(len(items)) if place not in results]
        with self.held(unread, at_once):
            results.update(zip(left, in_parallel(lambda place: read(items[place]), left, at_once), strict=True))
        return [results[place] for place in range(len(items))]

    @contextmanager
    def held(self, spans: Iterable[SegmentSpan], at_once: int) -> Iterator[None]:
        """Get ranges of segments side by side, near ones as one, and hold them in memory for readers of any part.

        Does nothing for few ranges. Ranges that cannot be read or do not fit into memory are read when they are needed.
        At most `at_once` requests are under way at one time.
        """
        wanted, left = list[SegmentSpan](), _MOST_HELD_BYTES
        for span in _near(spans):
            left -= span[2]
            if left < 0:
                break
            wanted.append(span)
        objects = [(find_object(self._io, location), offset, length) for location, offset, length in wanted]
        found = [(stored, offset, length) for stored, offset, length in objects if stored is not None]
        if len(found) < max(_MANY, len(objects)):
            yield
            return
        contents = zip(wanted, read_many(found, at_once), strict=True)
        ranges = [
            (location, HeldRange(offset, length, data))
            for (location, offset, length), data in contents
            if data is not None
        ]
        for _, held_range in ranges:
            count_read(held_range.length)
        held = HeldRanges(ranges)
        token = _HELD.set(held)
        try:
            yield
        finally:
            _HELD.reset(token)
            self.read_ahead += len(wanted)
            self.read_in_vain += held.unused

    def read(self, location: str, size: int, offset: int, length: int) -> memoryview:
        """Return exactly `length` bytes from `offset` of the segment at a location, which has `size` bytes."""
        held = _HELD.get()
        found = None if held is None else held.find(location, offset, length)
        if found is not None:
            return found.data[offset - found.offset : offset - found.offset + length]
        if _TRIES.get() and 0 <= offset <= offset + length <= size:
            raise UnreadError([(location, offset, length)])
        count_read(length)
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
        """Release all files; a later read opens its file again.

        Takes no lock: the garbage collector may call it in a thread that is reading.
        """
        self._opened = LRUCache(most_open_files())


def _near(spans: Iterable[SegmentSpan]) -> Iterator[SegmentSpan]:
    of_file: dict[str, list[Span]] = {}
    for location, offset, length in spans:
        of_file.setdefault(location, []).append((offset, length))
    return ((location, *span) for location, own in of_file.items() for span in near_spans(own))


@dataclass(slots=True, eq=False)
class SegmentReader:
    """A `RangedReader` of one segment that holds no file open itself, so that it may be kept for long.

    A later view puts its own `files` here, which may have newer credentials.
    """

    files: SegmentFiles
    location: str
    size: int

    def read(self, offset: int, length: int) -> memoryview:
        """Return exactly `length` bytes from `offset`."""
        return self.files.read(self.location, self.size, offset, length)
