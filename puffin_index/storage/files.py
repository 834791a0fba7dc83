"""Ranged reads and writes through a table's FileIO: local paths, S3 and every other store of PyIceberg."""

import logging
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.io import FileIO, InputStream

from puffin_index.errors import CorruptFileError, NotFoundError
from puffin_index.storage.binary import check_inside
from puffin_index.storage.object_stream import ObjectStream
from puffin_index.storage.objects import find_object

_log = logging.getLogger(__name__)

_LOCAL = ("file:", "/")
_MOST_OPEN = 4096


def open_stream(io: FileIO, location: str, size: int | None = None) -> ObjectStream | InputStream:
    """Open a file to be read anywhere, or raise FileNotFoundError.

    With a known size, S3 is not asked for anything, not even whether there is such a file.
    """
    if size is not None and (stored := find_object(io, location)) is not None:
        return ObjectStream(location, stored.read, size)
    opened = io.new_input(location).open(seekable=True)
    if is_local(location) or not isinstance(opened, pa.NativeFile):
        return opened
    # The file is not closed, since ranges of it may still be read: Arrow closes a file that nobody holds.
    return ObjectStream(location, lambda offset, length: memoryview(opened.read_at(length, offset)), opened.size())


class StreamReader:
    """A `RangedReader` over a stream that the caller closes; if its size is not known, the stream is asked.

    Safe to share between threads, if nobody else reads from the stream.
    """

    def __init__(self, stream: ObjectStream | InputStream, location: str, size: int | None = None) -> None:
        self.location = location
        if size is None:
            position, size = stream.tell(), stream.seek(0, os.SEEK_END)
            stream.seek(position)
        self.size = size
        self._lock = threading.Lock()
        self._stream = stream

    def read(self, offset: int, length: int) -> memoryview:
        """Return exactly `length` bytes from `offset`."""
        check_inside("range", self.size, offset, length, self.location)
        try:
            # PyArrow's streams and ours read at a position without moving a cursor, so threads need no lock.
            if (read_at := getattr(self._stream, "read_at", None)) is not None:
                data = read_at(length, offset)
            else:
                with self._lock:
                    self._stream.seek(offset)
                    data = self._stream.read(length)
        except FileNotFoundError as error:
            raise NotFoundError(f"file not found: {self.location}") from error
        if len(data) != length:
            message = f"the file ends early: {len(data)} of {length} bytes read"
            raise CorruptFileError(message, location=self.location, offset=offset)
        return memoryview(data)


class FileReader(StreamReader, AbstractContextManager["FileReader"]):
    """A `RangedReader` over a file of a FileIO; a known size saves a request. Safe to share between threads."""

    def __init__(self, io: FileIO, location: str, size: int | None = None) -> None:
        try:
            super().__init__(open_stream(io, location, size), location, size)
        except FileNotFoundError as error:
            raise NotFoundError(f"file not found: {location}") from error

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(slots=True)
class ReadCount:
    """The number of requests and bytes read; what reads for one plan shares a count across threads."""

    requests: int = 0
    bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, length: int) -> None:
        """Count one request."""
        with self._lock:
            self.requests += 1
            self.bytes += length


class NewFile(AbstractContextManager["NewFile"]):
    """A new file, written from front to back; an unfinished file is deleted, so that a full disk does not stay full.

    Raises OSError with the file's name if it exists, or cannot be made, written or closed.
    """

    def __init__(self, io: FileIO, location: str) -> None:
        self._io = io
        self._location = location
        with self._in_context():
            self._stream = io.new_output(location).create(overwrite=False)

    def write(self, data: bytes, /) -> int:
        """Write bytes; return the number of bytes taken."""
        with self._in_context():
            return self._stream.write(data)

    def __exit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        with ExitStack() as unfinished:
            unfinished.callback(self._delete)
            if exc_type is None:
                # Closing writes the buffered bytes: a full disk may show only now.
                with self._in_context():
                    self._stream.close()
                unfinished.pop_all()
            else:
                with suppress(OSError, ValueError):
                    self._stream.close()

    @contextmanager
    def _in_context(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise in_context(error, f"{self._location} cannot be written") from error

    def _delete(self) -> None:
        try:
            self._io.delete(self._location)
        except FileNotFoundError:
            pass
        except OSError as error:
            _log.warning("an unfinished file is left to `expire`: %s", error)


def is_local(location: str) -> bool:
    """Return whether a location is on this machine."""
    return location.startswith(_LOCAL)


def most_open_files() -> int:
    """Return how many files to hold open: a quarter of what the system lets this process, which has others to open."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST_OPEN if limit == resource.RLIM_INFINITY else max(1, min(limit // 4, _MOST_OPEN))


def in_context(error: OSError, what: str) -> OSError:
    """Return an error of the system with more context in its text and the same number."""
    reason = error.strerror or str(error)
    return OSError(f"{what}: {reason}") if error.errno is None else OSError(error.errno, f"{what}: {reason}")
