"""Follow a table: a loop that indexes each new snapshot, keeps the index small, and survives errors."""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_when_event_set, wait_exponential_jitter
from tenacity.nap import sleep_using_event

from puffin_index.index_table.open_catalog import PASSING_ERRORS
from puffin_index.index_table.status import WHOLE_TABLE, BuildScope, read_lag
from puffin_index.jobs.build_handle import BuildHandle
from puffin_index.jobs.build_job import BuildReport
from puffin_index.jobs.log_lines import log_line, reason_of
from puffin_index.storage.parallel import release_memory
from puffin_index.table_index import TableIndex

LONGEST_REST_INTERVALS = 8
"""While the table does not change, rests double up to this many intervals."""

MOST_TRIES = 4
"""A data file that could not be read is tried so often: a store may have been in trouble for a while."""

EXPIRE_EVERY_SECONDS = 120.0
"""The least time between two searches for unneeded files. Each search lists the index's directory."""

LONG_BUILD_SECONDS = 1.0
"""A build that takes longer goes on beside the next passes: new files do not wait for many rewritten ones."""

LARGE_FILE_BYTES = 16 * 1024 * 1024
"""Files from this size on are built apart from smaller ones: a commit just before a rewriting does not wait for it."""

_LONGEST_DELAY_SECONDS = 60.0
_POLL_SECONDS = 0.05

_log = logging.getLogger(__name__)

_State: TypeAlias = tuple[str, str, int | None, str]
"""Data table, index table, snapshot and definition: while these stay the same, a pass has nothing to do."""


@dataclass(slots=True)
class Watch:
    """Follows one table, with a rest between two looks, and compacts and expires when due, until it is stopped.

    The index is opened in each pass, so that a table dropped and made anew is followed. Upkeep, which is compaction and
    expiry, runs beside the next passes: no new file waits for it. An error of upkeep is raised by a later pass.
    """

    open_index: Callable[[], TableIndex]
    start: Callable[[TableIndex, BuildScope], BuildHandle]
    interval_seconds: float
    scope: BuildScope = field(default=WHOLE_TABLE, kw_only=True)
    on_report: Callable[[BuildReport], None] | None = field(default=None, kw_only=True)
    upkeep: bool = field(default=True, kw_only=True)
    _stopped: threading.Event = field(default_factory=threading.Event, init=False)
    _done: _State | None = field(default=None, init=False)
    _tried: _State | None = field(default=None, init=False)
    _tries: int = field(default=0, init=False)
    _given_up: frozenset[str] = field(default=frozenset(), init=False)
    _upkeep_thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "upkeep"), init=False)
    _running_upkeep: Future[None] | None = field(default=None, init=False)
    _expired_at: float = field(default_factory=time.monotonic, init=False)
    _compacted: int | None = field(default=None, init=False)
    _long_builds: dict[BuildHandle, frozenset[str]] = field(default_factory=dict, init=False)

    def stop(self) -> None:
        """End the loop; a running build is cancelled, and its finished segments are committed.

        Signal handlers must not call `stop`: it waits for a lock that the interrupted thread may hold.
        """
        self._stopped.set()

    def run(self) -> None:
        """Follow the table until `stop`."""
        rest = self.interval_seconds
        _log.info("%s", log_line("watch started", interval_seconds=self.interval_seconds))
        while not self._stopped.is_set():
            has_worked = self._pass_with_retries()
            # A table of 4 MB of columns left 20 MB more with Arrow's allocator, pass by pass, than it leaves like this.
            release_memory()
            longest = self.interval_seconds * LONGEST_REST_INTERVALS
            rest = self.interval_seconds if has_worked else min(2 * rest, longest)
            self._stopped.wait(rest)
        for handle in self._long_builds:
            _log.info("%s", log_line("stopping, a build is cancelled"))
            handle.cancel()
            handle.join()
        self._upkeep_thread.shutdown()
        if self._running_upkeep is not None and (error := self._running_upkeep.exception()) is not None:
            _log.warning("%s", log_line("stopped after an error of upkeep", error=reason_of(error)))
        _log.info("%s", log_line("watch stopped"))

    def _pass_with_retries(self) -> bool:
        """Make one pass, repeated with growing delays while it fails; return whether there was anything to do."""
        retrying = Retrying(
            retry=retry_if_exception_type(PASSING_ERRORS),
            wait=wait_exponential_jitter(max=_LONGEST_DELAY_SECONDS),
            stop=stop_when_event_set(self._stopped),
            sleep=sleep_using_event(self._stopped),
            before_sleep=_log_retry,
            retry_error_callback=_give_up,
        )
        return bool(retrying(self._pass))

    def _pass(self) -> bool:
        """Make one pass: index new data files, and start the upkeep of the index unless it runs."""
        index = self.open_index()
        has_worked = self._index_new_files(index)
        if self.upkeep and (self._running_upkeep is None or self._running_upkeep.done()):
            ended, self._running_upkeep = self._running_upkeep, None
            if ended is not None:
                ended.result()
            self._running_upkeep = self._upkeep_thread.submit(self._compact_and_expire, index)
        return has_worked

    def _index_new_files(self, index: TableIndex) -> bool:
        for ended in [handle for handle in self._long_builds if handle.status() != "running"]:
            del self._long_builds[ended]
            self._end(ended)
        snapshot = self.scope.find_snapshot(index.data_table)
        definition = "; ".join(repr(column) for column in index.columns)
        snapshot_id = snapshot.snapshot_id if snapshot else None
        data_table, index_table = (str(one.metadata.table_uuid) for one in (index.data_table, index.index_table))
        state = data_table, index_table, snapshot_id, definition
        if state == self._done or self._stopped.is_set():
            return False
        self._given_up = self._given_up if state == self._tried else frozenset()
        scope = replace(self.scope, without=self._given_up.union(*self._long_builds.values()))
        lag = read_lag(index.data_table, index.index_table, index.columns, scope)
        if not lag.files and self._long_builds:
            return True
        known = {"snapshots": lag.snapshots, "files": len(lag.files), "bytes": sum(lag.files.values())}
        _log.info("%s", log_line("lag", table=index.name, snapshot=snapshot_id, **known))
        large = frozenset(path for path, size in lag.files.items() if size >= LARGE_FILE_BYTES)
        small = frozenset(lag.files) - large
        if small and large and not self._long_builds:
            self._long_builds[self.start(index, replace(scope, without=scope.without | small))] = large
        scope = replace(scope, without=scope.without | (large if small else frozenset()))
        report = self._build(index, scope, small or large) if lag.files else None
        is_tried = self._is_tried(state, report)
        if is_tried and report is not None and report.files_left:
            # The files behind them come next.
            self._given_up, self._tries = self._given_up | {one.path for one in report.skipped}, 0
        if is_tried and not self._long_builds and (report is None or not report.files_left):
            self._done = state
        # Rests grow while nothing but the same unreadable files is left.
        return is_tried or report is None or report.files > 0

    def _is_tried(self, state: _State, report: BuildReport | None) -> bool:
        """Return whether another pass over a state would skip the same data files again, as far as one can know."""
        if report is None or not report.skipped:
            return True
        self._tries = self._tries + 1 if state == self._tried else 1
        self._tried = state
        return self._tries >= MOST_TRIES

    def _compact_and_expire(self, index: TableIndex) -> None:
        """Compact if the index has changed and it is due, and expire if it is due."""
        snapshot_id = index.index_table.metadata.current_snapshot_id
        if snapshot_id != self._compacted and not self._stopped.is_set():
            compacted = index.compact_if_due()
            self._compacted = snapshot_id
            if compacted is not None:
                counts = {"segments_before": compacted.segments_before, "segments_after": compacted.segments_after}
                _log.info("%s", log_line("compacted", table=index.name, **counts, seconds=compacted.seconds))
        if time.monotonic() - self._expired_at > EXPIRE_EVERY_SECONDS and not self._stopped.is_set():
            report = index.expire(for_readers=True)
            self._expired_at = time.monotonic()
            _log.info("%s", log_line("expired", table=index.name, segments=report.segments, bytes=report.bytes))

    def _build(self, index: TableIndex, scope: BuildScope, files: frozenset[str]) -> BuildReport | None:
        """Build, and return the report; None if the build goes on beside the next passes, or until it is cancelled."""
        handle, long_from = self.start(index, scope), time.monotonic() + LONG_BUILD_SECONDS
        while handle.status() == "running":
            if self._stopped.wait(_POLL_SECONDS) or (not self._long_builds and time.monotonic() > long_from):
                self._long_builds[handle] = files
                return None
        return self._end(handle)

    def _end(self, handle: BuildHandle) -> BuildReport:
        """Tell the report of a build that has ended, or raise its error."""
        if handle.error is not None:
            raise handle.error
        report = handle.wait()
        if self.on_report is not None:
            self.on_report(report)
        return report


def _log_retry(state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    reason = "" if error is None else reason_of(error)
    delay = state.next_action.sleep if state.next_action else 0.0
    _log.warning("%s", log_line("pass failed", attempt=state.attempt_number, retry_in_seconds=delay, error=reason))


def _give_up(state: RetryCallState) -> bool:
    """Return False, like a pass with nothing to do: the loop was stopped while passes failed."""
    error = state.outcome.exception() if state.outcome else None
    _log.info("%s", log_line("stopped after an error", error=None if error is None else reason_of(error)))
    return False
