"""The caches that a whole process shares, and the only way to empty them; `docs/caches.md` lists the caches."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

_caches: list[tuple[Callable[[], object], AbstractContextManager[object]]] = []


def cleared_by(clear: Callable[[], object], lock: AbstractContextManager[object] | None = None) -> None:
    """Register a cache where it is made, and the lock to hold while `clear` runs, if there is one."""
    _caches.append((clear, nullcontext() if lock is None else lock))


def clear_caches() -> None:
    """Empty the caches of this process. Answers stay the same; the next query reads again."""
    for clear, lock in _caches:
        with lock:
            clear()


def user_folder() -> Path:
    """Return the folder of what later processes of the user find; raises RuntimeError if the user has no home."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "puffin-index"
