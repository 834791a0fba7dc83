"""Work that no query waits for: questions to a catalog, logs and audits."""

import atexit
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from puffin_index.index_table.open_catalog import PASSING_ERRORS
from puffin_index.jobs.log_lines import is_news, reason_of

_log = logging.getLogger(__name__)

Item = TypeVar("Item")

_DELAY_SECONDS = 0.05
_EXIT_SECONDS = 2.0
"""How long the end of the process waits for what is being done, in all."""


@dataclass(eq=False)
class BackgroundQueue(Generic[Item]):
    """Handles items in their order, in one thread that lives as long as there are items.

    An exception costs the items that came since the last call, and is logged once an hour. More than `most` waiting
    items are refused; the first waits `delay_seconds` for others. The end of the process waits a little if
    `is_finished_at_exit`.
    """

    handle: Callable[[list[Item]], object]
    what: str
    most: int
    delay_seconds: float = field(default=_DELAY_SECONDS, kw_only=True)
    is_finished_at_exit: bool = field(default=True, kw_only=True)
    _changed: threading.Condition = field(default_factory=threading.Condition, init=False)
    _items: deque[Item] = field(default_factory=deque, init=False)
    _is_running: bool = field(default=False, init=False)
    _hurry: threading.Event = field(default_factory=threading.Event, init=False)

    def __post_init__(self) -> None:
        if self.is_finished_at_exit:
            _to_finish.add(self)

    def put(self, item: Item) -> bool:
        """Have an item handled; False if too many are waiting."""
        with self._changed:
            if len(self._items) >= self.most:
                return False
            self._items.append(item)
            if self._is_running:
                return True
            self._is_running = True
        threading.Thread(target=self._run, name=f"puffin-index: {self.what}", daemon=True).start()
        return True

    def hurry(self) -> None:
        """Have all items handled without delay."""
        self._hurry.set()

    def wait(self, seconds: float) -> bool:
        """Have all items handled without delay, and wait for that; False if it takes longer."""
        self.hurry()
        with self._changed:
            is_done = self._changed.wait_for(lambda: not self._is_running, seconds)
        self._hurry.clear()
        return is_done

    def _run(self) -> None:
        while True:
            self._hurry.wait(self.delay_seconds)
            with self._changed:
                items = list(self._items)
                self._items.clear()
                if not items:
                    self._is_running = False
                    self._changed.notify_all()
                    return
            try:
                self.handle(items)
            except Exception as error:  # noqa: BLE001 - nobody waits for it, and no query depends on it
                if is_news(self.what):
                    trace, reason = None if isinstance(error, PASSING_ERRORS) else error, reason_of(error)
                    _log.warning("%s failed, which is said once an hour: %s", self.what, reason, exc_info=trace)


_to_finish: WeakSet[BackgroundQueue[Any]] = WeakSet()


@atexit.register
def _finish() -> None:
    end, queues = time.monotonic() + _EXIT_SECONDS, list(_to_finish)
    # One queue may take all the time.
    for queue in queues:
        queue.hurry()
    for queue in queues:
        queue.wait(max(0.0, end - time.monotonic()))
