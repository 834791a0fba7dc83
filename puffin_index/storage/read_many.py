"""Reading ranges of many objects at once: an event loop sends a request in half the processor time of a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from puffin_index.storage.objects import StoredObject

ObjectSpan: TypeAlias = tuple[StoredObject, int, int]
"""An object, an offset in it, and a length in bytes."""


def read_many(spans: Sequence[ObjectSpan], at_once: int) -> list[memoryview | None]:
    """Read ranges of objects; None where a range cannot be read, or the object ends before the range does.

    Args:
        spans: The ranges.
        at_once: How many requests may be under way at one time.
    """
    found: list[memoryview | None] = [None] * len(spans)
    # The caller's thread may have an event loop of its own, as notebooks do.
    with ThreadPoolExecutor(1, thread_name_prefix="puffin-index-many") as thread:
        try:
            running = thread.submit(lambda: asyncio.run(_read_many(spans, at_once, found)))
        except RuntimeError:
            # The system has no more threads for this process.
            return found
        running.result()
    return found


async def _read_many(spans: Sequence[ObjectSpan], at_once: int, found: list[memoryview | None]) -> None:
    async def read_in_turn(first: int) -> None:
        for number in range(first, len(spans), at_once):
            found[number] = await _read(*spans[number])

    await asyncio.gather(*(read_in_turn(first) for first in range(min(at_once, len(spans)))))


async def _read(stored: StoredObject, offset: int, length: int) -> memoryview | None:
    try:
        data = await stored.read_async(offset, length)
    except OSError:
        return None
    return data if len(data) == length else None
