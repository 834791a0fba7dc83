"""A build in the background: how it stands, how it ends, how it is cancelled."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Literal

from puffin_index.display import Cell, Described, Report, format_bytes, share_of, show_live
from puffin_index.errors import BuildError
from puffin_index.jobs.build_job import BuildProgress, BuildReport, ProgressListener
from puffin_index.jobs.log_lines import reason_of

_log = logging.getLogger(__name__)

BuildState = Literal["running", "done", "failed", "cancelled"]


class BuildHandle(Described):
    """A build in the background: `run` builds in a thread of its own, `cancel` stops it."""

    def __init__(self, run: Callable[[ProgressListener], BuildReport], cancel: Callable[[], None]) -> None:
        self._cancel = cancel
        self._cancelled = False
        self._progress = BuildProgress(0, 0, 0, 0)
        self._report: BuildReport | None = None
        self._error: BaseException | None = None
        self._show: Callable[[object], None] = lambda _: None
        self._thread = threading.Thread(target=self._main, args=(run,), name="puffin-index-build", daemon=True)
        self._thread.start()

    def _main(self, run: Callable[[ProgressListener], BuildReport]) -> None:
        try:
            self._report = run(self._listen)
        except BaseException as error:  # noqa: BLE001 - kept for the caller of `wait`
            self._error = error
            if not self._cancelled:
                _log.warning("the background build failed: %s", reason_of(error))

    def _listen(self, progress: BuildProgress) -> None:
        self._progress = progress
        self._show(progress)

    def __repr__(self) -> str:
        return f"BuildHandle({self.status()}, {self._progress})"

    def describe(self) -> Report:
        """Describe the build as it is now."""
        now = self._progress
        numbers: dict[str, Cell] = {
            "files": share_of(now.files_done, now.files_total),
            "rows": share_of(now.rows_done, now.rows_total),
            "index": format_bytes(now.index_bytes),
            "error": "" if self._error is None else reason_of(self._error),
        }
        return Report(f"build: {self.status()}", numbers)

    def status(self) -> BuildState:
        """Return the state of the build."""
        if self._thread.is_alive():
            return "running"
        if self._cancelled and self._report is None:
            return "cancelled"
        return "failed" if self._error is not None else "done"

    @property
    def error(self) -> BaseException | None:
        """The error that ended the build; None while the build runs and after a success."""
        return self._error

    def progress(self) -> BuildProgress:
        """Return the progress of the build."""
        return self._progress

    def wait(self, timeout_seconds: float | None = None) -> BuildReport:
        """Wait for the end of the build; a notebook shows the progress meanwhile.

        Raises TimeoutError if it takes longer, BuildError with the cause if the build failed or was cancelled.
        """
        if self._thread.is_alive():
            self._show = show_live(self._progress)
        self._thread.join(timeout_seconds)
        if self._thread.is_alive():
            raise TimeoutError(f"the build is still running after {timeout_seconds} s")
        if self._report is None:
            said = "" if self._error is None else reason_of(self._error)
            reason = "was cancelled" if self._cancelled else f"failed: {said}"
            raise BuildError(f"the background build {reason}") from self._error
        return self._report

    def join(self) -> None:
        """Wait for the end of the build, successful or not."""
        self._thread.join()

    def cancel(self) -> None:
        """Stop the build; finished segments are committed and stay."""
        self._cancelled = True
        self._cancel()
