"""A stream over an object of a store: what is known to be wanted is fetched ahead, side by side."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Final, TypeAlias

from puffin_index.storage.objects import StoredObject

Span: TypeAlias = tuple[int, int]
"""Offset and length."""

_GAP_BYTES: Final = 64 * 1024
_REQUEST_BYTES: Final = 8 << 20
_LATER_BYTES: Final = 16 << 20

_TAIL_BYTES: Final = 64 * 1024
_THREADS: Final = 64


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="puffin-index-ahead")


class ObjectStream(io.RawIOBase):
    """A seekable stream over an object of known size. Not safe to share between threads.

    Args:
        stored: The object.
        size: Its size in bytes.
    """

    def __init__(self, stored: StoredObject, size: int) -> None:
        super().__init__()
        self.stored = stored
        self.size = size
        self._position = 0
        self._ahead: dict[int, tuple[int, Future[memoryview]]] = {}

    def fetch(self, now: Sequence[Span], later: Iterable[Span] = ()) -> None:
        """Begin to read what will be asked for; let go of all other ranges.

        Args:
            now: Ranges that are asked for next; near ones share a request.
            later: Ranges that are asked for afterwards, each by its own request; as many are read as fit into memory.
        """
        spans, left = _joined(now), _LATER_BYTES
        for span in later:
            left -= span[1]
            if left < 0:
                break
            spans.append(span)
        before, self._ahead = self._ahead, {}
        for offset, length in spans:
            kept = before.get(offset)
            if kept is None or kept[0] != length:
                kept = length, _pool().submit(self._read_span, offset, length)
            self._ahead[offset] = kept

    def _read_span(self, offset: int, length: int) -> memoryview:
        data = self.stored.read(offset, length)
        if len(data) != length:
            raise OSError(f"{self.stored.location} ends early: {len(data)} of {length} bytes from {offset} read")
        return data

    def fetch_tail(self) -> None:
        """Begin to read the end of the object, where most formats have their footer."""
        length = min(self.size, _TAIL_BYTES)
        self.fetch([(self.size - length, length)] if length else [])

    def read(self, size: int | None = -1, /) -> bytes | memoryview:
        """Return bytes from the current position on."""
        left = max(0, self.size - self._position)
        length = left if size is None or size < 0 else min(size, left)
        data = self._at(self._position, length)
        self._position += length
        return data

    def _at(self, offset: int, length: int) -> memoryview:
        starts = sorted(self._ahead)
        at = bisect_right(starts, offset) - 1
        if at >= 0:
            start = starts[at]
            held, future = self._ahead[start]
            if offset + length <= start + held:
                return future.result()[offset - start : offset - start + length]
        return self._read_span(offset, length)

    def close(self) -> None:
        """Let go of what was fetched.

        The stream holds a failed request, the request its traceback, and the traceback Arrow's reader. That holds the
        stream where Python's garbage collection does not look, so that all of them would stay.
        """
        self._ahead = {}
        super().close()

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move the current position; return the new one."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        """Return the current position."""
        return self._position

    def readable(self) -> bool:
        """Whether the stream can be read: always."""
        return True

    def seekable(self) -> bool:
        """Whether the position can be moved: always."""
        return True


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Join ranges with little between them, unless the request would become so large that two are faster."""
    joined: list[Span] = []
    for offset, length in sorted(spans):
        start, held = joined[-1] if joined else (offset, 0)
        end = max(start + held, offset + length)
        if joined and offset <= start + held + _GAP_BYTES and end - start <= _REQUEST_BYTES:
            joined[-1] = start, end - start
        else:
            joined.append((offset, length))
    return joined
