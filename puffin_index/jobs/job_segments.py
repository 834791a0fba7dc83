"""The segments that one build or compaction writes; a failing job deletes its uncommitted segments.

A build that cannot commit finished segments, for example because the catalog stays locked, keeps them for the next
build, which takes them over (`puffin_index.catalogue.kept_segments`).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from types import TracebackType

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.table import Table
from requests.exceptions import RequestException
from sqlalchemy.exc import DBAPIError

from puffin_index.catalogue.commit import while_locked
from puffin_index.catalogue.entries import append_entries, needed_entries
from puffin_index.catalogue.index_table import entries_of, read_entries, refresh_index_table, segments_folder
from puffin_index.catalogue.kept_segments import KeptSegments, built_as, list_records, read_record, write_record
from puffin_index.catalogue.open_catalog import PASSING_ERRORS
from puffin_index.catalogue.stored_files import committed_segments, delete_files, list_stored_files
from puffin_index.data.column_source import reading_of
from puffin_index.definition.index_definition import ResolvedColumn
from puffin_index.errors import NotFoundError, PuffinIndexError
from puffin_index.jobs.log_lines import level_of_trouble, log_line, reason_of
from puffin_index.jobs.verification.segment import check_segment
from puffin_index.segments.segment import Segment, new_segment_location

_ID_DIGITS = 16
_log = logging.getLogger(__name__)


class JobSegments(AbstractContextManager["JobSegments"]):
    """The segments of one job, whose names begin with the id of the job.

    As a context manager, the object cleans up after a failing block: it deletes segments of the job that no entry
    names, also half-written segments of killed processes. Segments of a commit with unknown outcome stay, and so do
    segments that are kept for the next build.

    Args:
        index_table: The index table.

    Attributes:
        job_id: The first digits of the names.
    """

    def __init__(self, index_table: Table) -> None:
        self.job_id = uuid.uuid4().hex[:_ID_DIGITS]
        self._index_table = index_table
        self._in_doubt: set[str] = set()
        self._kept: set[str] = set()

    def new_location(self) -> str:
        """Return the location of a new segment."""
        return new_segment_location(segments_folder(self._index_table), self.job_id)

    @contextmanager
    def committing(self, locations: Iterable[str]) -> Iterator[None]:
        """Mark segments as being committed; they are kept unless the commit surely failed."""
        self._in_doubt.update(locations)
        try:
            yield
        except (CommitFailedException, ValidationException, PuffinIndexError, OSError, DBAPIError) as error:
            if _says_not_committed(error):
                self._in_doubt.clear()
            raise
        self._in_doubt.clear()

    def keep(self, segments: Sequence[Segment], columns: Iterable[ResolvedColumn]) -> None:
        """Keep finished segments for the next build, as the catalog does not take them.

        Args:
            segments: The segments.
            columns: The definition that the segments were built by.
        """
        kept = KeptSegments(str(self._index_table.metadata.table_uuid), entries_of(segments), built_as(columns))
        try:
            record = write_record(self._index_table, self.job_id, kept)
        except OSError as error:
            _log.warning("finished segments are lost: %s", reason_of(error))
            return
        self._kept = {record, *kept.segments}
        counts = {"segments": len(segments), "files": len(kept.entries)}
        _log.warning("%s", log_line("segments kept for the next build", **counts, record=record))

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if exc_type is None:
            return
        try:
            self._delete_uncommitted()
        except PASSING_ERRORS as error:
            _log.warning("segments of a failed job are left to `expire`: %s", reason_of(error))

    def _delete_uncommitted(self) -> None:
        listed = list_stored_files(self._index_table.io, segments_folder(self._index_table))
        own = [file for file in listed if file.name.startswith(self.job_id)]
        surplus = [file for file in own if file.location not in self._in_doubt | self._kept]
        # The catalog may not answer, so it is asked only if there is something to delete.
        committed = self._committed() if surplus else set()
        delete_files(self._index_table.io, [file for file in surplus if file.location not in committed])

    def _committed(self) -> set[str]:
        try:
            refresh_index_table(self._index_table)
        except NotFoundError:
            # The index was dropped meanwhile.
            return set()
        return set(read_entries(self._index_table)["segment"].to_pylist())


def _says_not_committed(error: Exception) -> bool:
    # All files are written before the catalog is asked, so an error of the file system precedes the commit. A database
    # that answers with an error has rolled back. A lost connection leaves the outcome open.
    return not isinstance(error, RequestException) and not getattr(error, "connection_invalidated", False)


def take_over_kept(
    data_table: Table, index_table: Table, columns: Iterable[ResolvedColumn], lock_seconds: float
) -> set[str]:
    """Commit the segments that earlier builds kept, as far as they still fit, and delete the records.

    A segment is taken over only if all its checksums are right and no commit ever named it; an index of a data file
    only if a snapshot still has that very file, scans still read the column from the source that was indexed, and the
    definition has the same type and options. `expire` deletes what is not taken over.

    Args:
        data_table: The data table, which is loaded anew if there are records.
        index_table: The index table, likewise.
        columns: The definition.
        lock_seconds: How long to wait while the catalog is locked.

    Returns:
        The locations of the segments taken over.

    Raises:
        NotFoundError: If the data table is gone or was replaced.
    """
    wanted, taken = built_as(columns), set[str]()
    for record in list_records(index_table):
        try:
            kept = read_record(index_table.io, record)
        except NotFoundError:
            continue  # another build has used the record up
        except (PuffinIndexError, OSError) as error:
            _log.log(level_of_trouble(record), "kept segments not taken over: %s", error)
            continue
        if kept.owner != str(index_table.metadata.table_uuid):
            continue
        entries = _sound_entries(index_table, kept.entries)
        same = {key for key, text in kept.built_as.items() if wanted.get(key) == text}
        fitting = while_locked(lambda: needed_entries(data_table, index_table, same, entries), lock_seconds)  # noqa: B023
        added = append_entries(index_table, fitting, reading_of(data_table), lock_seconds)
        taken |= set(added["segment"].to_pylist())
        counts = {"segments": len(set(added["segment"].to_pylist())), "files": len(added)}
        _log.info("%s", log_line("kept segments taken over", **counts, of_segments=len(kept.segments)))
        with suppress(FileNotFoundError):
            index_table.io.delete(record)
    return taken


def _sound_entries(index_table: Table, entries: pa.Table) -> pa.Table:
    """Leave out entries of segments that are damaged or gone, and of segments that a commit has named once."""
    committed = committed_segments(index_table)
    sound: list[str] = []
    for location in sorted(set(entries["segment"].to_pylist()) - committed):
        rows = entries.filter(pc.equal(entries["segment"], location)).to_pylist()
        findings, _, _ = check_segment(index_table.io, location, rows)
        for finding in findings[:1]:
            _log.warning("kept segment %s not taken over: %s", location, finding.what)
        sound += [] if findings else [location]
    return entries.filter(pc.is_in(entries["segment"], pa.array(sound, pa.string())))
