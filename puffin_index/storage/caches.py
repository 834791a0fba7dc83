"""The caches that a whole process shares, and the one way to empty them. `docs/caches.md` lists them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

_caches: list[tuple[Callable[[], object], AbstractContextManager[object]]] = []


def cleared_by(clear: Callable[[], object], lock: AbstractContextManager[object] | None = None) -> None:
    """Register a cache where it is made.

    Args:
        clear: Empties the cache.
        lock: What has to be held meanwhile, if `clear` does not take it itself.
    """
    _caches.append((clear, nullcontext() if lock is None else lock))


def clear_caches() -> None:
    """Empty the caches of this process. Answers stay the same; whoever asks next reads again."""
    for clear, lock in _caches:
        with lock:
            clear()
