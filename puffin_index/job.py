"""The build job: finds what is missing, runs it on an engine, commits segments as they are finished."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from puffin_index.build import FileBatch, missing_batches
from puffin_index.data_table import constant_fields, list_data_files
from puffin_index.definition import ResolvedColumn
from puffin_index.engine import Engine
from puffin_index.entries import append_entries
from puffin_index.errors import BuildError
from puffin_index.index_table import entries_of, is_bound_to, read_entries, segment_location
from puffin_index.segment import Segment, SegmentTask, SkippedFile

COMMIT_INTERVAL_SECONDS = 5.0
"""Finished segments wait this long for others at most, so that a long build makes few commits but loses little."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BuildProgress:
    """How far a build is.

    Attributes:
        files_done: Data files indexed and committed.
        files_total: Data files that the build started with.
        rows_done: Rows of `files_done`.
        rows_total: Rows of `files_total`.
        segments: Segments committed.
        index_bytes: Their bytes.
    """

    files_done: int
    files_total: int
    rows_done: int
    rows_total: int
    segments: int = 0
    index_bytes: int = 0


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What a build did.

    Attributes:
        snapshot_id: The snapshot that it indexed; None for an empty table.
        files: Data files indexed.
        row_groups: Their row groups.
        rows: Their rows.
        segments: Segments committed.
        index_bytes: Their bytes.
        skipped: Data files that could not be indexed, and why.
        seconds: Wall time.
    """

    snapshot_id: int | None
    files: int
    row_groups: int
    rows: int
    segments: int
    index_bytes: int
    skipped: tuple[SkippedFile, ...]
    seconds: float


ProgressListener = Callable[[BuildProgress], None]


def build(
    data_table: Table,
    index_table: Table,
    columns: tuple[ResolvedColumn, ...],
    engine: Engine,
    listener: ProgressListener | None = None,
) -> BuildReport:
    """Index the data files of the table's current snapshot that the index table lacks.

    Every commit counts: a build that stops half-way is continued by the next one.

    Raises:
        BuildError: If a segment cannot be written or the data table was replaced meanwhile.
    """
    started = time.monotonic()
    snapshot = data_table.current_snapshot()
    live = list_data_files(data_table)
    batches = missing_batches(live, columns, read_entries(index_table), engine.parallelism)
    committer = _Committer(data_table, index_table, batches, listener)
    tasks = [_segment_task(batch, data_table, index_table) for batch in batches]
    try:
        for segment in engine.run(tasks) if tasks else ():
            committer.add(segment)
    finally:
        committer.flush()
    return BuildReport(
        snapshot_id=snapshot.snapshot_id if snapshot else None,
        files=committer.progress.files_done,
        row_groups=committer.row_groups,
        rows=committer.progress.rows_done,
        segments=committer.progress.segments,
        index_bytes=committer.progress.index_bytes,
        skipped=tuple(committer.skipped),
        seconds=time.monotonic() - started,
    )


def _segment_task(batch: FileBatch, data_table: Table, index_table: Table) -> SegmentTask:
    return SegmentTask(
        files=batch.files,
        columns=batch.columns,
        io=data_table.io,
        index_io=index_table.io,
        location=segment_location(index_table, uuid.uuid4().hex),
        name_mapping=data_table.name_mapping(),
        constant_fields=constant_fields(data_table),
    )


class _Committer:
    """Collects finished segments and adds them to the index table."""

    def __init__(
        self,
        data_table: Table,
        index_table: Table,
        batches: Sequence[FileBatch],
        listener: ProgressListener | None,
    ) -> None:
        self._data_table = data_table
        self._index_table = index_table
        self._listener = listener
        self._waiting: list[Segment] = []
        self._last_commit = time.monotonic()
        self.skipped: list[SkippedFile] = []
        self.row_groups = 0
        self.progress = BuildProgress(
            0, sum(len(batch.files) for batch in batches), 0, sum(batch.row_count for batch in batches)
        )
        self._tell()

    def add(self, segment: Segment) -> None:
        """Take a finished segment; commit if the last commit is a while ago."""
        self.skipped.extend(segment.skipped)
        if segment.covered:
            self._waiting.append(segment)
        if time.monotonic() - self._last_commit >= COMMIT_INTERVAL_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Commit what is waiting."""
        segments, self._waiting = self._waiting, []
        if segments:
            segments = self._still_live(segments)
            segments = self._append(segments)
        self._last_commit = time.monotonic()
        covered = [file for segment in segments for file in segment.covered]
        self.row_groups += sum(len(file.row_counts) for file in covered)
        self.progress = replace(
            self.progress,
            files_done=self.progress.files_done + len(covered),
            rows_done=self.progress.rows_done + sum(file.file.record_count for file in covered),
            segments=self.progress.segments + len(segments),
            index_bytes=self.progress.index_bytes + sum(segment.size for segment in segments),
        )
        if segments:
            self._tell()

    def _append(self, segments: list[Segment]) -> list[Segment]:
        """Add segments to the index table but for what another builder has added; delete those with nothing left."""
        if not segments:
            return []
        added = append_entries(self._index_table, entries_of(segments))
        pairs = set(zip(added["segment"].to_pylist(), added["data_file"].to_pylist(), strict=True))
        kept: list[Segment] = []
        for segment in segments:
            covered = tuple(file for file in segment.covered if (segment.location, file.file.path) in pairs)
            if covered:
                kept.append(replace(segment, covered=covered))
            else:
                _log.info("another builder was first: segment %s is not needed", segment.location)
                self._index_table.io.delete(segment.location)
        return kept

    def _still_live(self, segments: list[Segment]) -> list[Segment]:
        """Leave out files that the table has lost while they were indexed; delete segments with none left."""
        before = self._data_table.current_snapshot()
        try:
            self._data_table.refresh()
        except NoSuchTableError as error:
            raise BuildError("the data table was dropped while it was indexed") from error
        if not is_bound_to(self._index_table, str(self._data_table.metadata.table_uuid)):
            raise BuildError("the data table was dropped and created anew while it was indexed")
        if self._data_table.current_snapshot() == before:
            return segments
        live = {file.path for file in list_data_files(self._data_table)}
        kept: list[Segment] = []
        for segment in segments:
            covered = tuple(file for file in segment.covered if file.file.path in live)
            if covered:
                kept.append(replace(segment, covered=covered))
            else:
                _log.info("all data files of segment %s are gone meanwhile", segment.location)
                self._index_table.io.delete(segment.location)
        return kept

    def _tell(self) -> None:
        if self._listener is not None:
            self._listener(self.progress)


BuildState = Literal["running", "done", "failed", "cancelled"]


class BuildHandle:
    """A build that runs in the background of a Spark application.

    Args:
        run: Does the build; called in a thread of its own.
        cancel: Stops it.
    """

    def __init__(self, run: Callable[[ProgressListener], BuildReport], cancel: Callable[[], None]) -> None:
        self._cancel = cancel
        self._cancelled = False
        self._progress = BuildProgress(0, 0, 0, 0)
        self._report: BuildReport | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._main, args=(run,), name="puffin-index-build", daemon=True)
        self._thread.start()

    def _main(self, run: Callable[[ProgressListener], BuildReport]) -> None:
        try:
            self._report = run(self._listen)
        except BaseException as error:  # noqa: BLE001 - kept for the caller of `wait`
            self._error = error
            if not self._cancelled:
                _log.warning("the background build failed: %s", error)

    def _listen(self, progress: BuildProgress) -> None:
        self._progress = progress

    def status(self) -> BuildState:
        """Say how the build stands."""
        if self._thread.is_alive():
            return "running"
        if self._cancelled and self._report is None:
            return "cancelled"
        return "failed" if self._error is not None else "done"

    def progress(self) -> BuildProgress:
        """Say how far the build is."""
        return self._progress

    def wait(self, timeout_seconds: float | None = None) -> BuildReport:
        """Wait for the end.

        Raises:
            TimeoutError: If it is still running after that time.
            BuildError: If it failed or was cancelled; the cause is attached.
        """
        self._thread.join(timeout_seconds)
        if self._thread.is_alive():
            raise TimeoutError(f"the build is still running after {timeout_seconds} s")
        if self._report is None:
            reason = "was cancelled" if self._cancelled else f"failed: {self._error}"
            raise BuildError(f"the background build {reason}") from self._error
        return self._report

    def cancel(self) -> None:
        """Stop the build; what it has committed stays."""
        self._cancelled = True
        self._cancel()
