"""A stream over a file of a store: what is known to be wanted is fetched ahead, side by side."""

import io
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Final

from puffin_index.storage.caches import lasting_pool
from puffin_index.storage.ranged import HeldRange, HeldRanges, Span, near_spans

_GAP_BYTES: Final = 64 * 1024
_REQUEST_BYTES: Final = 8 << 20
_LATER_BYTES: Final = 16 << 20
_THREADS: Final = 64


class ObjectStream(io.RawIOBase):
    """A seekable stream over a file of known size in a store. Not safe to share between threads.

    `read` returns up to some bytes from an offset, or raises OSError; threads may share it.
    """

    def __init__(self, location: str, read: Callable[[int, int], memoryview], size: int) -> None:
        super().__init__()
        self._location, self._read = location, read
        self.size = size
        self._position = 0
        self._ahead = HeldRanges[Future[memoryview]]()

    def fetch(self, now: Sequence[Span], later: Iterable[Span] = ()) -> None:
        """Begin to read what is asked for next, near ranges in one request, and what fits into memory of the rest."""
        spans, left = near_spans(now, _GAP_BYTES, _REQUEST_BYTES), _LATER_BYTES
        for span in later:
            left -= span[1]
            if left < 0:
                break
            spans.append(span)
        kept: dict[int, HeldRange[Future[memoryview]]] = {}
        pool = lasting_pool(_THREADS, "puffin-index-ahead")
        for offset, length in spans:
            held = self._ahead.find(self._location, offset, length)
            if held is None:
                held = HeldRange(offset, length, pool.submit(self._read_span, offset, length))
            kept[held.offset] = held
        self._ahead = HeldRanges((self._location, held) for held in kept.values())

    def _read_span(self, offset: int, length: int) -> memoryview:
        data = self._read(offset, length)
        if len(data) != length:
            raise OSError(f"{self._location} ends early: {len(data)} of {length} bytes from {offset} read")
        return data

    def read_at(self, nbytes: int, offset: int) -> memoryview:
        """Return up to so many bytes from an offset, without what was fetched. Safe to share between threads."""
        return self._read(offset, nbytes)

    def read(self, size: int | None = -1, /) -> bytes | memoryview:
        """Return bytes from the current position on."""
        left = max(0, self.size - self._position)
        length = left if size is None or size < 0 else min(size, left)
        offset = self._position
        held = self._ahead.find(self._location, offset, length)
        if held is None:
            data = self._read_span(offset, length)
        else:
            data = held.data.result()[offset - held.offset : offset - held.offset + length]
        self._position += length
        return data

    def close(self) -> None:
        """Let go of what was fetched.

        The stream holds a failed request, the request its traceback, and the traceback Arrow's reader. That holds the
        stream where Python's garbage collection does not look, so that all of them would stay.
        """
        self._ahead = HeldRanges()
        super().close()

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move the current position; return the new one."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readable(self) -> bool:
        """Whether the stream can be read: always."""
        return True

    def seekable(self) -> bool:
        """Whether the position can be moved: always."""
        return True
