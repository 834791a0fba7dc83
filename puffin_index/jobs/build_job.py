"""The build job: finds data files without indexes, runs their tasks on an engine, commits segments as they finish."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial

from pyiceberg.table import Table
from sqlalchemy.exc import DBAPIError

from puffin_index.data.column_source import reading_of
from puffin_index.data.data_table import DataFile, refresh_table
from puffin_index.definition.index_definition import ResolvedColumn
from puffin_index.display import Cell, Described, Report, format_bytes, share_of
from puffin_index.errors import BuildError, NotFoundError
from puffin_index.index_table import entries as index_rows
from puffin_index.index_table.commit import LOCK_SECONDS, is_locked, set_properties, while_locked
from puffin_index.index_table.entries import FileBatch, Missing, find_missing
from puffin_index.index_table.open_catalog import CATALOG_ERRORS
from puffin_index.index_table.status import WHOLE_TABLE, BuildScope
from puffin_index.index_table.table import entries_of, is_bound_to, read_entries, segments_folder
from puffin_index.jobs.engine import Engine
from puffin_index.jobs.job_segments import JobSegments
from puffin_index.jobs.log_lines import log_line, reason_of
from puffin_index.segments.segment import Segment, SegmentTask, SkippedFile

COMMIT_INTERVAL_SECONDS = 5.0
"""Finished segments wait at most this long for others: a long build makes few commits, yet a crash loses little."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BuildProgress(Described):
    """The progress of a build; a file is done when its index is committed."""

    files_done: int
    files_total: int
    rows_done: int
    rows_total: int
    segments: int = 0
    index_bytes: int = 0
    bytes_done: int = 0
    bytes_total: int = 0

    def __str__(self) -> str:
        rows = f"{self.rows_done:,} of {self.rows_total:,} rows"
        return f"{self.files_done} of {self.files_total} files, {rows}, {format_bytes(self.index_bytes)} of index"

    def describe(self) -> Report:
        """Describe the progress."""
        read = f"{format_bytes(self.bytes_done)} of {format_bytes(self.bytes_total)}, {self}"
        return Report("indexing", {"done": share_of(self.bytes_done, self.bytes_total, read)})


@dataclass(frozen=True, slots=True)
class BuildReport(Described):
    """The result of a build, with data files that could not be indexed, or are left by a limit, and warnings."""

    snapshot_id: int | None
    files: int
    row_groups: int
    rows: int
    segments: int
    index_bytes: int
    skipped: tuple[SkippedFile, ...]
    seconds: float
    files_left: int = 0
    warnings: tuple[str, ...] = ()

    def describe(self) -> Report:
        """Describe the build."""
        numbers: dict[str, Cell] = {
            "data files": self.files,
            "row groups": self.row_groups,
            "rows": self.rows,
            "segments": self.segments,
            "index": format_bytes(self.index_bytes),
            "seconds": f"{self.seconds:.1f}",
            "data files left": self.files_left or "",
        }
        skipped = [f"not indexed: {file.reason}" for file in self.skipped]
        return Report(f"index of snapshot {self.snapshot_id}", numbers, (), skipped, self.warnings)


ProgressListener = Callable[[BuildProgress], None]


def build(
    data_table: Table,
    index_table: Table,
    columns: tuple[ResolvedColumn, ...],
    engine: Engine,
    listener: ProgressListener | None = None,
    scope: BuildScope = WHOLE_TABLE,
    commit_timeout_seconds: float = LOCK_SECONDS,
) -> BuildReport:
    """Index the data files in a scope that the index table lacks.

    Every commit counts, and is told to the listener: the next build continues a build that stopped half-way. A commit
    waits some time for a catalog that another process has locked. Raises BuildError if a segment cannot be written or
    the data table was replaced meanwhile, NotFoundError if the table lacks the snapshot, branch or tag.
    """
    started = time.monotonic()
    set_properties(index_table, {}, commit_timeout_seconds)
    missing = find_missing(
        scope.list_data_files(data_table),
        columns,
        index_rows.readable_entries(read_entries(index_table), reading_of(data_table)),
        engine.parallelism,
        max_files=scope.max_files,
    )
    snapshot = scope.find_snapshot(data_table)
    about = {"table": ".".join(data_table.name()), "snapshot": snapshot.snapshot_id if snapshot else None}
    segments = JobSegments(index_table)
    committer = _Committer(data_table, index_table, missing, listener, segments, commit_timeout_seconds)
    batches, all_of = missing.batches, committer.progress()
    total = {"files": all_of.files_total, "rows": all_of.rows_total, "bytes": all_of.bytes_total}
    _log.info("%s", log_line("build started", **about, **total, segments=len(batches)))
    with segments:
        try:
            while batches:
                skipped = len(committer.skipped)
                task = partial(
                    SegmentTask,
                    io=data_table.io,
                    index_io=index_table.io,
                    folder=segments_folder(index_table),
                    reading=reading_of(data_table),
                    job_id=segments.job_id,
                )
                tasks = [task(batch.files, batch.columns) for batch in batches]
                with closing(engine.run(tasks)) as finished:
                    for segment in finished:
                        committer.add(segment)
                batches = _without_bad_columns(batches, committer.skipped[skipped:])
        finally:
            committer.commit()
    done = committer.progress()
    report = BuildReport(
        snapshot_id=snapshot.snapshot_id if snapshot else None,
        files=done.files_done,
        row_groups=sum(len(file.row_counts) for segment in committer.committed for file in segment.covered),
        rows=done.rows_done,
        segments=done.segments,
        index_bytes=done.index_bytes,
        skipped=_by_file(committer.skipped),
        seconds=time.monotonic() - started,
        files_left=missing.left,
    )
    made = {name: getattr(report, name) for name in ("files", "rows", "segments", "index_bytes")}
    open_ends = {"skipped": len(report.skipped), "files_left": report.files_left, "snapshot": report.snapshot_id}
    _log.info("%s", log_line("build finished", table=about["table"], **made, **open_ends, seconds=report.seconds))
    return report


def _without_bad_columns(batches: Sequence[FileBatch], skipped: Sequence[SkippedFile]) -> tuple[FileBatch, ...]:
    """Batch the data files that were skipped for some columns, with the others: a bad column costs only its indexes."""
    others = {file.path: file.others for file in skipped if file.others}
    by_columns: dict[tuple[ResolvedColumn, ...], list[DataFile]] = {}
    for batch in batches:
        for file in batch.files:
            if file.path in others:
                by_columns.setdefault(others[file.path], []).append(file)
    return tuple(FileBatch(tuple(files), columns) for columns, files in by_columns.items())


def _by_file(skipped: Sequence[SkippedFile]) -> tuple[SkippedFile, ...]:
    """Name each data file once, with the reasons of all rounds, and what the last round left."""
    files: dict[str, SkippedFile] = {}
    for one in skipped:
        before = files.get(one.path)
        files[one.path] = one if before is None else replace(one, reason=f"{before.reason}; {one.reason}")
    return tuple(files.values())


@dataclass(slots=True)
class _Committer:
    data_table: Table
    index_table: Table
    missing: Missing
    listener: ProgressListener | None
    segments: JobSegments
    lock_seconds: float
    skipped: list[SkippedFile] = field(default_factory=list)
    committed: list[Segment] = field(default_factory=list)
    _waiting: list[Segment] = field(default_factory=list)
    _last_commit: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.skipped += [
            SkippedFile(file.path, f"data file {file.path}: {file.format} files have no row groups")
            for file in self.missing.unsupported
        ]
        self._tell()

    def progress(self) -> BuildProgress:
        """Return the progress."""
        files = [file for batch in self.missing.batches for file in batch.files]
        covered = [file.file for segment in self.committed for file in segment.covered]
        return BuildProgress(
            files_done=len(covered),
            files_total=len(files),
            rows_done=sum(file.record_count for file in covered),
            rows_total=sum(file.record_count for file in files),
            segments=len(self.committed),
            index_bytes=sum(segment.size for segment in self.committed),
            bytes_done=sum(file.file_size for file in covered),
            bytes_total=sum(file.file_size for file in files),
        )

    def add(self, segment: Segment) -> None:
        """Take a finished segment; commit after `COMMIT_INTERVAL_SECONDS`, or later while the catalog stays locked."""
        self.skipped.extend(segment.skipped)
        if segment.covered:
            self._waiting.append(segment)
        if time.monotonic() - self._last_commit >= COMMIT_INTERVAL_SECONDS:
            try:
                self.commit()
            except DBAPIError as error:
                if not is_locked(error):
                    raise
                self._last_commit = time.monotonic()
                waiting, reason = len(self._waiting), reason_of(error)
                _log.warning("%s", log_line("finished segments wait for the catalog", segments=waiting, error=reason))

    def commit(self) -> None:
        """Commit the waiting segments, which go on waiting after an error of the catalog only."""
        started = time.monotonic()
        try:
            segments = self._append(self._waiting)
        except CATALOG_ERRORS:
            raise
        except BaseException:
            self._waiting = []
            raise
        self._waiting = []
        self._last_commit = time.monotonic()
        if segments:
            self.committed += segments
            now = self.progress()
            done = {"files": now.files_done, "of": now.files_total, "rows": now.rows_done}
            size, seconds = sum(segment.size for segment in segments), self._last_commit - started
            _log.info("%s", log_line("committed", segments=len(segments), index_bytes=size, seconds=seconds, **done))
            self._tell()

    def _append(self, segments: list[Segment]) -> list[Segment]:
        """Add segments to the index table, except files that another builder has added; delete segments left empty.

        Files that have left the current snapshot meanwhile are added: older snapshots may hold them.
        """
        if not segments:
            return []
        self._check_data_table()
        with self.segments.committing(segment.location for segment in segments):
            added = index_rows.append_entries(
                self.index_table, entries_of(segments), reading_of(self.data_table), self.lock_seconds
            )
        pairs = set(index_rows.entry_segments(added))
        kept: list[Segment] = []
        for segment in segments:
            covered = tuple(file for file in segment.covered if (file.file.identity, segment.location) in pairs)
            if covered:
                kept.append(replace(segment, covered=covered))
            else:
                _log.info("%s", log_line("segment given up, another builder was first", segment=segment.location))
                self.index_table.io.delete(segment.location)
        return kept

    def _check_data_table(self) -> None:
        try:
            while_locked(partial(refresh_table, self.data_table), self.lock_seconds)
        except NotFoundError as error:
            raise BuildError(f"while it was indexed, {error}") from error
        if not is_bound_to(self.index_table, str(self.data_table.metadata.table_uuid)):
            raise BuildError("the data table was dropped and created anew while it was indexed")

    def _tell(self) -> None:
        if self.listener is not None:
            self.listener(self.progress())
